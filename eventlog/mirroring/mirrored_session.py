"""`MirroredSession`: one session while its records are read in, and what the rule asks about it."""

from eventlog.codec import EncodedEvent
from eventlog.keeping.kept_rows import KeptSession
from eventlog.keeping.known_by_place import (
    JudgedRecord,
    SkippedEvent,
    SkippedEvents,
    stored_by_place,
)
from eventlog.keeping.line_growth import LineGrowth
from eventlog.line_state import KnownEvent, LineState, VerdictKind
from eventlog.mirroring.store import MirrorStore
from eventlog.session_line import SessionLine


class MirroredSession:
    """A session's line and its growth; `growth` is None until something was accepted.

    `judged` is the record being judged: by its place it is asked for. `last_offset` is the local
    offset of the last accepted event. `is_touched`: it has changed since it was stored.
    """

    __slots__ = (
        "_skipped",
        "_store",
        "growth",
        "is_touched",
        "judged",
        "key",
        "last_offset",
        "line",
        "part",
        "session_id",
        "was_headless",
    )

    def __init__(
        self,
        store: MirrorStore,
        key: bytes,
        session_id: str,
        part: int,
        kept: KeptSession | None,
        headless: LineState | None,
    ) -> None:
        self._store = store
        self._skipped: SkippedEvents | None = None
        self.key = key
        self.session_id = session_id
        self.part = part
        self.growth = None if kept is None else LineGrowth(store, session_id, kept)
        self.last_offset = -1 if kept is None else kept.last_offset
        self.was_headless = headless is not None
        self.is_touched = False
        self.judged: EncodedEvent | None = None
        state = headless if kept is None else kept.line
        self.line = SessionLine(session_id, self._known, state, skipped=self._skipped_as)

    def note_skipped(self, encoded: EncodedEvent, kind: VerdictKind) -> None:
        """The record is stored as skipped; rule 4 may ask for it later."""
        if self._skipped is not None:
            event = encoded.event
            self._skipped.note(encoded.digest, SkippedEvent(kind, event.attempt, event.step))

    def _known(self, digest: bytes) -> KnownEvent | None:
        if self.growth is None or self.judged is None:
            return None
        event, _, judged_digest = self.judged
        judged = JudgedRecord(event, judged_digest, event.body)
        skipped = None if self._skipped is None else self._skipped.find(digest)
        stored = stored_by_place(self._store, self.growth.number, judged, digest, skipped)
        return None if stored is None else KnownEvent(stored.step, stored.attempt)

    def _skipped_as(self, digest: bytes) -> VerdictKind | None:
        if self._skipped is None:
            self._skipped = SkippedEvents()
            counts = self.line.state.counts
            rows = sum(counts) - counts.after_close
            for each, skipped in self._store.skipped_events(self.session_id, rows):
                self._skipped.note(each, skipped)
        found = self._skipped.find(digest)
        return None if found is None else found.verdict
