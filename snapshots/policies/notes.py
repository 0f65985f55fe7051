"""The notes that a log has of a training's policy versions: written, and read strictly.

That a version was published stands in the training session. Going back to one is recorded by an
operator in a session of its own, of environment `steplog.policy`, so that a trainer that lives is
not fenced by it. Needs only the log; `history` says what the notes come to.
"""

from collections.abc import Callable
from typing import Final, NamedTuple

from eventlog.content import result_content
from eventlog.cut import Cut
from eventlog.errors import CheckpointError, ConfigError
from eventlog.event import (
    Annotated,
    CheckpointBegun,
    Event,
    LineHead,
    SessionSeeded,
)
from eventlog.ids import mint_session_id
from eventlog.keeping.kept_records import decode_record
from eventlog.log import EventLog, LogRecord, SessionFilter
from eventlog.policy_order import label_parts
from eventlog.recorder import SessionRecorder
from eventlog.recording.event_batch import EventBatch
from snapshots.checkpoints.manifest import CheckpointRef
from snapshots.policies.history import PolicyVersion, Published, RolledBack, policy_history
from snapshots.sets.journal import RESTORED, TRAINING, session_of_set
from snapshots.sets.note_fields import NoteFields

PUBLISHED: Final = "policy_published"
"""The note in the training session that a version's checkpoint is kept; HEAD moves after it."""
ROLLED_BACK: Final = "policy_rolled_back"
"""The note that an earlier version is in use again; HEAD moves after it."""
POLICY: Final = "steplog.policy"
"""The environment of sessions in which an operator goes back."""


class _Noted(NamedTuple):
    """A publication, and where its note is in the log."""

    partition: int
    offset: int
    published: Published

    def given_up(self) -> "_Noted":
        """After a restore to a set whose cut does not hold it."""
        return self._replace(published=self.published._replace(standing=False))


class PolicyNotes:
    """The notes on one training's versions. Asked again, it reads only what was added since."""

    def __init__(self, log: EventLog, training: str) -> None:
        """Reads nothing yet."""
        self.log = log
        self.training = training
        self._head: LineHead | None = None
        self._noted: list[_Noted] = []

    def history(self) -> list[PolicyVersion]:
        """The training's versions. Raises as `published`."""
        return policy_history(self.published(), read_rolled_back(self.log, self.training))

    def published(self) -> list[Published]:
        """Every publication in the training's session, in its order, also those given up.

        Raises `SessionNotFoundError`, `ConfigError` where it is no training, `CheckpointError`
        where a note of this name is not ours.
        """
        info = self.log.session_info(self.training)
        if info.environment != TRAINING:
            raise ConfigError(
                f"session {self.training!r} is no training, but of environment "
                f"{info.environment!r}",
                hint="a training's session is the name that ws.training was given",
            )
        if info.head != self._head:
            self._noted, self._head = self._read_to(info.head), info.head
        return [one.published for one in self._noted]

    def _read_to(self, head: LineHead) -> list[_Noted]:
        known = self._head
        if known is not None and known.attempt == head.attempt and known.step < head.step:
            # Under one claim a line only grows.
            noted = list(self._noted)
            start, end = known.step + 1, head.step + 1
            for record in self.log.read_session(self.training, start, end, through=head.digest):
                noted = self._with(noted, record, standing=True)
            return noted
        noted = []
        line = {one.digest for one in self.log.read_session(self.training, through=head.digest)}
        for record in self.log.read_records(self.training):
            noted = self._with(noted, record, standing=record.digest in line)
            if record.digest == head.digest:
                break  # What was added meanwhile is read the next time.
        return noted

    def _with(self, noted: list[_Noted], record: LogRecord, *, standing: bool) -> list[_Noted]:
        """What was noted so far, after this record."""
        if record.prefix.kind != "annotated":
            return noted
        event = decode_record(record)
        name = event.body.name if isinstance(event.body, Annotated) else None
        if name == PUBLISHED:
            published = _published(event, standing=standing)
            noted.append(_Noted(record.partition, record.offset, published))
        elif name == RESTORED and standing:
            cut = _cut_restored(self.log, event)
            return [
                one if cut.holds(one.partition, one.offset) else one.given_up() for one in noted
            ]
        return noted


def record_publication(
    recorder: SessionRecorder, version: int, label: str, ref: CheckpointRef
) -> int:
    """Note in the training session that the version's checkpoint is kept; durable. Its step."""
    return recorder.annotate(PUBLISHED, _value(version, label, ref))


def record_rollback(
    notes: PolicyNotes, to: PolicyVersion, reason: str, *, clock_us: Callable[[], int]
) -> str:
    """Record, all or nothing, that `to` is in use again; the id of the session that says so."""
    log, training = notes.log, notes.training
    batch = EventBatch(LineHead.before_seed(mint_session_id()), clock_us)
    seed = SessionSeeded(
        environment=POLICY,
        reducer="transcript",
        state_coverage="none",
        writer=log.writer_id,
        training_session=training,
    )
    value = {
        "training": training,
        **_value(to.version, to.label, to.ref),
        "reason": reason,
        "published": len(notes.published()),
    }
    batch.add(seed, "system")
    batch.add(Annotated(ROLLED_BACK, result_content(value)), "operator")
    batch.close("done")
    batch.append_to(log)
    return batch.head.session_id


def read_history(log: EventLog, training: str) -> list[PolicyVersion]:
    """The training's versions, read once. Raises as `PolicyNotes.published`."""
    return PolicyNotes(log, training).history()


def read_rolled_back(log: EventLog, training: str) -> list[RolledBack]:
    """Every going back of this training, in the order of the log."""
    where = SessionFilter(environment=POLICY, training_session=training)
    found: list[RolledBack] = []
    for info in log.list_sessions(where):
        for record in log.read_session(info.session_id):
            event = decode_record(record)
            if isinstance(event.body, Annotated) and event.body.name == ROLLED_BACK:
                found.append(_rolled_back(event))
    return found


def _published(event: Event, *, standing: bool) -> Published:
    fields = NoteFields(event)
    version, label = fields.number("version"), fields.text("label")
    parts = label_parts(label)
    if parts is None or parts[0] != version:
        raise fields.refusal(f"{label[:80]!r} is no label of version {version}")
    return Published(version, label, fields.ref(), event.time, standing)


def _rolled_back(event: Event) -> RolledBack:
    fields = NoteFields(event)
    fields.number("version")  # Read by nothing here, and none of ours is without them.
    fields.text("label")
    return RolledBack(fields.ref(), fields.text("reason"), event.time, fields.number("published"))


def _cut_restored(log: EventLog, event: Event) -> Cut:
    """The cut of the set that the note says was restored."""
    set_id = NoteFields(event).text("id")
    for each in log.read_session(session_of_set(set_id)):
        begun = decode_record(each).body
        if isinstance(begun, CheckpointBegun):
            return Cut.from_names(begun.cut)
    raise CheckpointError(
        f"the training was restored from set {set_id}, of which the log says no cut",
        hint="run `steplog check` on it",
        session_id=event.session_id,
        step=event.step,
    )


def _value(version: int, label: str, ref: CheckpointRef) -> dict[str, object]:
    return {
        "version": version,
        "label": label,
        "checkpoint": ref.id,
        "manifest": ref.digest,
        "training_step": ref.training_step,
    }
