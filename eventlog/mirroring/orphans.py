"""Orphans: branches that are read before the events of their parent.

A branch's summary goes on from its parent's at the fork. The two may lie in different partitions,
so the parent's events may be read later: then the branch waits in a row for the session that they
belong to, and its summary is made anew when they come.
"""

from collections.abc import Sequence

from eventlog.codec import decode_event
from eventlog.keeping.kept_records import read_kept
from eventlog.keeping.kept_rows import KeptSession
from eventlog.keeping.known_by_place import known_at_step
from eventlog.keeping.line_growth import LineGrowth, regrow, summary_of_prefix
from eventlog.mirroring.store import MirrorStore


def note_if_orphan(store: MirrorStore, growth: LineGrowth) -> None:
    """Let a branch that has just begun wait, where its prefix could not be read."""
    kept = growth.kept
    assert kept is not None, "its first event was put"
    if kept.line.parent_session is not None and not growth.summary.seeded:
        store.put_orphan(_missing_session(store, kept), kept.session_id)


def adopt_orphans(store: MirrorStore, touched: Sequence[str]) -> list[str]:
    """Make the summaries whole that waited for events of these sessions; the branches' ids."""
    adopted: list[str] = []
    while found := [branch for each in touched for branch in _adopt_waiting(store, each)]:
        adopted += found  # and each may be what another one's prefix hung on
    return adopted


def _adopt_waiting(store: MirrorStore, waits_for: str) -> list[str]:
    adopted = []
    for branch in store.orphans_of(waits_for):
        kept = store.find_session(branch)
        assert kept is not None, "an orphan has begun"
        first = next(read_kept(store, kept))
        if summary_of_prefix(store, decode_event(first.data)).seeded:
            store.drop_orphan(waits_for, branch)
            store.forget_summary(kept)
            regrow(store, kept)
            adopted.append(branch)
            continue
        missing = _missing_session(store, kept)
        if missing != waits_for:
            store.drop_orphan(waits_for, branch)
            store.put_orphan(missing, branch)
    return adopted


def _missing_session(store: MirrorStore, branch: KeptSession) -> str:
    """The session of whose events the branch's prefix lacks some: an ancestor."""
    kept, seen = branch, {branch.session_id}
    while True:
        parent_id = kept.line.parent_session
        if parent_id is None or parent_id in seen:
            break
        seen.add(parent_id)
        parent = store.find_session(parent_id)
        step, digest = kept.line.first_step - 1, kept.line.fork_parent
        if parent is None or (
            step >= parent.line.first_step
            and known_at_step(store, parent.number, parent_id, step, digest) is None
        ):
            return parent_id
        kept = parent
    # All is there, but it does not fit: it may yet, if more comes of its parent.
    assert branch.line.parent_session is not None, "only a branch waits"
    return branch.line.parent_session
