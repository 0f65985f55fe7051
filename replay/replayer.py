"""`replay_to(session, step)`: the state after a step, folded from the nearest usable snapshot.

A snapshot is never trusted more than the log: one that is damaged, of another reducer, or that
stands on an event the line does not hold is reported and skipped; the next older one, or the seed,
is used. Every folded step's digest is compared with the recorded one; the first that differs is a
`DivergenceError`. Folding never runs the environment.
"""

from collections.abc import Callable, Iterator
from typing import NamedTuple

from eventlog.blob_store import BlobStore
from eventlog.canonical import decode, digest_of, encode
from eventlog.codec import EventPrefix, decode_event
from eventlog.content import BlobRef, Content
from eventlog.errors import DivergenceError, EventCorruptError, NotRestorableError, SnapshotError
from eventlog.event import StateChange, StateUnknown
from eventlog.log import EventLog, LogRecord, SessionInfo
from replay.reducer import CapturedReducer, Reducer, ReducerRegistry
from snapshots.snapshot import Snapshot
from snapshots.snapshot_store import SnapshotStore

SkippedSnapshot = Callable[[str], None]


class Replayed(NamedTuple):
    """The state after `step`. `state_bytes` are canonical; `state_digest` is their SHA-256.

    `from_snapshot` is the step of the snapshot used (None: folded from the seed), `folded` the
    number of events applied after it, `skipped` the snapshots that could not be used, and why.
    """

    session_id: str
    step: int
    kind: str
    reducer: str
    state_bytes: bytes
    state_digest: bytes
    event_digest: bytes
    from_snapshot: int | None
    folded: int
    skipped: tuple[str, ...]

    @property
    def state(self) -> object:
        """A fresh copy of the state. Raises `CodecMissingError` for types not registered here."""
        return decode(self.state_bytes)

    @property
    def opaque_state(self) -> object:
        """The state with registered types left closed: needs no registration."""
        return decode(self.state_bytes, opaque=True)


class _Start(NamedTuple):
    """Where a fold begins: the state after `record`, from a snapshot or from the seed."""

    state: object
    state_bytes: bytes | None
    record: LogRecord
    rest: Iterator[LogRecord]
    snapshot_step: int | None


class Replayer:
    """Replays sessions of one log. `skipped` of each result lists the snapshots passed over."""

    def __init__(
        self,
        log: EventLog,
        blobs: BlobStore,
        snapshots: SnapshotStore,
        reducers: ReducerRegistry,
    ) -> None:
        self._log = log
        self._blobs = blobs
        self._snapshots = snapshots
        self._reducers = reducers

    def replay_to(
        self,
        session_id: str,
        step: int | None = None,
        *,
        use_snapshots: bool = True,
        reducer: str | None = None,
    ) -> Replayed:
        """The state after `step` (None: the last step of the line).

        `reducer` replays with another reducer than the seed names. Raises
        `SessionNotFoundError`, `StepNotFoundError`, `NotRestorableError`, `DivergenceError`,
        `ReducerMissingError`, `ReducerVersionError`, and `IntegrityError`s.
        """
        info = self._log.session_info(session_id)
        target = info.head.step if step is None else step
        chosen = self._choose_reducer(info, reducer)
        skipped: list[str] = []
        start = None
        if use_snapshots:
            start = self._start_from_snapshot(info, target, chosen, skipped)
        if start is None:
            start = self._start_from_seed(session_id, target, chosen)
        return self._fold(info, target, chosen, start, tuple(skipped))

    def fetch(self, content: Content) -> bytes:
        """A content's bytes: inline, or from the blob store (re-hashed)."""
        data = content.data
        return self._blobs.get_blob(data) if isinstance(data, BlobRef) else data

    def _choose_reducer(self, info: SessionInfo, name: str | None) -> Reducer:
        if name is not None:
            return self._reducers.find(name, None, session_id=info.session_id)
        if info.state_coverage == "none" and info.reducer == CapturedReducer.name:
            return self._reducers.find("transcript", None)
        return self._reducers.find(info.reducer, info.reducer_version, session_id=info.session_id)

    def _start_from_snapshot(
        self, info: SessionInfo, target: int, reducer: Reducer, skipped: list[str]
    ) -> _Start | None:
        for snapshot in self._usable_snapshots(info, target, reducer, skipped):
            records = self._log.read_session(info.session_id, snapshot.step, target + 1)
            record = next(records)
            if record.digest == snapshot.event_digest:
                state = decode(snapshot.state, opaque=True)
                return _Start(state, snapshot.state, record, records, snapshot.step)
            skipped.append(f"snapshot of step {snapshot.step}: stands on another event")
        return None

    def _usable_snapshots(
        self, info: SessionInfo, target: int, reducer: Reducer, skipped: list[str]
    ) -> Iterator[Snapshot]:
        owner: SessionInfo | None = info
        limit = min(target, info.head.step)
        while owner is not None:
            for ref in self._snapshots.nearest_snapshots(owner.session_id, limit):
                try:
                    snapshot = self._snapshots.get_snapshot(ref)
                except SnapshotError as error:
                    skipped.append(str(error))
                    continue
                made_by = (snapshot.reducer, snapshot.reducer_version)
                if made_by != (reducer.name, reducer.version):
                    skipped.append(f"snapshot of step {snapshot.step}: made by reducer {made_by}")
                    continue
                yield snapshot
            if owner.parent_session is None or owner.parent_step is None:
                return
            limit = min(limit, owner.parent_step)
            owner = self._log.session_info(owner.parent_session)

    def _start_from_seed(self, session_id: str, target: int, reducer: Reducer) -> _Start:
        records = self._log.read_session(session_id, 0, target + 1)
        record = next(records)
        state = reducer.begin(decode_event(record.data), self.fetch)
        return _Start(state, None, record, records, None)

    def _fold(
        self,
        info: SessionInfo,
        target: int,
        reducer: Reducer,
        start: _Start,
        skipped: tuple[str, ...],
    ) -> Replayed:
        fold = _Fold(info.session_id, reducer, self.fetch, start)
        folded = 0
        for record in start.rest:
            fold.apply(record)
            folded += 1
        if fold.record.prefix.step != target:
            raise EventCorruptError(
                f"the line ends at step {fold.record.prefix.step}, before step {target}",
                hint="run `steplog check` on the session",
                session_id=info.session_id,
                step=target,
            )
        if fold.unknown_since is not None:
            raise self._not_restorable(info, target, fold)
        state_bytes, state_digest = fold.proven_state()
        return Replayed(
            info.session_id,
            target,
            fold.record.prefix.kind,
            reducer.name,
            state_bytes,
            state_digest,
            fold.record.digest,
            start.snapshot_step,
            folded,
            skipped,
        )

    def _not_restorable(self, info: SessionInfo, target: int, fold: "_Fold") -> NotRestorableError:
        last_known = None if fold.unknown_since is None else fold.unknown_since - 1
        next_known = None
        if target < info.head.step:
            for record in self._log.read_session(info.session_id, target + 1):
                if isinstance(record.prefix.state_change, StateChange):
                    next_known = record.prefix.step
                    break
        return NotRestorableError(
            f"the state after step {target} was not recorded: last known after step "
            f"{last_known}, next known after step {next_known}",
            hint="replay to one of these steps, or to this one with reducer 'transcript'",
            last_known=last_known,
            next_known=next_known,
            session_id=info.session_id,
            step=target,
        )


class _Fold:
    """One fold in progress: the state after `record`, and since when it is not known."""

    def __init__(
        self, session_id: str, reducer: Reducer, fetch: Callable[[Content], bytes], start: _Start
    ) -> None:
        self._session_id = session_id
        self._reducer = reducer
        self._captured = reducer if isinstance(reducer, CapturedReducer) else None
        self._checks_digests = reducer.name != "transcript"
        self._fetch = fetch
        self._state = start.state
        self._state_bytes = start.state_bytes
        self.record = start.record
        self.unknown_since: int | None = None
        if start.state_bytes is None:
            self._check(start.record.prefix)

    def apply(self, record: LogRecord) -> None:
        """Fold one record. Raises `DivergenceError` where the recorded digest differs."""
        self.record = record
        prefix = record.prefix
        if self._captured is None:
            event = decode_event(record.data)
            self._state = self._reducer.apply_event(self._state, event, self._fetch)
            self._state_bytes = None
            self._check(prefix)
        elif prefix.state_change is not None:
            self._state = self._captured.apply_prefix(self._state, prefix, self._fetch)
            self._check(prefix)

    def proven_state(self) -> tuple[bytes, bytes]:
        """The state's canonical bytes and their digest."""
        data = self._state_bytes if self._state_bytes is not None else encode(self._state)
        return data, digest_of(data)

    def _check(self, prefix: EventPrefix) -> None:
        if not self._checks_digests:
            return
        change = prefix.state_change
        if isinstance(change, StateUnknown):
            if self.unknown_since is None:
                self.unknown_since = prefix.step
            return
        if change is None:
            return
        self.unknown_since = None
        self._state_bytes = encode(self._state)
        found = digest_of(self._state_bytes)
        if found != change.digest:
            raise DivergenceError(
                f"the replayed state has digest {found.hex()[:16]}.., recorded was "
                f"{change.digest.hex()[:16]}..",
                hint="the reducer or the recorded patch is not the one the session ran with",
                session_id=self._session_id,
                step=prefix.step,
            )
