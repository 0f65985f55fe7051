"""Canonical values: the bytes of every row of the table, every refusal, the limits, the digests."""

import collections
import dataclasses
import datetime as dt
import enum
import json
import math
import random
import threading
import zoneinfo
from collections.abc import Callable
from hashlib import sha256

import pytest

from eventlog import canonical
from eventlog.errors import CodecMissingError, EventCorruptError, ValueNotEncodableError
from eventlog.values import (
    canonical_accelerated,
    canonical_accelerated_decoder,
    canonical_reference,
    canonical_reference_decoder,
)
from tests.support.data import data_path
from tests.support.golden_values import golden_lines, golden_value

ENCODERS = [canonical_reference.encode, canonical_accelerated.encode]
DECODERS = [canonical_reference_decoder.decode, canonical_accelerated_decoder.decode]
WAYS = ["reference", "accelerated"]
GOLDEN_VALUES = golden_lines("canonical", "values.txt")
GOLDEN_REFUSED = golden_lines("canonical", "refused.txt")

each_encoder = pytest.mark.parametrize("encode", ENCODERS, ids=WAYS)
each_decoder = pytest.mark.parametrize("decode", DECODERS, ids=WAYS)

Encode = Callable[[object], bytes]
Decode = Callable[[bytes], object]


@each_encoder
@pytest.mark.parametrize(("expression", "hex_bytes"), GOLDEN_VALUES)
def test_value_has_its_golden_bytes(encode: Encode, expression: str, hex_bytes: str) -> None:
    assert encode(golden_value(expression)).hex() == hex_bytes


@each_decoder
@pytest.mark.parametrize(("expression", "hex_bytes"), GOLDEN_VALUES)
def test_golden_bytes_are_read_back(decode: Decode, expression: str, hex_bytes: str) -> None:
    data = bytes.fromhex(hex_bytes)
    value = decode(data)
    assert canonical_reference.encode(value) == data
    live = canonical.decode(data)
    assert canonical_reference.encode(live) == data
    if not isinstance(value, canonical.ArrayValue):
        assert type(live) is type(golden_value(expression))


@each_decoder
@pytest.mark.parametrize(("hex_bytes", "why"), GOLDEN_REFUSED)
def test_bytes_no_encoder_writes_are_refused(decode: Decode, hex_bytes: str, why: str) -> None:
    with pytest.raises(EventCorruptError, match="not canonical bytes") as caught:
        decode(bytes.fromhex(hex_bytes))
    assert why in str(caught.value)


@each_decoder
def test_no_bytes_are_no_value(decode: Decode) -> None:
    with pytest.raises(EventCorruptError, match="truncated"):
        decode(b"")


class _Colour(enum.Enum):
    RED = 1


class _Number(enum.IntEnum):
    ONE = 1


class _Text(str):
    __slots__ = ()


class _Whole(int):
    pass


class _Real(float):
    pass


class _Table(dict):  # type: ignore[type-arg]
    pass


class _Row(list):  # type: ignore[type-arg]
    pass


class _Moment(dt.datetime):
    pass


@dataclasses.dataclass
class _Point:
    x: int


class _Zone(dt.tzinfo):
    def utcoffset(self, _: object) -> dt.timedelta:
        return dt.timedelta(0)


_Pair = collections.namedtuple("_Pair", "a b")

# What is refused, and what the error says of it.
REFUSED: list[tuple[object, str]] = [
    (object(), "has no canonical form"),
    (bytearray(b"a"), r"bytes\(value\)"),
    (bytearray(300), r"bytes\(value\)"),
    (memoryview(b"a"), r"bytes\(value\)"),
    (memoryview(b"ab")[::-1], r"bytes\(value\)"),
    (range(3), "has no canonical form"),
    (lambda: 1, "code and iterators"),
    (print, "code and iterators"),
    (iter([1]), "code and iterators"),
    (int, "code and iterators"),
    (threading.Lock(), "has no canonical form"),
    (random.SystemRandom(), "has no canonical form"),
    (_Colour.RED, "register the Enum once"),
    (_Number.ONE, "register the Enum once"),
    (_Pair(1, 2), "register the namedtuple once"),
    (_Point(1), "register the class once"),
    (_Text("a"), "convert it to a plain str"),
    (_Whole(1), "convert it to a plain int"),
    (_Real(1), "convert it to a plain float"),
    (_Table(), "convert it to a plain dict"),
    (_Row(), "convert it to a plain list"),
    (_Moment(2024, 1, 1), "convert it to a plain datetime"),
    ({_Text("a"): 1}, "convert it to a plain str"),
    ({math.nan: 1}, "NaN in a key"),
    ({(1, math.nan): 1}, "NaN in a key"),
    ({math.nan}, "NaN in a key or set element"),
    (frozenset({(math.nan,)}), "NaN in a key or set element"),
    ({complex(0, math.nan)}, "NaN in a key or set element"),
    (dt.datetime(2024, 1, 1, tzinfo=_Zone()), "has a tzinfo of _Zone"),
    (dt.time(1, tzinfo=_Zone()), "has a tzinfo of _Zone"),
    (dt.datetime(2024, 1, 1, tzinfo=dt.timezone(dt.timedelta(hours=1), "X")), "name of its own"),
    (collections.defaultdict(lambda: 1), "default factory"),
    (collections.ChainMap(), "has no canonical form"),
    (canonical.Registered("", 1, 0), "has no name"),
    (canonical.Registered("a", -1, 0), "has no version"),
    (canonical.Registered("a", True, 0), "has no version"),
    (canonical.ArrayValue("array", "<f8", (2,), b"1234"), "is not an array"),
    (canonical.ArrayValue("array", ">f8", (1,), b"12345678"), "is not an array"),
]


@each_encoder
@pytest.mark.parametrize(("value", "why"), REFUSED, ids=lambda case: type(case).__name__)
@pytest.mark.parametrize("around", ["alone", "small", "large"])
def test_refused_values_are_named_with_their_path(
    encode: Encode, value: object, why: str, around: str
) -> None:
    whole, path = {
        "alone": (value, "$"),
        "small": ({"a": [1, "two", 3.0, value]}, "$.a[3]"),
        "large": (
            {"rows": [{"id": at, "parts": (value,) if at == 700 else ()} for at in range(900)]},
            "$.rows[700].parts[0]",
        ),
    }[around]
    with pytest.raises(ValueNotEncodableError, match=why) as caught:
        encode(whole)
    assert caught.value.path.startswith(path)
    assert caught.value.path in caught.value.message
    assert caught.value.hint


@each_encoder
@pytest.mark.parametrize(
    ("value", "path"),
    [
        ({"with space": {"é": object()}}, '$["with space"].é'),
        ({1: [object()]}, "$[1][0]"),
        ({(1, "a"): object()}, "$[(1, 'a')]"),
        ({_Colour.RED: 1}, "$[<_Colour>](key)"),
        ({10**6000: object()}, "$[<a long int>]"),
        ({"s": {_Whole(7)}}, "$.s{<_Whole>}"),
        ({"d": collections.deque([1, object()])}, "$.d<steplog.deque>[1][1]"),
        (canonical.Registered("a.b", 1, [object()]), "$<a.b>[0]"),
    ],
)
def test_paths_name_keys_elements_and_types(encode: Encode, value: object, path: str) -> None:
    with pytest.raises(ValueNotEncodableError) as caught:
        encode(value)
    assert caught.value.path == path


@each_encoder
def test_value_that_contains_itself_is_refused(encode: Encode) -> None:
    inner: dict[str, object] = {}
    inner["again"] = [inner]
    with pytest.raises(
        ValueNotEncodableError, match=r"object at \$.a: it contains itself"
    ) as caught:
        encode({"a": inner})
    assert caught.value.path == "$.a.again[0]"


def _nested(kind: str, count: int) -> object:
    """`count` containers in each other, around None."""
    value: object = None
    for level in range(count):
        value = {
            "list": lambda value: [value],
            "dict": lambda value: {"k": value},
            "pairs": lambda value: {1: value},
            "tuple": lambda value: (value,),
            "frozenset": lambda value: frozenset((value,)),
            "type": lambda value: canonical.Registered("a", 1, value),
            "deque": lambda value: collections.OrderedDict(k=value),
        }[kind if kind != "mixed" else ("list", "tuple", "dict", "type", "pairs")[level % 5]](value)
    return value


@each_encoder
@pytest.mark.parametrize("kind", ["list", "dict", "pairs", "tuple", "frozenset", "type", "mixed"])
def test_nesting_limit_is_exact(encode: Encode, kind: str) -> None:
    deepest = _nested(kind, 200)
    data = encode(deepest)
    assert data == canonical_reference.encode(deepest)
    for decode in DECODERS:
        assert canonical_reference.encode(decode(data)) == data
    with pytest.raises(ValueNotEncodableError, match="nested in 200 containers"):
        encode(_nested(kind, 201))
    with pytest.raises(ValueNotEncodableError, match="nested in 200 containers"):
        encode({"beside": list(range(900)), "deep": _nested(kind, 200)})


@pytest.mark.parametrize("kind", ["list", "dict", "tuple", "type"])
def test_each_level_of_a_live_type_counts_once_or_with_its_inner_value(kind: str) -> None:
    data = canonical.encode(_nested("deque", 100))
    assert canonical.encode(canonical.decode(data)) == data
    with pytest.raises(ValueNotEncodableError):
        canonical.encode([_nested("deque", 100), _nested(kind, 200)])


@each_decoder
@pytest.mark.parametrize("depth", [201, 255, 256, 1100, 100_000])
def test_bytes_nested_too_deep_are_refused(decode: Decode, depth: int) -> None:
    with pytest.raises(EventCorruptError, match=r"nested deeper than 200|recursion"):
        decode(b"\x91" * depth + b"\xc0")


@each_encoder
def test_size_limit_names_both_sizes(encode: Encode, monkeypatch: pytest.MonkeyPatch) -> None:
    for module in (canonical_reference, canonical_accelerated):
        monkeypatch.setattr(module, "SIZE_BYTES_MAX", 100)
    encode("x" * 98)
    with pytest.raises(ValueNotEncodableError, match="101 bytes, over the limit of 100"):
        encode("x" * 99)


@each_encoder
@pytest.mark.parametrize("top", [lambda v: v, lambda v: {"v": v}, lambda v: [v, (1,)]])
def test_parts_over_the_limit_are_refused_before_all_is_encoded(
    encode: Encode, monkeypatch: pytest.MonkeyPatch, top: Callable[[object], object]
) -> None:
    """A text of 4 GiB was a struct.error, and ten of 100 MiB took 17 s and 8 GiB to be refused."""
    for module in (canonical_reference, canonical_accelerated):
        monkeypatch.setattr(module, "SIZE_BYTES_MAX", 1 << 20)
    part = "x" * 100_000
    for value in (
        [part] * 11,
        [part.encode()] * 11,
        [{"a": part}] * 11,
        part * 11,
        [part, {1}] * 9 + [part] * 9,
    ):
        with pytest.raises(ValueNotEncodableError, match=r"takes (at least )?\d+ bytes, over the"):
            encode(top(value))
    assert encode(top([part] * 10))


@each_encoder
def test_bytes_of_4_gib_are_refused_by_their_length(encode: Encode) -> None:
    """No memory is used up by them: zeros that nobody looks at."""
    with pytest.raises(ValueNotEncodableError, match="takes at least 4294967296 bytes"):
        encode(bytes(1 << 32))


def test_too_many_bytes_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(canonical_reference_decoder, "SIZE_BYTES_MAX", 100)
    with pytest.raises(EventCorruptError, match="over the limit"):
        canonical_reference_decoder.decode(bytes(101))


def test_encoders_agree_at_every_length_head() -> None:
    for length in (0, 15, 16, 17, 31, 32, 255, 256, 65535, 65536, 70000):
        for value in ("x" * length, b"x" * length, [None] * length, (1,) * length):
            data = canonical_reference.encode(value)
            assert canonical_accelerated.encode(value) == data
            assert all(decode(data) == value for decode in DECODERS)
        table = {str(at): at for at in range(length)}
        numbered = dict(enumerate(range(length)))
        for entries in (table, numbered, set(numbered)):
            data = canonical_reference.encode(entries)
            assert canonical_accelerated.encode(entries) == data
            assert all(decode(data) == entries for decode in DECODERS)


def test_order_of_dict_keys_is_part_of_the_value() -> None:
    assert canonical.encode({"a": 1, "b": 2}) != canonical.encode({"b": 2, "a": 1})
    restored = canonical.decode(canonical.encode({"b": 2, "a": 1, 3: 4, "0": 5}))
    assert list(restored) == ["b", "a", 3, "0"]  # type: ignore[call-overload]


def test_kinds_that_are_equal_in_python_stay_apart() -> None:
    equal = [
        1,
        True,
        1.0,
        canonical.Registered("a", 1, 1),
        (1,),
        [1],
        {1},
        frozenset({1}),
        "1",
        b"1",
    ]
    assert len({canonical.encode(value) for value in equal}) == len(equal)
    assert canonical.encode(0.0) != canonical.encode(-0.0)


def test_digest_is_sha256_of_the_bytes() -> None:
    value = {"a": [1, 2.5]}
    data = canonical.encode(value)
    assert canonical.digest(value) == canonical.digest_of(data) == sha256(data).digest()


def test_sorted_digest_ignores_the_order_of_keys_at_any_depth() -> None:
    one = {
        "a": [{"x": 1, "y": (2, {3: 4, "z": 5})}],
        "b": canonical.Registered("t", 1, {"p": 1, "q": 2}),
    }
    other = {
        "b": canonical.Registered("t", 1, {"q": 2, "p": 1}),
        "a": [{"y": (2, {"z": 5, 3: 4}), "x": 1}],
    }
    assert canonical.digest(one) != canonical.digest(other)
    assert canonical.sorted_digest(one) == canonical.sorted_digest(other)
    assert canonical.sorted_digest({"a": 1}) != canonical.sorted_digest({"a": 1.0})
    assert canonical.sorted_digest([1, 2]) != canonical.sorted_digest([2, 1])
    assert canonical.sorted_digest({"a": 1}) == canonical.digest({"a": 1})


def test_encoding_never_changes_or_keeps_the_callers_objects() -> None:
    state = {"rows": [{"n": at, "t": (at, [at])} for at in range(500)], "odd": {1: bytearray(b"a")}}
    before = repr(state)
    with pytest.raises(ValueNotEncodableError):
        canonical.encode(state)
    state["odd"] = {1: b"a"}
    decoded = canonical.decode(canonical.encode(state))
    decoded["rows"][0]["t"][1].append("changed")  # type: ignore[index, call-overload]
    assert repr(state) == before.replace("bytearray(b'a')", "b'a'")


def test_unknown_time_zone_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    data = canonical.encode(
        {"at": dt.datetime(2024, 1, 1, tzinfo=zoneinfo.ZoneInfo("Europe/Berlin"))}
    )

    def missing(key: str) -> object:
        raise zoneinfo.ZoneInfoNotFoundError(key)

    monkeypatch.setattr("eventlog.values.extension_values.ZoneInfo", missing)
    with pytest.raises(CodecMissingError, match="Europe/Berlin") as caught:
        canonical.decode(data, opaque=True)
    assert "tzdata" in caught.value.hint


def test_naughty_strings_come_back_as_keys_and_values() -> None:
    strings = json.loads(data_path("vectors", "strings", "naughty_strings.json").read_text("utf-8"))
    assert len(strings) > 200
    for text in strings:
        value = {text: [text, (text,)], "set": {text}}
        data = canonical_reference.encode(value)
        assert canonical_accelerated.encode(value) == data
        assert canonical.decode(data) == value


@pytest.mark.parametrize("name", ["arrays", "french", "values"])
def test_jcs_vectors_differ_only_in_the_order_of_keys(name: str) -> None:
    """Ours is not RFC 8785: we keep the order of keys. What its two sides say must be the same."""
    given = json.loads(data_path("vectors", "jcs", f"{name}.input.json").read_text("utf-8"))
    sorted_ = json.loads(data_path("vectors", "jcs", f"{name}.output.json").read_text("utf-8"))
    assert canonical.sorted_digest(given) == canonical.sorted_digest(sorted_)
    assert canonical.encode(canonical.decode(canonical.encode(given))) == canonical.encode(given)
