"""A snapshot's bytes: every field comes back, every wrong one is refused, none is guessed."""

from hashlib import sha256

import pytest
from hypothesis import given
from hypothesis import strategies as st

from eventlog.canonical import decode, encode
from eventlog.errors import SnapshotError
from snapshots.compression import write_full
from snapshots.snapshot import (
    ID_PREFIX_BYTES,
    STEP_MAX,
    Snapshot,
    decode_record,
    decode_session_id,
    encode_delta,
    encode_record,
    encode_snapshot,
    restore_snapshot,
)
from tests.support.snapshots import make_snapshot

LONGEST_ID = "é" * 127 + "x"

texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=20)
session_ids = st.text(st.characters(exclude_categories=["Cs", "Cc"]), min_size=1, max_size=60)
states = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**80), 2**80)
    | st.floats()
    | st.text(max_size=8)
    | st.binary(max_size=8),
    lambda each: (
        st.lists(each, max_size=4)
        | st.dictionaries(st.text(max_size=5), each, max_size=4)
        | st.tuples(each, each)
    ),
    max_leaves=25,
)
counted = st.integers(0, STEP_MAX)
digests = st.binary(min_size=32, max_size=32)


@st.composite
def snapshots(draw: st.DrawFn) -> Snapshot:
    """Any snapshot that can be stored, of a random state."""
    state = encode(draw(states))
    return Snapshot(
        draw(session_ids),
        draw(counted),
        draw(digests),
        sha256(state).digest(),
        draw(texts.filter(bool)),
        draw(texts),
        state,
    )


@given(snapshots())
def test_any_snapshot_comes_back_as_it_was(snapshot: Snapshot) -> None:
    data = encode_snapshot(snapshot)
    record = decode_record(data)
    assert restore_snapshot(record) == snapshot
    assert encode_record(record) == data
    assert decode_session_id(data[:ID_PREFIX_BYTES]) == snapshot.session_id
    assert encode(decode(snapshot.state)) == snapshot.state


@given(snapshots(), states, st.data())
def test_any_delta_comes_back_with_its_base(
    base: Snapshot, state: object, data: st.DataObject
) -> None:
    if base.step == STEP_MAX:
        return
    after = encode(state)
    step = data.draw(st.integers(base.step + 1, STEP_MAX))
    snapshot = base._replace(step=step, state=after, state_digest=sha256(after).digest())
    record = decode_record(encode_delta(snapshot, base))
    assert (record.encoding, record.base_step) == ("delta", base.step)
    assert record.base == base.state_digest
    assert restore_snapshot(record, base.state) == snapshot
    with pytest.raises(SnapshotError, match="is not given"):
        restore_snapshot(record)
    with pytest.raises(SnapshotError, match="another digest"):
        restore_snapshot(record, base.state + b"\x00")


def test_what_a_snapshot_names_is_all_in_its_first_bytes() -> None:
    snapshot = make_snapshot(session_id=LONGEST_ID)
    data = encode_snapshot(snapshot)
    assert decode_session_id(data[:ID_PREFIX_BYTES]) == LONGEST_ID
    with pytest.raises(SnapshotError):
        decode_session_id(data[: ID_PREFIX_BYTES - 1])


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"session_id": ""}, "session id"),
        ({"session_id": "a\nb"}, "session id"),
        ({"session_id": "a\x7f"}, "session id"),
        ({"session_id": "\ud800"}, "session id"),
        ({"session_id": LONGEST_ID + "x"}, "session id"),
        ({"session_id": 7}, "session id"),
        ({"step": -1}, "step"),
        ({"step": STEP_MAX + 1}, "step"),
        ({"step": True}, "step"),
        ({"event_digest": b"short"}, "event digest"),
        ({"state_digest": b"s" * 33}, "state digest"),
        ({"state_digest": b"s" * 32}, "has the digest"),
        ({"reducer": ""}, "reducer"),
        ({"reducer": "\udfff"}, "reducer"),
        ({"reducer": "x" * 1025}, "reducer"),
        ({"reducer_version": None}, "reducer version"),
        ({"state": b""}, "0 bytes"),
        ({"state": bytearray(b"\xc0")}, "not bytes"),
    ],
)
def test_a_wrong_field_is_refused_before_anything_is_written(
    change: dict[str, object], message: str
) -> None:
    with pytest.raises(SnapshotError, match=message):
        encode_snapshot(make_snapshot()._replace(**change))


@pytest.mark.parametrize(
    ("base", "message"),
    [
        (make_snapshot(step=5), "not before step 5"),
        (make_snapshot(step=6), "not before step 5"),
        (make_snapshot(step=4, session_id="other"), "session 'other'"),
        (make_snapshot(step=4)._replace(state=b"\xc0"), "has the digest"),
    ],
)
def test_a_base_is_an_earlier_snapshot_of_the_session(base: Snapshot, message: str) -> None:
    with pytest.raises(SnapshotError, match=message):
        encode_delta(make_snapshot(step=5), base)


GOOD = decode_record(encode_snapshot(make_snapshot(b"\x93\x01\x02\x03", step=9)))


@pytest.mark.parametrize(
    "change",
    [
        {"session_id": ""},
        {"session_id": "a\x00b"},
        {"step": -1},
        {"step": STEP_MAX + 1},
        {"reducer": ""},
        {"base_step": 3},
        {"base": b"b" * 32},
        {"encoding": "delta"},
        {"encoding": "delta", "base_step": 3},
        {"encoding": "delta", "base": b"b" * 32},
        {"encoding": "delta", "base_step": 9, "base": b"b" * 32},
        {"encoding": "delta", "base_step": -1, "base": b"b" * 32},
        {"raw_bytes": 0},
        {"raw_bytes": (1 << 30) + 1},
        {"raw_bytes": -4},
    ],
)
def test_a_stored_field_that_cannot_be_is_refused(change: dict[str, object]) -> None:
    with pytest.raises(SnapshotError):
        decode_record(encode_record(GOOD._replace(**change)))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"raw_bytes": 5}, "declares 4 bytes"),
        ({"body": b""}, "begins with"),
        ({"body": GOOD.body + b"\x00"}, "unused"),
        ({"body": write_full(b"\x93\x01\x02\x04")}, "has the digest"),
        ({"state_digest": b"s" * 32}, "has the digest"),
    ],
)
def test_a_frame_that_does_not_fit_its_fields_is_refused(
    change: dict[str, object], message: str
) -> None:
    record = decode_record(encode_record(GOOD._replace(**change)))
    with pytest.raises(SnapshotError, match=message) as caught:
        restore_snapshot(record)
    assert (caught.value.session_id, caught.value.step) == ("task/1", 9)


def test_no_flip_cut_or_growth_of_the_bytes_gives_another_state() -> None:
    """The file's name would show these; the bytes alone must too, but for what they stand on."""
    snapshot = make_snapshot(encode({"items": list(range(20)), "name": "x" * 40}), step=3)
    data = encode_snapshot(snapshot)
    for place in range(len(data)):
        for bit in range(8):
            flipped = bytearray(data)
            flipped[place] ^= 1 << bit
            try:
                found = restore_snapshot(decode_record(bytes(flipped)))
            except SnapshotError:
                continue
            assert found.state == snapshot.state
        with pytest.raises(SnapshotError):
            decode_record(data[:place])
    with pytest.raises(SnapshotError):
        decode_record(data + b"\x00")


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"", "no single-object header"),
        (b"\xc3\x01", "no single-object header"),
        (b"Obj\x01" + b"\x00" * 40, "no single-object header"),
        (b"\xc3\x01" + b"\xff" * 8 + encode_record(GOOD)[10:], "ffffffffffffffff"),
    ],
)
def test_bytes_of_another_format_are_named(data: bytes, message: str) -> None:
    """A newer snapshot only costs time, so an unknown schema is a SnapshotError too."""
    for read in (decode_record, decode_session_id):
        with pytest.raises(SnapshotError, match=message):
            read(data)


def test_a_longer_form_of_the_same_fields_is_refused() -> None:
    """A varint may be padded with zero groups; a reader that lets it pass has two forms of one."""
    data = encode_record(GOOD)
    assert data[10] == len("task/1") * 2
    padded = data[:10] + bytes([data[10] | 0x80, 0]) + data[11:]
    with pytest.raises(SnapshotError, match="not those of the snapshot"):
        decode_record(padded)
