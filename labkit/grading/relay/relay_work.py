"""The handle of an operation on the relay, and when its buffers are read and written."""

from __future__ import annotations

import threading
from collections.abc import Callable

import torch
from torch.futures import Future

from labkit.grading.frames import Frame
from labkit.grading.relay.client import RelayClient
from labkit.grading.relay.tensors import Tensors
from labkit.torch_port.handles import Handle


class RelayWork(Handle):
    """What `isend`, `irecv` and asynchronous collectives return."""

    def __init__(
        self,
        client: RelayClient,
        number: int,
        finish: Callable[[Frame], None],
        result: Tensors,
        to_group: Callable[[int], int] | None = None,
        changed: Callable[[], bool] = lambda: False,
    ) -> None:
        super().__init__()
        self._client = client
        self._number = number
        self._finish = finish
        self._tensors = list(result)
        self._to_group = to_group
        self._changed = changed
        self._source = -1
        self._done = False
        self._untold = False
        self._thread = threading.get_ident()

    def wait(self, timeout: object = None) -> bool:
        """Return True once the operation is complete; what was received is written now."""
        # A callback of a future, or another thread, may wait while the program goes on.
        aside = self._client.futures.in_callback or threading.get_ident() != self._thread
        if not self._done:
            self._untold = aside
            self._complete(self._client.wait(self._number, self._changed(), aside=aside))
        elif self._untold:
            self._untold = aside
            self._client.waited(self._number, aside)
        return True

    def is_completed(self) -> bool:
        """Return whether the operation is complete, without waiting for a rank that waits for us."""
        if not self._done:
            answer = self._client.test(self._number)
            if answer is not None:
                self._complete(answer)
        return self._done

    def is_success(self) -> bool:
        """Return whether the operation is complete."""
        return self._done

    def exception(self) -> None:
        """Return None: what goes wrong ends the rank."""

    def synchronize(self) -> None:
        """Wait for the operation."""
        self.wait()

    def source_rank(self) -> int:
        """Return the group rank a message came from."""
        return self._source

    def result(self) -> list[torch.Tensor]:
        """Return the tensors that were written."""
        return self._tensors

    def get_future(self) -> Future[list[torch.Tensor]]:
        """Return a future that is complete: the operation ends here, which is not counted as the learner's waiting."""
        if not self._done:
            self._untold = True
            self._complete(self._client.wait(self._number, self._changed(), promised=True))
        future: Future[list[torch.Tensor]] = Future()
        self._client.futures.bind(future, (self,))
        future.set_result(self._tensors)
        return future

    def _complete(self, answer: Frame) -> None:
        self._done = True
        source = answer.header.get("source")
        if source is not None and self._to_group is not None:
            self._source = self._to_group(source)
        self._finish(answer)
