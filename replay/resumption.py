"""`resume_session`: a recorder that goes on where a session's line stands.

The state comes from a replay, the open calls and the root from the standing events, and the right
to append from a claim. The claim holds only if the line still ends where it was read: what the old
writer has added meanwhile is read too, and never set aside.
"""

from collections.abc import Callable
from typing import Final, NamedTuple

from eventlog.blob_store import BlobStore
from eventlog.errors import (
    AppendUncertainError,
    ConfigError,
    FencedError,
    NotRestorableError,
    StepConflictError,
    StepNotFoundError,
)
from eventlog.event import Event, MessageAdded, ToolCalled
from eventlog.keeping.kept_records import decode_record
from eventlog.log import EventLog, SessionInfo
from eventlog.merkle_root import MerkleRoot
from eventlog.not_given import NotGiven
from eventlog.recorder import SessionRecorder
from eventlog.recording.call_book import CallBook
from eventlog.recording.session_writer import LinePosition, SessionWriter
from eventlog.recording.state_capture import StateCapture, StateObserver
from replay.reducer import CapturedReducer
from replay.replayer import Replayer

CLAIM_TRIES_MAX: Final = 16
"""How often a line that its owner keeps adding to is read again before it is left to it."""

ObserverFor = Callable[[SessionInfo, int | None], StateObserver | None]
"""Makes the observer of a resumed session; gets the step of the snapshot the state came from."""


class _Restored(NamedTuple):
    """A session as it was read for a claim: the step to go on after, and what stands there."""

    info: SessionInfo
    digest: bytes
    calls: CallBook
    root: MerkleRoot
    own_count: int
    capture: StateCapture | None
    snapshot_step: int | None
    policy: str | None


def resume_session(
    log: EventLog,
    blobs: BlobStore,
    replayer: Replayer,
    session_id: str,
    *,
    state: object,
    at_step: int | None,
    reopen: bool,
    observer_for: ObserverFor,
) -> SessionRecorder:
    """Claim the session after `at_step` (None: its last step) and return its recorder.

    Raises `SessionNotFoundError`, `StepNotFoundError`, `StepConflictError` (closed; or added to
    all the while), `FencedError` (another claimed it meanwhile), and what a replay raises.
    """
    if not (callable(state) or isinstance(state, NotGiven)):
        raise ConfigError(
            "resume takes a callable as state, not a value",
            hint="the restored state is the recorder's .state; give a callable that reads yours",
            session_id=session_id,
        )
    restored, attempt = _claim(log, replayer, session_id, at_step, reopen)
    head = log.session_info(session_id).head
    if head.attempt != attempt:
        raise _fenced(session_id, head.attempt)
    claim = next(log.read_session(session_id, head.step, head.step + 1))
    restored.root.add(claim.data)
    position = LinePosition(head, restored.root, restored.own_count + 1)
    return SessionRecorder(
        SessionWriter(log, blobs, position),
        restored.calls,
        restored.capture,
        read_state=state if callable(state) else None,
        observe=observer_for(restored.info, restored.snapshot_step),
        resumed=True,
        policy=restored.policy,
    )


def _claim(
    log: EventLog, replayer: Replayer, session_id: str, at_step: int | None, reopen: bool
) -> tuple[_Restored, int]:
    tries = 0
    while True:
        info = log.session_info(session_id)
        restored = _read(log, replayer, info, at_step, reopen)
        try:
            return restored, _take_over(log, info, restored.digest)
        except StepConflictError as moved:
            attempt = log.session_info(session_id).head.attempt
            if attempt != info.head.attempt:
                raise _fenced(session_id, attempt) from moved
            tries += 1
            if tries == CLAIM_TRIES_MAX:
                raise


def _take_over(log: EventLog, info: SessionInfo, digest: bytes) -> int:
    session_id = info.session_id

    def take_over() -> int:
        claims = log.take_over(
            [session_id],
            stands_on={session_id: digest},
            reason="resume",
            heads={session_id: info.head},
        )
        return claims[session_id]

    try:
        return take_over()
    except AppendUncertainError:
        # Of a recorder of this process that failed: once it is settled the line is known again.
        log.reconcile(session_id)
        return take_over()


def _read(
    log: EventLog, replayer: Replayer, info: SessionInfo, at_step: int | None, reopen: bool
) -> _Restored:
    session_id = info.session_id
    from_step = info.head.step if at_step is None else at_step
    if info.status == "closed" and not reopen:
        raise StepConflictError(
            "the session is closed",
            hint="fork it, or resume with reopen=True",
            expected=info.head.step,
            actual=info.head.step,
            session_id=session_id,
        )
    first_own = 0 if info.parent_step is None else info.parent_step + 1
    if not first_own <= from_step <= info.head.step:
        raise StepNotFoundError(
            f"the session's own steps are {first_own} to {info.head.step}",
            hint="resume after one of these; to go on from an earlier step of its parent, fork",
            session_id=session_id,
            step=from_step,
        )
    capture, snapshot_step = _restored_state(replayer, info, from_step)
    root, calls, digest, policy = MerkleRoot(), CallBook(), b"", info.policy
    of_interest = _CALLS if _names_one_policy(info) else _CALLS_AND_MESSAGES
    for record in log.read_session(session_id, 0, from_step + 1):
        digest = record.digest
        if record.prefix.step >= first_own:
            root.add(record.data)
        if record.prefix.kind in of_interest:
            event = decode_record(record)
            calls.note_event(event)
            named = _policy_named(event)
            policy = policy if named is None else named
    own_count = from_step + 1 - first_own
    return _Restored(info, digest, calls, root, own_count, capture, snapshot_step, policy)


_CALLS: Final = ("tool_called", "tool_returned")
_CALLS_AND_MESSAGES: Final = (*_CALLS, "message_added")


def _names_one_policy(info: SessionInfo) -> bool:
    """Whether all of the session is of its seed's version: then messages need not be read."""
    seeds = () if info.policy is None else (info.policy,)
    return info.policies == seeds and not info.policies_more


def _policy_named(event: Event) -> str | None:
    body = event.body
    if isinstance(body, ToolCalled):
        return body.policy
    if isinstance(body, MessageAdded):
        return body.policy_first if body.policy_last is None else body.policy_last
    return None


def _restored_state(
    replayer: Replayer, info: SessionInfo, step: int
) -> tuple[StateCapture | None, int | None]:
    """The last captured state, which the next patch is made against, and the snapshot used."""
    if info.state_coverage == "none":
        return None, None
    captured = CapturedReducer.name
    try:
        replayed = replayer.replay_to(info.session_id, step, reducer=captured)
        known = True
    except NotRestorableError as error:
        # The session can go on: its next captured state says whether it drifted meanwhile.
        if error.last_known is None:
            return StateCapture.of_nothing(), None
        replayed = replayer.replay_to(info.session_id, error.last_known, reducer=captured)
        known = False
    return StateCapture(replayed.state_bytes, known=known), replayed.from_snapshot


def _fenced(session_id: str, attempt: int) -> FencedError:
    return FencedError(
        f"another writer claimed the session (attempt {attempt}) at the same time",
        hint="resume again if this process should have it",
        session_id=session_id,
    )
