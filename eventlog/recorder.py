"""`SessionRecorder`: what an environment holds to record one session.

Each `record_*` makes one event and returns its step. In durability `answer`, a tool call is
submitted and its step returned at once; its return, and every other event, is durable before the
method returns. Calls of tools declared external are always durable first: such a tool must never
run without a trace. A recorder never mutates and never keeps the caller's objects.
"""

from collections.abc import Iterable, Mapping
from typing import Literal

from eventlog.actors import actor_of_role
from eventlog.blob_store import BlobStore
from eventlog.content import Content, result_content
from eventlog.errors import ValueNotEncodableError
from eventlog.event import (
    Annotated,
    EffectRecorded,
    MessageAdded,
    SessionSeeded,
    StateChanged,
    Verified,
)
from eventlog.log import EventLog
from eventlog.not_given import NOT_GIVEN, NotGiven
from eventlog.policy_order import policy_text
from eventlog.recording.call_book import CallBook
from eventlog.recording.call_recorder import CallRecorder
from eventlog.recording.given_numbers import component_numbers, require_duration, reward_number
from eventlog.recording.session_writer import LinePosition, SessionWriter
from eventlog.recording.state_capture import StateCapture, StateObserver


class SessionRecorder(CallRecorder):
    """Records one session under one claim. Thread-safe; unusable in a forked child.

    `read_state`, where given, is called at every return of a tool not declared pure.
    `observe` is told of every durable event (for snapshots): the head and the state's bytes.
    """

    @classmethod
    def begin(
        cls,
        log: EventLog,
        blobs: BlobStore,
        session_id: str,
        seeded: SessionSeeded,
        *,
        state: object = NOT_GIVEN,
        observe: StateObserver | None = None,
    ) -> "SessionRecorder":
        """Seed a new session, durably, and record it. `state` is a value or a callable.

        A mutable object that a state reaches twice is refused; in later states of over 64 KiB only
        the 16,384 values nearest to the root are looked at for one.

        Raises `SessionExistsError`; `ValueNotEncodableError` for a state that cannot be stored.
        """
        read_state = state if callable(state) else None
        capture: StateCapture | None = None
        if isinstance(state, NotGiven):
            seeded = seeded._replace(state_coverage="none", initial_state=None)
        else:
            capture, content = StateCapture.of_first(read_state() if read_state else state)
            seeded = seeded._replace(initial_state=content)
        start = LinePosition.before_seed(session_id)
        writer = SessionWriter(log, blobs, start)
        recorder = cls(
            writer,
            CallBook(),
            capture,
            read_state=read_state,
            observe=observe,
            policy=seeded.policy,
        )
        recorder._append(seeded._replace(writer=log.writer_id), actor="system")
        return recorder

    def record_verification(
        self,
        reward: float | None,
        *,
        verifier: str,
        verifier_version: str = "",
        components: Mapping[str, float] | None = None,
        input: object = NOT_GIVEN,
        output: object = NOT_GIVEN,
        mask_sample: bool = False,
        failure_kind: str | None = None,
        about_step: int | None = None,
        supersedes_step: int | None = None,
        duration_us: int = 0,
        state: object = NOT_GIVEN,
    ) -> int:
        """Record a verifier's judgement; also allowed after the close. Returns its step.

        Raises `StepNotFoundError` where `about_step` or `supersedes_step` is no step recorded yet,
        `ValueNotEncodableError` for a number beyond every float or a negative duration.
        """
        require_duration(duration_us)
        body = Verified(
            verifier=verifier,
            verifier_version=verifier_version,
            reward=reward_number(reward),
            components=component_numbers(components),
            input=None if isinstance(input, NotGiven) else result_content(input),
            output=None if isinstance(output, NotGiven) else result_content(output),
            mask_sample=mask_sample,
            failure_kind=failure_kind,
            about_step=about_step,
            supersedes_step=supersedes_step,
            duration_us=duration_us,
        )
        with self._writer.lock:
            self._require_recorded(about_step=about_step, supersedes_step=supersedes_step)
            return self._append(body, actor="verifier", captured=self._captured(state))

    def record_message(
        self,
        role: str,
        content: object,
        *,
        finish_reason: str | None = None,
        policy: str | int | None = None,
        tokens_in: int | None = None,
        tokens_out: int | None = None,
        duration_us: int | None = None,
        tokens: Iterable[int] | None = None,
        logprobs: Iterable[float] | None = None,
        token_mask: Iterable[int] | None = None,
        state: object = NOT_GIVEN,
    ) -> int:
        """Record a message of the dialog; content as `record_tool_return` takes results.

        `tokens` are the message's token ids and `token_mask` what of them counts for training, both
        stored as int32; `logprobs` as float32. Each is a sequence, an `array` or a one-dimensional
        numpy array; `read_content` gives a list. The event's actor follows from the role; one
        of the agent's without a `policy` is of `.policy`. Raises
        `ValueNotEncodableError` for other numbers, a negative duration, or a mask that is not as
        long as the tokens.
        """
        require_duration(duration_us)
        actor = actor_of_role(role)
        named = self._policy if policy is None and actor == "agent" else policy_text(policy)
        body = MessageAdded(
            role=role,
            content=result_content(content),
            policy_first=named,
            policy_last=named,
            finish_reason=finish_reason,
            tokens_in=tokens_in,
            tokens_out=tokens_out,
            duration_us=duration_us,
            tokens=None if tokens is None else Content.of_int32(tokens, path="$.tokens"),
            logprobs=None if logprobs is None else Content.of_float32(logprobs, path="$.logprobs"),
            token_mask=_mask_content(token_mask),
        )
        _refuse_unequal(body)
        with self._writer.lock:
            return self._append(body, actor=actor, captured=self._captured(state))

    def record_effect(
        self,
        effect: Literal["clock", "random", "id", "network", "other"],
        name: str,
        value: object,
    ) -> int:
        """Record an answer of the outside world, for later reruns. Returns its step."""
        return self._append(EffectRecorded(effect, name, result_content(value)), actor="system")

    def record_state(self, reason: str, state: object = NOT_GIVEN) -> int:
        """Record that the state changed outside of a tool call. Returns the step."""
        with self._writer.lock:
            captured = self._captured_after(
                state, pure=False, unsaid="the change was recorded without the state"
            )
            return self._append(StateChanged(reason), actor="system", captured=captured)

    def annotate(self, name: str, value: object, *, about_step: int | None = None) -> int:
        """Record a note under a name of yours; never changes the state. Returns its step.

        Raises `StepNotFoundError` where `about_step` is no step recorded yet.
        """
        with self._writer.lock:
            self._require_recorded(about_step=about_step)
            body = Annotated(name, result_content(value), about_step)
            return self._append(body, actor="operator")


def _mask_content(token_mask: Iterable[int] | None) -> Content | None:
    return None if token_mask is None else Content.of_int32(token_mask, path="$.token_mask")


def _refuse_unequal(body: MessageAdded) -> None:
    """A mask that is not as long as the tokens would be laid over the wrong ones."""
    tokens, mask = body.tokens, body.token_mask
    if tokens is not None and mask is not None and len(tokens.data) != len(mask.data):
        raise ValueNotEncodableError(
            f"token_mask has {len(mask.data) // 4} numbers, tokens {len(tokens.data) // 4}",
            hint="give one number of the mask for each token",
            path="$.token_mask",
        )
