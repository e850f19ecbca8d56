"""A batch split over replicas, and their gradients merged."""

from __future__ import annotations

from labkit.errors import ConfigError
from labkit.widgets.figures.sizes import within
from labkit.widgets.language import tint
from labkit.widgets.storyboard import WIDTH, Box, Frame, Path, Shape, Story, Words

_TOP, _MODEL, _MEAN, _HEIGHT = 16, 120, 236, 286


def batch_split(num_replicas: int = 4, batch_size: int = 8) -> Story:
    """Return the figure of one data-parallel step: split, forward and backward, average, the same step everywhere."""
    within("num_replicas", num_replicas, 2, 6)
    within("batch_size", batch_size, num_replicas, 24)
    if batch_size % num_replicas:
        raise ConfigError(f"{batch_size} samples do not divide over {num_replicas} replicas; use a multiple.")
    each, pitch = batch_size // num_replicas, WIDTH / num_replicas
    side = min(24.0, (pitch - 40) / each)
    samples = [(k, divmod(k, each)) for k in range(batch_size)]

    def models(note: str) -> list[Shape]:
        boxes: list[Shape] = []
        for rank in range(num_replicas):
            left = rank * pitch + 14
            boxes += [Box("", left, _MODEL, pitch - 28, 52, words=f"replica {rank}"), Words(left + 2, _MODEL - 6, note)]
        return boxes

    def shards(y: float) -> list[Shape]:
        return [
            Box(f"s{k}", rank * pitch + pitch / 2 + (at - each / 2) * side, y, side - 2, side - 2, tint(rank))
            for k, (rank, at) in samples
        ]

    def gradients(place: str, fill: str = "backward") -> list[Shape]:
        boxes: list[Shape] = []
        for rank in range(num_replicas):
            home = rank * pitch + pitch / 2 - 34
            x, y = {"home": (home, _MODEL + 62), "merged": (WIDTH / 2 - 34, _MEAN)}[place]
            words = "mean" if place == "merged" or fill == "collective" else f"grad {rank}"
            boxes.append(Box(f"g{rank}", x, y, 68, 24, fill, words))
        return boxes

    homes = [rank * pitch + pitch / 2 for rank in range(num_replicas)]
    merging = [Path(((x, _MODEL + 56), (WIDTH / 2, _MEAN - 2)), "collective", 1.5, arrow=True) for x in homes]
    start = WIDTH / 2 - batch_size * side / 2
    whole: list[Shape] = [
        Box(f"s{k}", start + k * side, _TOP, side - 2, side - 2, tint(k // each)) for k in range(batch_size)
    ]
    label = [Words(start - 8, _TOP + 16, "batch", anchor="end")]
    frames = [
        Frame(f"A batch of {batch_size} samples, and the same model on {num_replicas} ranks.",
              (*label, *whole, *models("same weights"))),
        Frame(f"Each rank takes {each} samples: a different shard.", (*shards(_MODEL - 58), *models("same weights"))),
        Frame("All ranks compute at the same time. Each gradient knows only its own shard.",
              (*shards(_MODEL - 58), *models("same weights"), *gradients("home"))),
        Frame("All-reduce: the gradients are averaged. The mean is the gradient of the whole batch.",
              (*shards(_MODEL - 58), *models("same weights"), *merging, *gradients("merged", "collective"))),
        Frame("Every rank gets the mean and takes the same step, so the weights stay the same.",
              (*shards(_MODEL - 58), *models("same new weights"), *gradients("home", "collective"))),
    ]  # fmt: skip
    title = f"{num_replicas} replicas, {each} samples each: one step on all {batch_size}"
    return Story(title, frames, _HEIGHT, {"samples a rank": each}, telling=2)
