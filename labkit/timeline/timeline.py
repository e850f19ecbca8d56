"""The record every world yields: spans in columns, and tables beside them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from labkit.errors import ConfigError
from labkit.timeline import archive as _archive
from labkit.timeline import chrome as _chrome
from labkit.timeline import distinct as _distinct
from labkit.timeline import messages as _messages
from labkit.timeline import summary as _summary
from labkit.timeline import transfers as _transfers
from labkit.timeline.columns import COLUMNS, Table
from labkit.timeline.drawing import draw
from labkit.timeline.span import Collective, Lane, Message, Problem, Span

if TYPE_CHECKING:
    import numpy.typing as npt


class Timeline:
    """Spans of all ranks in columns of equal length (numpy arrays), in the order each rank began them.

    Attributes:
        rank, lane, start_ns, end_ns, name, kind, bytes, peer, flow: The columns; see :class:`~labkit.timeline.Span`.
        tables: More about some spans or ranks, each a dict of columns. A column "span" or "of" holds row numbers.
            "source" (span, line), "call" (span, group, group_size, number, tag, blocking, failed, thread), "wait"
            (span, of: the call that was waited for; aside: by a callback or another thread), "reply" (span: what an
            answer came from, of: the remote call, where that is not its serving), "open" (span: never seen to end),
            "transfer" (labkit.timeline.transfers), "phase" (labkit.timeline.phases), "stream" (span, stream: of the
            device, where that is not the one there is without a choice), "held" (span: begun when its stream had waited
            for another one, of: at whose end, start_ns and end_ns of the wait),
            "clock" (rank, method, err_ns, host), "lifetime", "memory" and "memory_peak" (labkit.timeline.memory); later
            lessons add "stage", "version".
        problems: What is wrong in the record whatever the result was, such as a send nobody received.
        num_ranks: Ranks of the world, also those without a span.
        is_asked_about: Whether an exercise asks what went wrong in it; its title then names no rank.
    """

    is_asked_about = False

    def __init__(
        self,
        rank: npt.ArrayLike = (),
        lane: npt.ArrayLike = (),
        start_ns: npt.ArrayLike = (),
        end_ns: npt.ArrayLike = (),
        name: npt.ArrayLike = (),
        kind: npt.ArrayLike = (),
        bytes: npt.ArrayLike | None = None,
        peer: npt.ArrayLike | None = None,
        flow: npt.ArrayLike | None = None,
        *,
        tables: Mapping[str, Table] | None = None,
        problems: tuple[Problem, ...] = (),
        num_ranks: int | None = None,
    ) -> None:
        given: dict[str, Any] = {"rank": rank, "lane": lane, "start_ns": start_ns, "end_ns": end_ns}
        given |= {"name": name, "kind": kind, "bytes": bytes, "peer": peer, "flow": flow}
        length = len(np.atleast_1d(np.asarray(rank)))
        columns = {
            key: np.full(length, 0 if key == "bytes" else -1, dtype)
            if given[key] is None
            else np.atleast_1d(np.asarray(given[key])).astype(dtype)
            for key, dtype in COLUMNS.items()
        }
        wrong = {key: len(column) for key, column in columns.items() if len(column) != length}
        if wrong:
            raise ConfigError(f"rank has {length} entries, but {wrong}; every column needs the same number.")
        backward = np.flatnonzero(columns["end_ns"] < columns["start_ns"])
        if len(backward):
            raise ConfigError(f"Span {int(backward[0])} ends before it starts; end_ns must be at least start_ns.")
        for column in columns.values():
            column.setflags(write=False)
        self.rank, self.lane = columns["rank"], columns["lane"]
        self.start_ns, self.end_ns = columns["start_ns"], columns["end_ns"]
        self.name, self.kind = columns["name"], columns["kind"]
        self.bytes, self.peer, self.flow = columns["bytes"], columns["peer"], columns["flow"]
        self.tables = {key: dict(table) for key, table in (tables or {}).items()}
        self.problems = problems
        least = int(self.rank.max()) + 1 if length else 0
        self.num_ranks = least if num_ranks is None else max(least, num_ranks)

    def __len__(self) -> int:
        return len(self.rank)

    @cached_property
    def makespan_ns(self) -> int:
        """Return the time from the first begin to the last end, 0 for an empty timeline.

        Named regions do not count where anything else was recorded.
        """
        if not len(self):
            return 0
        real = self.lane != Lane.REGION
        start, end = (
            (self.start_ns, self.end_ns) if real.all() or not real.any() else (self.start_ns[real], self.end_ns[real])
        )
        return int(end.max() - start.min())

    @cached_property
    def extent_ns(self) -> tuple[int, int]:
        """Return the first begin and the last end of all there is, named regions among it: what a picture spans."""
        return (int(self.start_ns.min()), int(self.end_ns.max())) if len(self) else (0, 0)

    @cached_property
    def transfers(self) -> Table:
        """Return the table "transfer": when bytes of those calls moved that were blocked for some of their time."""
        return _transfers.transfers(self)

    @cached_property
    def kind_codes(self) -> tuple[list[str], npt.NDArray[np.int32]]:
        """Return the distinct kinds and, for each row, which of them it is."""
        return _distinct.coded(self.kind)

    def rows(self) -> Iterator[Span]:
        """Yield every span as a record."""
        columns = (
            self.rank,
            self.lane,
            self.start_ns,
            self.end_ns,
            self.name,
            self.kind,
            self.bytes,
            self.peer,
            self.flow,
        )
        for rank, lane, start, end, name, kind, size, peer, flow in zip(*(c.tolist() for c in columns), strict=True):
            yield Span(rank, Lane(lane), start, end, name, kind, size, peer, flow)

    def spans(self, rank: int | None = None, lane: int | None = None, kind: str | None = None) -> Timeline:
        """Return the spans that have this rank, lane and kind; None means any. Times and tables are kept."""
        keep = np.ones(len(self), dtype=bool)
        for column, value in ((self.rank, rank), (self.lane, lane), (self.kind, kind)):
            if value is not None:
                keep &= column == value
        return self.select(keep)

    def select(self, keep: npt.NDArray[np.bool_]) -> Timeline:
        """Return the spans where keep is true; row numbers in tables and problems follow."""
        new_row = np.cumsum(keep) - 1
        tables: dict[str, Table] = {}
        for key, table in self.tables.items():
            links = [table[column] for column in ("span", "of") if column in table]
            stays = np.logical_and.reduce([keep[link] for link in links]) if links else None
            tables[key] = {
                column: values
                if stays is None
                else (new_row[values[stays]] if column in ("span", "of") else values[stays])
                for column, values in table.items()
            }
        columns = {key: getattr(self, key)[keep] for key in COLUMNS}
        problems = tuple(
            replace(each, row=int(new_row[each.row]) if keep[each.row] else -1) if each.row >= 0 else each
            for each in self.problems
        )
        return Timeline(**columns, tables=tables, problems=problems, num_ranks=self.num_ranks)

    def messages(self) -> list[Message]:
        """Return every point-to-point message, ordered by source rank and then by when its send was posted."""
        return _messages.messages(self)

    def collectives(self) -> list[Collective]:
        """Return every call of a collective, ordered by rank and then by when it was called."""
        return _messages.collectives(self)

    def save(self, path: str | Path) -> None:
        """Write the timeline as a numpy archive (``.npz``) or as JSON (``.json``), which :meth:`load` reads."""
        _archive.save(self, path)

    @classmethod
    def load(cls, path: str | Path) -> Timeline:
        """Return the timeline that :meth:`save` wrote; raises ConfigError for any other file."""
        return _archive.load(cls, path)

    def to_chrome(self, path: str | Path) -> None:
        """Write a Chrome trace, which https://ui.perfetto.dev opens."""
        _chrome.write(self, path)

    def summary(self) -> str:
        """Return one sentence: ranks, duration, what was sent, how much was waiting."""
        return _summary.summary(self)

    def __repr__(self) -> str:
        return f"Timeline({_summary.extent(self)})"

    def explore(self, ranks: Sequence[int] | None = None, row: int = -1) -> Any:
        """Return the timeline as a widget to zoom, measure and compare in, for a page that runs widgets.

        Args:
            ranks: Which ranks to show; None shows all, or 64 evenly spaced ones.
            row: A row of the timeline to open at, such as the call that failed; -1 for the whole.

        Raises:
            ConfigError: If a rank or the row is not there.
        """
        return draw("explore", self, ranks, row)

    def ask(self, question: str, unit: str = "") -> Any:
        """Return the timeline behind a question: nothing of it is shown until its reader has written down a guess.

        The guess is in ``.guess`` of what is returned. In a lesson write it in a cell of its own with
        ``labkit.predict``, and give the timeline to ``labkit.reveal``: that guess is saved, and a grader reads it.

        Args:
            question: What is asked, "How much of the time is a bubble?".
            unit: Unit of the guess, "%".
        """
        return draw("ask", self, question, unit)

    def to_html(self, path: str | Path) -> None:
        """Write a page that shows the timeline in any browser, without a network and without a kernel."""
        Path(path).write_text(draw("page", self), encoding="utf-8")

    def _ipython_display_(self) -> None:
        """Show the picture, and where somebody looks the widget after it, whose style hides the picture."""
        if not draw("is_live"):
            raise NotImplementedError  # IPython then asks for _repr_mimebundle_
        draw("display", self)

    def _repr_mimebundle_(self, include: Any = None, exclude: Any = None) -> Any:
        """Return the static picture and a sentence for any notebook; for a lesson also what a deck needs."""
        return draw("bundle", self)
