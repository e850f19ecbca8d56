"""`labkit roster`: who is in the class, whatever the systems call them."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from labkit.grading.book.commands import DEFAULT, Url
from labkit.grading.book.opening import opened_book

app = typer.Typer(
    no_args_is_help=True,
    help="Who is in the class: one identity per person, whatever each system calls them.",
    epilog="Example: labkit roster import class.csv",
)


@app.command("import", epilog="Example: labkit roster import class.csv")
def import_file(
    files: Annotated[
        list[Path],
        typer.Argument(
            help="Canvas's gradebook, Moodle's participants or grading worksheet, Gradescope's or GitHub Classroom's "
            "roster, or a CSV with Name (and Email, ID, Login, GitHub, Section, Team, Extra time)."
        ),
    ],
    groups_are_teams: Annotated[
        bool, typer.Option("--groups-are-teams", help="People of one Moodle group hand in together, and share marks.")
    ] = False,
    by_name: Annotated[
        bool,
        typer.Option(
            "--by-name", help="A name that roster and file have once each is one person, though the addresses differ."
        ),
    ] = False,
    book: Url = DEFAULT,
) -> None:
    """Add people from a file, or add to what is known of them; same address or number means same person."""
    from labkit.grading.book.roster_files import read_roster

    unclear = False
    with opened_book(book) as opened:
        for path in files:
            found = opened.import_roster(read_roster(path, groups_are_teams=groups_are_teams), by_name=by_name)
            typer.echo(f"{path}: {len(found.new)} new, {len(found.known)} known before")
            for words in found.shared:
                typer.echo(f"labkit: {words}", err=True)
            for words in found.unclear:
                typer.echo(f"labkit: {words}; left out", err=True)
            unclear = unclear or bool(found.unclear)
    if unclear:
        typer.echo(
            "labkit: an address or a number that both files have tells who is one person. Write a CSV with Name, Email "
            "and Login (or ID), a row for each of those left out; or, where each name is one person, give --by-name.",
            err=True,
        )
        raise typer.Exit(1)


@app.command("show", epilog="Example: labkit roster show")
def show(book: Url = DEFAULT) -> None:
    """List everybody."""
    with opened_book(book, new=False) as opened:
        people = opened.people()
    for person in sorted(people.values(), key=lambda each: each.name):
        extra = f"extra time {person.extra}" if person.extra else ""
        team = f"team {person.team}" if person.team else ""
        typer.echo("  ".join(each for each in (person.name, person.email, person.section, team, extra) if each))
    typer.echo(f"{len(people)} people")
