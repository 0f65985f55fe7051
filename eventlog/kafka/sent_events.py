"""`SentEvents`: events that were sent in a transaction which did not commit. Pure.

A reader of uncommitted records sees them. So a (step, attempt) that was sent once may be sent again
only with the same bytes: then that reader skips the second as a duplicate, and agrees with a reader
of committed records. Whoever has other events for that place must claim the session anew, under a
higher attempt.
"""

from collections import OrderedDict
from typing import Final

from eventlog.errors import FencedError
from eventlog.keeping.append_rule import Append

SESSIONS_KEPT_MAX: Final = 4_096
"""For so many sessions it is remembered. Forgetting can mislead readers of uncommitted records."""


class SentEvents:
    """For each session, the digests sent at each (attempt, step) and not committed."""

    def __init__(self) -> None:
        self._sent: OrderedDict[str, dict[tuple[int, int], bytes]] = OrderedDict()

    def note(self, append: Append) -> None:
        """The append was sent, and its transaction did not surely commit."""
        places = self._sent.setdefault(append.session_id, {})
        for event, _, digest in append.events:
            places[event.attempt, event.step] = digest
        self._sent.move_to_end(append.session_id)
        while len(self._sent) > SESSIONS_KEPT_MAX:
            self._sent.popitem(last=False)

    def forget(self, append: Append) -> None:
        """The append is committed: what was sent at or after its places stands, or never will."""
        if not self._sent:
            return
        places = self._sent.get(append.session_id)
        if places is None:
            return
        last = append.events[-1].event
        for place in [each for each in places if each <= (last.attempt, last.step)]:
            del places[place]
        if not places:
            del self._sent[append.session_id]

    def require_same(self, append: Append) -> None:
        """Raise `FencedError` where other events were sent for one of the append's places."""
        if not self._sent:
            return
        places = self._sent.get(append.session_id)
        if places is None:
            return
        for event, _, digest in append.events:
            if places.get((event.attempt, event.step), digest) != digest:
                raise FencedError(
                    f"another event was sent as step {event.step} of attempt {event.attempt} "
                    "before, and was not committed",
                    hint="resume the session: it goes on under a new attempt",
                    session_id=append.session_id,
                    step=event.step,
                )
