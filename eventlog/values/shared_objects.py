"""Mutable objects that a value reaches twice: identity is not kept by canonical bytes.

An object reached twice is restored as two, which then change apart. For a random generator that
changes what is drawn. Used by the recorder: all of them up to a bound, generators always.
"""

from collections.abc import Iterable
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from itertools import chain, islice
from typing import Any, Final
from uuid import UUID

from eventlog.values.array_values import is_array
from eventlog.values.extension_values import DEPTH_MAX, Refusal
from eventlog.values.opaque_values import Registered
from eventlog.values.registered_types import codec_of
from eventlog.values.type_codecs import RANDOM_NAME
from eventlog.values.value_path import path_step

# Types without parts that can never change; all that is not among them is looked at.
_PLAIN: Final = frozenset(
    (
        *(str, int, float, bool, type(None), bytes, complex),
        *(datetime, date, time, timedelta, Decimal, UUID),
    )
)
_DICT_OR_LIST: Final = frozenset((dict, list))


def find_shared(
    value: object, *, rngs_only: bool = False, values_max: int | None = None
) -> list[tuple[str, str]]:
    """The paths, first and second, by which each mutable object is reached twice.

    Mutable are dicts, lists, sets, arrays, and registered types that are not immutable; with
    `rngs_only` only random generators are looked for. Costs about as much as reading the value
    once in Python; the paths are worked out only where there is something to tell. A value that
    contains itself is cut off at the depth that the encoder refuses.

    `values_max` bounds the cost: only so many values are looked at, those nearest to the root, and
    what is reached twice by others alone is not found.
    """
    if not _reaches_twice(value, rngs_only, values_max):
        return []
    first_paths: dict[int, str] = {}
    found: list[tuple[str, str]] = []
    kept: list[object] = []
    _collect(value, "$", 0, rngs_only, first_paths, found, kept)
    return found


def may_share_rngs(data: bytes) -> bool:
    """Whether canonical bytes hold two random generators or more: a cheap first question."""
    return data.count(RANDOM_NAME.encode()) > 1


def _reaches_twice(value: object, rngs_only: bool, values_max: int | None) -> bool:
    """Level by level, so that the loops run in C for states that are mostly dicts and lists."""
    level: list[object] = [value]
    seen: set[int] = set()
    mutable_count = 0
    made: list[object] = []  # kept alive: a freed object's id would be given to another
    for _ in range(DEPTH_MAX + 1):
        if not level:
            break
        dicts = [part for part in level if type(part) is dict]
        lists = [part for part in level if type(part) is list]
        others = [part for part in level if type(part) not in _DICT_OR_LIST]
        if not rngs_only:
            seen.update(map(id, dicts))
            seen.update(map(id, lists))
            mutable_count += len(dicts) + len(lists)
        inner: list[object] = []
        for part in others:
            mutable, is_rng, parts = _rare(part, made)
            if is_rng or (mutable and not rngs_only):
                seen.add(id(part))
                mutable_count += 1
            inner.extend(parts)
        if len(seen) != mutable_count:
            return True
        flat: Iterable[object]
        flat = chain(chain.from_iterable(map(dict.values, dicts)), *lists, inner)
        if values_max is not None:
            flat = list(islice(flat, values_max))
            values_max -= len(flat)
        level = [part for part in flat if type(part) not in _PLAIN]
    return False


def _rare(part: object, made: list[object]) -> tuple[bool, bool, Iterable[object]]:
    """Whether a value that is no dict or list is mutable, a generator, and what is in it."""
    kind = type(part)
    if kind is tuple or kind is frozenset or kind is set:
        return kind is set, False, part  # type: ignore[return-value]
    if kind is Registered:
        return False, False, (part.value,)  # type: ignore[attr-defined]
    codec = codec_of(kind)
    if codec is None:
        return is_array(part), False, ()
    if codec.is_rng:
        return True, True, ()
    try:
        stored = codec.to_value(part)
    except Refusal:
        return codec.mutable, False, ()
    made.append(stored)
    return codec.mutable, False, _made_parts(stored)


def _made_parts(stored: object) -> Iterable[object]:
    """What is in the containers that a codec made, without those containers themselves."""
    if type(stored) is dict:
        return stored.values()
    if type(stored) is list:
        # As `[maxlen, items]` of a deque: a list of made containers and of scalars.
        return chain.from_iterable(
            part.values() if type(part) is dict else part
            for part in stored
            if type(part) is dict or type(part) is list
        )
    return (stored,)


def _collect(
    value: object,
    path: str,
    depth: int,
    rngs_only: bool,
    first_paths: dict[int, str],
    found: list[tuple[str, str]],
    kept: list[object],
) -> None:
    kind = type(value)
    if kind in _PLAIN or depth > DEPTH_MAX:
        return
    parts: Any
    if kind is dict or kind is list:
        mutable, is_rng = True, False
        parts = value
    else:
        mutable, is_rng, parts = _rare(value, kept)
    if is_rng or (mutable and not rngs_only):
        before = first_paths.setdefault(id(value), path)
        if before is not path:
            found.append((before, path))
            return
    if kind is dict:
        steps = [(path_step(key), item) for key, item in parts.items()]
    else:
        steps = [(f"[{position}]", item) for position, item in enumerate(parts)]
    for step, item in steps:
        _collect(item, path + step, depth + 1, rngs_only, first_paths, found, kept)
