"""`Fold`: a state brought forward event by event, each recorded digest compared on the way.

The state that a fold begins with, of a seed or a snapshot, stays bytes until an event changes it: a
large one is read only where it must be. Does no reading but of blobs, through `fetch`. Used by the
replayer.
"""

from collections.abc import Iterable
from hashlib import sha256
from typing import Final

from eventlog.canonical import decode, encode
from eventlog.content import Content
from eventlog.errors import DivergenceError, IntegrityError
from eventlog.event import Event, SessionSeeded, StateChange, StateUnknown
from eventlog.keeping.kept_records import decode_record
from eventlog.log import LogRecord
from replay.reducer import CapturedReducer, FetchContent, Reducer, TranscriptReducer, apply_change
from snapshots.snapshot import Snapshot

_NOT_DECODED: Final = object()


def recorded_state(record: LogRecord) -> bytes | StateUnknown | None:
    """What an event says of the state after it: its digest, that it is unknown, or nothing."""
    change = record.prefix.state_change
    return change.digest if isinstance(change, StateChange) else change


def initial_state(seed: Event) -> Content | None:
    """The recorded state that a session began with."""
    return seed.body.initial_state if isinstance(seed.body, SessionSeeded) else None


def initial_digest(seed: Event) -> bytes | None:
    """The digest of the state that a session began with; None where none was recorded."""
    initial = initial_state(seed)
    return None if initial is None else initial.digest


class Fold:
    """One fold in progress: the state after `record`, and since when it is not known.

    `proves` says whether the recorded digests are those of this reducer's states. `snapshot_step`
    is the step of the snapshot it began from, None for the seed.
    """

    def __init__(self, reducer: Reducer, fetch: FetchContent, proves: bool, record: LogRecord):
        """Begin with `from_seed` or `from_snapshot`."""
        self.record = record
        self.snapshot_step: int | None = None
        self.unknown_since: int | None = None
        self._reducer = reducer
        self._fetch = fetch
        self._proves = proves
        self._recorded: bytes | None = None
        self._state: object = _NOT_DECODED
        self._state_bytes: bytes | None = None

    @classmethod
    def from_seed(
        cls, reducer: Reducer, fetch: FetchContent, record: LogRecord, *, proves: bool
    ) -> "Fold":
        """A fold of a whole line; `record` is its first event. Raises what decoding raises."""
        fold = cls(reducer, fetch, proves, record)
        seed = decode_record(record)
        initial = initial_state(seed)
        if not isinstance(reducer, CapturedReducer):
            fold._state = reducer.begin(seed, fetch)
        elif initial is not None:
            fold._state_bytes = fetch(initial)
        else:
            # No state is there, yet or ever: nothing is known, which is not "the state is None".
            fold._state, fold.unknown_since = None, 0
        if proves:
            fold._recorded = initial_digest(seed)
            fold.proven_state()
            if isinstance(reducer, CapturedReducer):
                fold._apply_changes((record,))  # what the seed itself says of the state
        return fold

    @classmethod
    def from_snapshot(
        cls,
        reducer: Reducer,
        fetch: FetchContent,
        record: LogRecord,
        snapshot: Snapshot,
        *,
        proves: bool,
    ) -> "Fold":
        """A fold that goes on from a proven snapshot; `record` is the event it stands on."""
        fold = cls(reducer, fetch, proves, record)
        fold.snapshot_step = snapshot.step
        fold._state_bytes = snapshot.state
        return fold

    def apply_all(self, records: Iterable[LogRecord]) -> None:
        """Fold records. Raises `DivergenceError` at the first whose recorded digest differs."""
        if isinstance(self._reducer, CapturedReducer):
            self._apply_changes(records)
        else:
            self._apply_events(records)

    def proven_state(self) -> tuple[bytes, bytes]:
        """The state's canonical bytes and their digest, which is the recorded one if one is."""
        if self._state_bytes is None:
            self._state_bytes = encode(self._state)
        found = sha256(self._state_bytes).digest()
        if self._recorded is not None and found != self._recorded:
            raise DivergenceError(
                f"the replayed state has digest {found.hex()[:16]}.., recorded was "
                f"{self._recorded.hex()[:16]}..",
                hint="the reducer or the recorded patch is not the one the session ran with",
                session_id=self.record.prefix.session_id,
                step=self.record.prefix.step,
            )
        return self._state_bytes, found

    def _apply_changes(self, records: Iterable[LogRecord]) -> None:
        """Only the changes that events carry; an event without one is not even decoded."""
        for record in records:
            self.record = record
            change = record.prefix.state_change
            if change is None:
                continue
            if isinstance(change, StateUnknown):
                if self.unknown_since is None:
                    self.unknown_since = record.prefix.step
                self._recorded = None
                continue
            try:
                if self._state is _NOT_DECODED:
                    assert self._state_bytes is not None
                    self._state = decode(self._state_bytes, opaque=True)
                self._state = apply_change(self._state, change, self._fetch)
            except IntegrityError as error:
                error.session_id, error.step = record.prefix.session_id, record.prefix.step
                raise
            self.unknown_since = None
            self._prove(change)

    def _apply_events(self, records: Iterable[LogRecord]) -> None:
        if self._state is _NOT_DECODED:
            assert self._state_bytes is not None
            # A reducer of the user's own gets its values back live, as it made them.
            opaque = isinstance(self._reducer, TranscriptReducer)
            self._state = decode(self._state_bytes, opaque=opaque)
        for record in records:
            self.record = record
            event = decode_record(record)
            self._state = self._reducer.apply_event(self._state, event, self._fetch)
            self._state_bytes = None
            change = event.state_change
            if isinstance(change, StateUnknown):
                self._recorded = None
            elif change is not None and self._proves:
                self._prove(change)

    def _prove(self, change: StateChange) -> None:
        self._state_bytes = None
        self._recorded = change.digest
        self.proven_state()
