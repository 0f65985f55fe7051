"""Events to bytes and back: every kind round trips, fastavro agrees, everything else is refused."""

import math
import random
import struct
from hashlib import sha256
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from eventlog.avro.event_datum import datum_of_event, event_of_datum
from eventlog.avro.event_form import EVENT_SCHEMA
from eventlog.avro.record_writer import long_bytes, text_bytes
from eventlog.codec import EventPrefix, decode_event, decode_prefix, encode_event
from eventlog.content import BlobRef, Content
from eventlog.errors import (
    EventCorruptError,
    UnknownKindError,
    UnknownSchemaError,
    ValueNotEncodableError,
)
from eventlog.event import (
    Annotated,
    Event,
    GapObserved,
    LineHead,
    SessionClosed,
    SessionSeeded,
    StateChange,
    StateChanged,
    StateUnknown,
    ToolCalled,
    ToolReturned,
    Trace,
    Verified,
)
from eventlog.schema import HEADER_BYTES
from tests.support.events import KINDS, EventChain, random_event
from tests.support.scale import scaled

HEAD = LineHead("task-17/seed-3", 4, 2, b"\x07" * 32)
NOTE = Content("text/plain", b"hello")
REFUSALS = (EventCorruptError, UnknownKindError, UnknownSchemaError)


def event_of(body: Any, **fields: Any) -> Event:
    fields = {"event_id": bytes(16), "time": 0, "actor": "agent"} | fields
    return Event.following(HEAD, body, **fields)


# Round trips.


@pytest.mark.parametrize("kind", KINDS)
def test_random_events_of_every_kind(kind: str) -> None:
    rng = random.Random(kind)
    for _ in range(scaled(60, 3_000)):
        encoded = encode_event(random_event(rng, kind))
        decoded = decode_event(encoded.data)
        # repr, for NaN is not equal to itself; the bytes decide the rest.
        assert repr(decoded) == repr(encoded.event)
        again = encode_event(decoded)
        assert again.data == encoded.data
        assert again.digest == encoded.digest == sha256(encoded.data).digest()
        assert decode_prefix(encoded.data) == EventPrefix._make(decoded[:7])


@pytest.mark.parametrize("kind", KINDS)
def test_fastavro_writes_and_reads_the_same(kind: str) -> None:
    rng = random.Random(f"reference {kind}")
    for _ in range(scaled(40, 2_000)):
        event = random_event(rng, kind)
        encoded = encode_event(event)
        written = EVENT_SCHEMA.write_datum(datum_of_event(event, EVENT_SCHEMA))
        assert encoded.data == EVENT_SCHEMA.header + written
        datum, end = EVENT_SCHEMA.read_datum(encoded.data, HEADER_BYTES)
        assert end == len(encoded.data)
        assert repr(event_of_datum(datum, EVENT_SCHEMA)) == repr(encoded.event)


def test_fastavro_reads_the_prefix_with_the_cut_schema() -> None:
    rng = random.Random(11)
    cut = EVENT_SCHEMA.cut_after("state_change")
    for _ in range(scaled(100, 5_000)):
        encoded = encode_event(random_event(rng))
        datum, _ = cut.read_datum(encoded.data, HEADER_BYTES)
        assert isinstance(datum, dict)
        prefix = decode_prefix(encoded.data)
        assert tuple(datum) == EventPrefix._fields
        assert [datum[name] for name in EventPrefix._fields[:6]] == list(prefix[:6])


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf, -0.0, 5e-324])
def test_rewards_are_kept_bit_for_bit(value: float) -> None:
    """Case D9."""
    body = Verified("v", reward=value, components={"part": value})
    decoded = decode_event(encode_event(event_of(body)).data).body
    assert isinstance(decoded, Verified)
    assert decoded.reward is not None
    for kept in (decoded.reward, decoded.components["part"]):
        assert struct.pack("<d", kept) == struct.pack("<d", value)


def test_an_encoded_event_shares_nothing_with_the_caller() -> None:
    metadata, paths = {"b": "2", "a": "1"}, ["$.x"]
    body = SessionSeeded("desk", metadata=metadata, excluded_paths=paths)  # type: ignore[arg-type]
    encoded = encode_event(event_of(body))
    metadata["c"] = "3"
    paths.append("$.y")
    assert encoded.event == decode_event(encoded.data)
    assert list(encoded.event.body.metadata) == ["a", "b"]  # type: ignore[union-attr]


def test_equal_maps_give_equal_bytes() -> None:
    one = encode_event(event_of(Verified("v", components={"a": 1.0, "b": 2.0})))
    other = encode_event(event_of(Verified("v", components={"b": 2.0, "a": 1.0})))
    assert one == other


# What is refused before a byte is written.


class Text(str):
    __slots__ = ()


EVENT = event_of(GapObserved("x"))
CHANGE = StateChange(NOTE, b"\x01" * 32)
SEEDED = SessionSeeded("desk")
LONE = "a\udc00b"
NO = bytes(32)
REF = Content("x", BlobRef(NO, 1))
REF_PATH = "$.body.result.data"


@pytest.mark.parametrize(
    ("event", "path"),
    [
        (EVENT._replace(event_id=b"short"), "$.event_id"),
        (EVENT._replace(event_id=bytearray(16)), "$.event_id"),
        (EVENT._replace(session_id=""), "$.session_id"),
        (EVENT._replace(session_id="é" * 128), "$.session_id"),
        (EVENT._replace(session_id="a\nb"), "$.session_id"),
        (EVENT._replace(session_id="a\x7f"), "$.session_id"),
        (EVENT._replace(session_id="a\x85"), "$.session_id"),
        (EVENT._replace(session_id=LONE), "$.session_id"),
        (EVENT._replace(session_id=b"s"), "$.session_id"),
        (EVENT._replace(step=-1), "$.step"),
        (EVENT._replace(step=True), "$.step"),
        (EVENT._replace(step=2**63), "$.step"),
        (EVENT._replace(step=10**5000), "$.step"),
        (EVENT._replace(time=10**5000), "$.time"),
        (EVENT._replace(attempt=0), "$.attempt"),
        (EVENT._replace(attempt=2**31), "$.attempt"),
        (EVENT._replace(attempt=1.0), "$.attempt"),
        (EVENT._replace(kind=Text("gap_observed")), "$.kind"),
        (EVENT._replace(parent=bytes(31)), "$.parent"),
        (EVENT._replace(parent=None), "$.parent"),
        (EVENT._replace(time=1.5), "$.time"),
        (EVENT._replace(time=2**63), "$.time"),
        (EVENT._replace(actor=None), "$.actor"),
        (EVENT._replace(actor=LONE), "$.actor"),
        (EVENT._replace(trace=(bytes(16), bytes(8), None)), "$.trace"),
        (EVENT._replace(trace=Trace(bytes(16), bytes(7))), "$.trace.span_id"),
        (EVENT._replace(trace=Trace(bytes(16), bytes(8), b"1")), "$.trace.parent_span_id"),
        (EVENT._replace(state_change=NOTE), "$.state_change"),
        (EVENT._replace(state_change=CHANGE._replace(digest=b"")), "$.state_change.digest"),
        (EVENT._replace(state_change=StateUnknown(LONE)), "$.state_change.reason"),
        (
            EVENT._replace(state_change=CHANGE._replace(patch=Content("x", None))),
            "$.state_change.patch.data",
        ),
        (
            EVENT._replace(state_change=CHANGE._replace(patch=Content(LONE, b""))),
            "$.state_change.patch.media_type",
        ),
        (event_of(GapObserved(LONE)), "$.body.detail"),
        (event_of(SEEDED._replace(seed=1.0)), "$.body.seed"),
        (event_of(SEEDED._replace(seed=2**63)), "$.body.seed"),
        (event_of(SEEDED._replace(state_coverage="all")), "$.body.state_coverage"),
        (event_of(SEEDED._replace(environment=Text("desk"))), "$.body.environment"),
        (event_of(SEEDED._replace(excluded_paths=("a", 1))), "$.body.excluded_paths[1]"),
        (event_of(SEEDED._replace(metadata={"a": 1})), "$.body.metadata['a']"),
        (event_of(SEEDED._replace(metadata={LONE: "1"})), "$.body.metadata['a\\udc00b']"),
        (event_of(SEEDED._replace(metadata={1: "1"})), "$.body.metadata"),
        (event_of(SEEDED._replace(metadata=[("a", "b")])), "$.body.metadata"),
        (event_of(SEEDED._replace(request=b"raw")), "$.body.request"),
        (event_of(ToolReturned(1, "fine" * 1000)), "$.body.status"),
        (event_of(ToolReturned(True, "ok")), "$.body.called_step"),
        (event_of(ToolReturned(1, "ok", reward=1)), "$.body.reward"),
        (event_of(ToolReturned(1, "ok", terminated=1)), "$.body.terminated"),
        (event_of(StateChanged(None)), "$.body.reason"),
        (event_of(ToolReturned(1, "ok", REF._replace(data=BlobRef(b"", 1)))), REF_PATH + ".digest"),
        (event_of(ToolReturned(1, "ok", REF._replace(data=BlobRef(NO, "1")))), REF_PATH + ".size"),
        (event_of(Verified("v", components={"a": 1})), "$.body.components['a']"),
        (event_of(SessionClosed("done", 1, b"root")), "$.body.root"),
        (event_of(Annotated("n", "text")), "$.body.value"),
    ],
)  # fmt: skip
def test_wrong_values_are_refused_with_their_path(event: Event, path: str) -> None:
    with pytest.raises(ValueNotEncodableError) as caught:
        encode_event(event)
    assert caught.value.path == path
    assert path in caught.value.message
    assert caught.value.session_id == (event.session_id if event.session_id != b"s" else None)
    assert caught.value.step == (5 if path != "$.step" else None)
    assert len(str(caught.value)) < 700


@pytest.mark.parametrize("kind", KINDS)
def test_a_kind_goes_with_its_body_only(kind: str) -> None:
    body = random_event(random.Random(kind), kind).body
    for other in KINDS:
        event = event_of(body)._replace(kind=other)
        if other == kind:
            encode_event(event)
        else:
            with pytest.raises(UnknownKindError, match=other) as caught:
                encode_event(event)
            assert (caught.value.session_id, caught.value.step) == (HEAD.session_id, 5)


@pytest.mark.parametrize(
    "event", [EVENT._replace(body=None), EVENT._replace(kind="new_kind"), EVENT._replace(kind=[])]
)
def test_unknown_kinds_and_bodies_are_not_written(event: Event) -> None:
    with pytest.raises(UnknownKindError):
        encode_event(event)


def test_a_calls_names_are_stored_escaped(caplog: pytest.LogCaptureFixture) -> None:
    body = ToolCalled(LONE, NOTE, call_id="\ud83d", idempotency_key="k")
    encoded = encode_event(event_of(body))
    escaped = body._replace(tool="a\\udc00b", call_id="\\ud83d")
    assert decode_event(encoded.data) == encoded.event == event_of(escaped)
    assert "task-17/seed-3" in caplog.text
    caplog.clear()
    encode_event(event_of(escaped))
    assert caplog.text == ""


def test_other_names_of_a_call_are_refused_also_beside_escaped_ones() -> None:
    body = ToolCalled(LONE, NOTE, call_id=LONE, idempotency_key=LONE)
    with pytest.raises(ValueNotEncodableError) as caught:
        encode_event(event_of(body))
    assert caught.value.path == "$.body.idempotency_key"
    with pytest.raises(ValueNotEncodableError) as caught:
        encode_event(event_of(body._replace(tool=None)))
    assert caught.value.path == "$.body.tool"


# What is refused when read.


def changed(data: bytes, old: bytes, new: bytes) -> bytes:
    """`data` with the only `old` in it replaced."""
    assert data.count(old) == 1
    return data.replace(old, new)


GOOD = encode_event(event_of(StateChanged("why"), state_change=CHANGE)).data


def test_an_unknown_schema_is_named() -> None:
    """Case D7: the fingerprint, and what every schema's prefix says."""
    data = b"\xc3\x01" + bytes(range(1, 9)) + GOOD[HEADER_BYTES:]
    for decode in (decode_event, decode_prefix):
        with pytest.raises(UnknownSchemaError) as caught:
            decode(data)
        assert "0807060504030201" in caught.value.message
        assert "state_changed" in caught.value.message
        assert (caught.value.session_id, caught.value.step) == (HEAD.session_id, 5)


def test_an_unknown_kind_is_named() -> None:
    """Case D7: one event of a kind that this build does not know, in the middle of ten."""
    chain = EventChain("s")
    chain.seed()
    for _ in range(9):
        chain.call()
    records = [encoded.data for encoded in chain.events]
    records[5] = changed(records[5], text_bytes("tool_called"), text_bytes("tool_asked"))
    for decode in (decode_event, decode_prefix):
        for data in records[:5] + records[6:]:
            decode(data)
        with pytest.raises(UnknownKindError) as caught:
            decode(records[5])
        assert "'tool_asked'" in caught.value.message
        assert EVENT_SCHEMA.fingerprint[::-1].hex() in caught.value.message
        assert (caught.value.session_id, caught.value.step) == ("s", 5)


def test_a_kind_that_is_not_its_bodys_is_refused() -> None:
    data = changed(GOOD, text_bytes("state_changed"), text_bytes("gap_observed"))
    with pytest.raises(UnknownKindError, match="StateChanged") as caught:
        decode_event(data)
    assert caught.value.step == 5


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"\xc3",
        b"\x00" * 40,
        GOOD[1:],
        GOOD[:-1],
        GOOD[:HEADER_BYTES],
        GOOD + b"\x00",
        GOOD + GOOD,
        b"\x00\x00\x00\x00\x01" + GOOD[HEADER_BYTES:],
    ],
)
def test_what_is_not_exactly_one_event_is_refused(data: bytes) -> None:
    with pytest.raises(EventCorruptError):
        decode_event(data)


@pytest.mark.parametrize(
    ("old", "new"),
    [
        (text_bytes(HEAD.session_id), text_bytes("")),
        (text_bytes(HEAD.session_id), text_bytes("a\nb")),
        (text_bytes(HEAD.session_id), text_bytes("x" * 256)),
        (text_bytes("state_changed") + HEAD.digest, text_bytes("state_changed")),
        (text_bytes("text/plain"), long_bytes(-1) + b"text/plain"),
        (text_bytes("text/plain"), long_bytes(2**40) + b"text/plain"),
        (text_bytes("agent"), b"\x0a\xffgent"),
        (text_bytes("why"), long_bytes(2**62) + b"why"),
        (long_bytes(6) + text_bytes("why"), long_bytes(17) + text_bytes("why")),
        (long_bytes(6) + text_bytes("why"), long_bytes(-1) + text_bytes("why")),
    ],
)
def test_damage_is_refused_and_placed(old: bytes, new: bytes) -> None:
    with pytest.raises(EventCorruptError) as caught:
        decode_event(changed(GOOD, old, new))
    if HEAD.session_id.encode() not in old:
        assert (caught.value.session_id, caught.value.step) == (HEAD.session_id, 5)


@pytest.mark.parametrize(("step", "attempt"), [(-1, 1), (5, 0), (5, -1), (5, 2**31)])
def test_steps_and_attempts_out_of_range_are_refused(step: int, attempt: int) -> None:
    before = text_bytes(HEAD.session_id)
    old, new = long_bytes(5) + long_bytes(2), long_bytes(step) + long_bytes(attempt)
    data = changed(GOOD, before + old, before + new)
    for decode in (decode_event, decode_prefix):
        with pytest.raises(EventCorruptError, match=r"step|attempt"):
            decode(data)


def refused_or_written_back(data: bytes) -> bool:
    """Whether `data` is refused by an error of ours; if not, it must be what we write."""
    try:
        decode_prefix(data)
    except REFUSALS:
        with pytest.raises(REFUSALS):
            decode_event(data)
        return True
    try:
        event = decode_event(data)
    except REFUSALS:
        return True
    assert encode_event(event).data == data
    return False


@given(st.binary())
def test_any_bytes_behind_a_header(data: bytes) -> None:
    refused_or_written_back(data)
    refused_or_written_back(EVENT_SCHEMA.header + data)
    # Past the ids, so that it is not the first length that fails.
    refused_or_written_back(GOOD[: HEADER_BYTES + 16 + 15] + data)
    refused_or_written_back(GOOD[:-5] + data)


def test_every_truncation_is_refused() -> None:
    rng = random.Random(21)
    for kind in KINDS:
        data = encode_event(random_event(rng, kind)).data
        ends = range(len(data)) if len(data) < 500 else rng.sample(range(len(data)), 500)
        for end in ends:
            assert refused_or_written_back(data[:end])


def test_flipped_bits() -> None:
    """Refused, or another event that is as well formed: the digest tells them apart."""
    rng = random.Random(22)
    refused = 0
    events = scaled(300, 15_000)
    for _ in range(events):
        good = encode_event(random_event(rng)).data
        for _ in range(20):
            data = bytearray(good)
            for _ in range(rng.choice((1, 1, 1, 3))):
                data[rng.randrange(min(len(data), 400))] ^= 1 << rng.randrange(8)
            refused += refused_or_written_back(bytes(data))
    assert refused > events
