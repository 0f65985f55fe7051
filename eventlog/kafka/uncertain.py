"""`UncertainAppends`: which sessions are blocked because an append's outcome is unknown. Pure."""

from collections.abc import Mapping
from typing import NamedTuple

from eventlog.errors import AppendUncertainError
from eventlog.keeping.append_rule import Append
from eventlog.keeping.requests import Failed, Outcomes, Request
from eventlog.log import Receipt


class Wished(NamedTuple):
    """What an append of unknown outcome would have made: enough to find it in the log.

    `transactional_id` is the one that was used, where it was not this writer's own.
    """

    first_step: int
    last_step: int
    attempt: int
    digest: bytes
    transactional_id: str | None = None

    @classmethod
    def of(cls, append: Append, transactional_id: str | None = None) -> "Wished":
        """What the append asks for."""
        first, last = append.events[0].event, append.events[-1]
        return cls(first.step, last.event.step, last.event.attempt, last.digest, transactional_id)


class UncertainAppends:
    """What is wished for each blocked session; None where an answer was told to be unknown."""

    def __init__(self) -> None:
        self._wished: dict[str, Wished | None] = {}

    def block(self, wished: Mapping[str, Wished]) -> None:
        """The outcome of these appends is unknown."""
        self._wished.update(wished)

    def wish_of(self, session_id: str) -> Wished | None:
        """What was asked of a blocked session, where that is known."""
        return self._wished.get(session_id)

    def require_certain(self, request: Request) -> None:
        """Raise `AppendUncertainError` where a session of the request is blocked."""
        if request.reconciles or not self._wished:
            return
        for session_id in request.session_ids:
            if session_id in self._wished:
                raise AppendUncertainError(
                    "an earlier append to the session has an unknown outcome",
                    hint="call reconcile for the session first",
                    session_id=session_id,
                )

    def settle(self, outcomes: Outcomes, *, in_time: bool) -> None:
        """Block sessions whose outcome was told to be unknown; unblock those reconciled in time."""
        for request, result in outcomes:
            for session_id in request.session_ids:
                if not in_time:
                    if isinstance(result, Receipt) and not request.reconciles:
                        self._wished[session_id] = _wish_of(result)
                    else:
                        # What is known of an uncertain append already stays known.
                        self._wished.setdefault(session_id, None)
                elif request.reconciles and not isinstance(result, Failed):
                    self._wished.pop(session_id, None)


def _wish_of(receipt: Receipt) -> Wished:
    return Wished(receipt.first_step, receipt.last_step, receipt.attempt, receipt.event_digest)
