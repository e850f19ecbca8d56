"""The bank of bugs: small programs with one mistake each that people reported, and the same programs without it.

`bugs/NAME.py` is the wrong program, as its author would write it: plain torch, started by torchrun or
`labkit launch NAME.py --on virtual:4`. Its right twin has the same lines but two kinds:

    dist.all_reduce(p.grad)  # WRONG <- here         a line that only the wrong program has
    # RIGHT: dist.all_reduce(p.grad, op=AVG)         a line that only the twin has

`<- here` is the mistake's place: on a wrong line, or alone (`# <- here`) on a line that both have. `# <- seen` is a
line that uses the wrong value next: an optimizer's step, a loss. Lines keep their numbers. The docstring says in words
what is wrong, then what is looked up, a field a line:

    Source:    repository#number of a report, or the documentation or paper that says it
    Kind:      wrong, or slow
    Ranks:     the ranks on which it can be seen first: all, or numbers
    Step:      the first step in which it can be seen, from 0; -1 is before the first
    Tensor:    the tensor it can be seen in, or -
    Effect:    what a run shows (EFFECTS); a test holds it
    World:     how many ranks; with what labkit.virtual takes besides, such as `8 gpus_per_node=4`

`right/NAME.py` are programs that look wrong and are right; their docstring says why.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

HERE = Path(__file__).parent
EFFECTS = {
    "replicas": "the ranks print different weights, and the twin's print the same",
    "outcome": "some rank prints something else than the twin's",
    "resume": "`--steps 2`, then `--steps 4` ends elsewhere than `--steps 4` at once; the twin's do not",
    "late": "with one rank or two paused at calls or steps a run prints something else, or fails; the twin's never",
    "slower": "takes longer in virtual time than the twin",
    "memory": "needs more memory on some rank than the twin",
}
_FIELDS = ("Source", "Kind", "Ranks", "Step", "Tensor", "Effect", "World")
_SOURCE = re.compile(r"[\w.-]+/[\w.-]+#\d+|\w.*: .+")
_WRONG, _RIGHT = re.compile(r"# WRONG( <- here)?$"), re.compile(r"^(\s*)# RIGHT: ?(.*)$")


@dataclass(frozen=True)
class Program:
    """A program of the bank.

    Attributes:
        path: The file, runnable as it is.
        words: What is wrong with it; for right programs, why it is right.
        fields: The fields of its docstring.
        world: How many ranks it runs on.
        hardware: What labkit.virtual takes besides.
    """

    path: Path
    words: str
    fields: dict[str, str]
    world: int
    hardware: dict[str, int | str]

    @property
    def name(self) -> str:
        """The file's name without its ending."""
        return self.path.stem

    @property
    def places(self) -> list[int]:
        """The numbers of the lines marked `<- here`."""
        return [number for number, line in enumerate(self._lines(), 1) if line.endswith("<- here")]

    @property
    def seen(self) -> list[int]:
        """The numbers of the lines marked `<- seen`."""
        return [number for number, line in enumerate(self._lines(), 1) if line.endswith("<- seen")]

    @property
    def twin(self) -> str:
        """The source of the right twin: every line at its number."""
        return "\n".join("" if _WRONG.search(line) else _RIGHT.sub(r"\1\2", line) for line in self._lines()) + "\n"

    @property
    def num_changed(self) -> int:
        """How many lines differ between the program and its twin."""
        return sum(bool(_WRONG.search(line) or _RIGHT.search(line)) for line in self._lines())

    def _lines(self) -> list[str]:
        return self.path.read_text().splitlines()


def bugs() -> list[Program]:
    """Return the wrong programs, by name."""
    return [_read(path) for path in sorted((HERE / "bugs").glob("*.py"))]


def right() -> list[Program]:
    """Return the right programs that look wrong, by name."""
    return [_read(path) for path in sorted((HERE / "right").glob("*.py"))]


def _read(path: Path) -> Program:
    text = path.read_text().split('"""')[1]
    fields = dict(re.findall(r"^(\w+): *(.+)$", text, re.MULTILINE))
    required = _FIELDS if path.parent.name == "bugs" else ("World",)
    missing = [field for field in required if field not in fields]
    if missing or list(fields) != list(required):
        raise ValueError(f"{path}: the docstring has the fields {list(fields)}; it must have {list(required)}.")
    if path.parent.name == "bugs" and not _SOURCE.fullmatch(fields["Source"]):
        raise ValueError(
            f"{path}: Source: {fields['Source']} is neither repository#number nor `Author or page: title`."
        )
    world, *hardware = fields["World"].split()
    options = (option.split("=") for option in hardware)
    words = re.sub(r"^\w+: .*$", "", text, flags=re.MULTILINE).strip()
    return Program(path, words, fields, int(world), {k: int(v) if v.isdecimal() else v for k, v in options})
