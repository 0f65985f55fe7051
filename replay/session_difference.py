"""`compare_places`: the difference of two sessions, or of two of their states, as the log has them.

Reads and replays through what it is given; what differs in what was read is `difference`'s work.
"""

from collections.abc import Callable, Iterable
from typing import TypeAlias

from eventlog.errors import NotRestorableError
from eventlog.event import Event
from replay.difference import Difference, compare_lines, compare_states
from replay.replayer import Replayed

Place: TypeAlias = str | tuple[str, int]
"""A session, or the session at a step."""

ReadEvents: TypeAlias = Callable[[str], Iterable[Event]]
Replay: TypeAlias = Callable[[str, int | None], Replayed]


def compare_places(
    first: Place, second: Place, read_events: ReadEvents, replay: Replay
) -> Difference:
    """Two whole sessions by their lines; else two states, of a session without a step the last."""
    if isinstance(first, str) and isinstance(second, str):
        found = compare_lines(read_events(first), read_events(second))
        return _with_state_changes(first, second, found, replay)
    before, after = (
        replay(place, None) if isinstance(place, str) else replay(*place)
        for place in (first, second)
    )
    changes = compare_states(before.state_bytes, after.state_bytes)
    return Difference(before.state_digest == after.state_digest, None, None, changes)


def _with_state_changes(first: str, second: str, found: Difference, replay: Replay) -> Difference:
    """The lines name the step; where only digests differ there, what differs in the state."""
    if found.first_step is None or found.other_step is None:
        return found
    if all(change.path[:1] != ("state_digest",) for change in found.changes):
        return found
    try:
        before = replay(first, found.first_step)
        after = replay(second, found.other_step)
    except NotRestorableError:
        return found  # one of the two was not recorded: that is the difference
    states = compare_states(before.state_bytes, after.state_bytes)
    shown = tuple(change for change in found.changes if change.path[:1] != ("state_digest",))
    return found._replace(
        changes=shown + tuple(change._replace(path=("state", *change.path)) for change in states)
    )
