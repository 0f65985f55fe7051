"""Sessions of steplog's own, as trainings and their parts make them, without torch."""

from eventlog.event import SessionSeeded
from eventlog.recorder import SessionRecorder
from replay.training_claim import claim_training
from replay.workspace import Workspace


def training_session(ws: Workspace, name: str) -> SessionRecorder:
    """The training session as entering its block seeds or claims it."""
    return claim_training(ws.log, ws.blobs, ws._replayer, name)


def own_session(
    ws: Workspace, name: str, environment: str, training: str | None = None
) -> SessionRecorder:
    """A new session of an environment that users' sessions cannot have."""
    seeded = SessionSeeded(environment, reducer="transcript", training_session=training)
    return SessionRecorder.begin(ws.log, ws.blobs, name, seeded)
