"""`RecordedCall`: one tool call around a `with` block."""

from collections.abc import Callable
from types import TracebackType
from typing import Literal, TypeAlias, TypedDict

from eventlog.errors import FencedError
from eventlog.not_given import NOT_GIVEN
from eventlog.recording.interruption import is_interruption

Effects: TypeAlias = Literal["pure", "idempotent", "external", "unknown"]
"""What running a tool again does: nothing, the same once more, or something outside of the log."""

ReturnStatus: TypeAlias = Literal["ok", "error", "timeout", "cancelled", "invalid", "interrupted"]


class CallFields(TypedDict, total=False):
    """What may be said of a call beside its tool and arguments."""

    call_id: str | None
    effects: Effects
    transport: str
    policy: str | int | None
    idempotency_key: str | None


class RecordedCall:
    """Set `.result` (and `.reward`, `.status`, `.state`) inside the block; leaving it records.

    `.state` is the state after the call, for sessions without a state callable; or `.patch`, the
    operations that make it out of the last one.

    An exception that leaves the block is recorded as status `error` (`timeout` for a
    TimeoutError) with its type and the reward set before it, and goes on; a `.status` set by hand,
    other than `ok`, stands. Where this cannot be recorded, as for a state that has no canonical
    form, the call stays open, and a note on the exception says so. After an interrupt or
    cancellation nothing is recorded: the call stays open, as after a crash.

    A retried call that was answered already has a `.return_step` from the start: the block need not
    run. Where it does and leaves another state, that is recorded as `state_changed`.
    """

    __slots__ = (
        *("_record_return", "patch", "result", "return_step", "reward"),
        *("state", "status", "step"),
    )

    def __init__(
        self, record_return: Callable[..., int], step: int, return_step: int | None
    ) -> None:
        self._record_return = record_return
        self.step = step
        self.return_step = return_step
        """The step of the return, once it is recorded (at once for a retried, answered call)."""
        self.result: object = None
        self.reward: float | None = None
        self.status: ReturnStatus = "ok"
        self.state: object = NOT_GIVEN
        self.patch: object = NOT_GIVEN

    def __enter__(self) -> "RecordedCall":
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        del kind, trace
        if error is None:
            self.return_step = self._record_return(
                self.step,
                self.result,
                status=self.status,
                reward=self.reward,
                state=self.state,
                patch=self.patch,
            )
        elif not is_interruption(error):
            self._record_failure(error)

    def _record_failure(self, error: BaseException) -> None:
        status = "timeout" if isinstance(error, TimeoutError) else "error"
        try:
            self.return_step = self._record_return(
                self.step,
                str(error),
                status=status if self.status == "ok" else self.status,
                error_type=type(error).__qualname__,
                reward=self.reward,
                state=self.state,
                patch=self.patch,
            )
        except Exception as failure:  # noqa: BLE001 - told as a note, below
            # The tool's own exception goes on; what reads the state is the caller's code too.
            told = "stays open" if self.return_step is None else "ran again, unrecorded"
            if isinstance(failure, FencedError):
                told = "was not answered"  # Whether it is open, the new owner knows.
            error.add_note(
                f"steplog: the call of step {self.step} {told}: "
                f"{type(failure).__qualname__}: {failure}"
            )
