"""Pairs of states in opaque form from a seed: random values, and mutations as environments make.

Every value is one that `encode` takes, with the traps of a patch in it: keys and values equal in
Python but not in bytes, other orders, NaN and -0.0, texts with lone surrogates, empty containers,
registered types at any depth.
"""

import random
from collections.abc import Callable
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from typing import TypeVar
from uuid import UUID

from eventlog.canonical import ArrayValue, Registered

Text = TypeVar("Text", str, bytes)

DEPTH_MAX = 4
WORDS = (
    "",
    "a",
    "b",
    "id",
    "name",
    "état",
    "\U0001f600",
    "x" * 40,
    "line one\nline two\n",
    "\ud800",
)
TWINS: tuple[tuple[object, ...], ...] = (
    (0, False, 0.0, -0.0, Decimal(0)),
    (1, True, 1.0, Decimal(1), Decimal("1.0"), 1 + 0j),
    (2, 2.0, Decimal(2)),
    ((1,), (True,), (1.0,)),
    (frozenset({1}), frozenset({True})),
    (float("nan"),),
    (2**63, float(2**63)),
)


def random_state(rng: random.Random, depth: int = 0) -> object:
    """A random value, container-heavy near the root."""
    if depth >= DEPTH_MAX or rng.random() < 0.1 + 0.12 * depth:
        return random_atom(rng)
    make = rng.choice((_dict, _dict, _list, _list, _mixed_dict, _registered, _rows))
    return make(rng, depth)


def random_atom(rng: random.Random) -> object:
    """A value without a path into it, or a text."""
    makers: tuple[Callable[[random.Random], object], ...] = (
        lambda r: r.choice(r.choice(TWINS)),
        lambda r: r.choice(r.choice(TWINS)),
        lambda r: r.randrange(-(2**70), 2**70) if r.random() < 0.2 else r.randrange(-40, 300),
        lambda r: r.choice((None, True, False, float("nan"), 0.5, float("inf"))),
        lambda r: r.choice(WORDS),
        random_text,
        lambda r: random_text(r).encode("utf-8", "surrogatepass"),
        lambda r: tuple(random_atom(r) for _ in range(r.randrange(3))),
        lambda r: {r.randrange(5), r.choice("ab")},
        lambda r: r.choice((set(), frozenset(), (), b"", "", [], {})),
        lambda r: datetime(2024, 1, r.randrange(1, 29), tzinfo=r.choice((None, UTC))),
        lambda r: r.choice((date(2024, 1, 1), timedelta(r.randrange(9)), UUID(int=r.randrange(9)))),
        lambda r: ArrayValue("array", "<f4", (r.randrange(3), 0), b""),
    )
    return rng.choice(makers)(rng)


def random_text(rng: random.Random) -> str:
    """A text of words or of lines, up to some kB."""
    if rng.random() < 0.3:
        return "".join(f"line {rng.randrange(30)}\n" for _ in range(rng.randrange(120)))
    return " ".join(rng.choice(WORDS) for _ in range(rng.randrange(12)))


def random_key(rng: random.Random) -> object:
    """A key of any type, often one with twins in Python."""
    choice = rng.random()
    if choice < 0.5:
        return rng.choice(WORDS) + str(rng.randrange(6))
    if choice < 0.9:
        key = rng.choice(rng.choice(TWINS))
        return key if key == key else None
    return Registered("kind", 1, rng.randrange(3))


def _dict(rng: random.Random, depth: int) -> object:
    return {f"k{rng.randrange(40)}": random_state(rng, depth + 1) for _ in range(rng.randrange(12))}


def _mixed_dict(rng: random.Random, depth: int) -> object:
    return {random_key(rng): random_state(rng, depth + 1) for _ in range(rng.randrange(8))}


def _list(rng: random.Random, depth: int) -> object:
    if rng.random() < 0.3:
        return [rng.randrange(3) for _ in range(rng.randrange(60))]
    return [random_state(rng, depth + 1) for _ in range(rng.randrange(12))]


def _registered(rng: random.Random, depth: int) -> object:
    return Registered(
        rng.choice(("deque", "desk.Order")), rng.randrange(1, 3), random_state(rng, depth + 1)
    )


def _rows(rng: random.Random, depth: int) -> object:
    """Records, as a table or a transcript of a real state has them."""
    rows = [
        {"id": n, "text": rng.choice(WORDS) * rng.randrange(20), "tags": [rng.randrange(4)]}
        for n in range(rng.randrange(80))
    ]
    return rows if rng.random() < 0.5 else {f"row{row['id']}": row for row in rows}


def mutated(rng: random.Random, value: object) -> object:
    """A changed deep copy of `value`, by one or more small changes at random places."""
    value = copied(value)
    for _ in range(rng.choice((1, 1, 1, 2, 3, 8))):
        value = _changed(rng, value)
    return value


def copied(value: object) -> object:
    """A deep copy that shares no container; atoms are shared."""
    if type(value) is dict:
        return {key: copied(item) for key, item in value.items()}
    if type(value) is list:
        return [copied(item) for item in value]
    if type(value) is Registered:
        return Registered(value.name, value.version, copied(value.value))
    return value


def _changed(rng: random.Random, value: object) -> object:
    if rng.random() < 0.6:
        inner = _changed_inside(rng, value)
        if inner is not None:
            return inner
    if type(value) is dict:
        return _changed_dict(rng, value)
    if type(value) is list:
        return _changed_list(rng, value)
    if type(value) is str:
        return _changed_text(rng, value, random_text(rng))
    if type(value) is bytes:
        return _changed_text(rng, value, random_text(rng).encode("utf-8", "surrogatepass"))
    if type(value) is Registered:
        return Registered(value.name, value.version + rng.randrange(2), _changed(rng, value.value))
    for twins in TWINS:
        if any(value is twin for twin in twins) and rng.random() < 0.7:
            return rng.choice(twins)
    return random_state(rng, DEPTH_MAX - 1)


def _changed_inside(rng: random.Random, value: object) -> object:
    if type(value) is dict and value:
        key = rng.choice(list(value))
        value[key] = _changed(rng, value[key])
        return value
    if type(value) is list and value:
        at = rng.randrange(len(value))
        value[at] = _changed(rng, value[at])
        return value
    if type(value) is Registered:
        return Registered(value.name, value.version, _changed(rng, value.value))
    return None


def _changed_dict(rng: random.Random, value: dict[object, object]) -> object:
    items = list(value.items())
    match rng.randrange(7):
        case 0:
            rng.shuffle(items)
        case 1 if items:
            items.append(items.pop(rng.randrange(len(items))))
        case 2 if items:
            del items[rng.randrange(len(items))]
        case 3:
            items.insert(rng.randrange(len(items) + 1), (random_key(rng), random_atom(rng)))
        case 4:
            items = [(_twin(rng, key), item) for key, item in items]
        case 5 if items:
            items.insert(0, items.pop())
        case _:
            items.append((f"new{rng.randrange(9)}", random_state(rng, DEPTH_MAX - 1)))
    return dict(items)


def _twin(rng: random.Random, key: object) -> object:
    for twins in TWINS:
        if key in twins:
            return rng.choice([twin for twin in twins if twin == twin] or [key])
    return key


def _changed_list(rng: random.Random, value: list[object]) -> object:
    count = rng.randrange(len(value) + 1)
    fresh = [random_state(rng, DEPTH_MAX - 1) for _ in range(rng.randrange(4))]
    match rng.randrange(7):
        case 0:  # a context trimmed to a window
            return [*value[:1], *value[1 + count :], *fresh]
        case 1:
            return [*fresh, *value[: len(value) - count]]
        case 2:
            return value[:count] + fresh + value[count:]
        case 3:
            return value[:count] + value[count + 1 :]
        case 4:
            return value[::-1]
        case 5:
            return [_changed(rng, item) if rng.random() < 0.3 else item for item in value]
        case _:
            return value + fresh


def _changed_text(rng: random.Random, value: Text, fresh: Text) -> Text:
    at, length = rng.randrange(len(value) + 1), rng.randrange(20)
    match rng.randrange(4):
        case 0:
            return value[length:] + fresh
        case 1:
            return value[:at] + fresh + value[at:]
        case 2:
            return value[:at] + value[at + length :]
        case _:
            other = rng.randrange(len(value) + 1)
            value = value[:at] + fresh[:3] + value[at:]
            return value[:other] + fresh[:2] + value[other + length :]
