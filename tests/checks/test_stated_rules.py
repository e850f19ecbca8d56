"""Every sentence that asks something of an answer is held: a wrong answer breaks it, or it says why none can."""

from __future__ import annotations

import pytest

from tests.checks.stated_rules import HERE, KINDS, asked, lesson_slug, numbers, prose, tables
from tests.checks.wrong_answers import written

NUMBERS = [number for number in numbers() if (HERE / f"{number}.toml").exists()]


@pytest.mark.parametrize("number", NUMBERS)
def test_every_sentence_of_a_contract_says_what_holds_it(number: str) -> None:
    has: dict[str, dict[str, object]] = tables(number)
    problems: list[str] = []
    for slug, found in asked(number).items():
        problems += [f"{slug}: no entry for {each!r}" for each in found if each not in has.get(slug, {})]
    text = prose(number)
    for slug, entries in has.items():
        contract = asked(number).get(slug, [])
        problems += [f"{slug}: nobody reads {each!r}" for each in entries if each not in contract and each not in text]
    assert not problems, "\n".join(problems)


@pytest.mark.parametrize("number", NUMBERS)
def test_what_holds_a_sentence_is_there(number: str) -> None:
    problems = []
    lesson = lesson_slug(number)
    for slug, entries in tables(number).items():
        answers = written(lesson, slug)
        wrong, right = {each.name for each in answers}, set(answers.variants)
        for sentence, held in entries.items():
            if isinstance(held, dict):
                unknown = sorted(set(held["allows"]) - right) or ([] if held["allows"] else ["nothing"])
            elif isinstance(held, list):
                unknown = sorted(set(held) - wrong) or ([] if held else ["nothing"])
            else:
                unknown = [] if held in KINDS else [held]
            problems += [f"{slug}, {sentence!r}: no {name!r}" for name in unknown]
    assert not problems, "\n".join(problems)
