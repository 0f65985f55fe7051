"""`OpenSession`: one session under one claim - where it stands, its state, and how it ends.

What every recorder has, whatever verbs it records with. Events go through the `SessionWriter`,
states through the `StateCapture`; an observer (snapshots) is told of what is durable.
"""

import logging
from collections.abc import Callable
from types import TracebackType
from typing import Self

from eventlog.canonical import decode_live
from eventlog.errors import (
    ConfigError,
    NotRestorableError,
    StateError,
    StepConflictError,
    SteplogError,
    StepNotFoundError,
)
from eventlog.event import Body
from eventlog.not_given import NOT_GIVEN, NotGiven
from eventlog.recording.interruption import is_interruption
from eventlog.recording.session_writer import SessionWriter, note_nothing
from eventlog.recording.state_capture import Captured, Recorded, StateCapture, StateObserver

_UNCHANGED = Captured(None, None)
_logger = logging.getLogger("steplog.recorder")


class OpenSession:
    """A claimed session. Use as a context manager: leaving the block closes the session."""

    def __init__(
        self,
        writer: SessionWriter,
        capture: StateCapture | None,
        *,
        read_state: Callable[[], object] | None = None,
        observe: StateObserver | None = None,
        resumed: bool = False,
    ) -> None:
        """Go on where `writer` stands; `capture` is None for a session without any state.

        `resumed`: the environment's state must be shown to be the restored one before it acts.
        """
        self._writer = writer
        self._capture = capture
        self._read_state = read_state
        self._observe = observe
        self._unproven = resumed and read_state is not None

    @property
    def session_id(self) -> str:
        """The session's id."""
        return self._writer.head.session_id

    @property
    def step(self) -> int:
        """The step of the last event recorded."""
        return self._writer.head.step

    @property
    def attempt(self) -> int:
        """The number of the claim this recorder writes under."""
        return self._writer.head.attempt

    @property
    def event_digest(self) -> bytes:
        """The digest (32 bytes) of the last event recorded."""
        return self._writer.head.digest

    @property
    def closed(self) -> bool:
        """Whether this recorder closed the session."""
        return self._writer.closed

    @property
    def state(self) -> object:
        """The last known state, as a fresh copy; None for a session recorded without a state.

        Raises `NotRestorableError` where a return did not say its state, `CodecMissingError` where
        it holds a type that is not registered here.
        """
        if self._capture is None:
            return None
        if not self._capture.known:
            raise NotRestorableError(
                "the state is unknown: a result was recorded without it",
                hint="pass state= to record_tool_return, or a callable to record",
                session_id=self.session_id,
                step=self.step,
            )
        return decode_live(self._capture.base)

    def close(self, reason: str = "done", *, error_type: str | None = None) -> int:
        """End the session; the event holds its event count and Merkle root. Returns the step.

        Raises `StepConflictError` where it is closed already.
        """
        with self._writer.lock:
            step = self._writer.submit_close(reason, error_type)
            self.flush()
            return step

    def release(self, to_writer: str | None = None) -> None:
        """Give the claim up, so that another can go on without fencing anyone."""
        with self._writer.lock:
            self._writer.refuse_if_unusable()
            self._settle(at_end=True)
            self._writer.release(to_writer)

    def is_resumed_by(self, words: str) -> None:
        """Say in errors what goes on with this session, where `ws.resume` is not it."""
        self._writer.resume = words

    def flush(self) -> None:
        """Return when everything recorded so far is durable; raises what an append raised."""
        with self._writer.lock:
            self._settle(at_end=self._writer.closed)

    def __repr__(self) -> str:
        place = f"{self.session_id!r} at step {self.step}, attempt {self.attempt}"
        return f"<{type(self).__name__} {place}{', closed' if self.closed else ''}>"

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Close `done`, or `error` after an Exception; leave open after an interrupt.

        A cancelled future (`concurrent.futures.CancelledError`) is an interrupt too.
        """
        del kind, trace
        if self.closed or self._writer.released or not self._writer.in_this_process:
            return
        if error is None:
            self.close()
        elif isinstance(error, Exception) and not is_interruption(error):
            self._close_after(error)

    def _close_after(self, error: Exception) -> None:
        # The user's exception goes on; a log that cannot take the close must not replace it.
        if self._writer.end is None:
            try:
                self.close("error", error_type=type(error).__qualname__)
            except SteplogError as failure:
                if self._writer.end is None:
                    name = type(failure).__name__
                    error.add_note(
                        f"steplog: session {self.session_id!r} stays open: {name}: {failure}"
                    )
        if self._writer.end is not None:
            self._writer.end.tell(error)

    def _settle(self, *, at_end: bool) -> None:
        self._writer.await_durable()
        if self._observe is not None:
            capture = self._capture
            state = capture.base if capture is not None and capture.known else None
            self._observe(Recorded(self._writer.head, state, at_end))

    def _captured_after(
        self, state: object, *, pure: bool, unsaid: str, patch: object = NOT_GIVEN
    ) -> Captured:
        """The state after a step that may change it: as given, as read, or `unsaid`: unknown."""
        if not isinstance(patch, NotGiven):
            return self._captured_by(patch, state)
        if not isinstance(state, NotGiven):
            return self._captured(state)
        if self._capture is None or pure:
            return _UNCHANGED
        if self._read_state is not None:
            return self._capture.change_to(self._read_state())
        if self._capture.known:
            _logger.warning(
                "session %r: the state is unknown from step %d on, since %s; give record or "
                "resume a callable as state=, or pass the state with each return",
                self.session_id,
                self.step + 1,
                unsaid,
            )
        return self._capture.forget(unsaid)

    def _refuse_another_state(self) -> None:
        """Once after a resume: an environment that was not set back must not act unnoticed."""
        if not self._unproven or self._capture is None or self._read_state is None:
            return
        if self._capture.known and not self._capture.holds(self._read_state()):
            raise StateError(
                "the environment's state is not the restored one",
                hint="set it from the recorder's .state before the first call, or accept what it "
                "is now with record_state(reason)",
                session_id=self.session_id,
                step=self.step,
            )
        self._unproven = False

    def _captured(self, state: object) -> Captured:
        """The state as given with a step that does not change it by itself."""
        if isinstance(state, NotGiven):
            return _UNCHANGED
        return self._stateful().change_to(state)

    def _captured_by(self, patch: object, state: object) -> Captured:
        """The state as the environment's own patch makes it out of the last known one."""
        if not isinstance(state, NotGiven):
            raise ConfigError(
                "both a state and a patch were given",
                hint="give the state after the call, or the patch that leads to it",
                session_id=self.session_id,
            )
        return self._stateful().change_by(patch)

    def _stateful(self) -> StateCapture:
        if self._capture is None:
            raise StepConflictError(
                "the session was begun without a state, so its events carry none",
                hint="pass state= to record as well",
                expected=self.step,
                actual=self.step,
                session_id=self.session_id,
            )
        return self._capture

    def _require_recorded(self, **steps: int | None) -> None:
        """Raise `StepNotFoundError` where one of these names no step recorded so far."""
        for name, step in steps.items():
            if step is not None and not 0 <= step <= self.step:
                raise StepNotFoundError(
                    f"{name}={step} is no step recorded so far: they are 0 to {self.step}",
                    hint="pass the step that a record method returned",
                    session_id=self.session_id,
                    step=step,
                )

    def _append(
        self,
        body: Body,
        *,
        actor: str,
        captured: Captured = _UNCHANGED,
        on_taken: Callable[[int], None] = note_nothing,
    ) -> int:
        """Append one event, durably. To be called under the lock where a state was captured."""

        def taken(step: int) -> None:
            if self._capture is not None and captured.change is not None:
                self._capture.adopt(captured)
                self._unproven = False
            on_taken(step)

        with self._writer.lock:
            step = self._writer.submit(
                body, actor=actor, state_change=captured.change, on_taken=taken
            )
            self.flush()
            return step
