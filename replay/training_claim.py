"""`claim_training`: the session of a training, seeded or gone on with by who enters its block.

It is the one way to claim it: `Workspace.record` and `resume` refuse steplog's own sessions.
"""

from collections.abc import Mapping

from eventlog.blob_store import BlobStore
from eventlog.event import SessionSeeded
from eventlog.log import EventLog
from eventlog.not_given import NOT_GIVEN
from eventlog.recorder import SessionRecorder
from replay.if_exists import open_session
from replay.own_sessions import require_training_session
from replay.replayer import Replayer
from replay.resumption import resume_session
from snapshots.sets.journal import TRAINING


def claim_training(
    log: EventLog,
    blobs: BlobStore,
    replayer: Replayer,
    name: str,
    metadata: Mapping[str, str] | None = None,
) -> SessionRecorder:
    """The recorder of the training session `name`; whoever had it before is fenced.

    `metadata` are those of a new one. Raises `ConfigError` where a session of this name is no
    training's, and what claiming raises.
    """
    seeded = SessionSeeded(
        environment=TRAINING, reducer="transcript", metadata=dict(metadata or {})
    )

    def begin(session_id: str) -> SessionRecorder:
        return SessionRecorder.begin(log, blobs, session_id, seeded)

    def resume(session_id: str) -> SessionRecorder:
        require_training_session(log.session_info(session_id))
        return resume_session(
            log,
            blobs,
            replayer,
            session_id,
            state=NOT_GIVEN,
            at_step=None,
            reopen=True,
            observer_for=lambda _info, _step: None,
        )

    recorder = open_session(name, "resume", log.holds_session, begin, resume)
    recorder.is_resumed_by(f"`with ws.training({name!r})`, entered anew after this block is left,")
    return recorder
