"""The class key: made once, for its owner alone, kept beside the gradebook; and what follows from it."""

from __future__ import annotations

import stat
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from labkit.errors import ConfigError, EnvironmentProblem
from labkit.grading.class_key import class_key, key_file
from labkit.grading.score import rank_seed, submission_secret


def test_a_key_is_made_once_and_only_its_owner_can_read_it(tmp_path: Path) -> None:
    path = tmp_path / "books" / "gradebook.key"
    made = class_key(path)
    assert len(made) == 32 and class_key(path) == made
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert [each.name for each in path.parent.iterdir()] == [path.name]
    assert class_key(tmp_path / "another.key") != made


def test_two_who_begin_together_have_the_same_key(tmp_path: Path) -> None:
    with ThreadPoolExecutor(8) as threads:
        assert len(set(threads.map(class_key, [tmp_path / "gradebook.key"] * 32))) == 1


def test_a_key_that_others_can_read_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "gradebook.key"
    class_key(path)
    path.chmod(0o644)
    with pytest.raises(ConfigError, match="chmod 600"):
        class_key(path)


def test_what_is_no_key_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "gradebook.key"
    path.write_bytes(b"\xff" * 64)
    path.chmod(0o600)
    with pytest.raises(ConfigError, match="is not a class key"):
        class_key(path)
    with pytest.raises(EnvironmentProblem, match="--key"):
        class_key(path / "below a file")


def test_the_key_lies_beside_the_gradebook() -> None:
    assert key_file({"LABKIT_CLASS_KEY": "/a/b", "LABKIT_GRADEBOOK": "sqlite:///c.db"}) == Path("/a/b")
    assert key_file({"LABKIT_GRADEBOOK": "sqlite:////marks/of/2026.db"}) == Path("/marks/of/2026.key")
    assert key_file({}) == key_file({"LABKIT_GRADEBOOK": "postgresql+psycopg://me@host/book"}) == Path("gradebook.key")


def test_another_key_answer_exercise_case_or_rank_gives_other_numbers() -> None:
    secret = submission_secret([("a", "x = 1")], b"k")
    assert secret == submission_secret([("a", "x = 1")], b"k")
    assert len({secret, submission_secret([("a", "x = 2")], b"k"), submission_secret([("a", "x = 1")], b"l")}) == 3
    seeds = {rank_seed(secret, each, case, rank) for each in "ab" for case in range(3) for rank in range(4)}
    assert len(seeds) == 24
