"""What differs: between two states, and between two sessions' lines. Pure.

Two sessions are aligned by the order in which their events were issued, a return with the return of
the same call (`line_alignment`); times, ids, durations, claims and the order in which calls
completed are left out, so that a rerun or a branch is equal to its model as long as it does the
same.
"""

from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

from eventlog.canonical import decode, encode
from eventlog.event import Event
from eventlog.state_patch import apply, diff_encoded
from eventlog.values.opaque_values import Registered
from replay.line_alignment import AlignedEvent, Alignment, Pair, Place


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
    alignment = Alignment(first, second)
    for pair in alignment.pairs():
        found = _compare_pair(pair)
        if found is None:
            continue
        if found.first_step is not None:
            # Calls that were still open may have been answered otherwise, at an earlier step.
            earlier = map(_compare_pair, alignment.pairs_before(found.first_step))
            found = min((each for each in (found, *earlier) if each is not None), key=_first_step)
        return found
    return Difference(True, None, None, ())


def _first_step(difference: Difference) -> int:
    assert difference.first_step is not None
    return difference.first_step


def _compare_pair(pair: Pair) -> Difference | None:
    one, other = pair.one, pair.other
    if one is None:
        assert other is not None
        return Difference(False, None, other.step, (Change("add", (), None, _shown(other)),))
    if other is None:
        return Difference(False, one.step, None, (Change("remove", (), _shown(one), None),))
    before: dict[str, object] = {}
    after: dict[str, object] = {}
    if not pair.state_only:
        before, after = _alike_where_it_is_the_same(one, other)
    if pair.same_way:
        before["state_digest"], after["state_digest"] = one.state_digest, other.state_digest
    before_bytes, after_bytes = encode(before), encode(after)
    if before_bytes == after_bytes:
        return None
    return Difference(False, one.step, other.step, compare_states(before_bytes, after_bytes))


def _shown(event: AlignedEvent) -> dict[str, object]:
    return {"kind": event.kind, "body": event.body, "state_digest": event.state_digest}


def _alike_where_it_is_the_same(
    one: AlignedEvent, other: AlignedEvent
) -> tuple[dict[str, object], dict[str, object]]:
    """Both contents; steps in them are alike where they name the same event, and only there."""
    body, other_body = dict(one.body), dict(other.body)
    for name in one.names.keys() & other.names.keys():
        place, other_place = one.names[name], other.names[name]
        if place == other_place:
            other_body[name] = body[name]
        elif body[name] == other_body[name]:
            body[name] = f"{body[name]}: {_told(place)}"
            other_body[name] = f"{other_body[name]}: {_told(other_place)}"
    return {"kind": one.kind, "body": body}, {"kind": other.kind, "body": other_body}


def _told(place: Place) -> str:
    """The event as it is called in any line."""
    return f"event {place}" if isinstance(place, int) else f"{place[0]} event {place[1]}"


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
