"""The trusted side of the `relay` backend: matches what ranks send and receive, and knows who waits for whom.

A rank posts sends, receives and collectives, and says when it waits. Nothing here reads a clock, so what a program
brings depends on the program alone:

* a send is a rendezvous: waiting for it ends when the matching receive has been posted;
* an `isend`'s buffer is read when its own wait is called, else only when no rank can go on without it, which is as
  late as the rules of `torch.distributed` allow;
* a receive from any source takes the lowest rank that has sent, once no rank can go on otherwise;
* when no rank can go on at all, that is a deadlock, and `Deadlock.text` says who waits for whom.

The class holds no socket: `receive` takes a frame, `outbox` holds the answers.
"""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Mapping
from typing import Any

from labkit.checks.wire import Wire, WireProblem, ordered
from labkit.grading.limits import Limits
from labkit.grading.relay import counted, exchanges
from labkit.grading.relay.calls import Call, calls_of
from labkit.grading.relay.records import ANY_SOURCE, Collective, Deadlock, Part, Post, RankState, RelayError
from labkit.grading.relay.relay_deadlock import describe_deadlock, rank_lines

_MAX_RANKS = 4096
_LONGEST_NAME = 200


class Relay:
    """One case's ranks, what they posted and what they wait for.

    Args:
        world_size: Number of ranks.
        limits: What they may use.
    """

    def __init__(self, world_size: int, limits: Limits | None = None) -> None:
        self.world_size = world_size
        self.limits = limits or Limits()
        self.outbox: deque[tuple[int, dict[str, Any], bytes]] = deque()
        self._ranks = [RankState() for _ in range(world_size)]
        self._sends: dict[tuple[int, int, str, int], deque[Post]] = defaultdict(deque)
        self._receives: dict[tuple[int, int, str, int], deque[Post]] = defaultdict(deque)
        self._any: dict[tuple[int, str, int], deque[Post]] = defaultdict(deque)
        self._collectives: dict[tuple[str, int], Collective] = {}
        self._collective_counts: dict[tuple[str, int], int] = defaultdict(int)
        self._messages: list[Post] = []
        self._calls: list[tuple[Collective, Part]] = []
        self._problems: list[WireProblem] = []
        self._held_bytes = 0
        self._num_posts = 0

    # ---- what ranks say

    def receive(self, rank: int, header: Mapping[str, Any], payload: bytes) -> None:
        """Take one frame of a rank; answers go to `outbox`.

        Raises:
            RelayError: If it breaks the protocol, a limit, or a rule (sizes that differ, collectives that differ).
        """
        handlers = {
            "send": self._post,
            "recv": self._post,
            "data": self._data,
            "collective": self._collective,
            "parts": self._parts,
            "wait": self._wait,
            "test": self._wait,
            "waited": self._waited,
            "end": self._end,
        }
        handler = handlers.get(str(header.get("op")))
        if handler is None:
            raise RelayError(rank, f"an unknown request came over the relay's socket: {str(header.get('op'))[:40]!r}")
        if any(type(value) is int and abs(value) >> 63 for value in header.values()):
            raise RelayError(rank, "the relay's socket received a number that no call can have")
        try:
            handler(rank, header, payload)
        except (LookupError, TypeError, ValueError, ArithmeticError) as error:
            raise RelayError(rank, f"a request over the relay's socket is malformed: {error!r:.200}") from None

    def gone(self, rank: int, why: str) -> None:
        """Note that a rank's process is no more; `why` in words ("ended with status 7")."""
        self._ranks[rank].gone = why
        self._ranks[rank].waits.clear()
        self._ranks[rank].tests.clear()

    @property
    def all_ended(self) -> bool:
        """Whether every rank has finished its part."""
        return all(rank.ended for rank in self._ranks)

    @property
    def settled(self) -> bool:
        """Whether no rank will say anything more until it is answered: each waits, has ended or is gone."""
        return all(rank.idle for rank in self._ranks)

    @property
    def settled_but_for_threads(self) -> bool:
        """Whether each rank waits or is gone, but one has other threads, of which nothing is known."""
        return not self.settled and all(rank.idle or (rank.waits and not rank.pulls) for rank in self._ranks)

    def unstick(self) -> Deadlock | None:
        """Let somebody go on now that all ranks wait; return the deadlock where nobody can.

        Call it when `settled`, or when `settled_but_for_threads` and for a while nothing has come and no thread ran.
        """
        if self._pull() or self._match_any_source() or self._answer_tests():
            return None
        if not any(rank.waits for rank in self._ranks):
            return None
        return describe_deadlock(self._ranks)

    def lines(self) -> tuple[str, ...]:
        """Return what each rank waits for, how it ended, or that it is elsewhere."""
        return rank_lines(self._ranks)

    def wire(self) -> Wire:
        """Return what was seen."""
        receives = [post for queue in [*self._receives.values(), *self._any.values()] for post in queue]
        problems = [*self._problems, *counted.unmatched(self._messages, receives)]
        messages = ordered(counted.message(post, self.all_ended) for post in self._messages)
        seen = [
            counted.call(collective, part, self._when_waited(part.rank, part), self.all_ended)
            for collective, part in self._calls
        ]
        calls = tuple(sorted(seen, key=lambda call: (call.rank, call.sequence)))
        return Wire(messages, calls, tuple(sorted(problems, key=lambda p: (p.kind, p.rank, p.text))))

    def calls(self) -> tuple[Call, ...]:
        """Return every rank's calls, for a picture."""
        return calls_of(self._ranks)

    def _when_waited(self, rank: int, part: Part) -> int | None:
        return self._ranks[rank].position if part.waited is None and part.aside else part.waited

    # ---- requests

    def _new_id(self, rank: int, header: Mapping[str, Any]) -> int:
        state = self._ranks[rank]
        number = int(header["id"])
        if number <= state.last_id:
            raise RelayError(rank, "a request's number was used twice on the relay's socket")
        state.last_id = number
        self._num_posts += 1
        if self._num_posts > self.limits.case_messages:
            raise RelayError(rank, f"more than {self.limits.case_messages} messages in one case")
        return number

    def _post(self, rank: int, header: Mapping[str, Any], payload: bytes) -> None:
        state = self._ranks[rank]
        kind, peer = str(header["op"]), int(header["peer"])
        group, tag = str(header["group"])[:_LONGEST_NAME], int(header["tag"])
        size = int(header["bytes"])
        if not (0 <= peer < self.world_size or (kind == "recv" and peer == ANY_SOURCE)):
            raise RelayError(rank, f"it called {kind} with peer {peer}; ranks go from 0 to {self.world_size - 1}.")
        if not 0 <= size <= self.limits.message_bytes:
            raise RelayError(rank, f"it called {kind} with {size} bytes; at most {self.limits.message_bytes} pass.")
        number = self._new_id(rank, header)
        where = str(header.get("where", ""))[:200]
        dtype, posted = str(header["dtype"])[:20], bool(header.get("posted"))
        post = Post(rank, number, kind, peer, tag, group, size, dtype, state.position, where=where, posted=posted)
        state.position += 1
        state.posts[number] = post
        if kind == "send":
            self._messages.append(post)
            if header.get("eager"):
                self._keep(post, payload)
            waiting = self._receives[(rank, peer, group, tag)]
            if waiting:
                self._join(post, waiting.popleft())
            else:
                self._sends[(rank, peer, group, tag)].append(post)
        elif peer == ANY_SOURCE:
            self._any[(rank, group, tag)].append(post)
        else:
            sent = self._sends[(peer, rank, group, tag)]
            if sent:
                self._join(sent.popleft(), post)
            else:
                self._receives[(peer, rank, group, tag)].append(post)

    def _join(self, send: Post, receive: Post) -> None:
        if send.size != receive.size:
            text = (
                f"rank {send.rank} sent {send.size} bytes to rank {receive.rank}, "
                f"which asked for {receive.size} bytes: both sides must name tensors of the same size and dtype."
            )
            self._problems.append(WireProblem("size_mismatch", send.rank, text))
            raise RelayError(receive.rank, text)
        if send.dtype != receive.dtype:
            text = f"rank {send.rank} sent {send.dtype} to rank {receive.rank}, which received it as {receive.dtype}."
            self._problems.append(WireProblem("size_mismatch", send.rank, text))
        send.match, receive.match = receive, send
        self._progress(send)
        self._progress(receive)

    def _keep(self, post: Post, payload: bytes) -> None:
        if len(payload) != post.size or post.data is not None:
            raise RelayError(post.rank, "the bytes of a message are not those that were announced")
        self._hold(post.rank, len(payload))
        post.data, post.came = bytes(payload), len(payload)

    def _hold(self, rank: int, count: int) -> None:
        self._held_bytes += count
        if self._held_bytes > self.limits.case_message_bytes:
            raise RelayError(rank, f"more than {self.limits.case_message_bytes} bytes are in flight in one case")

    def _data(self, rank: int, header: Mapping[str, Any], payload: bytes) -> None:
        state = self._ranks[rank]
        post = state.posts[int(header["id"])]
        if post.kind != "send":
            raise RelayError(rank, "data came for a call that is not a send")
        self._keep(post, payload)
        if post.pulled:
            state.pulls = max(0, state.pulls - 1)
        self._progress(post)
        if post.match is not None:
            self._progress(post.match)

    def _wait(self, rank: int, header: Mapping[str, Any], payload: bytes) -> None:
        state = self._ranks[rank]
        number = int(header["id"])
        state.threads = max(1, int(header.get("threads", 1)))
        state.waits[number] = str(header.get("where", ""))[:200]
        if header["op"] == "test":
            state.tests.add(number)
        if number in state.posts:
            if header.get("changed"):
                self._changed(state.posts[number])
            self._progress(state.posts[number])
        else:
            collective, _ = state.parts[number]
            if header["op"] == "wait" and not header.get("promised"):
                self._waited(rank, header, payload)
            self._finish_collective(collective)

    def _waited(self, rank: int, header: Mapping[str, Any], payload: bytes) -> None:
        """Note that a rank's own program waits for a collective."""
        state = self._ranks[rank]
        if int(header["id"]) in state.parts:
            _, part = state.parts[int(header["id"])]
            if header.get("aside"):
                part.aside = True
            elif part.waited is None:
                part.waited = state.position

    def _changed(self, post: Post) -> None:
        text = (
            f"rank {post.rank} wrote into a tensor while isend was still sending it to rank {post.peer}; "
            "call wait() before you change it, or send a copy."
        )
        self._problems.append(WireProblem("changed_in_flight", post.rank, text))

    def _end(self, rank: int, header: Mapping[str, Any], payload: bytes) -> None:
        self._ranks[rank].ended = True

    # ---- answers

    def _answer(self, rank: int, number: int, header: dict[str, Any], payload: bytes = b"") -> None:
        state = self._ranks[rank]
        state.waits.pop(number, None)
        state.tests.discard(number)
        self.outbox.append((rank, {"id": number, **header}, payload))

    def _progress(self, post: Post) -> None:
        """Answer the wait for a post that is complete."""
        if post.id not in self._ranks[post.rank].waits or post.match is None:
            return
        if post.kind == "send":
            if post.data is not None:
                self._answer(post.rank, post.id, {"op": "done"})
        elif post.match.data is not None and not post.delivered:
            post.delivered = True
            self._held_bytes -= len(post.match.data)
            source = post.match.rank
            self._answer(post.rank, post.id, {"op": "done", "source": source}, post.match.data)
            post.match.data = b""

    def _pull(self) -> bool:
        """Ask blocked senders for what a waiting receiver lacks."""
        wanted: dict[int, list[int]] = defaultdict(list)
        for rank in self._ranks:
            for number in rank.waits:
                send = rank.posts[number].match if number in rank.posts else None
                if send is None or send.kind != "send" or send.data is not None or send.pulled:
                    continue
                if self._ranks[send.rank].waits:
                    send.pulled = True
                    wanted[send.rank].append(send.id)
        for source, numbers in wanted.items():
            self._ranks[source].pulls += len(numbers)
            self.outbox.append((source, {"op": "pull", "ids": sorted(numbers)}, b""))
        return bool(wanted)

    def _match_any_source(self) -> bool:
        for (rank, group, tag), queue in sorted(self._any.items()):
            if not queue:
                continue
            for source in range(self.world_size):
                sent = self._sends[(source, rank, group, tag)]
                if sent:
                    receive = queue.popleft()
                    self._join(sent.popleft(), receive)
                    return True
        return False

    def _answer_tests(self) -> bool:
        testing = [(rank, number) for rank, state in enumerate(self._ranks) for number in sorted(state.tests)]
        for rank, number in testing:
            self._num_posts += 1
            if self._num_posts > self.limits.case_messages:
                raise RelayError(rank, "it kept asking is_completed() for something that never completes")
            self._answer(rank, number, {"op": "no"})
        return bool(testing)

    # ---- collectives

    def _collective(self, rank: int, header: Mapping[str, Any], payload: bytes) -> None:
        state = self._ranks[rank]
        group, name = str(header["group"])[:_LONGEST_NAME], str(header["name"])[:60]
        members = _members(group)
        if rank not in members or max(members) >= self.world_size:
            raise RelayError(rank, f"it called {name} in a group it is not in")
        if name not in exchanges.KINDS:
            raise RelayError(rank, f"it called {name!r}, which is not a collective")
        number = self._new_id(rank, header)
        index = self._collective_counts[(group, rank)]
        self._collective_counts[(group, rank)] += 1
        collective = self._collectives.setdefault((group, index), Collective(members, index))
        part = Part(rank, number, name, str(header.get("where", ""))[:200], int(header["bytes"]))
        part.position = state.position
        for other in collective.parts.values():
            if other.name != name:
                raise RelayError(
                    rank,
                    f"rank {other.rank} called {other.name} while rank {rank} called {name}: all must call the same.",
                )
        collective.parts[rank] = part
        state.parts[number] = (collective, part)
        self._calls.append((collective, part))
        state.position += 1

    def _parts(self, rank: int, header: Mapping[str, Any], payload: bytes) -> None:
        collective, part = self._ranks[rank].parts[int(header["id"])]
        sizes = [int(size) for size in header["sizes"]]
        if header.get("changed"):
            raise RelayError(
                rank,
                f"rank {rank} wrote into a tensor that its {part.name} was still reading; call wait() before you "
                "change it, or give a copy.",
            )
        if any(size < 0 for size in sizes) or sum(sizes) != len(payload) or part.contribution is not None:
            raise RelayError(rank, f"what it gave to {part.name} is not what it announced")
        if len(payload) > self.limits.message_bytes:
            raise RelayError(rank, f"it gave {len(payload)} bytes to {part.name}; at most {self.limits.message_bytes}")
        self._hold(rank, len(payload))
        part.size, part.sizes = len(payload), tuple(sizes)
        if len(sizes) == 1:
            part.contribution = [payload] * len(collective.members)
        elif len(sizes) == len(collective.members):
            ends = [sum(sizes[: i + 1]) for i in range(len(sizes))]
            part.contribution = [payload[end - size : end] for end, size in zip(ends, sizes, strict=True)]
        else:
            raise RelayError(rank, f"it gave {len(sizes)} parts to {part.name} of {len(collective.members)} ranks")
        self._finish_collective(collective)

    def _finish_collective(self, collective: Collective) -> None:
        parts = [collective.parts[member] for member in collective.members if member in collective.parts]
        if len(parts) < len(collective.members) or any(part.contribution is None for part in parts):
            return
        name, members = parts[0].name, collective.members
        total = sum(len(piece) for part in parts for piece in part.contribution or ())
        if total > 2 * self.limits.case_message_bytes:
            raise RelayError(members[0], f"{name} would give {total} bytes to all ranks together")
        wrong = exchanges.problem(name, members, [part.sizes or () for part in parts])
        if wrong is not None:
            raise RelayError(*wrong)
        for index, part in enumerate(parts):
            if part.given or part.id not in self._ranks[part.rank].waits:
                continue
            pieces = [other.contribution[index] for other in parts if other.contribution]
            part.given = True
            self._answer(part.rank, part.id, {"op": "done", "sizes": [len(p) for p in pieces]}, b"".join(pieces))
        if all(part.given for part in parts):
            for part in parts:
                self._held_bytes -= part.size
                part.size, part.contribution = 0, [b""] * len(parts)


def _members(group: str) -> tuple[int, ...]:
    """Return the global ranks in a group's name, "1:0,2,3"."""
    members = tuple(int(member) for member in group.split(":", 1)[1].split(","))
    if not members or len(members) > _MAX_RANKS or len(set(members)) != len(members) or min(members) < 0:
        raise ValueError("a group lists a rank twice")
    return members
