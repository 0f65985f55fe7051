"""`Event`: one immutable fact about one session, and the bodies it may carry.

Field meanings are those of the Avro schema `schemas/event-v1.avsc`. A kind is a pinned string, one
for each body; it is never a class path. `Event.following` is the only place that makes an event;
`codec.decode_event` the only one that trusts a stored one. Pure: ids and times are arguments.
"""

import re
from collections.abc import Iterator, Mapping
from types import MappingProxyType
from typing import Final, NamedTuple, TypeAlias

from eventlog.content import Content

DIGEST_BYTES: Final = 32
EVENT_ID_BYTES: Final = 16
SESSION_ID_BYTES_MAX: Final = 255
NO_PARENT: Final = bytes(DIGEST_BYTES)
FIRST_ATTEMPT: Final = 1

_CONTROL_CHARACTER: Final = re.compile("[\x00-\x1f\x7f-\x9f]")
_EMPTY: Final[Mapping[str, str]] = MappingProxyType({})
_NO_COMPONENTS: Final[Mapping[str, float]] = MappingProxyType({})


class Trace(NamedTuple):
    """OpenTelemetry ids: 16, 8 and 8 bytes."""

    trace_id: bytes
    span_id: bytes
    parent_span_id: bytes | None = None


class StateChange(NamedTuple):
    """The patch to the state and the digest (32 bytes) of the state after this event."""

    patch: Content
    digest: bytes


class StateUnknown(NamedTuple):
    """From this step on the state is not known, until the next `StateChange`."""

    reason: str


class Restore(NamedTuple):
    """The restore that a claim belongs to: the training session and its attempt."""

    training_session: str
    attempt: int


class SessionSeeded(NamedTuple):
    """A session begins: what it runs, from which seed, and its first state."""

    environment: str
    environment_version: str = ""
    fingerprint: str = ""
    task_id: str = ""
    seed: int | None = None
    request: Content | None = None
    response: Content | None = None
    tools: Content | None = None
    reducer: str = "captured"
    reducer_version: str = "1"
    initial_state: Content | None = None
    state_coverage: str = "full"
    excluded_paths: tuple[str, ...] = ()
    policy: str | None = None
    writer: str | None = None
    parent_session: str | None = None
    training_session: str | None = None
    training_step: int | None = None
    sample_id: str | None = None
    group_id: str | None = None
    rollout_index: int | None = None
    split: str | None = None
    metadata: Mapping[str, str] = _EMPTY


class ToolCalled(NamedTuple):
    """A tool was called. `effects` is one of pure, idempotent, external, unknown."""

    tool: str
    arguments: Content
    call_id: str | None = None
    transport: str = "python"
    effects: str = "unknown"
    policy: str | None = None
    idempotency_key: str | None = None


class ToolReturned(NamedTuple):
    """The call of step `called_step` ended, in `status`, after `duration_us` microseconds."""

    called_step: int
    status: str
    result: Content | None = None
    error_type: str | None = None
    duration_us: int = 0
    reward: float | None = None
    terminated: bool | None = None
    truncated: bool | None = None
    duplicate_of: int | None = None


class Verified(NamedTuple):
    """A verifier judged the session, or the one step `about_step`."""

    verifier: str
    verifier_version: str = ""
    reward: float | None = None
    components: Mapping[str, float] = _NO_COMPONENTS
    input: Content | None = None
    output: Content | None = None
    mask_sample: bool = False
    failure_kind: str | None = None
    about_step: int | None = None
    supersedes_step: int | None = None
    duration_us: int = 0


class MessageAdded(NamedTuple):
    """A message of the dialog; token ids, logprobs and mask where the trainer records them."""

    role: str
    content: Content
    request: Content | None = None
    tokens: Content | None = None
    logprobs: Content | None = None
    token_mask: Content | None = None
    policy_first: str | None = None
    policy_last: str | None = None
    finish_reason: str | None = None
    tokens_in: int | None = None
    tokens_out: int | None = None
    duration_us: int | None = None


class EffectRecorded(NamedTuple):
    """An answer of the outside world: `effect` is one of clock, random, id, network, other."""

    effect: str
    name: str
    value: Content


class StateChanged(NamedTuple):
    """The state changed outside of a tool call."""

    reason: str


class Annotated(NamedTuple):
    """A note under a name of the user's; never changes the state."""

    name: str
    value: Content
    about_step: int | None = None


class SessionForked(NamedTuple):
    """A branch begins after `parent_step` of `parent_session`."""

    parent_session: str
    parent_step: int
    writer: str | None = None
    changes: Mapping[str, str] = _EMPTY


class SessionResumed(NamedTuple):
    """A claim: the line goes on after `from_step`, the last step that stands."""

    from_step: int
    reason: str
    writer: str | None = None
    over_release: bool = False
    snapshot_step: int | None = None
    restore: Restore | None = None


class SessionReleased(NamedTuple):
    """The writer gave its claim up; `to_writer` names who is meant to go on, if anyone."""

    to_writer: str | None = None


class SessionClosed(NamedTuple):
    """The session ended; count and Merkle root over its own standing events before this one."""

    reason: str
    event_count: int
    root: bytes
    error_type: str | None = None


class SessionLost(NamedTuple):
    """The session's environment is gone and was not brought back."""

    reason: str


class CheckpointBegun(NamedTuple):
    """A checkpoint of `training_session` begins at this cut: partition to end offset, exclusive."""

    training_session: str
    training_step: int
    cut: Mapping[str, int]


class CheckpointCommitted(NamedTuple):
    """The checkpoint of this manifest (SHA-256, 32 bytes) is whole."""

    manifest: bytes
    training_step: int


class GapObserved(NamedTuple):
    """Events are known to be missing here."""

    detail: str


class SubjectErased(NamedTuple):
    """A subject's sealed content was erased."""

    subject: str
    reason: str


Body: TypeAlias = (
    SessionSeeded
    | ToolCalled
    | ToolReturned
    | Verified
    | MessageAdded
    | EffectRecorded
    | StateChanged
    | Annotated
    | SessionForked
    | SessionResumed
    | SessionReleased
    | SessionClosed
    | SessionLost
    | CheckpointBegun
    | CheckpointCommitted
    | GapObserved
    | SubjectErased
)

BODY_OF_KIND: Final[Mapping[str, type[Body]]] = MappingProxyType(
    {
        "session_seeded": SessionSeeded,
        "tool_called": ToolCalled,
        "tool_returned": ToolReturned,
        "verified": Verified,
        "message_added": MessageAdded,
        "effect_recorded": EffectRecorded,
        "state_changed": StateChanged,
        "annotated": Annotated,
        "session_forked": SessionForked,
        "session_resumed": SessionResumed,
        "session_released": SessionReleased,
        "session_closed": SessionClosed,
        "session_lost": SessionLost,
        "checkpoint_begun": CheckpointBegun,
        "checkpoint_committed": CheckpointCommitted,
        "gap_observed": GapObserved,
        "subject_erased": SubjectErased,
    }
)
KIND_OF_BODY: Final[Mapping[type[Body], str]] = MappingProxyType(
    {body: kind for kind, body in BODY_OF_KIND.items()}
)


class LineHead(NamedTuple):
    """The last event of a session's line: what the next event stands on.

    `step` is -1 and `digest` zeros before the first event. For a branch's first own event, `step`
    and `digest` are those of the parent session's event at the fork step.
    """

    session_id: str
    step: int
    attempt: int
    digest: bytes

    @classmethod
    def before_seed(cls, session_id: str) -> "LineHead":
        """Where a new session stands before its seed."""
        return cls(session_id, -1, FIRST_ATTEMPT, NO_PARENT)


class Event(NamedTuple):
    """One fact about one session. Units: `time` is microseconds since 1970 UTC, data only.

    `event_id` has 16 bytes, `parent` 32. `state_change` None means the state is unchanged.
    """

    event_id: bytes
    session_id: str
    step: int
    attempt: int
    kind: str
    parent: bytes
    state_change: StateChange | StateUnknown | None
    time: int
    actor: str
    trace: Trace | None
    body: Body

    @classmethod
    def following(
        cls,
        previous: LineHead,
        body: Body,
        *,
        event_id: bytes,
        time: int,
        actor: str,
        state_change: StateChange | StateUnknown | None = None,
        trace: Trace | None = None,
    ) -> "Event":
        """The event that comes after `previous` in its line, written under `previous.attempt`."""
        return cls(
            event_id,
            previous.session_id,
            previous.step + 1,
            previous.attempt,
            KIND_OF_BODY[type(body)],
            previous.digest,
            state_change,
            time,
            actor,
            trace,
            body,
        )

    def contents(self) -> Iterator[tuple[str, Content]]:
        """Every `Content` in the event, each with the name of its field."""
        if isinstance(self.state_change, StateChange):
            yield "state_change.patch", self.state_change.patch
        for name, value in zip(self.body._fields, self.body, strict=True):
            if isinstance(value, Content):
                yield f"body.{name}", value


def session_id_problem(session_id: str) -> str | None:
    """Why this cannot be a session's id, or None: 1..255 bytes of UTF-8, no control characters."""
    try:
        size = len(session_id.encode("utf-8"))
    except UnicodeEncodeError as error:
        return f"holds a lone surrogate at index {error.start}"
    if not 1 <= size <= SESSION_ID_BYTES_MAX:
        return f"has {size} bytes; 1 to {SESSION_ID_BYTES_MAX} are allowed"
    found = _CONTROL_CHARACTER.search(session_id)
    return None if found is None else f"holds a control character at index {found.start()}"
