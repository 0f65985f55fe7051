"""`replay_to(session, step)`: the state after a step, folded from the nearest usable snapshot.

A snapshot is never trusted more than the log: one that is damaged, of another reducer, that stands
on an event the line does not hold, or whose state is not the one last recorded there, is reported
and skipped; the next older one, or the seed, is used. Folding never runs the environment.
"""

from collections.abc import Iterator
from typing import Final, NamedTuple

from eventlog.blob_store import BlobStore
from eventlog.canonical import decode, decode_live
from eventlog.content import BlobRef, Content
from eventlog.errors import (
    EventCorruptError,
    IntegrityError,
    NotRestorableError,
    SchemaError,
    SnapshotError,
    StepNotFoundError,
)
from eventlog.event import SessionSeeded, StateChange, StateUnknown
from eventlog.keeping.kept_records import decode_record
from eventlog.log import EventLog, LogRecord, SessionInfo
from replay.fold import Fold, initial_digest, recorded_state
from replay.reducer import CapturedReducer, Reducer, ReducerRegistry, TranscriptReducer
from snapshots.snapshot import Snapshot
from snapshots.snapshot_store import SnapshotStore

# A snapshot is proven by the last state recorded before it. Nearly always that is so few steps
# back; where it is not, the next look goes twice as far.
LOOK_BACK_STEPS: Final = 4

STEP_MAX: Final = 2**63 - 1
"""Past every step there can be (a step is an Avro long)."""

ANOTHER_EVENT: Final = "it stands on another event"


class Replayed(NamedTuple):
    """The state after `step`. `state_bytes` are canonical; `state_digest` is their SHA-256.

    `from_snapshot` is the step of the snapshot used (None: folded from the seed), `folded` the
    number of events applied after it, `skipped` the snapshots that could not be used, and why.
    """

    session_id: str
    step: int
    kind: str
    reducer: str
    reducer_version: str
    state_bytes: bytes
    state_digest: bytes
    event_digest: bytes
    from_snapshot: int | None
    folded: int
    skipped: tuple[str, ...]

    @property
    def state(self) -> object:
        """A fresh copy of the state. Raises `CodecMissingError` for types not registered here."""
        return decode_live(self.state_bytes)

    @property
    def opaque_state(self) -> object:
        """The state with registered types left closed: needs no registration."""
        return decode(self.state_bytes, opaque=True)


class _Asked(NamedTuple):
    """What is replayed: the session, the step, and by which reducer.

    `proves` says whether the recorded digests are those of this reducer's states.
    """

    info: SessionInfo
    step: int
    reducer: Reducer
    proves: bool


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

        `reducer` replays with another reducer than the seed names; its states have no recorded
        digests to be held against. Raises `SessionNotFoundError`, `StepNotFoundError`,
        `NotRestorableError`, `DivergenceError`, `ReducerMissingError`, `ReducerVersionError`, and
        `IntegrityError`s.
        """
        info = self._log.session_info(session_id)
        target = info.head.step if step is None else step
        if target < 0:
            raise StepNotFoundError(
                f"there is no step {target}",
                hint=f"the session's steps are 0 to {info.head.step}",
                session_id=session_id,
            )
        asked = self._asked(info, target, reducer)
        skipped: list[str] = []
        fold, rest = (self._fold_from_snapshot(asked, skipped) if use_snapshots else None) or (
            self._fold_from_seed(asked)
        )
        return self._finish(asked, fold, rest, tuple(skipped))

    def fetch(self, content: Content) -> bytes:
        """A content's bytes: inline, or from the blob store (re-hashed)."""
        data = content.data
        return self._blobs.get_blob(data) if isinstance(data, BlobRef) else data

    def snapshot_problem(self, snapshot: Snapshot) -> str | None:
        """Why the log does not bear out a sound snapshot of the session's own; None if it does.

        One of a line that was rewound is no problem. Raises `IntegrityError`s where the log cannot
        be read there, `ReducerMissingError`, `ReducerVersionError`.
        """
        info = self._log.session_info(snapshot.session_id)
        reducer = self._reducers.find(snapshot.reducer, snapshot.reducer_version)
        asked = self._asked(info, snapshot.step, reducer.name)
        if asked.reducer is not reducer:
            return None  # of a version that no replay of this session uses
        if snapshot.step <= info.head.step:
            found = self._records_from(asked, snapshot)
            if not isinstance(found, str):
                return None
            if found != ANOTHER_EVENT:
                return found
        try:
            through = snapshot.event_digest
            next(self._log.read_session(snapshot.session_id, snapshot.step, through=through))
        except StepNotFoundError:
            return "it stands on an event that the log lacks"
        return None

    def _asked(self, info: SessionInfo, step: int, name: str | None) -> _Asked:
        if not info.reducer:
            info = self._with_seed(info)
        if name is not None and name != info.reducer:
            reducer = self._reducers.find(name, None, session_id=info.session_id)
        elif info.state_coverage == "none" and info.reducer == CapturedReducer.name:
            reducer = self._reducers.find(TranscriptReducer.name, TranscriptReducer.version)
        else:
            reducer = self._reducers.find(
                info.reducer, info.reducer_version, session_id=info.session_id
            )
        is_recorded = reducer.name == CapturedReducer.name or (
            reducer.name == info.reducer and reducer.name != TranscriptReducer.name
        )
        return _Asked(info, step, reducer, is_recorded and info.state_coverage != "none")

    def _with_seed(self, info: SessionInfo) -> SessionInfo:
        """What the log could not say of a branch that came into it before its parent."""
        seed = decode_record(next(self._log.read_session(info.session_id, 0, 1))).body
        if not isinstance(seed, SessionSeeded):
            return info
        return info._replace(
            reducer=seed.reducer,
            reducer_version=seed.reducer_version,
            state_coverage=seed.state_coverage,
        )

    def _fold_from_snapshot(
        self, asked: _Asked, skipped: list[str]
    ) -> tuple[Fold, Iterator[LogRecord]] | None:
        for snapshot in self._usable_snapshots(asked, skipped):
            found = self._records_from(asked, snapshot)
            if isinstance(found, str):
                skipped.append(f"snapshot of step {snapshot.step}: {found}")
                continue
            record, rest = found
            fold = Fold.from_snapshot(
                asked.reducer, self.fetch, record, snapshot, proves=asked.proves
            )
            return fold, rest
        return None

    def _usable_snapshots(self, asked: _Asked, skipped: list[str]) -> Iterator[Snapshot]:
        """Sound snapshots by this reducer, newest first: the session's own, then its parents'."""
        reducer = asked.reducer
        owner: SessionInfo | None = asked.info
        last = asked.info.head.step
        # At the end of the line those beyond it are looked for too: the log has lost its end, or
        # was rewound, and whoever asks for the state must be told that there was a later one.
        limit = asked.step if asked.step < last else STEP_MAX
        seen: set[str] = set()
        while owner is not None and owner.session_id not in seen:  # a forged log may go in circles
            seen.add(owner.session_id)
            for ref in self._snapshots.nearest_snapshots(
                owner.session_id, limit, report=lambda error: skipped.append(str(error))
            ):
                if ref.step > last:
                    skipped.append(
                        f"snapshot of step {ref.step}: ahead of the log, which ends at step {last}"
                    )
                    continue
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
            limit = last = min(limit, owner.parent_step)
            owner = self._log.session_info(owner.parent_session)

    def _records_from(
        self, asked: _Asked, snapshot: Snapshot
    ) -> tuple[LogRecord, Iterator[LogRecord]] | str:
        """The snapshot's event and those after it up to the asked step, or why it is not usable."""
        session_id, step = asked.info.session_id, snapshot.step
        looked_from = max(0, step - LOOK_BACK_STEPS)
        records = self._log.read_session(session_id, looked_from, asked.step + 1)
        before: list[LogRecord] = []
        for record in records:
            before.append(record)
            if record.prefix.step == step:
                break
        record = before[-1]
        if record.digest != snapshot.event_digest:
            return ANOTHER_EVENT
        if not asked.proves:
            return record, records
        recorded = self._last_recorded(session_id, before)
        if isinstance(recorded, StateUnknown):
            # A reducer of the user's own may know what was not recorded; a captured state cannot.
            if asked.reducer.name != CapturedReducer.name:
                return record, records
            return "the state was not recorded there"
        if recorded != snapshot.state_digest:
            return "its state is not the recorded one"
        return record, records

    def _last_recorded(
        self, session_id: str, before: list[LogRecord]
    ) -> bytes | StateUnknown | None:
        """What the log last says of the state up to the last of these records.

        A digest, that it is unknown, or None where no state was ever recorded.
        """
        look_back = LOOK_BACK_STEPS
        while True:
            for record in reversed(before):
                recorded = recorded_state(record)
                if recorded is not None:
                    return recorded
            first = before[0].prefix.step
            if first == 0:
                return initial_digest(decode_record(before[0]))
            look_back *= 2
            before = list(self._log.read_session(session_id, max(0, first - look_back), first))

    def _fold_from_seed(self, asked: _Asked) -> tuple[Fold, Iterator[LogRecord]]:
        records = self._log.read_session(asked.info.session_id, 0, asked.step + 1)
        fold = Fold.from_seed(asked.reducer, self.fetch, next(records), proves=asked.proves)
        return fold, records

    def _finish(
        self, asked: _Asked, fold: Fold, rest: Iterator[LogRecord], skipped: tuple[str, ...]
    ) -> Replayed:
        info, step = asked.info, asked.step
        first = fold.record.prefix.step
        fold.apply_all(rest)
        last = fold.record
        if last.prefix.step != step:
            raise EventCorruptError(
                f"the line ends at step {last.prefix.step}, before step {step}",
                hint="run `steplog check` on the session",
                session_id=info.session_id,
                step=step,
            )
        if fold.unknown_since is not None:
            raise _not_restorable(self._log, info, step, fold.unknown_since)
        state_bytes, state_digest = fold.proven_state()
        return Replayed(
            info.session_id,
            step,
            last.prefix.kind,
            asked.reducer.name,
            asked.reducer.version,
            state_bytes,
            state_digest,
            last.digest,
            fold.snapshot_step,
            step - first,
            skipped,
        )


def _not_restorable(
    log: EventLog, info: SessionInfo, step: int, unknown_since: int
) -> NotRestorableError:
    next_known = _next_known(log, info, step)
    last_known = unknown_since - 1 if unknown_since > 0 else None
    last = "never known before" if last_known is None else f"last known after step {last_known}"
    after = "never after" if next_known is None else f"next known after step {next_known}"
    return NotRestorableError(
        f"the state after step {step} was not recorded: {last}, {after}",
        hint="replay to a step with a known state, or to this one with reducer 'transcript'",
        last_known=last_known,
        next_known=next_known,
        session_id=info.session_id,
        step=step,
    )


def _next_known(log: EventLog, info: SessionInfo, step: int) -> int | None:
    if step == info.head.step:
        return None
    try:
        for record in log.read_session(info.session_id, step + 1):
            if isinstance(record.prefix.state_change, StateChange):
                return record.prefix.step
    except (IntegrityError, SchemaError):
        pass  # what was asked for is unknown all the same; damage there is another question
    return None
