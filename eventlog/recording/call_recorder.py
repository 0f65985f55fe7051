"""`CallRecorder`: the part of a recorder that records tool calls and their answers.

In durability `answer`, a call is submitted and its step returned at once; its return is durable
before the method returns. Calls of tools declared external are always durable first: such a tool
must never run without a trace. What a retry is given back is durable too.
"""

import time
from collections.abc import Callable
from functools import partial
from typing import Final, NotRequired, TypedDict, Unpack

from eventlog.content import argument_content, result_content
from eventlog.event import StateChanged, ToolCalled, ToolReturned
from eventlog.not_given import NOT_GIVEN, NotGiven
from eventlog.policy_order import policy_text
from eventlog.recording.call_book import CallBook, OpenCall
from eventlog.recording.given_numbers import require_duration, reward_number
from eventlog.recording.open_session import OpenSession
from eventlog.recording.recorded_call import CallFields, Effects, RecordedCall, ReturnStatus
from eventlog.recording.session_writer import SessionWriter
from eventlog.recording.state_capture import StateCapture, StateObserver

RAN_AGAIN: Final = "a retried call ran again"
"""The reason of the state change that the block of an answered call left behind."""


class _BlockEnd(TypedDict):
    """What the end of a `with` block says of its call."""

    status: ReturnStatus
    state: object
    patch: object
    reward: float | None
    error_type: NotRequired[str]


class CallRecorder(OpenSession):
    """An open session and its calls: which are open, which were answered."""

    def __init__(
        self,
        writer: SessionWriter,
        calls: CallBook,
        capture: StateCapture | None,
        *,
        read_state: Callable[[], object] | None = None,
        observe: StateObserver | None = None,
        resumed: bool = False,
        policy: str | None = None,
    ) -> None:
        """Go on where `writer` stands; `capture` is None for a session without any state.

        `policy` is the version that was used last.
        """
        super().__init__(writer, capture, read_state=read_state, observe=observe, resumed=resumed)
        self._calls = calls
        self._policy = policy

    @property
    def policy(self) -> str | None:
        """The policy version of calls and of the agent's messages that name none themselves.

        At first the seed's; after a resume the one that was named last. Set it when the policy
        changes in the middle of a session; that alone records nothing.
        """
        return self._policy

    @policy.setter
    def policy(self, policy: str | int | None) -> None:
        self._policy = policy_text(policy)

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
        policy: str | int | None = None,
        idempotency_key: str | None = None,
    ) -> int:
        """Record that a tool is called; returns the call's step.

        A str is JSON text and stored as it is; other values are stored canonically. `policy` is the
        version that called, `.policy` where none is given. The same
        `idempotency_key` again is the same call, as long as the session goes on: its step comes
        back once it is durable, and nothing is recorded.

        Raises `StepConflictError` where the key belongs to a call of another tool or with other
        arguments, `ConfigError` for more than 1,000,000 keys in the session.
        """
        if not isinstance(idempotency_key, str | None):
            raise TypeError(f"an idempotency key is a str, not {idempotency_key!r}")
        with self._writer.lock:
            self._writer.refuse_if_unusable()
            body = ToolCalled(
                tool=tool,
                arguments=argument_content(arguments),
                call_id=call_id,
                transport=transport,
                effects=effects,
                policy=self._policy if policy is None else policy_text(policy),
                idempotency_key=idempotency_key,
            )
            earlier = self._calls.retried_call(body)
            if earlier is not None:
                return self._durable(earlier)
            started_ns = time.monotonic_ns()
            step = self._writer.submit(
                body,
                actor="agent",
                key=idempotency_key,
                on_taken=lambda step: self._calls.note_call(step, body, started_ns),
            )
            return self._durable(step) if effects == "external" else step

    def record_tool_return(
        self,
        called_step: int,
        result: object = None,
        *,
        status: ReturnStatus = "ok",
        state: object = NOT_GIVEN,
        patch: object = NOT_GIVEN,
        reward: float | None = None,
        error_type: str | None = None,
        duration_us: int | None = None,
        terminated: bool | None = None,
        truncated: bool | None = None,
        duplicate_of: int | None = None,
    ) -> int:
        """Record the answer to the call of `called_step`; durable when it returns its step.

        A str is text, `JsonText` JSON text, other values are stored canonically. `state` is the
        state after the call, or `patch` the operations (as `state_patch.diff` gives them) that make
        it out of the last known one; without either a callable given to `record` is asked, and
        where there is none the step's state is recorded as unknown. `duplicate_of` is the step of
        an earlier answer that this one repeats.

        Raises `StepConflictError` for a second answer to one call (a call with an idempotency key
        gives its first answer's step), `StateError` for a patch that does not fit.
        """
        with self._writer.lock:
            self._writer.refuse_if_unusable()
            earlier = self._calls.return_of(called_step)
            if earlier is not None and self._calls.is_keyed(called_step):
                return self._durable(earlier)
            call = self._calls.open_call(called_step)
            self._require_recorded(duplicate_of=duplicate_of)
            if duration_us is None:
                duration_us = call.elapsed_us(time.monotonic_ns())
            require_duration(duration_us)
            body = ToolReturned(
                called_step=called_step,
                status=status,
                result=None if result is None else result_content(result),
                error_type=error_type,
                duration_us=duration_us,
                reward=reward_number(reward),
                terminated=terminated,
                truncated=truncated,
                duplicate_of=duplicate_of,
            )
            captured = self._captured_after(
                state,
                pure=call.effects == "pure",
                unsaid="the result was recorded without a state",
                patch=patch,
            )
            return self._append(
                body,
                actor="tool",
                captured=captured,
                on_taken=lambda step: self._calls.note_return(called_step, step),
            )

    def call(self, tool: str, arguments: object, **fields: Unpack[CallFields]) -> RecordedCall:
        """Record a call around a `with` block: duration, result or exception, state at the end.

        Takes the keyword arguments of `record_tool_call`. Raises `StateError` for the first call
        after a resume if the environment's state is not the restored one.
        """
        with self._writer.lock:
            self._writer.refuse_if_unusable()
            self._refuse_another_state()
            step = self.record_tool_call(tool, arguments, **fields)
            end = partial(self._end_block, pure=fields.get("effects") == "pure")
            return RecordedCall(end, step, self._calls.return_of(step))

    def interrupt_open_calls(self) -> tuple[int, ...]:
        """Answer every open call with `interrupted`, as after a crash. Returns the steps."""
        with self._writer.lock:
            self._writer.refuse_if_unusable()
            self._refuse_another_state()
            return tuple(
                self.record_tool_return(call.step, status="interrupted") for call in self.open_calls
            )

    def _end_block(
        self, called_step: int, result: object, *, pure: bool, **fields: Unpack[_BlockEnd]
    ) -> int:
        """Record the return that ends a `with` block; of an answered call, what the block did."""
        with self._writer.lock:
            answered = self._calls.return_of(called_step)
            if answered is None or not self._calls.is_keyed(called_step):
                return self.record_tool_return(called_step, result, **fields)
            self._record_rerun(fields["state"], fields["patch"], pure=pure)
            return answered

    def _record_rerun(self, state: object, patch: object, *, pure: bool) -> None:
        """What a block did to the state although its call was answered before: never lost."""
        said = not (isinstance(state, NotGiven) and isinstance(patch, NotGiven))
        if not said and (self._capture is None or self._read_state is None):
            return
        captured = self._captured_after(state, pure=pure, unsaid=RAN_AGAIN, patch=patch)
        if captured.change is not None:
            self._append(StateChanged(RAN_AGAIN), actor="system", captured=captured)

    def _durable(self, step: int) -> int:
        """The step, once everything recorded so far is durable: only then may it be told."""
        self.flush()
        return step
