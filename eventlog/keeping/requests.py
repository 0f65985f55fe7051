"""What a log's writer is asked, and what comes of it: between handles, writer and committer."""

import math
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, Protocol

from eventlog.errors import SteplogError
from eventlog.keeping.awaited import Hearing


class Answer(Protocol):
    """Where a request's outcome goes: a `Promised`, or something lighter."""

    @property
    def hearing(self) -> Hearing | None:
        """Whether anybody asked for its error; None where it has none, or is waited for."""
        ...

    def running(self) -> bool:
        """Whether the request was begun."""
        ...

    def set_running_or_notify_cancel(self) -> bool:
        """The request is begun; False where it was withdrawn."""
        ...

    def set_result(self, result: Any) -> None:
        """What it returned."""
        ...

    def set_exception(self, exception: BaseException | None) -> None:
        """What it raised."""
        ...


class Request(NamedTuple):
    """Work for the writer: `run` with the keeper's store; `answer` gets what it returns or raises.

    `session_ids` are the sessions it may write to; `size_bytes` what is to be written, and
    `held_bytes` what it holds in memory, where that is known to be more. `reconciles`: it is served
    although its sessions are blocked, and settles them. `deadline` is when it should have an
    answer, on the monotonic clock: for keepers that try again until then.
    """

    run: Callable[[Any], Any]
    answer: Answer
    session_ids: tuple[str, ...] = ()
    size_bytes: int = 0
    reconciles: bool = False
    deadline: float = math.inf
    held_bytes: int = 0


class Failed(NamedTuple):
    """What a request came to, where it is not a value."""

    error: BaseException


Outcomes = list[tuple[Request, Any]]
"""What each request came to: the value it returned, or a `Failed`."""


class BatchLimits(NamedTuple):
    """How much one commit takes of what waits: it bounds how long the others wait."""

    requests_max: int
    bytes_max: int


class Committer(Protocol):
    """Runs batches of requests, each batch as one commit; used by the writer's thread alone."""

    limits: BatchLimits
    place: str
    """What is written to, for messages."""
    medium: str
    """What to look at when it does not answer: `the disk`."""
    waits_for_lock: bool
    """Whether it waits for another process."""

    def serve(
        self, take: Callable[[], Sequence[Request]], give: Callable[[Outcomes], None], /
    ) -> Outcomes:
        """Run what `take` gives; what each request came to.

        `give` lets some know before the others are through, who need not wait for them.
        """
        ...

    def settle(self, outcomes: Outcomes, *, in_time: bool) -> None:
        """Remember what was told to be unknown; forget what was reconciled in time."""
        ...

    def tidy(self) -> None:
        """Work that is due after the answers were given. Does not raise."""
        ...

    def close(self) -> None:
        """Let go of what is written to."""
        ...


def give_answers(outcomes: Outcomes) -> None:
    """Let everyone know; requests withdrawn before they were begun are left out."""
    for request, result in outcomes:
        answer = request.answer
        if not answer.running() and not answer.set_running_or_notify_cancel():
            continue
        if isinstance(result, Failed):
            if isinstance(result.error, SteplogError):
                # It would hold on to all that was being served, until the garbage is collected.
                result.error.__traceback__ = None
            answer.set_exception(result.error)
        else:
            answer.set_result(result)
