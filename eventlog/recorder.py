"""`SessionRecorder`: what an environment holds to record one session.

Each `record_*` makes one event and returns its step. In durability `answer`, a tool call is
submitted and its step returned at once; its return, and every other event, is durable before the
method returns. Calls of tools declared external are always durable first: such a tool must never
run without a trace. A recorder never mutates and never keeps the caller's objects.
"""

import time
from collections.abc import Callable, Mapping
from typing import Literal, Unpack

from eventlog.blob_store import BlobStore
from eventlog.call_book import CallBook, OpenCall
from eventlog.content import argument_content, result_content
from eventlog.event import (
    Annotated,
    EffectRecorded,
    MessageAdded,
    SessionSeeded,
    StateChanged,
    ToolCalled,
    ToolReturned,
    Verified,
)
from eventlog.log import EventLog
from eventlog.not_given import NOT_GIVEN, NotGiven
from eventlog.open_session import OpenSession
from eventlog.recorded_call import CallFields, Effects, RecordedCall, ReturnStatus
from eventlog.session_writer import LinePosition, SessionWriter
from eventlog.state_capture import StateCapture, StateObserver


class SessionRecorder(OpenSession):
    """Records one session under one claim. Thread-safe; unusable in a forked child.

    `read_state`, where given, is called at every return of a tool not declared pure.
    `observe` is told of every durable event (for snapshots): the head and the state's bytes.
    """

    def __init__(
        self,
        writer: SessionWriter,
        calls: CallBook,
        capture: StateCapture | None,
        *,
        read_state: Callable[[], object] | None = None,
        observe: StateObserver | None = None,
        resumed: bool = False,
    ) -> None:
        """Go on where `writer` stands; `capture` is None for a session without any state."""
        super().__init__(writer, capture, read_state=read_state, observe=observe, resumed=resumed)
        self._calls = calls

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
        recorder = cls(writer, CallBook(), capture, read_state=read_state, observe=observe)
        recorder._append(seeded._replace(writer=log.writer_id), actor="system")
        return recorder

    @property
    def open_calls(self) -> tuple[OpenCall, ...]:
        """Calls that have no return yet, in the order they were issued."""
        return self._calls.open_calls

    def record_tool_call(
        self,
        tool: str,
        arguments: object,
        *,
        call_id: str | None = None,
        effects: Effects = "unknown",
        transport: str = "python",
        policy: str | None = None,
        idempotency_key: str | None = None,
    ) -> int:
        """Record that a tool is called; returns the call's step.

        A str is JSON text and stored as it is; other values are stored canonically. The same
        `idempotency_key` again is the same call: its step comes back and nothing is recorded.
        """
        with self._writer.lock:
            if idempotency_key is not None:
                earlier = self._calls.call_of_key(idempotency_key)
                if earlier is not None:
                    return earlier
            body = ToolCalled(
                tool=tool,
                arguments=argument_content(arguments),
                call_id=call_id,
                transport=transport,
                effects=effects,
                policy=policy,
                idempotency_key=idempotency_key,
            )
            started_ns = time.monotonic_ns()
            step = self._writer.submit(
                body,
                actor="agent",
                key=idempotency_key,
                on_taken=lambda step: self._calls.note_call(step, body, started_ns),
            )
            if effects == "external":
                self.flush()
            return step

    def record_tool_return(
        self,
        called_step: int,
        result: object = None,
        *,
        status: ReturnStatus = "ok",
        state: object = NOT_GIVEN,
        reward: float | None = None,
        error_type: str | None = None,
        duration_us: int | None = None,
        terminated: bool | None = None,
        truncated: bool | None = None,
    ) -> int:
        """Record the answer to the call of `called_step`; durable when it returns its step.

        A str is text, `JsonText` JSON text, other values are stored canonically. `state` is the
        state after the call; without it a callable given to `record` is asked, and where there is
        none the step's state is recorded as unknown. Raises `StepConflictError` for a second
        answer to one call (a call with an idempotency key gives its first answer's step).
        """
        with self._writer.lock:
            earlier = self._calls.return_of(called_step)
            if earlier is not None and self._calls.is_keyed(called_step):
                return earlier
            call = self._calls.open_call(called_step)
            if duration_us is None:
                duration_us = call.elapsed_us(time.monotonic_ns())
            body = ToolReturned(
                called_step=called_step,
                status=status,
                result=None if result is None else result_content(result),
                error_type=error_type,
                duration_us=duration_us,
                reward=_float(reward),
                terminated=terminated,
                truncated=truncated,
            )
            captured = self._captured_after(
                state,
                pure=call.effects == "pure",
                unsaid="the result was recorded without a state",
            )
            return self._append(
                body,
                actor="tool",
                captured=captured,
                on_taken=lambda step: self._calls.note_return(called_step, step),
            )

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
        """Record a verifier's judgement; also allowed after the close. Returns its step."""
        body = Verified(
            verifier=verifier,
            verifier_version=verifier_version,
            reward=_float(reward),
            components={name: float(part) for name, part in (components or {}).items()},
            input=None if isinstance(input, NotGiven) else result_content(input),
            output=None if isinstance(output, NotGiven) else result_content(output),
            mask_sample=mask_sample,
            failure_kind=failure_kind,
            about_step=about_step,
            supersedes_step=supersedes_step,
            duration_us=duration_us,
        )
        with self._writer.lock:
            return self._append(body, actor="verifier", captured=self._captured(state))

    def record_message(
        self,
        role: str,
        content: object,
        *,
        finish_reason: str | None = None,
        policy: str | None = None,
        tokens_in: int | None = None,
        tokens_out: int | None = None,
        duration_us: int | None = None,
        state: object = NOT_GIVEN,
    ) -> int:
        """Record a message of the dialog; content as `record_tool_return` takes results."""
        body = MessageAdded(
            role=role,
            content=result_content(content),
            policy_first=policy,
            policy_last=policy,
            finish_reason=finish_reason,
            tokens_in=tokens_in,
            tokens_out=tokens_out,
            duration_us=duration_us,
        )
        with self._writer.lock:
            return self._append(body, actor=role, captured=self._captured(state))

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
        """Record a note under a name of yours; never changes the state. Returns its step."""
        return self._append(Annotated(name, result_content(value), about_step), actor="operator")

    def call(self, tool: str, arguments: object, **fields: Unpack[CallFields]) -> RecordedCall:
        """Record a call around a `with` block: duration, result or exception, state at the end.

        Takes the keyword arguments of `record_tool_call`. Raises `StateError` for the first call
        after a resume if the environment's state is not the restored one.
        """
        self._refuse_another_state()
        step = self.record_tool_call(tool, arguments, **fields)
        return RecordedCall(self.record_tool_return, step, self._calls.return_of(step))

    def interrupt_open_calls(self) -> tuple[int, ...]:
        """Answer every open call with `interrupted`, as after a crash. Returns the steps."""
        with self._writer.lock:
            self._refuse_another_state()
            return tuple(
                self.record_tool_return(call.step, status="interrupted") for call in self.open_calls
            )


def _float(reward: float | None) -> float | None:
    """A reward as the schema has it: callers also have ints, bools and numpy's numbers."""
    return None if reward is None else float(reward)
