"""What the syntax tree says of a lesson's code cells, without running them."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from labkit.lessons.manifest import Exercise
from labkit.lessons.prediction_cell import read_prediction

_NAMED = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)
_DEFINITIONS = (ast.Import, ast.ImportFrom, ast.Assign, ast.AnnAssign, *_NAMED)


class CodeError(ValueError):
    """A cell's code is not what its tag asks for. ``line`` counts within the cell, from 1."""

    def __init__(self, message: str, line: int) -> None:
        super().__init__(message)
        self.line = line


def parse(source: str, *, strict: bool) -> ast.Module | None:
    """Return the syntax tree of a cell; None if it holds IPython magics and strict is False.

    Raises:
        CodeError: If the code does not parse.
    """
    try:
        tree = compile(source, "cell", "exec", ast.PyCF_ONLY_AST | ast.PyCF_ALLOW_TOP_LEVEL_AWAIT, dont_inherit=True)
    except SyntaxError as error:
        magics = [line for line in source.split("\n") if line.lstrip().startswith(("%", "!", "?"))]
        if magics and not strict:
            return None
        cure = f"; `{magics[0].strip()}` works in a notebook only, give it a plain cell" if magics else ""
        raise CodeError(f"syntax error: {error.msg}{cure}.", error.lineno or 1) from error
    assert isinstance(tree, ast.Module)
    return tree


def body(source: str) -> list[ast.stmt]:
    """Return the top-level statements of a cell without magics."""
    tree = parse(source, strict=True)
    assert tree is not None
    return tree.body


def refuse_side_effects(source: str) -> None:
    """Accept a cell of imports, definitions and assignments only: the grader and `labkit export` run it alone.

    Raises:
        CodeError: At the first statement of another kind.
    """
    for statement in body(source):
        if isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Constant):
            continue
        if not isinstance(statement, _DEFINITIONS) and type(statement).__name__ != "TypeAlias":
            raise CodeError(
                f"`{_first_line(statement)}` in a cell of definitions (given, exercise or export); "
                "such cells hold imports, functions, classes and constants. Move it to a cell without that tag.",
                statement.lineno,
            )


def refuse_uncut(source: str, student_source: str, exercise: Exercise) -> None:
    """Accept an exercise's cell whose answers are all between markers.

    Raises:
        CodeError: If a provided name is not defined, a function keeps its answer, or the rest does not parse.
    """
    solved = {statement.name: statement for statement in body(source) if isinstance(statement, _NAMED)}
    for name in exercise.provides:
        if name not in solved:
            raise CodeError(
                f"exercise {exercise.id} provides {name!r}, but its cell defines {', '.join(solved) or 'nothing'}.", 1
            )
    try:
        left = {statement.name: statement for statement in body(student_source) if isinstance(statement, _NAMED)}
    except CodeError as error:
        raise CodeError(f"the cell does not parse once its answers are cut ({error}); move the markers.", 1) from error
    for name, statement in left.items():
        if not any(is_gap(node) for node in ast.walk(statement)):
            raise CodeError(
                f"the answer of {name} is outside the markers; enclose it in `# BEGIN SOLUTION {exercise.id}` "
                "and `# END SOLUTION`, or move what learners may read to a given cell.",
                solved[name].lineno,
            )
    if missing := [name for name in exercise.provides if name not in left]:
        raise CodeError(
            f"the markers cut {missing[0]} with its signature; put them inside the function.", solved[missing[0]].lineno
        )
    if not exercise.provides:
        raise CodeError(f"exercise {exercise.id} provides nothing; name the function it asks for.", 1)


def is_gap(node: ast.AST) -> bool:
    """Return True for ``raise NotImplementedError("Exercise ...")``, what a cut answer leaves."""
    return gap_message(node) is not None


def gap_message(node: ast.AST) -> str | None:
    """Return the message of a gap, such as "Exercise 2.3: Chunk bounds", or None for any other node."""
    if not (isinstance(node, ast.Raise) and isinstance(node.exc, ast.Call) and node.exc.args):
        return None
    function, argument = node.exc.func, node.exc.args[0]
    if isinstance(function, ast.Name) and function.id == "NotImplementedError" and isinstance(argument, ast.Constant):
        message = str(argument.value)
        return message if message.startswith("Exercise ") else None
    return None


def is_stub(source: str) -> bool:
    """Return whether an exercise's cell still raises what the student notebook raises in the answer's place.

    A cell that does not parse is one that somebody has begun.
    """
    try:
        return any(map(is_gap, ast.walk(ast.parse(source))))
    except SyntaxError:
        return False


def predicted_name(source: str) -> str:
    """Return the name a predict cell assigns, or the id it hands to ``labkit.predict``.

    Raises:
        CodeError: If the cell is not one such statement with literals.
    """
    statements = body(source)
    found = read_prediction(statements[0]) if len(statements) == 1 else None
    if found is None:
        raise CodeError(
            "a predict cell is one assignment of a literal, such as `guess_seconds = 0.5`, "
            'or one call with literals, such as `labkit.predict("step_ms", 0.27, unit="ms")`.',
            1,
        )
    return found.name


def checked_exercises(source: str) -> Iterator[str]:
    """Yield the exercise ids that a cell hands to ``labkit.check`` or ``labkit.challenge``."""
    for node in ast.walk(parse(source, strict=False) or ast.Module([], [])):
        if isinstance(node, ast.Call) and node.args and isinstance(node.args[0], ast.Constant):
            name = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", None)
            if name in ("check", "challenge") and isinstance(node.args[0].value, str):
                yield node.args[0].value


def judges(source: str) -> bool:
    """Return whether a cell asks labkit what an answer is worth."""
    calls = (
        node.func for node in ast.walk(parse(source, strict=False) or ast.Module([], [])) if isinstance(node, ast.Call)
    )
    names = {each.attr if isinstance(each, ast.Attribute) else getattr(each, "id", "") for each in calls}
    return bool(names & {"answer", "check", "challenge"})


def _first_line(statement: ast.stmt) -> str:
    return ast.unparse(statement).split("\n")[0][:60]
