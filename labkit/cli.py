"""The ``labkit`` command: its groups of commands, a short guide where none is named, errors in one form."""

from __future__ import annotations

import errno
import os
import sys
from collections.abc import Sequence
from functools import partial
from importlib import import_module
from importlib.util import find_spec
from typing import Annotated, Any, cast

import typer
from typer.core import TyperGroup

from labkit.commands import auditing, authoring, learning, mistakes, planning, teaching
from labkit.errors import LabkitError

_INTERRUPTED = 130
_FULL = (errno.ENOSPC, errno.EDQUOT)
_UsageError: Any = typer.BadParameter.__base__  # newer versions of typer bring a click of their own
_LEARN = """\
labkit: learn distributed training by building it

Learn
  labkit lab                      the lessons, in JupyterLab
  labkit doctor                   what this machine has, what is missing, and what that costs
  labkit reset ring_sum           one exercise as it was handed out; what you wrote is kept
Run your own program
  labkit launch train.py --on virtual:64 --gpu h100     64 accelerators you do not have
  labkit launch train.py --on local:4                   four processes of this machine
  labkit audit train.py --on virtual:8 --steps 4        what is wrong with its training, and where
  labkit plan --model llama3-70b --gpus 512             how to split its training step, and why
  labkit export 02                                      a lesson's program, for torchrun
"""
_TEACH = """\
Teach
  labkit release ../class         what students get: no answers, no hidden cases
  labkit board                    the room's progress, on one page
  labkit grade submissions/ --lesson 02 --out grades    feedback for each, a gradebook for all
  labkit gradebook --help         deadlines, adjustments, sheets for Canvas and Moodle
Write lessons
  labkit new-exercise 02 "Ring plan"
  labkit build                    notebooks and slides from their sources
"""
_MORE = "\nlabkit COMMAND --help explains a command, with an example; labkit --help lists them all."


class _Commands(TyperGroup):
    """Every error is one message, "labkit: ...", and exit code 2; ``--debug`` shows the traceback instead."""

    def invoke(self, ctx: Any) -> Any:
        """Return what the command returns."""
        try:
            return super().invoke(ctx)
        except LabkitError as error:
            if ctx.params.get("debug"):
                raise
            typer.echo(f"labkit: {error}", err=True)
            raise typer.Exit(2) from error
        except OSError as error:
            if ctx.params.get("debug") or (error.filename is None and error.errno not in _FULL):
                raise
            if error.errno in _FULL:  # whoever copies a file names the one it read
                words = "the disk is full, and not everything was written; free some space, or name a folder elsewhere"
            else:
                words = f"{error.filename} cannot be read or written ({error.strerror}); name another file or folder"
            typer.echo(f"labkit: {words}. `labkit --debug` before the command shows where it happened.", err=True)
            raise typer.Exit(2) from error

    def main(
        self,
        args: Sequence[str] | None = None,
        prog_name: str | None = None,
        complete_var: str | None = None,
        standalone_mode: bool = True,
        windows_expand_args: bool = True,
        **extra: Any,
    ) -> Any:
        """Run the command line and end the process with its exit code, or return it where not standalone."""
        extra["windows_expand_args"] = windows_expand_args
        run = partial(super().main, args, prog_name, complete_var, standalone_mode=False, **extra)
        if not standalone_mode:
            return run()
        try:
            code = run()
            if code == _INTERRUPTED:
                typer.echo("labkit: interrupted", err=True)
        except _UsageError as error:
            asked = error.ctx.command_path if error.ctx else self._named_in(sys.argv[1:] if args is None else args)
            typer.echo(
                f"labkit: {error.format_message()}\n`{asked} --help` shows how to call it, with an example.", err=True
            )
            code = error.exit_code
        except typer.Abort:
            typer.echo("labkit: interrupted", err=True)
            code = _INTERRUPTED
        raise SystemExit(code if isinstance(code, int) else 0)

    def _named_in(self, words: Sequence[str]) -> str:
        """Return the command that the words call, for errors of the parser, which does not say."""
        path, command = ["labkit"], cast(Any, self)
        for word in (word for word in words if not word.startswith("-")):
            command = getattr(command, "commands", {}).get(word)
            if command is None:
                break
            path.append(word)
        return " ".join(path)


app = typer.Typer(
    cls=_Commands,
    invoke_without_command=True,
    pretty_exceptions_enable=False,
    help="Learn distributed training by building it. Without a command: a short guide.",
    epilog="Example: labkit lab",
)


def _teaches() -> bool:
    """Return whether this copy has what teachers need; a student release has not."""
    return find_spec("labkit.grading") is not None


for _each in (learning, auditing, planning, teaching, authoring):
    for _command in _each.app.registered_commands:
        _command.hidden = (
            _each in (teaching, authoring) and not _teaches()
        )  # typed all the same, it says what it is part of
    app.add_typer(_each.app)
if _teaches():
    app.add_typer(mistakes.app, name="mistake", rich_help_panel="Teach")
    app.add_typer(import_module("labkit.grading.book.mark_commands").app, name="gradebook", rich_help_panel="Teach")
    app.add_typer(import_module("labkit.grading.book.roster_commands").app, name="roster", rich_help_panel="Teach")


def main() -> None:
    """Run the command line; the entry point that pip installs as ``labkit``."""
    if named := next((each for each in sys.argv[1:] if each.startswith("-") and os.path.lexists(each)), None):
        # `labkit grade *` where a submission is called --sandbox=none
        typer.echo(
            f"labkit: {named!r} is the name of a file here, and a shell that wrote it for * would have it taken for an "
            "option; write ./* in place of *, or rename it",
            err=True,
        )
        raise SystemExit(2)
    app(prog_name="labkit")


@app.callback()
def _guide(
    context: typer.Context,
    debug: Annotated[bool, typer.Option("--debug", help="Show the traceback of an error.")] = False,
) -> None:
    if context.invoked_subcommand is None:
        typer.echo(_LEARN + (_TEACH if _teaches() else "") + _MORE)
