"""A batch split over replicas, and their gradients merged: by all of them, or on device 0."""

from __future__ import annotations

from labkit.errors import ConfigError
from labkit.widgets.figures.sizes import within
from labkit.widgets.language import tint
from labkit.widgets.storyboard import WIDTH, Box, Frame, Path, Shape, Story, Words

_TOP, _MODEL, _MEAN, _HEIGHT = 16, 120, 236, 286


def batch_split(num_replicas: int = 4, batch_size: int = 8, one_process: bool = False) -> Story:
    """Return the figure of one data-parallel step: split, forward and backward, gradients merged, a step.

    Args:
        num_replicas: 2 to 6.
        batch_size: A multiple of it.
        one_process: As ``nn.DataParallel`` does it, by way of device 0; else by an all-reduce of equal ranks.
    """
    within("num_replicas", num_replicas, 2, 6)
    within("batch_size", batch_size, num_replicas, 24)
    if batch_size % num_replicas:
        raise ConfigError(f"{batch_size} samples do not divide over {num_replicas} replicas; use a multiple.")
    each = batch_size // num_replicas
    frames = (_by_way_of_device_0 if one_process else _all_alike)(_Stage(num_replicas, each))
    title = f"{num_replicas} replicas, {each} samples each: one step on all {batch_size}"
    if one_process:
        title = f"{num_replicas} devices share a batch of {batch_size}; everything passes device 0"
    return Story(title, frames, _HEIGHT, {"samples a replica": each}, telling=4 if one_process else 2)


def _all_alike(stage: _Stage) -> list[Frame]:
    """Return the step of ranks that all hold the weights."""
    same, shards = stage.models("same weights"), stage.shards()
    merging = [Path(((x, _MODEL + 56), (WIDTH / 2, _MEAN - 2)), "collective", 1.5, arrow=True) for x in stage.middles]
    number, each = stage.number, stage.each
    return [
        Frame(f"A batch of {number * each} samples, and {number} replicas: the same model on {number} ranks.",
              (*stage.batch(WIDTH / 2), *same)),
        Frame(f"Each replica takes {each} samples: a different shard.", (*shards, *same)),
        Frame("All replicas compute at the same time. Each gradient knows only its own shard.",
              (*shards, *same, *stage.results("grad", "backward"))),
        Frame("All-reduce: the gradients are averaged. The mean is the gradient of the whole batch.",
              (*shards, *same, *merging, *stage.results("mean", "collective", merged=True))),
        Frame("Every replica gets the mean and takes the same step, so the weights stay the same.",
              (*shards, *stage.models("same new weights"), *stage.results("mean", "collective"))),
    ]  # fmt: skip


def _by_way_of_device_0(stage: _Stage) -> list[Frame]:
    """Return the step of one process: all begins and ends on device 0."""
    first, *others = stage.middles
    copies, shards = stage.models("a copy", "the weights"), stage.shards()

    def links(y: float, fill: str, to_first: bool, beside: float = 0) -> list[Path]:
        ends = [((first + beside, y), (x, y)) for x in others]
        return [Path(tuple(reversed(pair)) if to_first else pair, fill, 1.5, arrow=True) for pair in ends]

    below = _MODEL + 104
    back = links(below, "backward", True)
    return [
        Frame(f"Device 0 has the batch of {stage.number * stage.each} samples, and the only model.",
              (*stage.batch(first, left=True), *stage.models("no weights yet", "the weights"))),
        Frame(f"Scatter and replicate: each device gets {stage.each} samples and a copy of the weights.",
              (*shards, *links(_TOP + 24, "send", False), *copies)),
        Frame("Apply: all replicas compute at the same time, each on its own samples.",
              (*shards, *copies, *stage.results("output", "forward"))),
        Frame("Gather: the outputs go to device 0, which computes the loss alone.",
              (*shards, *copies, *links(below, "send", True, 36), *stage.results("output", "forward", on_first=True))),
        Frame("Backward: each replica computes a gradient, and device 0 adds all of them.",
              (*shards, *copies, *back, *stage.results("grad", "backward"))),
        Frame("Device 0 takes the step. The copies are thrown away; the next step makes new ones.",
              (*shards, *stage.models("old: thrown away", "new weights"),
               *stage.results("grad", "backward", on_first=True))),
    ]  # fmt: skip


class _Stage:
    """What stands where: replicas in a row, samples above them, what they computed below."""

    def __init__(self, number: int, each: int) -> None:
        self.number, self.each = number, each
        self._pitch = WIDTH / number
        self._side = min(24.0, (self._pitch - 40) / each)
        self.middles = [(rank + 0.5) * self._pitch for rank in range(number)]

    def models(self, note: str, first: str = "") -> list[Shape]:
        """Return the replicas, each with a note above."""
        boxes: list[Shape] = []
        for rank, middle in enumerate(self.middles):
            left = middle - self._pitch / 2 + 14
            boxes.append(Box("", left, _MODEL, self._pitch - 28, 52, words=f"replica {rank}"))
            boxes.append(Words(left + 2, _MODEL - 6, note if rank or not first else first))
        return boxes

    def batch(self, middle: float, left: bool = False) -> list[Shape]:
        """Return all samples side by side about the middle, or from the left on."""
        size = self.number * self.each
        start = middle - self._pitch / 2 + 60 if left else middle - size * self._side / 2
        samples = [self._sample(k, start + k * self._side, _TOP) for k in range(size)]
        return [Words(start - 8, _TOP + 16, "batch", anchor="end"), *samples]

    def shards(self) -> list[Shape]:
        """Return each replica's samples above it."""
        return [
            self._sample(k, self.middles[k // self.each] + (k % self.each - self.each / 2) * self._side, _MODEL - 58)
            for k in range(self.number * self.each)
        ]

    def results(self, word: str, fill: str, merged: bool = False, on_first: bool = False) -> list[Shape]:
        """Return what each replica computed below it, all in one place in the middle, or piled up below the first."""
        boxes: list[Shape] = []
        for rank, home in enumerate(self.middles):
            words = word if word == "mean" else f"{word} {rank}"
            x, y = (WIDTH / 2, _MEAN) if merged else (home, _MODEL + 62)
            x, y = (self.middles[0], _MODEL + 62 + 17 * rank) if on_first else (x, y)
            boxes.append(Box(f"g{rank}", x - 34, y, 68, 24 if not on_first else 15, fill, words))
        return boxes

    def _sample(self, k: int, x: float, y: float) -> Box:
        return Box(f"s{k}", x, y, self._side - 2, self._side - 2, tint(k // self.each))
