"""Appends, claims and releases, as every keeper does them inside one transaction of its own.

Each function first decides and computes everything, and only then stores: an error of ours leaves
the transaction as it was.
"""

from eventlog.event import SessionReleased
from eventlog.keeping.append_rule import Accepted, Append, judge_append, require_owner
from eventlog.keeping.claims import Claimant, Takeover, claim_append, own_event, require_session
from eventlog.keeping.kept_rows import KeptSession, LineStore
from eventlog.keeping.line_growth import LineGrowth
from eventlog.log import Receipt


def append_events(store: LineStore, append: Append) -> Receipt:
    """Judge and store one append. Raises as `EventLog.append_events`; then nothing is stored."""
    kept = store.find_session(append.session_id)
    judged = judge_append(append, kept, store)
    if isinstance(judged, Receipt):
        return judged
    return _store(store, append, kept, judged)


def take_over(store: LineStore, wish: Takeover, claimant: Claimant) -> dict[str, int]:
    """Claim all of the sessions or none; the new attempt of each."""
    ready: list[tuple[Append, KeptSession, Accepted]] = []
    for session_id in dict.fromkeys(wish.session_ids):
        kept = require_session(store, session_id)
        append = claim_append(store, kept, wish, claimant)
        judged = judge_append(append, kept, store)
        assert isinstance(judged, Accepted), "a minted event id stands already"
        ready.append((append, kept, judged))
    grown = [_grown(store, append, kept) for append, kept, _ in ready]
    for (append, _, judged), growth in zip(ready, grown, strict=True):
        _put(store, append, judged, growth)
    return {append.session_id: judged.line.attempt for append, _, judged in ready}


def release(
    store: LineStore, session_id: str, to_writer: str | None, claimant: Claimant
) -> Receipt:
    """Append `session_released`. Raises `FencedError` where the claimant does not own it."""
    kept = require_session(store, session_id)
    require_owner(kept, claimant.writer_id)
    head = kept.line.line_head(session_id)
    event = own_event(head, SessionReleased(to_writer), claimant)
    append = Append(session_id, [event], head.step, claimant.writer_id)
    judged = judge_append(append, kept, store)
    assert isinstance(judged, Accepted), "a minted event id stands already"
    return _store(store, append, kept, judged)


def _store(store: LineStore, append: Append, kept: KeptSession | None, judged: Accepted) -> Receipt:
    return _put(store, append, judged, _grown(store, append, kept))


def _grown(store: LineStore, append: Append, kept: KeptSession | None) -> LineGrowth:
    """All that is to be stored, computed before anything is."""
    growth = LineGrowth(store, append.session_id, kept)
    growth.take(append.events)
    if not growth.summary.is_whole:
        growth.rebuild(append.events)
    return growth


def _put(store: LineStore, append: Append, judged: Accepted, growth: LineGrowth) -> Receipt:
    last_offset = store.put_events(growth.number, append.events)
    growth.put(judged.line, judged.claims, last_offset)
    first, last = append.events[0].event, append.events[-1]
    return Receipt(
        append.session_id,
        first.step,
        last.event.step,
        last.event.attempt,
        last.digest,
        last_offset,
    )
