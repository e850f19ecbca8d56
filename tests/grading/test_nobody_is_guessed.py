"""A roster never takes two people for one: placeholders are no numbers, a group no team, a name no address."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from pathlib import Path

import pytest
from typer.testing import CliRunner

from labkit.cli import app
from labkit.grading.book.gradebook import Gradebook
from labkit.grading.book.roster import Imported
from labkit.grading.book.roster_files import read_roster

NOBODYS = (
    "-", "N/A", "n/a", "#N/A", "NA", "0", "000", "0.0", "none", "None", "TBD", "null", "", "   ", "\u2013", "\u2014",
    "\u2212", "\u00ad", "--", "?", "(none)", "k.A.", "x",
)  # fmt: skip
FORMS = {
    "canvas": "Student,ID,SIS User ID,SIS Login ID,Section\n"
    '"Ruiz, Ana",501,{0},{0},A\n"Neil, Bo",502,{0},{0},A\n"Young, Cy",503,{0},{0},A\n',
    "moodle": "First name,Last name,ID number,Email address,Groups\n"
    "Ana,Ruiz,{0},ana@u.example,{0}\nBo,Neil,{0},bo@u.example,{0}\nCy,Young,{0},cy@u.example,{0}\n",
    "gradescope": "First Name,Last Name,SID,Email,Role,Submission ID\n"
    "Ana,Ruiz,{0},ana@u.example,Student,{0}\nBo,Neil,{0},bo@u.example,Student,{0}\nCy,Young,{0},{0},Student,{0}\n",
    "github": "identifier,github_username,github_id,name\n"
    "ana@u.example,{0},{0},Ana Ruiz\nbo@u.example,{0},{0},Bo Neil\n{0},cy,{0},Cy Young\n",
    "own": "Name,Email,ID,Login,GitHub,Team\nAna Ruiz,{0},{0},{0},{0},{0}\nBo Neil,{0},{0},{0},{0},{0}\n"
    "Cy Young,{0},{0},{0},{0},{0}\n",
}


@pytest.fixture
def book(tmp_path: Path) -> Iterator[Gradebook]:
    opened = Gradebook(f"sqlite:///{tmp_path / 'book.db'}")
    yield opened
    opened.close()


def add(book: Gradebook, path: Path, content: str, **how: bool) -> Imported:
    path.write_text(content, encoding="utf-8")
    return book.import_roster(read_roster(path), **how)


def test_a_cell_that_says_there_is_none_is_nobodys_number(tmp_path: Path) -> None:
    for (form, content), nothing in itertools.product(FORMS.items(), NOBODYS):
        with_it = tmp_path / "r.csv"
        with_it.write_text(content.format(f'"{nothing}"'), encoding="utf-8")
        entries = read_roster(with_it)
        assert [entry.name for entry in entries] == ["Ana Ruiz", "Bo Neil", "Cy Young"], (form, nothing)
        for one, other in itertools.combinations(entries, 2):
            assert not one.keys & other.keys and not one.team, (form, nothing, one.keys & other.keys)


@pytest.mark.in_turn
@pytest.mark.parametrize("form", FORMS)
def test_three_people_with_one_placeholder_are_three(book: Gradebook, tmp_path: Path, form: str) -> None:
    found = add(book, tmp_path / "r.csv", FORMS[form].format("N/A"))
    assert (len(found.new), found.known, found.unclear, found.shared) == (3, (), (), ())
    again = add(book, tmp_path / "r.csv", FORMS[form].format("–"))
    assert (again.new, len(again.known)) == ((), 3) and len(book.people()) == 3


def test_a_value_that_several_people_of_a_file_have_is_told_and_nobodys(book: Gradebook, tmp_path: Path) -> None:
    found = add(book, tmp_path / "r.csv", FORMS["moodle"].replace(",{0}\n", ",\n").format("to follow"))
    assert len(found.new) == 3 and not found.unclear
    (told,) = found.shared
    assert told == (
        "'to follow' stands beside Ana Ruiz (ana@u.example) and Bo Neil (bo@u.example) and Cy Young (cy@u.example), "
        "so it was taken as nobody's number or address"
    )


def test_people_whom_nothing_tells_apart_are_listed_and_left_out(book: Gradebook, tmp_path: Path) -> None:
    found = add(
        book, tmp_path / "r.csv", "Name,Email\nAna Ruiz,ana@u.example\nAnnie Ruiz,ana@u.example\nBo,b@u.example\n"
    )
    assert found.new == ("Bo",)
    assert found.unclear == ("'ana@u.example' stands beside Ana Ruiz and Annie Ruiz, who may be one person or several",)
    found = add(book, tmp_path / "r.csv", "Name,Email\nJan Schmidt,\nJan Schmidt,jan@u.example\n")
    assert found.new == () and found.unclear == (
        "2 rows are of a Jan Schmidt, and not all have an address or a number",
    )


def test_a_group_of_moodle_is_a_section_and_a_team_when_asked(book: Gradebook, tmp_path: Path) -> None:
    content = "First name,Last name,Email address,Groups\nAna,Ruiz,a@u.example,Tuesday\nBo,Neil,b@u.example,Tuesday\n"
    add(book, tmp_path / "r.csv", content)
    assert {(each.section, each.team) for each in book.people().values()} == {("Tuesday", "")}
    assert book.shared_by(["a@u.example"]) == {"a@u.example": ["Ana Ruiz"]}
    asked = CliRunner().invoke(
        app, ["roster", "import", str(tmp_path / "r.csv"), "--groups-are-teams", "--book", str(tmp_path / "book.db")]
    )
    assert asked.exit_code == 0 and book.shared_by(["a@u.example"]) == {"a@u.example": ["Ana Ruiz", "Bo Neil"]}
    add(book, tmp_path / "r.csv", "Name,Email,Team\nAna Ruiz,a@u.example,-\nBo Neil,b@u.example,\n")
    assert {each.team for each in book.people().values()} == {"", "Tuesday"}  # a dash says none, nothing says nothing


JANS = "Name,Email\nJan Schmidt,jan1@u.example\nJan Schmidt,jan2@u.example\nAda,ada@u.example\n"


@pytest.mark.in_turn
@pytest.mark.parametrize(
    "words",
    [
        ["deadline", "2030-01-01T00:00Z", "--student", "Jan Schmidt"],
        ["deadline", "2030-01-01T00:00Z", "--student", "jan schmidt"],
        ["deadline", "2030-01-01T00:00Z", "--student", "Schmidt, Jan"],
        ["handed-in", "Jan Schmidt", "2026-12-02T17:59Z", "--reason", "by mail"],
        ["adjust", "Jan Schmidt", "4", "--reason", "an oral"],
        ["comment", "Jan Schmidt", "Well done."],
        ["history", "Jan Schmidt"],
    ],
)
def test_one_of_two_people_of_a_name_is_asked_for_by_address(book: Gradebook, tmp_path: Path, words: list[str]) -> None:
    add(book, tmp_path / "r.csv", JANS)
    done = CliRunner().invoke(
        app, ["gradebook", *words, "--lesson", "ring_all_reduce", "--book", str(tmp_path / "book.db")]
    )
    assert done.exit_code == 2 and not book.lessons()
    said = " ".join(done.output.split())
    assert "could be Jan Schmidt (jan1@u.example) or Jan Schmidt (jan2@u.example)" in said
    assert book.person("jan1@u.example") == book.person("Jan Schmidt (jan1@u.example)") == "Jan Schmidt"
    assert book.person("jan2@u.example") == book.person("Jan Schmidt (jan2@u.example)") != "Jan Schmidt"


def test_a_second_person_of_a_name_who_comes_later_is_not_the_first(book: Gradebook, tmp_path: Path) -> None:
    canvas = 'Student,ID,SIS User ID,SIS Login ID,Section\n"Schmidt, Jan",{0},s{0},jan{0}@u.example,A\n'
    add(book, tmp_path / "r.csv", canvas.format(1))
    assert add(book, tmp_path / "r.csv", canvas.format(2)).new == ("Jan Schmidt (jan2@u.example)",)
    found = add(book, tmp_path / "r.csv", "Name,Email\nJan Schmidt,jan3@u.example\nAda,ada@u.example\n")
    assert found.unclear == (
        "Jan Schmidt (jan3@u.example) has the name of Jan Schmidt (jan1@u.example) and Jan Schmidt (jan2@u.example)",
    )
    found = add(book, tmp_path / "r.csv", "Name,Email\nAda,a.l@mail.example\n")
    assert found.unclear == ("Ada (a.l@mail.example) has the name of Ada (ada@u.example) and another address",)
    assert add(book, tmp_path / "r.csv", "Name,Email,Login\nAda,ada@u.example,a.l@mail.example\n").known == ("Ada",)
    assert add(book, tmp_path / "r.csv", "Name,Email\nAda,a.l@mail.example\n").known == ("Ada",)


def test_two_of_a_name_in_a_file_are_not_taken_in_the_order_of_its_lines(book: Gradebook, tmp_path: Path) -> None:
    add(book, tmp_path / "r.csv", "Name,Email\nJan Schmidt,jan1@u.example\n")
    github = "identifier,github_username,github_id,name\n1,janx,7,Jan Schmidt\n2,jany,8,Jan Schmidt\n"
    assert len(add(book, tmp_path / "r.csv", github).unclear) == 2 and len(book.people()) == 1
    github = github.replace("1,janx", "jan1@u.example,janx")
    assert add(book, tmp_path / "r.csv", github).new == ("Jan Schmidt (2)",)


def test_a_shared_number_with_another_name_and_address_is_told(book: Gradebook, tmp_path: Path) -> None:
    add(book, tmp_path / "r.csv", "Name,Email,ID\nAna Ruiz,ana@u.example,later\n")
    found = add(
        book, tmp_path / "r.csv", "Name,Email,ID\nBo Neil,bo@u.example,later\nAna Maria Ruiz,am@x.example,later\n"
    )
    assert len(found.shared) == 1 and found.new == ("Bo Neil", "Ana Maria Ruiz")
    found = add(book, tmp_path / "r.csv", "Name,Email,ID\nCy Young,cy@u.example,later\n")
    assert found.unclear == (
        "Cy Young (cy@u.example) has later of Ana Ruiz (ana@u.example), and another name and address",
    )


@pytest.mark.in_turn
def test_all_names_of_a_file_are_the_same_people_if_its_instructor_says_so(book: Gradebook, tmp_path: Path) -> None:
    add(book, tmp_path / "r.csv", "Name,Email\nAda,ada01@u.example\nBo,bo02@u.example\n")
    other = tmp_path / "other.csv"
    other.write_text("Name,Email,GitHub\nAda,ada.l@u.example,al\nBo,bo.n@u.example,bn\n")
    command = ["roster", "import", str(other), "--book", str(tmp_path / "book.db")]
    refused = CliRunner().invoke(app, command)
    assert refused.exit_code == 1 and "--by-name" in refused.output and len(book.people()) == 2
    assert "0 new, 2 known before" in CliRunner().invoke(app, [*command, "--by-name"]).output
    assert {name for name, each in book.people().items() if {"al", "bn"} & each.keys} == {"Ada", "Bo"}


def test_who_is_called_like_anothers_address_or_number_is_known_by_neither(book: Gradebook, tmp_path: Path) -> None:
    add(
        book,
        tmp_path / "r.csv",
        "Name,Email,ID\nAda,ada@u.example,s1\nada@u.example,mallory@u.example,s2\nS1,bo@u.example,s3\n",
    )
    assert {"ada@u.example", "s1", "ada"} <= book.known_by("Ada")
    assert book.known_by("ada@u.example") == {"mallory@u.example", "s2"}
    assert book.known_by("S1") == {"bo@u.example", "s3"}
    assert book.whose(["ada@u.example", "s1"]).people == {"ada@u.example": "Ada", "s1": "Ada"}


@pytest.mark.parametrize("name", ["Jan\u200b Schmidt", "\uff2aan Schmidt", "Schmidt, Jan\u2060"])
def test_a_name_that_looks_like_anothers_is_told(book: Gradebook, tmp_path: Path, name: str) -> None:
    add(book, tmp_path / "r.csv", "Name,Email\nJan Schmidt,jan1@u.example\n")
    found = add(book, tmp_path / "r.csv", f'Name,Email\n"{name}",mallory@u.example\n')
    assert not found.new and "has the name of Jan Schmidt (jan1@u.example)" in found.unclear[0]
