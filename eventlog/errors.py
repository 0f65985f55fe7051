"""Every error steplog raises on purpose, as one tree.

    SteplogError
    |-- ConfigError
    |-- LogError
    |   |-- LogUnavailableError (retryable)
    |   |-- StepConflictError
    |   |-- FencedError
    |   |-- EventTooLargeError
    |   |-- AppendUncertainError
    |   |-- RecorderEndedError
    |   |-- SessionNotFoundError
    |   |-- StepNotFoundError
    |   `-- SessionExistsError
    |-- IntegrityError
    |   |-- EventCorruptError
    |   |-- LinkBrokenError
    |   |-- StepGapError
    |   |-- BlobCorruptError
    |   |-- RootMismatchError
    |   `-- TopicChangedError
    |-- SchemaError
    |   |-- UnknownSchemaError
    |   |-- UnknownKindError
    |   `-- IncompatibleSchemaError
    |-- StateError
    |   |-- ValueNotEncodableError
    |   |-- CodecMissingError
    |   |-- ReducerMissingError
    |   `-- ReducerVersionError
    |-- SnapshotError
    |-- CheckpointError
    |   |-- CheckpointIncompleteError
    |   `-- ReshardError
    |-- ImportFormatError
    |-- ReplayError
    |   |-- DivergenceError
    |   |-- EffectMissingError
    |   `-- NotRestorableError
    `-- ErasedError

Each error says what failed, where (session, step) and what to do next (`hint`). `retryable` says
whether the same call may succeed later without any change; `exit_code` is the command's answer.
Libraries' own errors never leave steplog: the module that calls the library turns them into these.
"""

import re
from typing import ClassVar


class SteplogError(Exception):
    """Base of all errors raised by steplog.

    `message` says what failed; `hint` what to do next; `session_id` and `step` say where,
    when they are known.
    """

    retryable: ClassVar[bool] = False
    exit_code: ClassVar[int] = 1

    def __init__(
        self,
        message: str,
        *,
        hint: str,
        session_id: str | None = None,
        step: int | None = None,
    ) -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint
        self.session_id = session_id
        self.step = step

    @property
    def place(self) -> str:
        """Where it happened, in words: session and step, as far as known and not yet told."""
        known = []
        # What the message names already is not said twice.
        if self.session_id is not None and repr(self.session_id) not in self.message:
            known.append(f"session {self.session_id!r}")
        if self.step is not None and not re.search(rf"\bstep {self.step}\b", self.message):
            known.append(f"step {self.step}")
        return ", ".join(known)

    def __str__(self) -> str:
        place = f" [{self.place}]" if self.place else ""
        return f"{self.message}{place}. {self.hint}" if self.hint else f"{self.message}{place}"

    def __reduce__(self) -> tuple[object, ...]:
        # Subclasses take further required arguments, so the default reduction (class, args) fails.
        return (_rebuild, (type(self), self.message, dict(self.__dict__)))


def _rebuild(kind: type[SteplogError], message: str, fields: dict[str, object]) -> SteplogError:
    error = kind.__new__(kind, message)
    error.args = (message,)
    error.__dict__.update(fields)
    return error


class ConfigError(SteplogError):
    """A setting, a URL or `steplog.toml` is wrong."""

    exit_code = 2


class LogError(SteplogError):
    """The log refused or could not serve a request."""


class LogUnavailableError(LogError):
    """The log cannot be reached or written now; nothing was written; trying again may help."""

    retryable = True
    exit_code = 7


class StepConflictError(LogError):
    """The line is not where the caller thought. `expected` and `actual` are last steps."""

    exit_code = 8

    def __init__(
        self,
        message: str,
        *,
        hint: str,
        expected: int,
        actual: int,
        session_id: str | None = None,
        step: int | None = None,
    ) -> None:
        super().__init__(message, hint=hint, session_id=session_id, step=step)
        self.expected = expected
        self.actual = actual


class FencedError(LogError):
    """Another claim stands on the session; this writer may not append to it any more."""

    exit_code = 8


class EventTooLargeError(LogError):
    """An event is over the log's limit; raised before anything is written. Sizes in bytes."""

    exit_code = 2

    def __init__(
        self,
        message: str,
        *,
        hint: str,
        event_bytes: int,
        event_bytes_max: int,
        session_id: str | None = None,
        step: int | None = None,
    ) -> None:
        super().__init__(message, hint=hint, session_id=session_id, step=step)
        self.event_bytes = event_bytes
        self.event_bytes_max = event_bytes_max


class AppendUncertainError(LogError):
    """Whether the events were written is not known; the session is blocked until `reconcile`."""

    exit_code = 7


class RecorderEndedError(LogError):
    """An earlier append of this recorder failed or was interrupted: it can append no more."""


class SessionNotFoundError(LogError):
    """The log holds no such session."""

    exit_code = 5


class StepNotFoundError(LogError):
    """The session's line has no such step."""

    exit_code = 5


class SessionExistsError(LogError):
    """A session of this id is already in the log; ids are never used again."""


class IntegrityError(SteplogError):
    """Stored bytes are not what was stored: damaged, missing, reordered or altered."""

    exit_code = 4


class EventCorruptError(IntegrityError):
    """An event's bytes do not decode, or do not have the digest they are stored under."""


class LinkBrokenError(IntegrityError):
    """An event's parent is not the event before it in the line."""


class StepGapError(IntegrityError):
    """Events are missing between two steps of a line, or at its head."""


class BlobCorruptError(IntegrityError):
    """A blob is missing, or its bytes do not have its digest."""


class RootMismatchError(IntegrityError):
    """A Merkle root over events is not the recorded one."""


class TopicChangedError(IntegrityError):
    """The Kafka topic is not the one that is mirrored: made anew, more partitions, records gone."""


class SchemaError(SteplogError):
    """Bytes name a schema this build cannot use."""

    exit_code = 4


class UnknownSchemaError(SchemaError):
    """No schema of this fingerprint ships with this build."""


class UnknownKindError(SchemaError):
    """The event's kind is not known to this build, or does not fit its body."""


class IncompatibleSchemaError(SchemaError):
    """A schema cannot read what another wrote."""


class StateError(SteplogError):
    """A state or value cannot be stored, or cannot be brought back."""


class ValueNotEncodableError(StateError):
    """A value has no canonical form. `path` leads from the whole value to it, as `$.a[3]`."""

    def __init__(
        self,
        message: str,
        *,
        hint: str,
        path: str,
        session_id: str | None = None,
        step: int | None = None,
    ) -> None:
        super().__init__(message, hint=hint, session_id=session_id, step=step)
        self.path = path


class CodecMissingError(StateError):
    """A stored value of a registered type cannot be built: nothing is registered under its name."""

    exit_code = 6

    def __init__(
        self,
        message: str,
        *,
        hint: str,
        name: str,
        path: str,
        session_id: str | None = None,
        step: int | None = None,
    ) -> None:
        super().__init__(message, hint=hint, session_id=session_id, step=step)
        self.name = name
        self.path = path


class ReducerMissingError(StateError):
    """The session names a reducer that is not registered in this process."""

    exit_code = 6


class ReducerVersionError(StateError):
    """The reducer is registered, but not in the version the session was recorded with."""

    exit_code = 6


class SnapshotError(SteplogError):
    """A snapshot cannot be read or written."""

    exit_code = 4


class CheckpointError(SteplogError):
    """A torch checkpoint cannot be written or read. `tensor` and `object_digest` say which part.

    `tensor` is the name in the state dict, `object_digest` the stored object's SHA-256 in hex; None
    where the failure is not of one tensor, or of no stored object.
    """

    exit_code = 4

    def __init__(
        self,
        message: str,
        *,
        hint: str,
        tensor: str | None = None,
        object_digest: str | None = None,
        session_id: str | None = None,
        step: int | None = None,
    ) -> None:
        super().__init__(message, hint=hint, session_id=session_id, step=step)
        self.tensor = tensor
        self.object_digest = object_digest


class CheckpointIncompleteError(CheckpointError):
    """There is no such committed checkpoint, or a part of one is not there."""

    exit_code = 6


class ReshardError(CheckpointError):
    """What each rank had of its own cannot go on in another number of ranks."""

    exit_code = 1


class ImportFormatError(SteplogError):
    """A foreign trace, or one record of it, is not of the format it is read as."""


class ReplayError(SteplogError):
    """A replay cannot give a state it can prove."""

    exit_code = 3


class DivergenceError(ReplayError):
    """A replayed step does not give the recorded state; `step` is the first such step."""


class EffectMissingError(ReplayError):
    """A rerun asked for an effect that was not recorded."""


class NotRestorableError(ReplayError):
    """The state at this step was not recorded; the nearest known steps are named (None: none)."""

    exit_code = 6

    def __init__(
        self,
        message: str,
        *,
        hint: str,
        last_known: int | None = None,
        next_known: int | None = None,
        session_id: str | None = None,
        step: int | None = None,
    ) -> None:
        super().__init__(message, hint=hint, session_id=session_id, step=step)
        self.last_known = last_known
        self.next_known = next_known


class ErasedError(SteplogError):
    """The content was erased: its key is gone."""

    exit_code = 6
