"""Every sentence that asks something of an answer is held: a wrong answer breaks it, or it says why none can."""

from __future__ import annotations

import pytest

from tests.checks.lesson_cells import NUMBERS, slug_of
from tests.checks.stated_rules import KINDS, asked, prose, tables
from tests.checks.wrong_answers import written


@pytest.mark.parametrize("number", NUMBERS)
def test_every_sentence_of_a_contract_says_what_holds_it(number: str) -> None:
    has: dict[str, dict[str, object]] = tables(number)
    problems: list[str] = []
    contracts, text = asked(number), prose(number)
    for slug, found in contracts.items():
        problems += [f"{slug}: no entry for {each!r}" for each in found if each not in has.get(slug, {})]
    for slug, entries in has.items():
        contract = contracts.get(slug, [])
        problems += [f"{slug}: nobody reads {each!r}" for each in entries if each not in contract and each not in text]
    assert not problems, "\n".join(problems)


@pytest.mark.parametrize("number", NUMBERS)
def test_what_holds_a_sentence_is_there(number: str) -> None:
    problems = []
    lesson = slug_of(number)
    for slug, entries in tables(number).items():
        answers = written(lesson, slug)
        wrong, right = {each.name for each in answers}, set(answers.variants)
        for sentence, held in entries.items():
            if isinstance(held, str):
                unknown = [] if held in KINDS else [held]
            else:
                names, there = (held["allows"], right) if isinstance(held, dict) else (held, wrong)
                unknown = sorted(set(names) - there) or ([] if names else ["nothing"])
            problems += [f"{slug}, {sentence!r}: no {name!r}" for name in unknown]
    assert not problems, "\n".join(problems)
