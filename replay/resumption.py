"""`resume_session`: a recorder that goes on where a session's line stands.

The state comes from a replay, the open calls and the root from the standing events, and the right
to append from a claim that names the event it stands on.
"""

from collections.abc import Callable
from typing import NamedTuple

from eventlog.blob_store import BlobStore
from eventlog.call_book import CallBook
from eventlog.codec import decode_event
from eventlog.errors import (
    ConfigError,
    FencedError,
    NotRestorableError,
    StepConflictError,
    StepNotFoundError,
)
from eventlog.event import LineHead
from eventlog.log import EventLog, SessionInfo
from eventlog.merkle_root import MerkleRoot
from eventlog.not_given import NotGiven
from eventlog.recorder import SessionRecorder
from eventlog.session_writer import LinePosition, SessionWriter
from eventlog.state_capture import StateCapture, StateObserver
from replay.replayer import Replayer


class _StandingLine(NamedTuple):
    """What the standing events up to the resumed step say."""

    digest: bytes
    calls: CallBook
    root: MerkleRoot
    own_count: int


def resume_session(
    log: EventLog,
    blobs: BlobStore,
    replayer: Replayer,
    session_id: str,
    *,
    state: object,
    at_step: int | None,
    reopen: bool,
    observer_for: Callable[[SessionInfo], StateObserver | None],
) -> SessionRecorder:
    """Claim the session after `at_step` (None: its last step) and return its recorder.

    Raises `SessionNotFoundError`, `StepNotFoundError`, `StepConflictError` (closed),
    `FencedError` (another claimed it meanwhile), and what a replay raises.
    """
    if not (callable(state) or isinstance(state, NotGiven)):
        raise ConfigError(
            "resume takes a callable as state, not a value",
            hint="the restored state is the recorder's .state; give a callable that reads yours",
            session_id=session_id,
        )
    info = log.session_info(session_id)
    from_step = info.head.step if at_step is None else at_step
    _refuse_closed(info, reopen)
    first_own = 0 if info.parent_step is None else info.parent_step + 1
    if not first_own <= from_step <= info.head.step:
        raise StepNotFoundError(
            f"the session's own steps are {first_own} to {info.head.step}",
            hint="resume after one of these; to go on from an earlier step of its parent, fork",
            session_id=session_id,
            step=from_step,
        )
    capture = _restored_state(replayer, info, from_step)
    line = _read_line(log, session_id, first_own, from_step)
    attempts = log.take_over([session_id], stands_on={session_id: line.digest}, reason="resume")
    head = _head_after_claim(log, session_id, from_step, attempts[session_id])
    claim = next(log.read_session(session_id, head.step, head.step + 1))
    line.root.add(claim.data)
    position = LinePosition(head, line.root, line.own_count + 1)
    return SessionRecorder(
        SessionWriter(log, blobs, position),
        line.calls,
        capture,
        read_state=state if callable(state) else None,
        observe=observer_for(info),
    )


def _refuse_closed(info: SessionInfo, reopen: bool) -> None:
    if info.status == "closed" and not reopen:
        raise StepConflictError(
            "the session is closed",
            hint="fork it, or resume with reopen=True",
            expected=info.head.step,
            actual=info.head.step,
            session_id=info.session_id,
        )


def _restored_state(replayer: Replayer, info: SessionInfo, step: int) -> StateCapture | None:
    if info.state_coverage == "none":
        return None
    try:
        return StateCapture(replayer.replay_to(info.session_id, step).state_bytes)
    except NotRestorableError as error:
        # The session can go on: its next captured state says whether it drifted meanwhile.
        if error.last_known is None:
            raise
        base = replayer.replay_to(info.session_id, error.last_known).state_bytes
        return StateCapture(base, known=False)


def _read_line(log: EventLog, session_id: str, first_own: int, from_step: int) -> _StandingLine:
    root = MerkleRoot()
    digest = b""
    calls = CallBook()
    for record in log.read_session(session_id, 0, from_step + 1):
        digest = record.digest
        if record.prefix.step >= first_own:
            root.add(record.data)
        if record.prefix.kind in ("tool_called", "tool_returned"):
            calls.note_event(decode_event(record.data))
    return _StandingLine(digest, calls, root, from_step + 1 - first_own)


def _head_after_claim(log: EventLog, session_id: str, from_step: int, attempt: int) -> LineHead:
    head = log.session_info(session_id).head
    if head.attempt != attempt or head.step != from_step + 1:
        raise FencedError(
            f"another writer claimed the session (attempt {head.attempt}) right after this claim",
            hint="resume again if this process should have it",
            session_id=session_id,
        )
    return head
