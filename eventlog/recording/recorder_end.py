"""`RecorderEnd`: why a recorder can append no more, in the words for each time it is told.

The append that failed raises its own error, with a hint that fits a recorder; every later call one
that is never retryable; and who leaves the block by another exception gets a note. Pure.
"""

import copy
from typing import NamedTuple

from eventlog.errors import (
    AppendUncertainError,
    FencedError,
    RecorderEndedError,
    StepConflictError,
    SteplogError,
)

_TRY_AGAIN = ", then try again"
"""How hints end that are written for who can: a recorder whose append failed cannot."""


class RecorderEnd(NamedTuple):
    """`step` is the last one acknowledged; `closed`: the session's close is among those; `resume`
    what goes on with the session, in words."""

    session_id: str
    step: int
    closed: bool
    cause: SteplogError
    resume: str

    @property
    def going_on(self) -> str:
        """What is in the log, and how to go on with it."""
        if isinstance(self.cause, AppendUncertainError):
            return (
                f"what it had acknowledged, up to step {self.step}, is in the log; {self.resume} "
                "finds out about the rest, and goes on"
            )
        nothing = f"nothing after step {self.step} was recorded"
        if self.closed:
            return f"{nothing}; the session is closed: fork it, or resume it with reopen=True"
        return f"{nothing}; the session stays open, and {self.resume} goes on with it"

    @property
    def first(self) -> SteplogError:
        """What the failed append raises: its error. The log may give one error to many appends."""
        if self.step < 0 or isinstance(self.cause, FencedError | StepConflictError):
            return self.cause
        told = copy.copy(self.cause)
        told.hint = self.going_on
        mend = self.cause.hint.removesuffix(_TRY_AGAIN)
        if mend and not isinstance(self.cause, AppendUncertainError):
            told.hint = f"{mend}; {self.going_on}"
        told.session_id = told.session_id or self.session_id
        return told.with_traceback(self.cause.__traceback__)

    @property
    def later(self) -> SteplogError:
        """What every later call raises; a fenced one's says all of the first, so is not chained."""
        if isinstance(self.cause, FencedError):
            return FencedError(
                f"this recorder was fenced after step {self.step}: {self.cause.message}",
                hint=self.cause.hint,
                session_id=self.session_id,
                step=self.cause.step,
            )
        name = type(self.cause).__name__
        ended = RecorderEndedError(
            f"this recorder ended at step {self.step}: {name}: {self.cause.message}",
            hint=self.going_on,
            session_id=self.session_id,
        )
        ended.__cause__ = self.cause
        return ended

    def tell(self, error: BaseException) -> None:
        """Note the end on an exception that leaves the recorder's block, where it is not told."""
        if isinstance(self.cause, FencedError):
            told = f"what it had acknowledged, up to step {self.step}, is in the log"
            note = f"this recorder of {self.session_id!r} was fenced; {told}"
        else:
            told = self.going_on
            why = f"{type(self.cause).__name__}: {self.cause.message}"
            note = f"this recorder of {self.session_id!r} ended: {why}; {told}"
        if not any(told in text for text in (str(error), *getattr(error, "__notes__", ()))):
            error.add_note(f"steplog: {note}")
