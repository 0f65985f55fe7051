"""What the log says of a training's policy versions: which were published, and which one is in use.

A version is a number; its checkpoint lies in a track of its own (`track_of_policies`). That it was
published stands in the training session. Going back to one is recorded by an operator in a session
of its own, of environment `steplog.policy`, so that a trainer that lives is not fenced by it.

The version in use is the one published last, or the one gone back to after that. What was published
after the set that a training was restored to belongs to a past that was given up: it stays listed,
and stands no more. Folding is pure; reading needs only the log.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
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
from eventlog.policy_order import label_parts, label_text
from eventlog.recorder import SessionRecorder
from eventlog.recording.event_batch import EventBatch
from eventlog.whole_number import whole_number
from snapshots.checkpoint_store import STEP_MAX
from snapshots.checkpoints.manifest import CheckpointRef
from snapshots.sets.journal import RESTORED, TRAINING, session_of_set
from snapshots.sets.note_fields import NoteFields

PUBLISHED: Final = "policy_published"
"""The note in the training session that a version's checkpoint is kept; HEAD moves after it."""
ROLLED_BACK: Final = "policy_rolled_back"
"""The note that an earlier version is in use again; HEAD moves after it."""
POLICY: Final = "steplog.policy"
"""The environment of sessions in which an operator goes back."""
VERSION_MAX: Final = STEP_MAX
"""A version is the step of its checkpoint, in a track of its own."""


class Published(NamedTuple):
    """That a version was published: its label and checkpoint, when (microseconds UTC), and under
    which claim of the training. `standing`: a later restore did not give it up.
    """

    version: int
    label: str
    ref: CheckpointRef
    time: int
    attempt: int
    standing: bool


class RolledBack(NamedTuple):
    """That an operator went back to a version, in a session of its own.

    `published` is how many publications of the training the log had then: clocks do not say what
    came first, as the operator's may be behind the trainer's.
    """

    version: int
    label: str
    ref: CheckpointRef
    reason: str
    time: int
    session: str
    published: int


class PolicyVersion(NamedTuple):
    """A version as a training's log has it. `current`: it is the one in use.

    `reason` is that of the going back that made it so; None otherwise.
    """

    version: int
    label: str
    checkpoint: str
    manifest: str
    training_step: int
    time: int
    standing: bool
    current: bool
    reason: str | None = None

    @property
    def ref(self) -> CheckpointRef:
        """Its checkpoint in the training's track of policy versions."""
        return CheckpointRef(self.training_step, self.checkpoint, self.manifest)


def policy_history(
    published: Sequence[Published], rolled_back: Iterable[RolledBack]
) -> list[PolicyVersion]:
    """Every version in the order of publication; at most one is current.

    `published` in the order of the training session, `rolled_back` in the log's. A publication that
    one who went back did not know of came after it; of several who went back counts the one who
    knew of most, then the last.
    """
    standing = [index for index, one in enumerate(published) if one.standing]
    last = standing[-1] if standing else -1
    back = max(
        enumerate(rolled_back),
        key=lambda pair: (pair[1].published, pair[1].time, pair[0]),
        default=(0, None),
    )[1]
    current, reason = published[last].ref if standing else None, None
    if back is not None and back.published > last:
        current, reason = back.ref, back.reason
    listed: dict[CheckpointRef, PolicyVersion] = {}
    for one in published:
        is_current = one.ref == current
        # Published again as it was, it is the same version, at the later time.
        listed[one.ref] = PolicyVersion(
            one.version,
            one.label,
            one.ref.id,
            one.ref.digest,
            one.ref.training_step,
            one.time,
            one.standing,
            is_current,
            reason if is_current else None,
        )
    return list(listed.values())


def find_version(history: Sequence[PolicyVersion], name: int | str) -> PolicyVersion:
    """The version of this label, as sessions name it; or of this number, the last that stands.

    A number that was published once is the label too. Raises `ConfigError` where there is none.
    """
    if isinstance(name, str):
        found = [one for one in history if one.label == name]
    else:
        number = require_version(name)
        found = [one for one in history if one.version == number]
        found = [one for one in found if one.standing] or found
    if found:
        return found[-1]
    known = ", ".join(one.label for one in history[-8:]) or "none"
    raise ConfigError(
        f"no policy version {str(name)!r} was published",
        hint=f"the last ones are: {known}; `steplog policy list` has all",
    )


def label_of(published: Iterable[Published], version: int, manifest: str, attempt: int) -> str:
    """The label under which a version is published now, by the `attempt` of the training.

    It is the number, unless that was published before with another checkpoint: then `12~3`, with a
    number from the attempt on that no other has. Raises `ConfigError` for a version out of bounds.
    """
    require_version(version)
    same = [one for one in published if one.version == version]
    for one in same:
        if one.ref.digest == manifest:
            return one.label
    if not same:
        return label_text(version, 0)
    taken = [parts[1] for one in same if (parts := label_parts(one.label)) is not None]
    return label_text(version, max(attempt, 1 + max(taken)))


def require_version(version: object) -> int:
    """`version` as a number. Raises `ConfigError` where it is none of 0 to `VERSION_MAX`."""
    number = whole_number(version)
    if number is None or not 0 <= number <= VERSION_MAX:
        raise ConfigError(
            f"a policy version is a number of 0 to {VERSION_MAX}, not {version!r}",
            hint="count them: the training step does too",
        )
    return number


def record_publication(
    recorder: SessionRecorder, version: int, label: str, ref: CheckpointRef
) -> int:
    """Note in the training session that the version's checkpoint is kept; durable. Its step."""
    return recorder.annotate(PUBLISHED, _value(version, label, ref))


def record_rollback(
    log: EventLog, training: str, to: PolicyVersion, reason: str, *, clock_us: Callable[[], int]
) -> str:
    """Record, all or nothing, that `to` is in use again; the id of the session that says so."""
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
        "published": len(read_published(log, training)),
    }
    batch.add(seed, "system")
    batch.add(Annotated(ROLLED_BACK, result_content(value)), "operator")
    batch.close("done")
    batch.append_to(log)
    return batch.head.session_id


def read_history(log: EventLog, training: str) -> list[PolicyVersion]:
    """The training's versions. Raises as `read_published`."""
    return policy_history(read_published(log, training), read_rolled_back(log, training))


def read_published(log: EventLog, training: str) -> list[Published]:
    """Every publication in the training's session, in its order, also those given up.

    Raises `SessionNotFoundError`, `ConfigError` where it is no training, `CheckpointError` where a
    note of this name is not ours.
    """
    environment = log.session_info(training).environment
    if environment != TRAINING:
        raise ConfigError(
            f"session {training!r} is no training, but of environment {environment!r}",
            hint="a training's session is the name that ws.training was given",
        )
    found: list[tuple[LogRecord, Published]] = []
    line = {record.digest for record in log.read_session(training)}
    for record in log.read_records(training):
        if record.prefix.kind != "annotated":
            continue
        event = decode_record(record)
        name = event.body.name if isinstance(event.body, Annotated) else None
        if name == PUBLISHED:
            found.append((record, _published(event, standing=record.digest in line)))
        elif name == RESTORED and record.digest in line:
            found = list(_given_up(found, _cut_restored(log, event)))
    return [one for _, one in found]


def read_rolled_back(log: EventLog, training: str) -> list[RolledBack]:
    """Every going back of this training, in the order of the log."""
    where = SessionFilter(environment=POLICY, training_session=training)
    found: list[RolledBack] = []
    for info in log.list_sessions(where):
        for record in log.read_session(info.session_id):
            event = decode_record(record)
            if isinstance(event.body, Annotated) and event.body.name == ROLLED_BACK:
                fields = NoteFields(event)
                found.append(
                    RolledBack(
                        fields.number("version"),
                        fields.text("label"),
                        fields.ref(),
                        fields.text("reason"),
                        event.time,
                        event.session_id,
                        fields.number("published"),
                    )
                )
    return found


def _published(event: Event, *, standing: bool) -> Published:
    fields = NoteFields(event)
    version, label = fields.number("version"), fields.text("label")
    parts = label_parts(label)
    if parts is None or parts[0] != version:
        raise fields.refusal(f"{label[:80]!r} is no label of version {version}")
    return Published(version, label, fields.ref(), event.time, event.attempt, standing)


def _given_up(
    found: Iterable[tuple[LogRecord, Published]], cut: Cut
) -> Iterator[tuple[LogRecord, Published]]:
    """What was published so far, after a restore to a set at this cut."""
    for record, one in found:
        kept = cut.holds(record.partition, record.offset)
        yield record, one if kept else one._replace(standing=False)


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
