"""`UnheardErrors`: errors of submissions that nobody has asked for, to be told when all ends."""

import logging
from collections import deque
from typing import Final

from eventlog.keeping.awaited import Hearing
from eventlog.keeping.requests import Failed, Outcomes

UNHEARD_MAX: Final = 1_000
"""So many errors that nobody asked for are remembered."""
_TOLD_MAX: Final = 20

_logger = logging.getLogger("steplog.log")


class UnheardErrors:
    """The last errors that were given and not asked for."""

    def __init__(self) -> None:
        self._failed: deque[tuple[Hearing, tuple[str, ...], str]] = deque(maxlen=UNHEARD_MAX)

    def note(self, outcomes: Outcomes) -> None:
        """These answers were given."""
        for request, result in outcomes:
            hearing = request.answer.hearing if isinstance(result, Failed) else None
            if hearing is not None and not hearing.is_heard:
                error = result.error
                what = f"{type(error).__name__}: {error}"
                self._failed.append((hearing, request.session_ids, what))

    def report(self) -> None:
        """Log what still nobody has asked for, by session."""
        unheard: dict[str, list[str]] = {}
        for hearing, session_ids, what in self._failed:
            if not hearing.is_heard:
                unheard.setdefault(", ".join(session_ids), []).append(what)
        for session, errors in list(unheard.items())[:_TOLD_MAX]:
            _logger.error(
                "%d submissions to session %s were not acknowledged, and nobody asked: %s",
                len(errors),
                session,
                errors[0],
            )
        if len(unheard) > _TOLD_MAX:
            _logger.error("so it was with %d other sessions", len(unheard) - _TOLD_MAX)
