"""Distinct words of a column, found without looking at each entry as a Python string."""

from __future__ import annotations

import numpy as np
import pytest

from labkit.timeline.distinct import coded, hashed


@pytest.mark.parametrize("num_words", [0, 1, 3, 200])
def test_every_entry_is_the_word_its_code_names(num_words: int) -> None:
    random = np.random.default_rng(num_words)
    words = np.array([f"{'abc'[number % 3]}{number}" for number in range(num_words)], dtype=str)
    column = words[random.integers(0, num_words, 1000)] if num_words else words
    distinct, code = coded(column)
    assert sorted(distinct) == sorted(set(column.tolist()))
    assert np.array(distinct, dtype=str)[code].tolist() == column.tolist() if num_words else len(code) == 0


@pytest.mark.parametrize("column", [["ab", "ba", "ab", "a"], [1, -1, 2**40, 1], [True, False, True, False]])
def test_entries_have_the_same_hash_where_they_are_equal(column: list[object]) -> None:
    key = hashed(np.array(column)).tolist()
    assert [key.index(each) for each in key] == [column.index(each) for each in column]


def test_a_column_that_is_a_part_of_another_is_read_as_it_stands() -> None:
    assert coded(np.array(["x", "no", "y", "no", "x", "no"])[::2])[0] == ["x", "y"]
