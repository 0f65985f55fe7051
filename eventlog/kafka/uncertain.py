"""`UncertainAppends`: which sessions are blocked because an append's outcome is unknown. Pure."""

from collections.abc import Mapping
from typing import Final, NamedTuple

from eventlog.errors import AppendUncertainError
from eventlog.keeping.append_rule import Append
from eventlog.keeping.requests import Failed, Outcomes, Request
from eventlog.log import Receipt

SETTLED_KEPT_MAX: Final = 4_096
"""Of so many sessions it is remembered what reconciling them said."""


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
    """What is wished for each blocked session: nothing where an answer was told to be unknown."""

    def __init__(self) -> None:
        self._wished: dict[str, list[Wished]] = {}
        self._settled: dict[str, Receipt | None] = {}

    def block(self, wished: Mapping[str, Wished]) -> None:
        """The outcome of these appends is unknown; each comes after those of its session before."""
        for session_id, wish in wished.items():
            self._wished.setdefault(session_id, []).append(wish)
            self._settled.pop(session_id, None)

    def wishes_of(self, session_id: str) -> tuple[Wished, ...]:
        """What was asked of a blocked session, as far as that is known, in order."""
        return tuple(self._wished.get(session_id, ()))

    def settled(self, session_id: str) -> Receipt | None:
        """What the last reconciling said, while nothing was appended to the session since.

        Of several appends in flight at once each caller asks for itself: all hear the same.
        """
        return self._settled.get(session_id)

    def forget_settled(self, request: Request) -> None:
        """The request may append to its sessions: what was said of them before is the past."""
        if self._settled and not request.reconciles:
            for session_id in request.session_ids:
                self._settled.pop(session_id, None)

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
        if in_time and not self._wished:
            return
        for request, result in outcomes:
            for session_id in request.session_ids:
                if not in_time:
                    wishes = self._wished.setdefault(session_id, [])
                    if isinstance(result, Receipt) and not request.reconciles:
                        wishes.append(_wish_of(result))
                elif request.reconciles and not isinstance(result, Failed):
                    self._unblock(session_id, result)

    def _unblock(self, session_id: str, result: Receipt | None) -> None:
        if self._wished.pop(session_id, None) is None:
            return
        self._settled[session_id] = result
        while len(self._settled) > SETTLED_KEPT_MAX:
            del self._settled[next(iter(self._settled))]


def _wish_of(receipt: Receipt) -> Wished:
    return Wished(receipt.first_step, receipt.last_step, receipt.attempt, receipt.event_digest)
