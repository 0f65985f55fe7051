"""What is shown of sessions, calls, events, states and reports: rows of stable keys. Pure.

A row is a dict that `json.dumps(row, allow_nan=False)` writes; the command prints rows, a viewer
serves them. Keys once released keep their names. Values (states, arguments, results, bodies) are in
the JSON form of `eventlog.json_form`; digests are hex, events' ids UUIDs, times microseconds since
1970 UTC. A row's own numbers (`reward`) are plain JSON numbers where JSON has them.

Contents in the blob store are fetched through the `fetch` that is passed in, up to a limit.
"""

import json
import math
from collections.abc import Callable, Iterable, Mapping
from typing import Final, TypeAlias
from uuid import UUID

from eventlog.call_view import CallRow
from eventlog.content import APPLICATION_JSON, BlobRef, Content, read_content
from eventlog.event import Body, Event, StateChange, StateUnknown
from eventlog.importers.import_file import ImportOutcome
from eventlog.json_form import to_json_form
from eventlog.log import LogRecord, SessionInfo
from eventlog.values.value_path import path_step
from replay.difference import Change, Difference
from replay.integrity import CheckReport
from replay.replayer import Replayed
from replay.voiding import Voided
from snapshots.policies.history import PolicyVersion
from snapshots.snapshot_store import SnapshotRef

Row: TypeAlias = dict[str, object]
FetchContent: TypeAlias = Callable[[Content], bytes]

SHOWN_BLOB_BYTES_MAX: Final = 4 * 1024 * 1024
"""A content that stands in the blob store and is larger than this is shown by digest and size."""


def session_row(info: SessionInfo) -> Row:
    """A session as a list shows it; times null where its trace has none (they are stored as 0)."""
    return {
        "session": info.session_id,
        "environment": info.environment,
        "step_count": info.step_count,
        "attempt": info.attempt,
        "status": info.status,
        "reward": json_number(info.reward),
        "reward_from": info.reward_from,
        "first_time": info.first_time or None,
        "last_time": info.last_time or None,
        "task_id": info.task_id,
        "sample_id": info.sample_id,
        "group_id": info.group_id,
        "policy": info.policy,
        "policies": list(info.policies),
        "policies_more": info.policies_more,
        "training_session": info.training_session,
        "training_step": info.training_step,
        "voided": info.voided,
        "parent_session": info.parent_session,
        "parent_step": info.parent_step,
    }


def voided_row(voided: Voided) -> Row:
    """A session that was to be voided: the step of its annotation, or why it was left."""
    return {
        "session": voided.session,
        "voided": voided.step,
        "policies": list(voided.policies),
        "left": voided.left,
    }


def policy_row(training: str, one: PolicyVersion, *, head: bool, kept: bool) -> Row:
    """A policy version of a training; `kept`: its checkpoint is in the line, with this manifest."""
    return {
        "training": training,
        "version": one.version,
        "label": one.label,
        "checkpoint": one.ref.id,
        "training_step": one.ref.training_step,
        "manifest": one.ref.digest,
        "published": one.time,
        "standing": one.standing,
        "current": one.current,
        "head": head,
        "kept": kept,
        "reason": one.reason,
    }


def call_row(call: CallRow, fetch: FetchContent) -> Row:
    """A call and its return; `result` is None where there is none yet."""
    return {
        "session": call.session_id,
        "call_step": call.call_step,
        "return_step": call.return_step,
        "tool": call.tool,
        "status": call.status,
        "arguments": content_value(call.arguments, fetch),
        "result": None if call.result is None else content_value(call.result, fetch),
        "reward": json_number(call.reward),
        "duration_us": call.duration_us,
        "policy": call.policy,
    }


def event_row(record: LogRecord, event: Event, fetch: FetchContent) -> Row:
    """An event whole: its envelope, its body's fields, and every content decoded."""
    trace = event.trace
    return {
        "session": event.session_id,
        "step": event.step,
        "attempt": event.attempt,
        "kind": event.kind,
        "event_id": str(UUID(bytes=event.event_id)),
        "event_digest": record.digest.hex(),
        "parent": event.parent.hex(),
        "partition": record.partition,
        "offset": record.offset,
        "time": event.time,
        "actor": event.actor,
        "state_change": _state_change_row(event.state_change, fetch),
        "trace": None if trace is None else _fields_row(trace._asdict(), fetch),
        "body": _fields_row(_body_fields(event.body), fetch),
    }


def content_row(content: Content, fetch: FetchContent) -> Row:
    """A content: media type, size in bytes, its blob's SHA-256 where it stands in one, its value.

    `value` is left out where the blob is over the limit.
    """
    row: Row = {"media_type": content.media_type, "size": content_bytes(content)}
    if isinstance(content.data, BlobRef):
        row["blob"] = content.data.digest.hex()
    if is_shown(content):
        row["value"] = _read_value(content, fetch)
    return row


def content_value(content: Content, fetch: FetchContent) -> object:
    """The JSON form of what a content holds: JSON parsed, text as a str, a value as it is.

    JSON that cannot be parsed without loss (a key twice, a number beyond floats) stays text. Over
    the limit: `{"blob": SHA-256 in hex, "size": bytes}`, as a transcript has it.
    """
    data = content.data
    if isinstance(data, BlobRef) and not is_shown(content):
        return {"blob": data.digest.hex(), "size": data.size}
    return _read_value(content, fetch)


def is_shown(content: Content) -> bool:
    """Whether a content is within the limit of what is fetched to be shown."""
    return not isinstance(content.data, BlobRef) or content.data.size <= SHOWN_BLOB_BYTES_MAX


def content_bytes(content: Content) -> int:
    """The size of a content in bytes."""
    return content.data.size if isinstance(content.data, BlobRef) else len(content.data)


def replayed_row(replayed: Replayed, state: object) -> Row:
    """A replayed step; `state` is the part of its opaque state that is wanted, or the whole."""
    return {
        "session": replayed.session_id,
        "step": replayed.step,
        "kind": replayed.kind,
        "reducer": replayed.reducer,
        "state": to_json_form(state),
        "state_digest": replayed.state_digest.hex(),
        "event_digest": replayed.event_digest.hex(),
        "from_snapshot": replayed.from_snapshot,
        "folded": replayed.folded,
    }


def difference_row(difference: Difference) -> Row:
    """What differs between two states or two sessions."""
    return {
        "equal": difference.equal,
        "first_step": difference.first_step,
        "changes": [change_row(change) for change in difference.changes],
    }


def change_row(change: Change) -> Row:
    """One difference; the path is an array of keys and positions."""
    return {
        "op": change.op,
        "path": to_json_form(list(change.path)),
        "before": to_json_form(change.before),
        "after": to_json_form(change.after),
    }


def report_row(report: CheckReport) -> Row:
    """What a check found in one session; its details are told in words, apart."""
    row = report._asdict()
    del row["details"]
    return row


def import_row(outcome: ImportOutcome) -> Row:
    """An imported session; `state` is its state coverage."""
    return {
        "session": outcome.session_id,
        "format": outcome.format,
        "events": outcome.events,
        "state": outcome.state,
        "warnings": list(outcome.warnings),
    }


def snapshot_row(ref: SnapshotRef) -> Row:
    """A kept snapshot: the state's session and step, and its file's name and size in bytes."""
    return {
        "session": ref.session_id,
        "step": ref.step,
        "file": ref.name,
        "bytes": ref.stored_bytes,
    }


def json_number(value: float | None) -> object:
    """A number as a row holds it: JSON has no NaN and no infinities, so these are named."""
    return value if value is None or math.isfinite(value) else {"$float": repr(value)}


def readable_path(path: Iterable[object]) -> str:
    """A path into a value as people read it: `$.orders["A1"][3]`."""
    return "$" + "".join(map(path_step, path))


def _state_change_row(change: StateChange | StateUnknown | None, fetch: FetchContent) -> Row | None:
    if change is None:
        return None
    if isinstance(change, StateUnknown):
        return {"unknown": change.reason}
    return {"patch": content_row(change.patch, fetch), "state_digest": change.digest.hex()}


def _body_fields(body: Body) -> Mapping[str, object]:
    return body._asdict()


def _fields_row(fields: Mapping[str, object], fetch: FetchContent) -> Row:
    return {name: _field_form(value, fetch) for name, value in fields.items()}


def _field_form(value: object, fetch: FetchContent) -> object:
    if isinstance(value, Content):
        return content_row(value, fetch)
    if isinstance(value, bytes):  # in a body only digests and ids are bytes
        return value.hex()
    if isinstance(value, tuple):
        fields = getattr(value, "_asdict", None)
        return list(value) if fields is None else _fields_row(fields(), fetch)
    return to_json_form(dict(value) if isinstance(value, Mapping) else value)


def _read_value(content: Content, fetch: FetchContent) -> object:
    value = read_content(content.media_type, fetch(content), opaque=True)
    if content.media_type.split(";", 1)[0] == APPLICATION_JSON:
        try:
            value = json.loads(
                str(value),
                object_pairs_hook=_object,
                parse_float=_float,
                parse_constant=_refuse_constant,
            )
        except (ValueError, RecursionError):
            value = str(value)
    # Text subclasses (`JsonText`) have no form of their own.
    return to_json_form(str(value) if isinstance(value, str) else value)


def _object(pairs: list[tuple[str, object]]) -> dict[str, object]:
    entries = dict(pairs)
    if len(entries) != len(pairs):
        raise ValueError("an object has a key twice")
    return entries


def _float(text: str) -> float:
    value = float(text)
    if not math.isfinite(value):
        raise ValueError(f"{text} is beyond floats")
    return value


def _refuse_constant(name: str) -> object:
    raise ValueError(f"{name} is not JSON")
