"""Two sessions' lines beside each other, event by event, in the order of issue. Pure.

An event has a counterpart in the other line: what was issued (calls, messages, verifications, ...)
is the n-th issued there; a return is the return of the same call. So calls that ran at one time may
complete in another order, and among other events, and still do the same: completion order is left
out, as times are. A state is compared wherever both lines have come the same way, that is after the
same events: always where the order is the same, and else where it has come together again.

Used by `diff`. Reads both lines side by side, and keeps only what has no counterpart yet.
"""

from array import array
from bisect import bisect_left
from collections import deque
from collections.abc import Iterable, Iterator, Mapping
from typing import Final, NamedTuple, TypeAlias

from eventlog.canonical import decode
from eventlog.content import CANONICAL_VALUE, BlobRef, Content
from eventlog.event import Event, SessionSeeded, StateChange, StateUnknown, ToolReturned

# Larger contents are compared, and shown, by their SHA-256: from about here on one may stand in a
# blob, and whether it does hangs on what else its event holds.
_SHOWN_BYTES_MAX: Final = 16 * 1024

# What names or dates a particular run, and says nothing of what it did.
_IGNORED_FIELDS: Final = frozenset(
    {
        "call_id",
        "duration_us",
        "event_count",
        "fingerprint",
        "group_id",
        "idempotency_key",
        "metadata",
        "parent_session",
        "rollout_index",
        "root",
        "sample_id",
        "training_session",
        "training_step",
        "writer",
    }
)
_STEP_FIELDS: Final = frozenset({"called_step", "about_step", "duplicate_of", "supersedes_step"})
_CLAIMS: Final = frozenset({"session_forked", "session_resumed", "session_released"})

Place: TypeAlias = int | tuple[str, int]
"""Which event it is, in any line: the n-th issued, or the return of the n-th."""


class AlignedEvent(NamedTuple):
    """An event without claims, names and times before it or in it.

    `body` has its fields, steps in them counted without claims; `names` says which event each of
    these steps is, for the same event may have another step in the other line.
    """

    step: int
    place: Place
    kind: str
    body: dict[str, object]
    names: dict[str, Place]
    state_digest: str


class Pair(NamedTuple):
    """An event and its counterpart; None where the other line has none.

    `same_way` says that both lines have come the same way up to here, so their states compare;
    a pair with only that to say has `state_only`.
    """

    one: AlignedEvent | None
    other: AlignedEvent | None
    same_way: bool = False
    state_only: bool = False


class Alignment:
    """Pairs the events of two lines, as soon as both are read."""

    def __init__(self, first: Iterable[Event], second: Iterable[Event]) -> None:
        self._first = align_events(first)
        self._second = align_events(second)
        self._waiting_first = _Waiting()
        self._waiting_second = _Waiting()

    def pairs(self) -> Iterator[Pair]:
        """Every pair, in the order they come together; last those without a counterpart."""
        first, second = self._waiting_first, self._waiting_second
        while True:
            one, other = next(self._first, None), next(self._second, None)
            if one is None and other is None:
                break
            if one is not None and other is not None and one.place == other.place:
                yield Pair(one, other, same_way=not (first or second))
                continue
            # Both are taken in before either is told of: what is told of may be the last.
            found = [self._pair_one(one), self._pair_other(other)]
            yield from sorted((pair for pair in found if pair is not None), key=_first_step)
            if one is not None and other is not None and not (first or second):
                yield Pair(one, other, same_way=True, state_only=True)
            if (other is None and first) or (one is None and second and not first):
                break  # what is left has no counterpart, and to know of the first is enough
        yield from (Pair(event, None) for event in first.by_step())
        yield from (Pair(None, event) for event in second.by_step())

    def pairs_before(self, step: int) -> Iterator[Pair]:
        """The pairs of the first line's events before `step` that still wait for a counterpart.

        Reads the second line on as far as that takes: nothing else can be asked afterwards.
        """
        waiting = self._waiting_first
        while waiting.any_before(step):
            other = next(self._second, None)
            if other is None:
                break
            pair = self._pair_other(other)
            if pair is not None:
                yield pair
        yield from (Pair(event, None) for event in waiting.by_step() if event.step < step)

    def _pair_one(self, one: AlignedEvent | None) -> Pair | None:
        if one is None:
            return None
        other = self._waiting_second.take(one.place)
        if other is None:
            self._waiting_first.put(one)
        return None if other is None else Pair(one, other)

    def _pair_other(self, other: AlignedEvent | None) -> Pair | None:
        if other is None:
            return None
        one = self._waiting_first.take(other.place)
        if one is None:
            self._waiting_second.put(other)
        return None if one is None else Pair(one, other)


def _first_step(pair: Pair) -> int:
    assert pair.one is not None
    return pair.one.step


class _Waiting:
    """Events of one line that have no counterpart yet. A call answered twice waits twice."""

    def __init__(self) -> None:
        self._events: dict[Place, deque[AlignedEvent]] = {}

    def __bool__(self) -> bool:
        return bool(self._events)

    def put(self, event: AlignedEvent) -> None:
        self._events.setdefault(event.place, deque()).append(event)

    def take(self, place: Place) -> AlignedEvent | None:
        events = self._events.get(place)
        if events is None:
            return None
        found = events.popleft()
        if not events:
            del self._events[place]
        return found

    def any_before(self, step: int) -> bool:
        return any(events[0].step < step for events in self._events.values())

    def by_step(self) -> list[AlignedEvent]:
        waiting = [event for events in self._events.values() for event in events]
        return sorted(waiting, key=lambda event: event.step)


def align_events(events: Iterable[Event]) -> Iterator[AlignedEvent]:
    """A line's events without claims, names and times; each with its place."""
    places = _Places()
    state_digest = ""
    for event in events:
        if event.kind in _CLAIMS:
            places.note_claim(event.step)
            continue
        body = event.body
        if isinstance(body, SessionSeeded):
            state_digest = _content_digest(body.initial_state)
        if isinstance(event.state_change, StateChange):
            state_digest = event.state_change.digest.hex()
        elif isinstance(event.state_change, StateUnknown):
            state_digest = "unknown"
        fields: dict[str, object] = {}
        names: dict[str, Place] = {}
        for name, value in zip(body._fields, body, strict=True):
            if name in _STEP_FIELDS and isinstance(value, int):
                fields[name], names[name] = places.without_claims(value), places.of(value)
            elif name not in _IGNORED_FIELDS:
                fields[name] = _compared_value(value)
        if isinstance(body, ToolReturned):
            places.note_return(event.step, body.called_step)
        yield AlignedEvent(
            event.step,
            places.of(event.step),
            event.kind,
            fields,
            names,
            state_digest,
        )


class _Places:
    """Which event stands at which step of a line: 8 bytes a claim, 16 a return."""

    def __init__(self) -> None:
        self._claims = array("q")
        self._returns = array("q")
        self._returned = array("q")

    def note_claim(self, step: int) -> None:
        self._claims.append(step)

    def note_return(self, step: int, called_step: int) -> None:
        called = self.of(called_step)
        self._returned.append(called if isinstance(called, int) else -1)
        self._returns.append(step)

    def without_claims(self, step: int) -> int:
        return step - bisect_left(self._claims, step)

    def of(self, step: int) -> Place:
        before = bisect_left(self._returns, step)
        if before < len(self._returns) and self._returns[before] == step:
            return ("return of", self._returned[before])
        return self.without_claims(step) - before


def _compared_value(value: object) -> object:
    if isinstance(value, Content):
        if isinstance(value.data, BlobRef) or len(value.data) > _SHOWN_BYTES_MAX:
            return {"media_type": value.media_type, "sha256": _content_digest(value)}
        return {"media_type": value.media_type, "value": _shown_value(value.media_type, value.data)}
    if isinstance(value, tuple):
        return list(value)
    return dict(value) if isinstance(value, Mapping) else value


def _shown_value(media_type: str, data: bytes) -> object:
    """What a content says, told apart wherever its bytes are: JSON text stays text."""
    if media_type == CANONICAL_VALUE:
        return decode(data, opaque=True)
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError:
        return data


def _content_digest(content: Content | None) -> str:
    return "" if content is None else content.digest.hex()
