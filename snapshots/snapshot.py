"""`Snapshot`: the state of one session after one step, and its bytes in a file.

The bytes are the Avro record `steplog.Snapshot` in single-object framing (`schemas/`), the state a
zstd frame inside: whole, or a delta against the state of an earlier step. Reading checks each
field, and that the state has its digest; whatever does not fit is a `SnapshotError`, so damage
costs time and never gives another state. Pure: files are `snapshot_store`'s.
"""

from hashlib import sha256
from typing import Final, NamedTuple

from eventlog.errors import SnapshotError, UnknownSchemaError
from eventlog.event import DIGEST_BYTES, SESSION_ID_BYTES_MAX, session_id_problem
from eventlog.schema import HEADER_BYTES, AvroDataError, SchemaRegistry, load_schema
from snapshots.compression import (
    FRAME_BYTES_MAX,
    RAW_BYTES_MAX,
    read_delta,
    read_full,
    write_delta,
    write_full,
)

STEP_MAX: Final = 10**12 - 1
"""Last step that a snapshot can be of: file names hold 12 digits."""
NAME_BYTES_MAX: Final = 1024
"""Longest reducer name or version, in UTF-8 bytes."""
SNAPSHOT_BYTES_MAX: Final = FRAME_BYTES_MAX + 8192
"""Largest file: the largest frame, and more than the other fields can take."""
ID_PREFIX_BYTES: Final = HEADER_BYTES + 2 + SESSION_ID_BYTES_MAX
"""So many bytes from the front always hold the session id."""

FULL: Final = "full"
DELTA: Final = "delta"

_SCHEMA: Final = load_schema("snapshots", "snapshot-v1.avsc")
_REGISTRY: Final = SchemaRegistry([_SCHEMA])
_ID_SCHEMA: Final = _SCHEMA.cut_after("session_id")
_FIELD_NAMES: Final = (
    "session_id",
    "step",
    "event_digest",
    "state_digest",
    "reducer",
    "reducer_version",
    "encoding",
    "base_step",
    "base",
    "raw_size",
    "body",
)


class Snapshot(NamedTuple):
    """The state of `session_id` after `step`: its canonical bytes, and what it stands on.

    `event_digest` (32 bytes) is the digest of the event of that step, `state_digest` (32 bytes)
    the SHA-256 of `state`; `reducer` and `reducer_version` name what made the state.
    """

    session_id: str
    step: int
    event_digest: bytes
    state_digest: bytes
    reducer: str
    reducer_version: str
    state: bytes


class SnapshotRecord(NamedTuple):
    """A snapshot as it is stored: the fields of the Avro record, the state still in its frame.

    `base_step` and `base` (SHA-256 of the base's state bytes) are there exactly where `encoding`
    is delta; `raw_bytes` counts the state's bytes (`raw_size` in the schema).
    """

    session_id: str
    step: int
    event_digest: bytes
    state_digest: bytes
    reducer: str
    reducer_version: str
    encoding: str
    base_step: int | None
    base: bytes | None
    raw_bytes: int
    body: bytes


def encode_snapshot(snapshot: Snapshot) -> bytes:
    """The file bytes of a snapshot that stands alone.

    Raises `SnapshotError` where a field cannot be stored, or the state has another digest.
    """
    return _encode(snapshot, FULL, None, None)


def encode_delta(snapshot: Snapshot, base: Snapshot) -> bytes:
    """The file bytes of a snapshot that is read with `base`, an earlier one of the same session.

    Raises `SnapshotError` as `encode_snapshot` does, and where `base` is not an earlier one.
    """
    _refuse_other_state(base)
    if base.session_id != snapshot.session_id:
        raise SnapshotError(
            f"the base is a snapshot of session {base.session_id!r}",
            hint="take the base from the same session",
            session_id=snapshot.session_id,
            step=snapshot.step,
        )
    return _encode(snapshot, DELTA, base.step, base)


def decode_record(data: bytes) -> SnapshotRecord:
    """The fields stored in `data`, each checked; the state is not unpacked yet.

    Raises `SnapshotError` where the bytes are not exactly one snapshot of a known schema.
    """
    try:
        schema = _REGISTRY.find(data)
        datum, end = schema.read_datum(data, HEADER_BYTES)
    except (AvroDataError, UnknownSchemaError) as error:
        raise _damage(f"the bytes are not a snapshot: {error}") from error
    if not isinstance(datum, dict):
        raise _damage("the bytes are not a record")
    record = SnapshotRecord(*datum.values())
    problem = _problem_of(record)
    if problem is not None:
        raise _damage(problem)
    # One snapshot has one form: what Avro readers let pass (a longer varint, a negative length,
    # bytes that follow) does not come back as the same bytes.
    if end != len(data) or encode_record(record) != data:
        raise _damage("the bytes are not those of the snapshot they hold", record)
    return record


def encode_record(record: SnapshotRecord) -> bytes:
    """The file bytes of a record whose fields are right."""
    fields = dict(zip(_FIELD_NAMES, record, strict=True))
    return _SCHEMA.header + _SCHEMA.write_datum(fields)


def decode_session_id(head: bytes) -> str:
    """The session id at the front of a snapshot's bytes (`ID_PREFIX_BYTES` of them suffice).

    Only says which session the rest is meant for. Raises `SnapshotError`.
    """
    try:
        _REGISTRY.find(head)
        datum, _end = _ID_SCHEMA.read_datum(head, HEADER_BYTES)
    except (AvroDataError, UnknownSchemaError) as error:
        raise _damage(f"the bytes are not a snapshot: {error}") from error
    session_id = datum["session_id"] if isinstance(datum, dict) else None
    problem = session_id_problem(session_id) if isinstance(session_id, str) else "is not text"
    if problem is not None:
        raise _damage(f"the session id {problem}")
    return str(session_id)


def restore_snapshot(record: SnapshotRecord, base_state: bytes | None = None) -> Snapshot:
    """The snapshot of a record, its state unpacked and proven by its digest.

    `base_state` are the state bytes of a delta's base. Raises `SnapshotError` where the base is
    missing or another one, the frame is damaged, or the state has another digest.
    """
    try:
        state = _unpack(record, base_state)
    except SnapshotError as error:
        raise _damage(error.message, record) from error
    snapshot = Snapshot(*record[:6], state)
    _refuse_other_state(snapshot)
    return snapshot


def _encode(
    snapshot: Snapshot, encoding: str, base_step: int | None, base: Snapshot | None
) -> bytes:
    record = SnapshotRecord(
        *snapshot[:6],
        encoding,
        base_step,
        base.state_digest if base is not None else None,
        len(snapshot.state),
        b"",
    )
    problem = _problem_of(record)
    if problem is None and type(snapshot.state) is not bytes:
        problem = "the state is not bytes"
    if problem is not None:
        raise SnapshotError(
            f"a snapshot cannot be stored: {problem}",
            hint="give it as `Snapshot` describes its fields",
            session_id=snapshot.session_id,
            step=snapshot.step,
        )
    _refuse_other_state(snapshot)
    body = write_full(snapshot.state) if base is None else write_delta(snapshot.state, base.state)
    return encode_record(record._replace(body=body))


def _unpack(record: SnapshotRecord, base_state: bytes | None) -> bytes:
    if record.encoding == FULL:
        return read_full(record.body, raw_bytes=record.raw_bytes)
    if base_state is None:
        raise _damage(f"it is a delta, and its base of step {record.base_step} is not given")
    if sha256(base_state).digest() != record.base:
        raise _damage(
            f"the base of step {record.base_step} has another digest than the delta names"
        )
    return read_delta(record.body, base_state, raw_bytes=record.raw_bytes)


def _refuse_other_state(snapshot: Snapshot) -> None:
    found = sha256(snapshot.state).digest()
    if found != snapshot.state_digest:
        raise SnapshotError(
            f"the state in a snapshot has the digest {found.hex()}, "
            f"not {snapshot.state_digest.hex()}",
            hint="the bytes are damaged; use an older snapshot or fold the log",
            session_id=snapshot.session_id,
            step=snapshot.step,
        )


def _problem_of(record: SnapshotRecord) -> str | None:
    """What is wrong with the fields, if anything; the frame and its digest are not looked at."""
    if type(record.session_id) is not str:
        return f"the session id {record.session_id!r} is not text"
    problem = session_id_problem(record.session_id)
    if problem is not None:
        return f"the session id {problem}"
    if not _is_count(record.step, 0, STEP_MAX):
        return f"the step {record.step!r} is not in 0..{STEP_MAX}"
    for name, digest in (("event", record.event_digest), ("state", record.state_digest)):
        if not _is_digest(digest):
            return f"the {name} digest is not {DIGEST_BYTES} bytes"
    if not _is_name(record.reducer) or not record.reducer:
        return f"the reducer {record.reducer!r} is not a name"
    if not _is_name(record.reducer_version):
        return f"the reducer version {record.reducer_version!r} is not text"
    if not _is_count(record.raw_bytes, 1, RAW_BYTES_MAX):
        return f"the state has {record.raw_bytes} bytes, not 1..{RAW_BYTES_MAX}"
    return _problem_of_base(record)


def _problem_of_base(record: SnapshotRecord) -> str | None:
    if record.encoding == FULL:
        whole = record.base_step is None and record.base is None
        return None if whole else "the snapshot is full and yet names a base"
    if record.encoding != DELTA:
        return f"the encoding {record.encoding!r} is neither full nor delta"
    if not _is_count(record.base_step, 0, record.step - 1):
        return f"the base's step {record.base_step!r} is not before step {record.step}"
    return None if _is_digest(record.base) else f"the base's digest is not {DIGEST_BYTES} bytes"


def _is_count(value: object, least: int, most: int) -> bool:
    return type(value) is int and least <= value <= most


def _is_digest(value: object) -> bool:
    return type(value) is bytes and len(value) == DIGEST_BYTES


def _is_name(value: object) -> bool:
    size = _utf8_bytes(value) if isinstance(value, str) else None
    return size is not None and size <= NAME_BYTES_MAX


def _utf8_bytes(text: str) -> int | None:
    try:
        return len(text.encode("utf-8"))
    except UnicodeEncodeError:
        return None


def _damage(what: str, record: SnapshotRecord | None = None) -> SnapshotError:
    return SnapshotError(
        what,
        hint="use an older snapshot or fold the log; `steplog check` says what is damaged",
        session_id=record.session_id if record is not None else None,
        step=record.step if record is not None else None,
    )
