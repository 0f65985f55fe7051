"""What differs: between two states, and between two sessions' lines. Pure.

Two sessions are aligned by the order in which their events were issued; times, ids, durations and
claims are left out, so that a rerun or a branch is equal to its model as long as it does the same.
"""

from bisect import bisect_left
from collections.abc import Iterable, Iterator, Mapping, Sequence
from hashlib import sha256
from itertools import zip_longest
from typing import Any, Final, NamedTuple

from eventlog.canonical import decode, encode
from eventlog.content import CANONICAL_VALUE, BlobRef, Content
from eventlog.event import Event, SessionSeeded, StateChange
from eventlog.opaque_values import Registered
from eventlog.state_patch import apply, diff_encoded

# Larger contents are compared, and shown, by their SHA-256: from about here on one may stand in a
# blob, and whether it does hangs on what else its event holds.
_SHOWN_BYTES_MAX: Final = 16 * 1024

# What names or dates a particular run, and says nothing of what it did.
_IGNORED_FIELDS: Final = frozenset(
    {
        "call_id",
        "duration_us",
        "fingerprint",
        "group_id",
        "idempotency_key",
        "metadata",
        "parent_session",
        "rollout_index",
        "sample_id",
        "training_session",
        "training_step",
        "writer",
    }
)
_CLAIMS: Final = frozenset({"session_forked", "session_resumed", "session_released"})


class Change(NamedTuple):
    """One difference. `op` is add, remove, replace, cut or order; `path` leads to the place.

    A `cut` replaces the items `path[-1]` (an index) onwards: `before` by `after`.
    """

    op: str
    path: tuple[object, ...]
    before: object
    after: object


class Difference(NamedTuple):
    """The answer of `diff`. For two whole sessions `first_step` is the first differing step of the
    first, `other_step` of the second (None: it has no such event); for two states both are None.
    """

    equal: bool
    first_step: int | None
    other_step: int | None
    changes: tuple[Change, ...]


class AlignedEvent(NamedTuple):
    """An event as `diff` compares it: its step, and its content without names and times."""

    step: int
    content: dict[str, object]


def compare_states(before: bytes, after: bytes) -> tuple[Change, ...]:
    """The changes that lead from one state to another; both as canonical bytes."""
    if before == after:
        return ()
    state = decode(before, opaque=True)
    changes: list[Change] = []
    for operation in diff_encoded(before, after, close=True):
        # Operations are applied in order, so each is read against the state at its turn.
        changes.append(_read_operation(state, operation))
        state = apply([operation], state)
    return tuple(changes)


def compare_lines(first: Iterable[Event], second: Iterable[Event]) -> Difference:
    """The first step at which two sessions do something different, and what differs there."""
    for one, other in zip_longest(align_events(first), align_events(second)):
        if one is None:
            return Difference(False, None, other.step, (Change("add", (), None, other.content),))
        if other is None:
            return Difference(False, one.step, None, (Change("remove", (), one.content, None),))
        before, after = encode(one.content), encode(other.content)
        if before != after:
            return Difference(False, one.step, other.step, compare_states(before, after))
    return Difference(True, None, None, ())


def align_events(events: Iterable[Event]) -> Iterator[AlignedEvent]:
    """A line's events without claims, names and times; steps counted without claims."""
    claims: list[int] = []
    state_digest = ""
    for event in events:
        if event.kind in _CLAIMS:
            claims.append(event.step)
            continue
        if isinstance(event.state_change, StateChange):
            state_digest = event.state_change.digest.hex()
        elif event.state_change is not None:
            state_digest = "unknown"
        body: dict[str, object] = {
            name: _compared_value(name, value, claims)
            for name, value in zip(event.body._fields, event.body, strict=True)
            if name not in _IGNORED_FIELDS and name not in ("event_count", "root")
        }
        if isinstance(event.body, SessionSeeded):
            state_digest = _content_digest(event.body.initial_state)
        yield AlignedEvent(
            event.step, {"kind": event.kind, "body": body, "state_digest": state_digest}
        )


def _compared_value(name: str, value: object, claims: list[int]) -> object:
    if isinstance(value, Content):
        if isinstance(value.data, BlobRef) or len(value.data) > _SHOWN_BYTES_MAX:
            return {"media_type": value.media_type, "sha256": _content_digest(value)}
        return {"media_type": value.media_type, "value": _shown_value(value.media_type, value.data)}
    if name in ("called_step", "about_step", "duplicate_of", "supersedes_step"):
        # Counted without the claims before it, as the events themselves are.
        return value - bisect_left(claims, value) if isinstance(value, int) else None
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
    if content is None:
        return ""
    data = content.data
    return (data.digest if isinstance(data, BlobRef) else sha256(data).digest()).hex()


def _read_operation(state: object, operation: Sequence[Any]) -> Change:
    op, path, *rest = operation
    place = tuple(path)
    if op == "del":
        return Change("remove", place, _value_at(state, place), None)
    if op == "ord":
        return Change("order", place, None, list(rest[0]))
    if op == "cut":
        start, count, insert = rest
        target: Any = _inside(_value_at(state, place))
        removed = target[start : start + count]
        return Change("cut", (*place, start), removed, insert)
    found, before = _find(state, place)
    return Change("replace" if found else "add", place, before, rest[0])


def _value_at(state: object, path: tuple[object, ...]) -> object:
    return _find(state, path)[1]


def _find(state: object, path: tuple[object, ...]) -> tuple[bool, object]:
    for element in path:
        holder = _inside(state)
        if isinstance(holder, dict):
            if element not in holder:
                return False, None
            state = holder[element]
        elif isinstance(holder, list) and isinstance(element, int):
            state = holder[element]
        else:
            return False, None
    return True, state


def _inside(value: object) -> object:
    """The value within registered types: a path leads through them without an element."""
    while isinstance(value, Registered):
        value = value.value
    return value
