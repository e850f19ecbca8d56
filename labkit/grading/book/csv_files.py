"""Tables as learning platforms and spreadsheets export them: any delimiter, any mark of an encoding, some languages.

Sources: Moodle's language packs (moodle.org/mod/forum, strings of core, `assign` and `assignfeedback_offline`);
Canvas, `lib/gradebook_exporter.rb` of instructure/canvas-lms (semicolons and a byte order mark for accounts that ask
for them; "LastName" and "FirstName" where it shows first and last names).
"""

from __future__ import annotations

import csv
import io
import re
import unicodedata
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from labkit.errors import ConfigError

_MOST_ROWS, _MOST_LETTERS = 10_000, 10_000
_DELIMITERS = (",", ";", "\t", "|")
_IN_ENGLISH = {
    "First name": "Vorname|Prénom|Nombre|Nome|Voornaam|Imię|Förnamn|Fornavn|Etunimi|Křestní jméno",
    "Last name": "Nachname|Nom de famille|Nom|Apellido(s)|Apellidos|Cognome|Apelido|Sobrenome|Achternaam|Nazwisko"
    "|Efternamn|Efternavn|Etternavn|Sukunimi|Příjmení",
    "Full name": "Vollständiger Name|Nom complet|Nombre completo|Nome completo|Volledige naam|Imię i nazwisko",
    "Email address": "E-Mail-Adresse|E-Mail|Adresse de courriel|Dirección de correo|Dirección Email|Indirizzo email"
    "|Dirección de correo electrónico|Endereço de e-mail|Endereço de email|E-mailadres|Adres e-mail|E-postadress",
    "ID number": "ID-Nummer|Matrikelnummer|Numéro d'identification|Número de ID|Codice identificativo"
    "|Número de identificação|ID-nummer|Numer ID",
    "Username": "Anmeldename|Nom d'utilisateur|Nombre de usuario|Nome utente|Nome de utilizador|Gebruikersnaam",
    "Groups": "Gruppen|Groupes|Grupos|Gruppi|Groepen|Grupy|Grupper",
    "Identifier": "ID|Identifikator|Identifiant|Identificador|Identificativo|Identificatie",
    "Grade": "Bewertung|Note|Calificación|Valutazione|Avaliação|Nota|Cijfer",
    "Maximum Grade": "Bestwertung|Beste Bewertung|Höchste Bewertung|Note maximale|Calificación máxima"
    "|Valutazione massima|Avaliação máxima|Nota máxima|Maximumcijfer",
    "Last modified (submission)": "Zuletzt geändert (Abgabe)|Dernière modification (travail remis)"
    "|Última modificación (entrega)|Ultima modifica (consegna)|Última modificação (submissão)"
    "|Laatst gewijzigd (inzending)",
}
_MOODLES = re.compile(
    r"(?:Participant|Teilnehmer(?:/in|\*in|:in|in)?|Teilnehmende|Participante|Partecipante|Deelnemer)\s*(\d+)", re.I
)
SWITCH = "in Moodle, click your picture at the top right, choose Language, English, and export it again"
"""What to do about a table of Moodle in a language that is not read."""


@dataclass(frozen=True)
class TableFile:
    """A table as it stands in a file.

    Attributes:
        columns: As the file has them.
        rows: By these names, each with its line.
        delimiter: Between fields.
        is_marked: Whether the file begins with a byte order mark.
        english: The column that each English name of Moodle's stands for, where the file has it in another language.
    """

    columns: Sequence[str]
    rows: Sequence[tuple[int, dict[str, str]]]
    delimiter: str
    is_marked: bool
    english: Mapping[str, str]

    def in_english(self) -> list[tuple[int, dict[str, str]]]:
        """Return the rows with Moodle's English names beside the file's own."""
        return [(line, row | {name: row[column] for name, column in self.english.items()}) for line, row in self.rows]

    def column(self, name: str) -> str:
        """Return what the file calls a column that has this name in English."""
        return self.english.get(name, name)


def read_table(path: Path, what: str) -> TableFile:
    """Return the table in a file.

    Args:
        path: The file.
        what: What it is read as, for messages: "a roster".

    Raises:
        ConfigError: If it cannot be read, is no text, or a line has more fields than the first.
    """
    try:
        data = path.read_bytes()
    except OSError as error:
        raise ConfigError(f"{path} cannot be read as {what} ({error.strerror})") from None
    is_wide = data.startswith((b"\xff\xfe", b"\xfe\xff"))
    try:
        text = data.decode("utf-16" if is_wide else "utf-8-sig")
    except UnicodeDecodeError:
        raise ConfigError(
            f"{path} cannot be read as {what} (it is not text in UTF-8): name the file that your system exported; if a "
            "spreadsheet wrote it, save it again as CSV UTF-8"
        ) from None
    if "\n" not in text:
        text = text.replace("\r", "\n")  # as spreadsheets on old Macs ended lines
    named, _, rest = text.partition("\n")
    told = re.fullmatch(r'"?sep=(.)"?\s*', named)
    text = rest if told else text
    first = text.partition("\n")[0][:_MOST_LETTERS]
    delimiter = (
        told[1] if told else max(_DELIMITERS, key=lambda each: len(next(csv.reader([first], delimiter=each), ())))
    )
    reader = csv.DictReader(io.StringIO(text, newline=""), delimiter=delimiter)
    columns = [unicodedata.normalize("NFC", name).strip() for name in reader.fieldnames or ()]
    reader.fieldnames = columns
    _must_end(path, what, text, delimiter)
    rows: list[tuple[int, dict[str, str]]] = []
    for row in _within_bounds(path, reader):
        if any(map(str.strip, row.pop(None, ()))):
            raise ConfigError(f"{path}, line {reader.line_num}, has more fields than the first line; export it again")
        if list(row.values()) == columns:
            continue  # the first line again: two files, one behind the other
        rows.append((reader.line_num, {name: value or "" for name, value in row.items()}))
    is_marked = is_wide or data.startswith(b"\xef\xbb\xbf")
    return TableFile(columns, rows, delimiter, is_marked, _english(columns, rows))


def _must_end(path: Path, what: str, text: str, delimiter: str) -> None:
    """Refuse a table in which a quotation mark is opened and never closed: all lines behind it would be one field.

    Raises:
        ConfigError: If there is one.
    """
    reader = csv.reader(io.StringIO(text, newline=""), delimiter=delimiter, strict=True)
    begun = 1
    try:
        for _ in reader:
            begun = reader.line_num + 1
    except csv.Error as error:
        if "unexpected end" in str(error):
            raise ConfigError(
                f"{path} cannot be read as {what}: a quotation mark that opens in line {begun} is never closed; "
                "correct that line"
            ) from None


def _within_bounds(path: Path, reader: csv.DictReader[str]) -> Iterator[dict[Any, Any]]:
    """Yield the rows of one class, whose fields are no longer than any name: students wrote what is in them."""
    try:
        for number, row in enumerate(reader, 1):
            long = max((len(value) for value in row.values() if isinstance(value, str)), default=0)
            if number > _MOST_ROWS or long > _MOST_LETTERS:
                raise ConfigError(
                    f"{path}, line {reader.line_num}, is beyond a table of one class: row {number:,}, with a field "
                    f"of {long:,} characters, and {_MOST_ROWS:,} and {_MOST_LETTERS:,} are the most; correct the file"
                )
            yield row
    except csv.Error as error:
        raise ConfigError(
            f"{path}: after line {reader.line_num} there is no row of a table ({error}); export the file again"
        ) from None


def _english(columns: Sequence[str], rows: Sequence[tuple[int, Mapping[str, str]]]) -> dict[str, str]:
    """Return the column of each English name of Moodle's that the file has in another language."""
    by_name = {name.casefold(): name for name in columns}
    found = {}
    for english, others in _IN_ENGLISH.items():
        mine = next((by_name[each.casefold()] for each in others.split("|") if each.casefold() in by_name), None)
        if mine is not None and english not in columns:
            found[english] = mine
    if "Identifier" in found and not any(_MOODLES.search(row[found["Identifier"]]) for _, row in rows):
        del found["Identifier"]  # a column ID of anything else
    return found
