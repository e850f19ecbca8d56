"""Figures of ideas: what they claim is what their plans say, and their words are read at 700 pixels."""

from __future__ import annotations

import json

import pytest

import labkit
from labkit.errors import ConfigError
from labkit.plans.pipeline_records import ops_of
from labkit.plans.pipeline_timing import place
from labkit.plans.reference.schedules import gpipe
from labkit.widgets.figures import _MAKERS
from labkit.widgets.language import LEAST
from labkit.widgets.storyboard import Box, Frame, Path, Words
from tests.widgets.in_page import Evaluate


@pytest.mark.parametrize("name", _MAKERS)
def test_a_figure_says_a_sentence_in_each_frame_and_all_of_it_lies_inside(name: str) -> None:
    story = _MAKERS[name]()
    assert len({frame.says for frame in story.frames}) > 1 and 0 <= story.telling < len(story.frames)
    for frame in story.frames:
        keys = [each.key for each in frame.shapes if isinstance(each, Box) and each.key]
        assert len(keys) == len(set(keys)), keys
        for shape in frame.shapes:
            if isinstance(shape, Box):
                assert shape.x >= 0 and shape.x + shape.width <= 680, shape
                assert shape.y >= 0 and shape.y + shape.height <= story.height, shape
            if isinstance(shape, Words):
                assert shape.size >= LEAST


@pytest.mark.in_turn
@pytest.mark.parametrize("name", _MAKERS)
def test_what_moves_stands_elsewhere_in_another_frame(name: str) -> None:
    places: dict[str, set[tuple[float, float]]] = {}
    for frame in _MAKERS[name]().frames:
        for shape in frame.shapes:
            if isinstance(shape, Box) and shape.key:
                places.setdefault(shape.key, set()).add((round(shape.x, 1), round(shape.y, 1)))
    assert any(len(seen) > 1 for seen in places.values())


def test_the_factory_s_title_is_its_schedule_s_bubble() -> None:
    orders = [ops_of(gpipe(stage, 4, 6), stage) for stage in range(4)]
    figure = labkit.figure("factory", num_stages=4, num_microbatches=6)
    assert figure.numbers["bubble"] == f"{100 * place('gpipe', orders).bubble():.1f} %"


def test_the_factory_opens_at_the_whole_step_whose_squares_its_title_counts() -> None:
    story = _MAKERS["factory"](num_stages=4, num_microbatches=6)
    last = story.frames[-1]
    assert story.telling == len(story.frames) - 1
    assert last.says.startswith("0 is the forward of microbatch 0 (1 turn), B0 its backward (2).")
    drawn = [each for each in last.shapes if isinstance(each, Box) and each.fill in ("forward", "backward")]
    key, rows = drawn[:2], drawn[2:]
    assert [(each.fill, each.words) for each in key] == [("forward", "0"), ("backward", "B0")]
    words = [each.words for each in last.shapes if isinstance(each, Words)]
    assert words[:3] == ["forward", "backward", "idle"] and words[-4:] == ["0", "10", "20", "27 turns"]
    width = max(each.x + each.width for each in rows) - min(each.x for each in rows)
    empty = 1 - sum(each.width for each in rows) / (4 * width)
    assert f"{100 * empty:.0f} % of the time" in story.title
    assert story.title.endswith("hold up to 6 microbatches") and not [each for each in words if "holds" in each]
    assert last.says.endswith("A\N{NO-BREAK SPACE}stage holds a microbatch from its forward to its backward.")
    other = _MAKERS["factory"](num_stages=4, num_microbatches=6, schedule="1f1b").frames[-1].shapes
    held = [each.words for each in other if isinstance(each, Words) and each.words.startswith("holds")]
    assert held == [f"holds {count}" for count in (4, 3, 2, 1)]  # where stages differ
    top, bottom = min(each.y for each in rows), max(each.y + each.height for each in rows)
    assert bottom - top > 0.65 * story.height  # the schedule has the whole picture, but for its key and its axis
    assert all(each.y >= 0 and each.y + each.height < top for each in key)  # above it, as a run's
    assert [each.words for each in rows if each.words] == [f"{kind}{k}" for kind in ("", "B") for k in range(6)] * 4
    turn = width / 27  # which says how long they take
    assert {(each.words[:1] == "B", round(each.width / turn, 6)) for each in rows} == {(False, 1), (True, 2)}


@pytest.mark.parametrize(("num_microbatches", "most_held"), [(1, 0), (6, 0), (8, 0), (8, 4)])
def test_the_factory_s_letters_do_not_touch_the_edges_of_their_squares(num_microbatches: int, most_held: int) -> None:
    last = _MAKERS["factory"](num_stages=4, num_microbatches=num_microbatches, most_held=most_held).frames[-1]
    drawn = [each for each in last.shapes if isinstance(each, Box) and each.fill in ("forward", "backward")]
    assert all(each.width - 0.64 * each.size * len(each.words) > 3 and each.size >= 16 for each in drawn)


def test_gpipe_in_groups_holds_a_group_and_takes_the_turns_that_the_exercise_counts() -> None:
    story = _MAKERS["factory"](num_stages=4, num_microbatches=8, most_held=4)
    assert story.title == "GPipe in groups of 4 takes 42 turns instead of 33"
    assert _MAKERS["factory"](num_stages=4, num_microbatches=8).telling == 33
    assert story.numbers["most held"] == "4" and story.telling == 42
    drawn = [each for each in story.frames[-1].shapes if isinstance(each, Box) and each.fill in ("forward", "backward")]
    assert [each.words for each in drawn[2:10]] == ["0", "1", "2", "3", "B0", "B1", "B2", "B3"]  # after the key's two
    with pytest.raises(ConfigError, match="most_held=9"):
        _MAKERS["factory"](num_microbatches=8, most_held=9)
    with pytest.raises(ConfigError, match="most_held=2"):
        _MAKERS["factory"](schedule="1f1b", most_held=2)


def test_groups_of_all_are_no_groups() -> None:
    story = _MAKERS["factory"](num_stages=4, num_microbatches=8, most_held=8)
    assert story.title == _MAKERS["factory"](num_stages=4, num_microbatches=8).title


@pytest.mark.parametrize("num_stages", [2, 3, 4, 6])
def test_of_a_single_microbatch_one_stage_works_at_a_time(num_stages: int) -> None:
    assert _MAKERS["factory"](num_stages=num_stages, num_microbatches=1).title == "One batch: one stage works at a time"
    placed = place("gpipe", [ops_of(gpipe(stage, num_stages, 1), stage) for stage in range(num_stages)])
    works = sorted((each.start, each.end) for row in placed.stages for each in row)
    assert [begin for begin, _ in works] == [0, *(end for _, end in works[:-1])]  # each begins when another is done


def test_what_leaves_a_stage_arrives_under_another_name_at_the_head_of_its_arrow() -> None:
    story = _MAKERS["cable"]()
    last = story.frames[story.telling].shapes
    there, back = (each.points for each in last if isinstance(each, Path))
    assert there[0][0] == back[1][0] < there[1][0] == back[0][0]  # one goes right, and the other left
    said = {each.words: each.x for each in last if isinstance(each, Words)}
    assert [said["y"], said["x"]] == [x for x, _ in there] and [said["x.grad"], said["g"]] == [x for x, _ in back]
    rows = {each.words: (each.y, each.fill) for each in last if isinstance(each, Box)}
    assert rows["y = module(…)"] == rows["loss of module(x)"] and rows["loss of module(x)"][1] == "forward"
    assert rows["loss.backward()"] == rows["y.backward(g)"] and rows["y.backward(g)"][1] == "backward"


def test_the_ring_counts_steps_as_its_plan_does_and_what_has_just_arrived_steps_forward() -> None:
    story = _MAKERS["ring"](num_ranks=4)
    begin, *steps = [frame for number, frame in enumerate(story.frames[:-1]) if number != story.telling]
    assert [frame.says[:7] for frame in steps] == [f"Step {step}:" for step in range(6)]
    for step, frame in enumerate(steps):
        arrows = [each for each in frame.shapes if isinstance(each, Path)]
        assert [each.stroke for each in arrows] == ["send"] * 4  # all four carry, and the strong one A
        assert [each.width for each in arrows] == [6 if rank == step % 4 else 3 for rank in range(4)]
        count = min(step + 2, 4)
        lit = [each.words for each in frame.shapes if isinstance(each, Box) and not each.faint]
        assert sorted(lit) == [f"{chunk}{count}" for chunk in "ABCD"]  # one at each rank
        told = [each.words for each in frame.shapes if isinstance(each, Words)][-2:]
        assert told == [f"A{count}: A summed", f"over {count} ranks"]
    boxes = [each for each in begin.shapes if isinstance(each, Box)]
    assert [each.words for each in boxes[:4]] == [*"ABCD"]  # on the arrows
    assert [each.words for each in boxes[4:] if not each.faint] == ["A1", "B1", "C1", "D1"] and len(boxes) == 4 + 16


@pytest.mark.parametrize("num_ranks", [3, 4])
def test_the_ring_s_still_shows_every_sum_that_the_reduce_scatter_makes_and_frames_what_is_complete(
    num_ranks: int,
) -> None:
    story = _MAKERS["ring"](num_ranks=num_ranks)
    last = num_ranks - 2
    assert story.title == f"Rank {num_ranks - 1} completes chunk A in step {last}"
    shapes = story.frames[story.telling].shapes
    assert [each.words for each in shapes if isinstance(each, Words) and each.bold] == [
        f"step {step}" for step in range(last + 1)
    ]
    ranks = [int(each.words[-1]) for each in shapes if isinstance(each, Words) and not each.bold]
    boxes = [each for each in shapes if isinstance(each, Box)]
    made = {(each.words, rank) for each, rank in zip(boxes, ranks, strict=True)}
    chunks = "ABCD"[:num_ranks]
    assert made == {
        (f"{letter}{step + 2}", (chunk + step + 1) % num_ranks)
        for step in range(last + 1)
        for chunk, letter in enumerate(chunks)
    }
    arrows = [each for each in shapes if isinstance(each, Path) and each.arrow]
    frames = [each for each in shapes if isinstance(each, Path) and not each.arrow]
    assert len(arrows) == len(boxes) and len([each for each in arrows if each.width == 6]) == last + 1  # A's way
    assert [each.points[0] for each in frames] == [(box.x, box.y) for box in boxes if box.words[1] == str(num_ranks)]


def test_a_larger_ring_has_no_room_for_all_steps_at_once_and_shows_the_last_that_adds() -> None:
    story = _MAKERS["ring"](num_ranks=5)
    assert story.frames[story.telling].says == "Step 3: rank 4 adds its own A: a sum of 5 ranks."


def test_the_ring_s_chunk_is_complete_halfway_and_everywhere_in_the_end() -> None:
    story = _MAKERS["ring"](num_ranks=5)
    counts = [
        [shape.words for shape in frame.shapes if isinstance(shape, Box) and shape.words[0] == "A"]
        for frame in story.frames
    ]
    assert counts[0] == ["A", *["A1"] * 5]
    assert [len([each for each in frame if each == "A5"]) for frame in counts] == [0, 0, 0, 0, 1, 2, 3, 4, 5, 5]


def test_the_ring_ends_with_every_chunk_lit_and_complete_on_every_rank() -> None:
    last = _MAKERS["ring"](num_ranks=4).frames[-1]
    assert {shape.words for shape in last.shapes if isinstance(shape, Box)} == {"A4", "B4", "C4", "D4"}
    assert not any(shape.faint for shape in last.shapes if isinstance(shape, Box))


def test_the_mesh_ends_with_one_rank_s_row_and_column() -> None:
    last = _MAKERS["mesh"](data=3, tensor=4).frames[-1]
    lines = [shape.points for shape in last.shapes if isinstance(shape, Path)]
    (row,) = [line for line in lines if line[0][1] == line[1][1]]
    (column,) = [line for line in lines if line[0][0] == line[1][0]]
    rank = next(s for s in last.shapes if isinstance(s, Words) and s.words == "rank 5")
    assert row[0][1] > rank.y and column[0][0] > rank.x and "ranks 4-7" in last.says and "1, 5, 9" in last.says


def test_every_entry_of_a_gradient_is_sent_or_stays_behind() -> None:
    for frame in _MAKERS["residual"](kept=3, steps=4).frames:
        assert len([shape for shape in frame.shapes if isinstance(shape, Box)]) == 10


@pytest.mark.parametrize("num_gpus", [2, 4])
def test_columns_stand_beside_each_other_as_the_product_and_partial_sums_add_up_to_it(num_gpus: int) -> None:
    def numbers(frame: Frame, key: str) -> list[int]:
        return [int(shape.words) for shape in frame.shapes if isinstance(shape, Box) and shape.key.startswith(key)]

    frames = _MAKERS["cuts"](num_gpus=num_gpus).frames
    product = [11, 13, 8, 8]  # (1, 2, 3, 4) times the columns of A, by hand
    assert numbers(frames[2], "y") == numbers(frames[3], "y") == product
    partial = numbers(frames[5], "p")
    assert [sum(partial[column::4]) for column in range(4)] == product and partial[:4] != product
    assert numbers(frames[7], "p") == num_gpus * product
    assert sorted(numbers(frames[1], "a")) == sorted(numbers(frames[4], "a"))  # each number of A lies on one GPU


def test_zero_s_bars_are_a_rank_s_state_and_only_the_last_stage_sends_more() -> None:
    frames = _MAKERS["zero"](num_ranks=4, num_params=1e9).frames
    tall = [sum(b.height for b in f.shapes if isinstance(b, Box) and b.key.endswith("0")) for f in frames]
    assert [each / tall[0] for each in tall] == pytest.approx([1, 7 / 16, 5.5 / 16, 4 / 16], abs=0.01)
    sent = [next(box.width for box in f.shapes if isinstance(box, Box) and box.key == "sent") for f in frames]
    assert sent[1] == sent[0] == sent[2] and sent[3] == 1.5 * sent[0]


def test_matrix_cuts_is_the_figure_of_cuts() -> None:
    assert labkit.matrix_cuts() == labkit.figure("cuts")


@pytest.mark.parametrize(("name", "sizes"), [("wheel", {}), ("ring", {"ranks": 4}), ("ring", {"num_ranks": 40})])
def test_what_cannot_be_drawn_is_said_with_what_can(name: str, sizes: dict[str, int]) -> None:
    with pytest.raises(ConfigError, match=r"use one of|it takes|the figure shows 3 to 8"):
        labkit.figure(name, **sizes)


@pytest.mark.in_turn
def test_the_page_draws_every_frame(evaluate: Evaluate) -> None:
    data = json.loads(json.dumps(labkit.figure("ring").data))
    expression = "storyboard(data).draw({}, 2, 680)"
    drawn = evaluate("storyboard", expression, data=data)
    assert drawn["say"] == data["frames"][2]["says"] and drawn["svg"].count('data-key="token"') == 1
