"""The accelerated encoder and decoder against the reference: the same bytes, the same refusals."""

import collections
import datetime as dt
import json
import math
import random
import struct
import sys
import threading
from collections.abc import Callable
from types import ModuleType
from typing import Any

import ormsgpack
import pytest
from hypothesis import given
from hypothesis import strategies as st

from eventlog import canonical
from eventlog.errors import EventCorruptError, ValueNotEncodableError
from eventlog.values import (
    canonical_accelerated,
    canonical_accelerated_decoder,
    canonical_reference,
    canonical_reference_decoder,
    encoding_guards,
)
from eventlog.values.extension_values import ZoneMissing
from tests.support.data import data_path
from tests.support.scale import scaled
from tests.support.values import random_live_value, random_value, register_live_types

ODD_NANS = [
    struct.unpack(">d", bytes.fromhex(bits))[0]
    for bits in ("7ff8000000000001", "fff8000000000000", "7ff0000000000001", "ffffffffffffffff")
]


def same_bytes(value: object) -> bytes:
    """The bytes that both encoders give, after both decoders gave a value of the same bytes."""
    data = canonical_reference.encode(value)
    assert canonical_accelerated.encode(value) == data
    for decode in (canonical_reference_decoder.decode, canonical_accelerated_decoder.decode):
        assert canonical_reference.encode(decode(data)) == data
    return data


def test_random_values_have_one_encoding() -> None:
    """Opaque values of every row, with the traps; each read back by both decoders."""
    total = 0
    for seed in range(scaled(5_000, 100_000)):
        rng = random.Random(seed)
        data = same_bytes(random_value(rng, rng.choice((1, 2, 3))))
        assert canonical_accelerated.encode(canonical.decode(data, opaque=True)) == data
        total += len(data)
    assert total > 1_000_000


def test_random_live_values_have_one_encoding() -> None:
    """As an environment holds them: registered types, numpy; restored, they encode alike."""
    register_live_types()
    for seed in range(scaled(1_500, 20_000)):
        value = random_live_value(random.Random(seed), 3)
        data = same_bytes(value)
        assert canonical.encode(canonical.decode(data)) == data


def test_random_values_inside_a_large_state_have_one_encoding() -> None:
    """Large enough to be written in chunks, with odd values at random places."""
    for seed in range(scaled(60, 1_000)):
        rng = random.Random(seed)
        rows = {
            f"row{at}": random_value(rng, 2) if rng.random() < 0.05 else {"n": at, "t": "x" * 20}
            for at in range(rng.choice((130, 400, 1500)))
        }
        listed = [random_value(rng, 2) if rng.random() < 0.02 else at for at in range(2000)]
        same_bytes({"rows": rows, "more": {"inner": {"list": listed}}, "few": random_value(rng, 1)})


_keys = st.one_of(
    st.text(max_size=8), st.integers(), st.booleans(), st.none(), st.binary(max_size=4)
)
_leaves = st.one_of(
    *(st.none(), st.booleans(), st.integers(), st.floats(), st.text(), st.binary()),
    *(st.datetimes(timezones=st.none() | st.just(dt.UTC)), st.dates(), st.times()),
    *(st.timedeltas(), st.decimals(), st.uuids(), st.complex_numbers()),
    st.text(alphabet=st.characters(categories=["Cs", "L"])),
)
_values = st.recursive(
    _leaves,
    lambda inner: st.one_of(
        st.lists(inner),
        st.lists(inner).map(tuple),
        st.dictionaries(st.text(max_size=8), inner),
        st.dictionaries(_keys, inner),
        st.sets(_keys),
        st.frozensets(_keys),
    ),
    max_leaves=30,
)


@given(_values)
def test_any_value_has_one_encoding(value: object) -> None:
    same_bytes(value)


@given(st.binary(max_size=40))
def test_any_bytes_are_judged_alike(data: bytes) -> None:
    assert_judged_alike(data)


def assert_judged_alike(data: bytes) -> bool:
    """Both decoders refuse, or both give a value that encodes to exactly these bytes."""
    try:
        value = canonical_reference_decoder.decode(data)
    except (EventCorruptError, ZoneMissing) as error:
        with pytest.raises(type(error)):
            canonical_accelerated_decoder.decode(data)
        return False
    assert canonical_reference.encode(value) == data
    again = canonical_accelerated_decoder.decode(data)
    assert canonical_reference.encode(again) == data
    return True


def test_damaged_bytes_are_judged_alike() -> None:
    """A bit flipped, a byte changed, cut, doubled: refused, or the encoding of another value."""
    accepted = 0
    for seed in range(scaled(3_000, 60_000)):
        rng = random.Random(seed)
        data = bytearray(canonical_reference.encode(random_value(rng, 2)))
        at = rng.randrange(len(data))
        match rng.randrange(4):
            case 0:
                data[at] ^= 1 << rng.randrange(8)
            case 1:
                data[at] = rng.choice((0x80, 0x90, 0xC1, 0xC4, 0xCB, 0xD4, 0xDC, 0xDD, 0xDF, 0xFF))
            case 2:
                del data[at : at + rng.randint(1, 3)]
            case 3:
                data[at:at] = data[at : at + rng.randint(1, 9)]
        accepted += assert_judged_alike(bytes(data))
    assert accepted  # a changed letter is another value


@pytest.mark.parametrize("nan", ODD_NANS)
@pytest.mark.parametrize(
    "around",
    [
        lambda nan: nan,
        lambda nan: [nan],
        lambda nan: {"a": (1, nan)},
        lambda nan: {1: nan},
        lambda nan: complex(nan, nan),
        lambda nan: canonical.Registered("a", 1, [nan]),
        lambda nan: collections.deque([nan]),
        lambda nan: {
            "rows": [{"x": 1.5, "y": nan if at == 333 else math.inf} for at in range(999)]
        },
    ],
)
def test_every_nan_is_written_alike(nan: float, around: Callable[[float], object]) -> None:
    assert same_bytes(around(nan)) == canonical_reference.encode(around(math.nan))


def test_bytes_that_look_like_an_odd_nan_stay_bytes() -> None:
    odd = bytes.fromhex("cbfff8000000000001")
    for value in (odd, [odd] * 3, {"rows": [{"raw": odd, "n": at} for at in range(500)]}):
        same_bytes(value)
    same_bytes({"text": "\x7f\x7f\x00" * 50, "floats": [7.1e-304] * 50})


@pytest.mark.parametrize("foreign", [bytearray(b"abc"), bytearray(400), memoryview(b"abc")])
@pytest.mark.parametrize(
    "around",
    [
        lambda foreign: [b"real bytes", foreign],
        lambda foreign: {"a": {"b": (0, foreign)}},
        lambda foreign: {5: foreign},
        lambda foreign: {"a": collections.OrderedDict(k=[foreign])},
        lambda foreign: canonical.Registered("a", 1, foreign),
        lambda foreign: {
            "rows": [{"n": at, "b": foreign if at == 500 else b""} for at in range(900)]
        },
        lambda foreign: {f"k{at}": foreign if at == 130 else "ż" * 70 for at in range(200)},
        lambda foreign: [0.1 * at for at in range(2000)] + [foreign],
    ],
)
def test_bytearray_and_memoryview_are_found(
    foreign: object, around: Callable[[object], object]
) -> None:
    with pytest.raises(ValueNotEncodableError, match=r"store bytes\(value\)"):
        canonical_accelerated.encode(around(foreign))


def test_memoryview_as_key_or_element_is_found() -> None:
    view = memoryview(b"abc")
    for value in ({view}, {view: 1}, {"a": frozenset({view})}, {"a": {(view,): 1}}, {1: {view}}):
        with pytest.raises(ValueNotEncodableError):
            canonical_accelerated.encode(value)


@pytest.mark.parametrize("foreign", [ormsgpack.Ext(3, b"\x90"), ormsgpack.Fragment(b"\x90")])
def test_objects_of_ormsgpack_itself_are_no_values(foreign: object) -> None:
    for encode in (canonical_reference.encode, canonical_accelerated.encode):
        with pytest.raises(ValueNotEncodableError):
            encode(foreign)
        for around in ([foreign, b"x"], {"a": (1, foreign)}, {foreign: 1}, {2: foreign}):
            with pytest.raises(ValueNotEncodableError):
                encode(around)
        with pytest.raises(ValueNotEncodableError):
            encode(
                {f"row{at}": {"n": at, "x": foreign if at == 300 else None} for at in range(900)}
            )
        with pytest.raises(ValueNotEncodableError):
            encode(canonical.Registered("a", 1, collections.deque([foreign])))


def test_special_values_deep_inside_do_not_change_their_surroundings() -> None:
    plain = {"users": {f"u{at}": {"name": "a", "orders": [at, {"n": at}]} for at in range(300)}}
    for special in (
        (1, 2),
        {3, 4},
        {5: {6: (7,)}},
        dt.datetime(2024, 1, 1),
        "\ud800",
        2**70,
        {"\ud800": 1},
    ):
        plain["users"]["u150"]["orders"] = [special, {"s": special}]
        same_bytes(plain)


@pytest.mark.parametrize("count", [10, 11, 12, 30, 50, 100])
def test_exts_within_exts_beyond_the_hooks_depth(count: int) -> None:
    value: object = 1
    for level in range(count):
        value = (value, {level: [value]} if level < 6 else level)
    same_bytes(value)
    same_bytes({"rows": [value, *range(500)]})


def test_real_states_have_one_encoding() -> None:
    state = {
        name: json.loads(data_path("states", "tau_bench_airline", f"{name}.json").read_text())
        for name in ("flights", "reservations", "users")
    }
    data = same_bytes(state)
    assert canonical.decode(data) == state
    assert len(data) > 2_000_000


def test_lying_lengths_cost_no_memory() -> None:
    """A head that promises 2^32 items must not make a list of 32 GB, nor bring the process down."""
    lying = [b"\xdd\xff\xff\xff\xff", b"\xdc\xff\xff" * 300, b"\xdd\x7f\xff\xff\xff" * 100]
    lying += [b"\xdf\xff\xff\xff\xff\xa1a", b"\xc9\xff\xff\xff\xff\x03\x90"]
    for data in [*lying, *(canonical_reference.ext(3, head) for head in lying)]:
        for whole in (data, b"\x92\xa1a" + data, b"\xdc\x00\x10" + b"\x01" * 15 + data):
            assert not assert_judged_alike(whole)


def test_interrupt_in_a_hook_is_not_lost(monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(_: object) -> object:
        raise KeyboardInterrupt

    monkeypatch.setitem(canonical_accelerated_decoder._OPENERS, 3, interrupted)
    with pytest.raises(KeyboardInterrupt):
        canonical_accelerated_decoder.decode(canonical_reference.encode((1,)))
    assert not canonical_accelerated_decoder._interrupts


@pytest.mark.parametrize("module", [canonical_reference, canonical_accelerated])
def test_a_thread_that_changes_the_state_meanwhile_harms_nothing(module: ModuleType) -> None:
    """The bytes are of some moment of each container, or the value is refused; never a crash."""
    state: dict[str, Any] = {"rows": [(0, {"a": 0})], "d": {"k": (1,)}, "deep": {"l": [[0]] * 9}}
    done = threading.Event()

    def change() -> None:
        rng = random.Random(1)
        while not done.is_set():
            state["rows"][:] = [(at, {"a": at}) for at in range(rng.choice((0, 1, 50, 400)))]
            for at in range(50):
                state["d"].pop(f"k{rng.randrange(200)}", None)
                state["d"][f"k{rng.randrange(200)}"] = (at,)
                state["deep"]["l"].append([at])
            del state["deep"]["l"][5:]

    threads = [threading.Thread(target=change) for _ in range(2)]
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    for thread in threads:
        thread.start()
    try:
        for _ in range(scaled(150, 5_000)):
            try:
                data = module.encode(state)
            except ValueNotEncodableError as error:
                assert "changed while" in error.message  # noqa: PT017
            else:
                assert canonical_reference.encode(canonical.decode(data)) == data
    finally:
        done.set()
        for thread in threads:
            thread.join()
        sys.setswitchinterval(before)


def test_threads_encode_at_once() -> None:
    value = {"deep": [[[[(at, {at: "x"})]]] for at in range(300)], "n": list(range(50))}
    expected = canonical_reference.encode(value)
    wrong: list[bytes] = []

    def encode_often() -> None:
        wrong.extend(
            data for _ in range(20) if (data := canonical_accelerated.encode(value)) != expected
        )

    threads = [threading.Thread(target=encode_often) for _ in range(6)]
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-5)
    try:
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    finally:
        sys.setswitchinterval(before)
    assert not wrong


def test_guards_may_be_unsure_but_never_wrongly_sure() -> None:
    assert encoding_guards.may_hold_bytes(canonical.encode([1, b"x"]))
    assert encoding_guards.may_hold_bytes(canonical.encode({"a": bytes(300), "b": bytes(70_000)}))
    assert not encoding_guards.may_hold_bytes(canonical.encode({"a": ["text", 1.5]}))
    assert encoding_guards.may_hold_odd_nan(ormsgpack.packb([ODD_NANS[0]]))
    assert not encoding_guards.may_hold_odd_nan(canonical.encode([math.nan, math.inf, -math.inf]))
    assert encoding_guards.holds_any(
        [({"a": {bytearray: 1}},), [{"b": (bytearray(),)}]], {bytearray}
    )
    assert not encoding_guards.holds_any({"a": [1, (2, {3})]}, {bytearray})
    for seed in range(500):
        value = random_value(random.Random(seed), 3)
        data = canonical_reference.encode(value)
        assert not encoding_guards.is_shallow(data, _nesting(value) - 1)


def _nesting(value: object) -> int:
    if isinstance(value, canonical.Registered):
        return 1 + _nesting(value.value)
    if isinstance(value, dict):
        return 1 + max((_nesting(part) for pair in value.items() for part in pair), default=0)
    if isinstance(value, list | tuple | set | frozenset):
        return 1 + max(map(_nesting, value), default=0)
    return 0


def test_reference_serves_where_ormsgpack_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    import importlib

    monkeypatch.setitem(sys.modules, "eventlog.values.canonical_accelerated", None)
    monkeypatch.delattr("eventlog.values.canonical_accelerated", raising=False)
    try:
        slow = importlib.reload(canonical)
        assert slow.encode is canonical_reference.encode
        assert slow.decode(slow.encode({1: (2,)})) == {1: (2,)}
    finally:
        monkeypatch.undo()
        importlib.reload(canonical)
    assert canonical.encode is canonical_accelerated.encode


@pytest.mark.parametrize("encoder", [canonical_accelerated, canonical_reference])
def test_a_deep_value_that_codecs_close_level_by_level_is_not_taken_for_a_cycle(
    encoder: ModuleType,
) -> None:
    deep: object = "end"
    for _ in range(150):
        deep = collections.deque([deep])
    with pytest.raises(ValueNotEncodableError, match="is nested in 200 containers") as caught:
        encoder.encode(deep)
    assert "contains itself" not in caught.value.message
