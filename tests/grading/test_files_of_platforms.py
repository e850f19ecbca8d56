"""Files as platforms and spreadsheets write them: other delimiters, marks, forms and languages."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from zoneinfo import ZoneInfo

import pytest

from labkit.errors import ConfigError
from labkit.grading.book.file_names import keys
from labkit.grading.book.handed_in import assign, read_times
from labkit.grading.book.roster_files import read_roster
from labkit.grading.book.sheets import canvas_csv, moodle_csv
from labkit.grading.book.standing import Grade

CANVAS = {
    "whole names": 'Student,ID,SIS User ID,SIS Login ID,Section,Lab 1 (77)\n    Points Possible,,,,,"100.00"\n'
    '"Ruiz, Ana",501,s501,ana@u.example,A,\n"Neil, Bo",502,s502,bo@u.example,A,\n"Student, Test",9,,,A,\n',
    "names apart": "LastName,FirstName,ID,SIS User ID,SIS Login ID,Section,Lab 1 (77)\n"
    "    Points Possible,,,,,,100.00\nRuiz,Ana,501,s501,ana@u.example,A,\nNeil,Bo,502,s502,bo@u.example,A,\n"
    "Student,Test,9,,,A,\n",
    "semicolons": "\ufeffStudent;ID;SIS User ID;SIS Login ID;Section;Lab 1 (77)\n    Points Possible;;;;;100,00\n"
    '"Ruiz, Ana";501;s501;ana@u.example;A;\n"Neil, Bo";502;s502;bo@u.example;A;\n',
    "apart and semicolons": "LastName;FirstName;ID;SIS User ID;SIS Login ID;Section;Lab 1 (77)\n"
    "    Points Possible;;;;;;100,00\nRuiz;Ana;501;s501;ana@u.example;A;\nNeil;Bo;502;s502;bo@u.example;A;\n",
    "for Excel": "sep=;\nStudent;ID;SIS User ID;SIS Login ID;Section;Lab 1 (77)\n"
    '"Ruiz, Ana";501;s501;ana@u.example;A;\n"Neil, Bo";502;s502;bo@u.example;A;\n',
}
MOODLE = {
    "English": (
        "Identifier,Full name,Email address,Status,Grade,Maximum Grade,Last modified (submission)",
        "Participant 4711",
    ),
    "German": (
        "ID,Vollständiger Name,E-Mail-Adresse,Status,Bewertung,Bestwertung,Zuletzt geändert (Abgabe)",
        "Teilnehmer/in4711",
    ),
    "French": (
        "Identifiant,Nom complet,Adresse de courriel,Statut,Note,Note maximale,Dernière modification (travail remis)",
        "Participant 4711",
    ),
    "Spanish": (
        "Identificador,Nombre completo,Dirección de correo,Estado,Calificación,Calificación máxima,"
        "Última modificación (entrega)",
        "Participante 4711",
    ),
}
TIMES = {
    "English": "Wednesday, 2 December 2026, 5:20 PM",
    "German": "Mittwoch, 2. Dezember 2026, 17:20",
    "French": "mercredi 2 décembre 2026, 17:20",
    "Spanish": "miércoles, 2 de diciembre de 2026, 17:20",
}


def grade(student: str, score: float) -> Grade:
    return Grade(student, score, 100, num_attempts=1)


@pytest.mark.parametrize("form", CANVAS)
def test_every_form_of_canvas_is_a_roster_and_takes_marks_back(tmp_path: Path, form: str) -> None:
    path = tmp_path / "canvas.csv"
    path.write_text(CANVAS[form], encoding="utf-8")
    people = read_roster(path)
    assert [(each.name, each.email, each.section) for each in people] == [
        ("Ana Ruiz", "ana@u.example", "A"), ("Bo Neil", "bo@u.example", "A"),
    ]  # fmt: skip
    assert people[0].keys == {"canvas:501", "s501", "ana@u.example"}
    known = {each.name: each.keys for each in people}
    sheet = canvas_csv(path, "Lab 1", [grade("Ana Ruiz", 87.5), grade("Bo Neil", 100)], known.__getitem__)
    assert (sheet.num_filled, sheet.unmatched, sheet.ambiguous, sheet.capped) == (2, (), (), ())
    filled = sheet.data.decode()
    assert filled.startswith("\ufeff") == CANVAS[form].startswith("\ufeff")
    assert ("A;87,5\r\n" if ";" in CANVAS[form] else "A,87.5\r\n") in filled
    path.write_bytes(sheet.data)
    assert [each.name for each in read_roster(path)] == ["Ana Ruiz", "Bo Neil"]


@pytest.mark.parametrize("language", MOODLE)
def test_moodles_worksheet_is_read_and_filled_in_its_own_language(tmp_path: Path, language: str) -> None:
    header, participant = MOODLE[language]
    path = tmp_path / "worksheet.csv"
    path.write_text(
        f'{header}\n{participant},Ana Ruiz,ana@u.example,,,"100,00","{TIMES[language]}"\n', encoding="utf-8-sig"
    )
    (ana,) = read_roster(path)
    assert (ana.name, ana.keys, ana.team) == ("Ana Ruiz", {"moodle:4711", "ana@u.example"}, None)
    name = "Ana Ruiz_4711_assignsubmission_file_"
    times = assign(read_times(path, ZoneInfo("Europe/Berlin")), [name], keys).times
    assert times[name].astimezone(UTC) == datetime(2026, 12, 2, 16, 20, tzinfo=UTC)
    sheet = moodle_csv(path, [grade("Ana Ruiz", 108)], lambda _: ana.keys)
    assert sheet.num_filled == 1 and len(sheet.capped) == 1
    assert sheet.data.decode("utf-8-sig").splitlines()[0] == header
    assert ',100,"100,00",' in sheet.data.decode()


@pytest.mark.parametrize(
    "header",
    [
        "Vorname,Nachname,ID-Nummer,E-Mail-Adresse,Gruppen",
        "Prénom,Nom de famille,Numéro d'identification,Adresse de courriel,Groupes",
        "Nombre,Apellido(s),Número de ID,Dirección de correo,Grupos",
        "Nome,Cognome,Codice identificativo,Indirizzo email,Gruppi",
        "Voornaam,Achternaam,ID-nummer,E-mailadres,Groepen",
    ],
)
def test_moodles_participants_are_read_in_other_languages(tmp_path: Path, header: str) -> None:
    path = tmp_path / "participants.csv"
    path.write_text(f"{header}\nAna,Ruiz,77,ana@u.example,Tutorial 1\n", encoding="utf-16")
    (ana,) = read_roster(path)
    assert (ana.name, ana.keys, ana.section, ana.team) == ("Ana Ruiz", {"77", "ana@u.example"}, "Tutorial 1", None)


def test_what_is_not_read_says_what_to_click(tmp_path: Path) -> None:
    path = tmp_path / "participants.csv"
    path.write_text("Keresztnév,Vezetéknév,E-mail cím\nAna,Ruiz,ana@u.example\n", encoding="utf-8")
    click = r"in Moodle, click your picture at the top right, choose Language, English, and export it again"
    with pytest.raises(ConfigError, match=f"is not a roster: .*Keresztnév.*{click}"):
        read_roster(path)
    with pytest.raises(ConfigError, match=f"is not an offline grading worksheet of Moodle: .*{click}"):
        moodle_csv(path, [], keys)
    path.write_bytes("Name,Email\nJürgen,j@u.example\n".encode("cp1252"))
    with pytest.raises(ConfigError, match=r"it is not text in UTF-8\): .* save it again as CSV UTF-8"):
        read_roster(path)
    path.write_text("Name,Email\nAna,ana@u.example,,\nBo,bo@u.example,x\n", encoding="utf-8")
    with pytest.raises(ConfigError, match=r"line 3, has more fields than the first line"):
        read_roster(path)
