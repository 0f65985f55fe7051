"""Seeded random canonical values, with the traps that codecs and patches fall into.

`random_value(rng, depth)` gives every row of the canonical table (docs/formats.md) in opaque
form, `random_live_value` also live values of registered types and numpy. Same seed, same values.
"""

import collections
import datetime as dt
import enum
import math
import random
import struct
import uuid
from decimal import Decimal
from pathlib import PurePosixPath, PureWindowsPath
from typing import NamedTuple
from zoneinfo import ZoneInfo

from eventlog.canonical import ArrayValue, Registered, register_type


class Colour(enum.Enum):
    """An Enum for tests; `register_live_types` registers it."""

    RED = "red"
    GREEN = object()  # the value itself has no canonical form: the member's name is stored


class Level(enum.IntEnum):
    """An int that is an Enum: a subclass of a built-in."""

    LOW = 1
    HIGH = 2


class Right(enum.Flag):
    """A Flag: members combine."""

    READ = 1
    WRITE = 2


class Cell(NamedTuple):
    """A namedtuple for tests."""

    row: int
    column: object


def register_live_types() -> None:
    """Register the classes that `random_live_value` makes values of; may be called again."""
    register_type(Colour, "test.colour")
    register_type(Level, "test.level")
    register_type(Right, "test.right")
    register_type(Cell, "test.cell")


_INT_EDGES = [
    edge + delta
    for power in (0, 5, 7, 8, 15, 16, 31, 32, 53, 63, 64, 65, 127, 128, 200, 1000)
    for edge in (1 << power, -(1 << power))
    for delta in (-1, 0, 1)
]
_FLOATS = [
    0.0, -0.0, 1.0, -1.0, 1.5, 0.1, 1e22, 1e-7, 5e-324, 1.7976931348623157e308, 2.0**53,
    math.inf, -math.inf, math.nan, struct.unpack(">d", bytes.fromhex("fff8000000000001"))[0],
    struct.unpack(">d", bytes.fromhex("7ff0000000000001"))[0],
]  # fmt: skip
_STRINGS = [
    "", "a", "b", "key", "$set", "$", "\x00", "é", "e\u0301", "日本語", "🙂", "x" * 31, "x" * 32,
    "y" * 255, "z" * 256, "ł" * 70, "\ud800", "a\udfff", "\ud83d\ude42", "_id", "0", "1", "true",
]  # fmt: skip
_ZONES = [
    None, dt.UTC, dt.timezone(dt.timedelta(hours=-5, minutes=-30)),
    dt.timezone(dt.timedelta(microseconds=1)), ZoneInfo("Europe/Berlin"), ZoneInfo("UTC"),
]  # fmt: skip
_DECIMALS = [
    "0",
    "-0",
    "1.0",
    "1.00",
    "1E+5",
    "1E-400",
    "NaN",
    "-NaN123",
    "sNaN",
    "Infinity",
    "-Infinity",
]
_DTYPES = [("<f8", 8), ("<f4", 4), ("<i8", 8), ("|b1", 1), ("|u1", 1), ("<U2", 8), ("<M8[ns]", 8)]


def random_int(rng: random.Random) -> int:
    """An int: an edge of an encoding, a small one, or one of up to 300 bits."""
    pick = rng.random()
    if pick < 0.3:
        return rng.choice(_INT_EDGES)
    if pick < 0.8:
        return rng.randint(-40, 300)
    return rng.getrandbits(rng.randint(1, 300)) * rng.choice((1, -1))


def random_float(rng: random.Random) -> float:
    """A float, NaNs of odd bits and signed zeros among them."""
    if rng.random() < 0.5:
        return rng.choice(_FLOATS)
    return rng.choice((rng.random(), rng.gauss(0, 1e6), float(rng.randint(-9, 9))))


def random_text(rng: random.Random) -> str:
    """A str, sometimes with lone surrogates, sometimes long."""
    if rng.random() < 0.6:
        return rng.choice(_STRINGS)
    alphabet = rng.choice(
        ("abcxyz", "ąćęłń", "пример", "日本語", "🙂🙃", "a\ud800b", "\x00\x7f\x80")
    )
    return "".join(rng.choices(alphabet, k=rng.choice((1, 3, 10, 40, 300))))


def random_bytes(rng: random.Random) -> bytes:
    """Bytes, among them ones that look like MessagePack headers."""
    return rng.choice(
        (b"", b"\xc4\x01\x00", b"\xcb\x7f\xf8\x00\x00\x00\x00\x00\x01", b"\xdd" * 6)
    ) + rng.randbytes(rng.choice((0, 0, 1, 4, 200, 256)))


def random_time(rng: random.Random) -> object:
    """A datetime, date, time or timedelta; naive, offset or zone; fold 0 or 1."""
    day = dt.date(rng.choice((1, 1970, 2024, 9999)), rng.randint(1, 12), rng.randint(1, 28))
    clock = dt.time(
        rng.randint(0, 23), rng.choice((0, 30)), rng.choice((0, 59)),
        rng.choice((0, 1, 500_000, 999_999)),
        tzinfo=rng.choice(_ZONES), fold=rng.randint(0, 1),
    )  # fmt: skip
    return rng.choice(
        (
            day,
            clock,
            dt.datetime.combine(day, clock),
            dt.timedelta(rng.randint(-9, 9), rng.randint(0, 86399), rng.randint(0, 999_999)),
        )
    )


def random_number(rng: random.Random) -> object:
    """A Decimal, UUID or complex."""
    return rng.choice(
        (
            Decimal(rng.choice(_DECIMALS)),
            Decimal(rng.randint(-(10**30), 10**30)).scaleb(rng.randint(-40, 40)),
            uuid.UUID(int=rng.getrandbits(128)),
            complex(random_float(rng), random_float(rng)),
        )
    )


def random_array_value(rng: random.Random) -> ArrayValue:
    """A closed array, scalar or tensor of matching size."""
    dtype, width = rng.choice(_DTYPES)
    family = rng.choice(("array", "scalar"))
    shape = () if family == "scalar" else tuple(rng.choices((0, 1, 2, 3), k=rng.randint(0, 3)))
    data = bytes(rng.choices((0, 1), k=width * math.prod(shape)))
    if dtype == "<U2":
        data = "ab".encode("utf-32-le") * math.prod(shape)
    return ArrayValue(family, dtype, shape, data)


def random_scalar(rng: random.Random) -> object:
    """A value without parts."""
    return rng.choice(
        (
            lambda _: None,
            lambda _: True,
            lambda _: False,
            random_int,
            random_int,
            random_float,
            random_text,
            random_text,
            random_bytes,
            random_time,
            random_number,
            random_array_value,
        )
    )(rng)


def random_key(rng: random.Random, depth: int = 1) -> object:
    """A dict key or set element: hashable, no NaN anywhere in it."""
    pick = rng.random()
    if pick < 0.5:
        return random_text(rng)
    if pick < 0.6 and depth > 0:
        return tuple(random_key(rng, depth - 1) for _ in range(rng.randint(0, 3)))
    if pick < 0.65 and depth > 0:
        return frozenset(random_key(rng, depth - 1) for _ in range(rng.randint(0, 3)))
    if pick < 0.7:
        return Registered("test.key", rng.randint(0, 2), random_key(rng, 0))
    while True:
        key = random_scalar(rng)
        if not _is_nan(key) and not isinstance(key, ArrayValue):
            return key


def _is_nan(value: object) -> bool:
    if isinstance(value, Decimal):
        return value.is_nan()
    return isinstance(value, float | complex) and value != value


def random_value(rng: random.Random, depth: int = 3) -> object:
    """A canonical value in opaque form, at most `depth` containers deep."""
    if depth <= 0 or rng.random() < 0.3:
        return random_scalar(rng)
    count = rng.choice((0, 1, 2, 3, 5, 15, 16, 17)) if depth > 1 else rng.choice((0, 1, 3, 16, 40))
    pick = rng.random()
    if pick < 0.3:
        return {
            rng.choice(_PLAIN_KEYS) + str(at): random_value(rng, depth - 1) for at in range(count)
        }
    if pick < 0.45:
        return {random_key(rng): random_value(rng, depth - 1) for _ in range(count)}
    if pick < 0.75:
        return [random_value(rng, depth - 1) for _ in range(count)]
    if pick < 0.85:
        return tuple(random_value(rng, depth - 1) for _ in range(min(count, 5)))
    if pick < 0.9:
        return {random_key(rng) for _ in range(count)}
    if pick < 0.93:
        return frozenset(random_key(rng) for _ in range(count))
    return Registered(
        rng.choice(("test.a", "test.b")), rng.randint(0, 300), random_value(rng, depth - 1)
    )


_PLAIN_KEYS = ["a", "b", "key", "$k", "é", "id_"]


def random_live_value(rng: random.Random, depth: int = 3) -> object:
    """A value as an environment holds it; call `register_live_types` before encoding it."""
    if depth <= 0 or rng.random() < 0.5:
        return random_value(rng, min(depth, 1)) if rng.random() < 0.7 else _live_leaf(rng)
    parts = [random_live_value(rng, depth - 1) for _ in range(rng.randint(0, 4))]
    named = {f"k{at}": part for at, part in enumerate(parts)}
    factory = rng.choice((None, list, dict, set, int, float, str))
    return rng.choice(
        (
            lambda: parts,
            lambda: named,
            lambda: tuple(parts),
            lambda: dict(enumerate(parts)),
            lambda: collections.OrderedDict(named),
            lambda: collections.defaultdict(factory, named),
            lambda: collections.deque(parts, maxlen=rng.choice((None, 4, 9))),
            lambda: Cell(len(parts), parts),
        )
    )()


def _live_leaf(rng: random.Random) -> object:
    return rng.choice(
        (
            lambda: rng.choice(list(Colour)),
            lambda: rng.choice(list(Level)),
            lambda: Right(rng.randint(0, 3)),
            lambda: collections.Counter(rng.choices("abc", k=5)),
            lambda: PurePosixPath(rng.choice(("", "/", "a/b", "../x", "ł"))),
            lambda: PureWindowsPath(rng.choice(("c:/x", "a\\b", "//host/share/x"))),
            lambda: random.Random(rng.random()),
            lambda: {rng.choice(list(Level)): 1, 7: 2},
            lambda: _numpy_value(rng),
        )
    )()


def _numpy_value(rng: random.Random) -> object:
    import numpy as np

    shape = tuple(rng.choices((1, 2, 3), k=rng.randint(0, 3)))
    numbers = np.array([rng.gauss(0, 9) for _ in range(math.prod(shape))]).reshape(shape)
    return rng.choice(
        (
            lambda: numbers,
            lambda: numbers.astype(">f4"),
            lambda: np.asfortranarray(numbers.astype("<i4")),
            lambda: numbers > 0,
            lambda: np.float32(rng.random()),
            lambda: np.int64(rng.randint(-9, 9)),
            lambda: np.str_(rng.choice(("", "a", "a\x00", "łż"))),
            lambda: np.datetime64("2024-05-01T10:00", "s"),
            lambda: np.array(["a", "bcd"]),
        )
    )()
