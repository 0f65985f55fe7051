"""`SetRestorer`: a checkpoint set brought back into a training's objects, and its sessions.

The order is fixed: the claim of the training comes first, then weights, optimizer, scheduler and
data, then the sessions, and the random states last, because all that comes before may draw from
them. Imports torch, which steplog itself never needs.
"""

import logging
from collections.abc import Mapping
from typing import Any, Final, NamedTuple

from eventlog.canonical import decode
from eventlog.errors import CheckpointError
from eventlog.log import EventLog
from eventlog.recorder import SessionRecorder
from snapshots.checkpoint_store import CheckpointStore
from snapshots.checkpoints.manifest import CheckpointRef, Manifest
from snapshots.checkpoints.saved_parts import DATA, RANK_STATES, SCHEDULER
from snapshots.checkpoints.set_entry import SetEntry
from snapshots.checkpoints.tracks import pin_of_branch
from snapshots.random_state import require_random
from snapshots.sets.adopted_folder import require_unchanged
from snapshots.sets.journal import RESTORED, note_value
from snapshots.sets.members import members_beside, members_of, unvoided_by
from snapshots.sets.restored_set import RestoredSet, RestoreInto, SessionsBack
from snapshots.sets.restoring import (
    fork_sessions,
    require_same_log,
    rewind_sessions,
)
from snapshots.sets.save_rules import SET, SaveRules
from snapshots.shard_reader import ShardReader
from snapshots.shards.ranks import Ranks
from snapshots.shards.trained import ReadBeside, Trained, refusal_named
from snapshots.training_state import (
    TrainingState,
    data_for_rank,
    decode_training_state,
    load_state,
    random_for_rank,
    scheduler_for_rank,
)

_logger: Final = logging.getLogger("steplog.training")


class _Own(NamedTuple):
    """What this rank brings back of its own."""

    states: list[TrainingState]
    scheduler: Any
    data: Any
    random: Any
    progress: Any


class _Into(NamedTuple):
    """The objects that a set is loaded into."""

    trained: Trained
    scheduler: Any
    data: Any
    generators: Mapping[str, object]
    reseed: int | None

    @classmethod
    def of(cls, into: RestoreInto) -> "_Into":
        taken = RestoreInto.__annotations__
        unknown = sorted(set(into) - set(taken))
        if unknown:
            raise TypeError(f"a restore takes {', '.join(taken)}, not {unknown[0]}")
        trained = Trained.of(into.get("model"), into.get("optimizer"), into.get("extra"))
        return cls(
            trained,
            into.get("scheduler"),
            into.get("data"),
            into.get("generators") or {},
            into.get("reseed"),
        )

    def parts(self) -> frozenset[str]:
        """Which of them were given, by the names that `checkpoint` has for them."""
        own = {SCHEDULER: self.scheduler, DATA: self.data}
        return self.trained.parts() | {part for part, one in own.items() if one is not None}


class _Opened(NamedTuple):
    """A set that was found to be of this log, open to be read: nothing was changed yet."""

    asked: _Into
    reader: ShardReader
    entry: SetEntry
    own: _Own


class SetRestorer:
    """Restores the sets of one training. Every rank makes one."""

    def __init__(
        self,
        log: EventLog,
        store: CheckpointStore,
        training: str,
        ranks: Ranks,
        rules: SaveRules,
    ) -> None:
        """`training` is the training whose sets these are; `rules` those of the one that goes on
        from them: they are told when a set was not put in whole."""
        self._log = log
        self._store = store
        self._training = training
        self._ranks = ranks
        self._rules = rules

    def restore(
        self, ref: CheckpointRef, recorder: SessionRecorder | None, into: RestoreInto
    ) -> RestoredSet:
        """Go on from the set in its own training; a collective."""
        opened, read = self._begin(ref, into)
        entry = opened.entry

        def bring_sessions_back() -> SessionsBack:
            assert recorder is not None, "rank 0 has claimed the training"
            # Fails where another trainer has claimed the training since. Not before all has come
            # back: a set that could not be restored is not what the training goes on from. Noted
            # while nobody can take the set away: without it no later restore would begin.
            note = note_value(ref)
            self._store.move_head(ref, told=lambda: recorder.annotate(RESTORED, note))
            unvoided = tuple(unvoided_by(self._log, entry))
            rewind_sessions(self._log, entry, recorder.attempt)
            for name in unvoided:
                _logger.warning(
                    "session %r was voided after set %s, and is back as it was before", name, ref.id
                )
            beside = tuple(members_beside(self._log, entry))
            return SessionsBack({name: name for name in entry.sessions}, beside, unvoided)

        with self._rules.putting_in(SET, ref.id):
            self._put_in(opened, read)
            return self._finish(opened, self._ranks.ask(bring_sessions_back))

    def branch(
        self,
        ref: CheckpointRef,
        training: str,
        recorder: SessionRecorder | None,
        into: RestoreInto,
    ) -> RestoredSet:
        """Go on from the set in another training, `training`, with branches; a collective.

        Its random states are those of the set, or of `reseed`.
        """
        opened, read = self._begin(ref, into, reseed_always=True)
        entry = opened.entry

        def branch_sessions() -> SessionsBack:
            assert recorder is not None, "rank 0 has claimed the training"
            self._store.pin(pin_of_branch(training), ref)
            # Fails where another trainer has claimed the training since: it then forks nothing.
            recorder.annotate("branched_from", {**note_value(ref), "training": self._training})
            # Also those that a branching before this one has made, which went no further.
            earlier = tuple(info.session_id for info in members_of(self._log, training))
            return SessionsBack(fork_sessions(self._log, entry, training), earlier)

        with self._rules.putting_in(SET, ref.id):
            self._put_in(opened, read)
            return self._finish(opened, self._ranks.ask(branch_sessions))

    def _begin(
        self, ref: CheckpointRef, into: RestoreInto, *, reseed_always: bool = False
    ) -> tuple[_Opened, ReadBeside]:
        """Show that this is the set's log, then read it on every rank; nothing is changed.

        Until the log is found to be its own only rank 0 reads of it, and only the manifest, which
        each rank reads once.
        """
        asked = self._ranks.agree(lambda: _Into.of(into))
        here: list[tuple[ShardReader, SetEntry]] = []

        def compare_with_log() -> None:
            here.append(self._open(ref))
            _reader, entry = here[0]
            if entry.training != self._training:
                raise CheckpointError(
                    f"set {ref.id} is of training {entry.training!r}, not {self._training!r}",
                    hint="restore it in its own training, or use branch_from",
                )
            require_same_log(self._log, ref.id, entry)
            if entry.adopted is not None:
                require_unchanged(entry.adopted)

        def open_here() -> _Opened:
            reader, entry = here[0] if here else self._open(ref)
            own = self._own_part(reader.manifest, entry, asked, reseed_always=reseed_always)
            return _Opened(asked, reader, entry, own)

        self._ranks.ask(compare_with_log)
        opened = self._ranks.agree(open_here)
        return opened, asked.trained.read(opened.reader, self._ranks)

    def _open(self, ref: CheckpointRef) -> tuple[ShardReader, SetEntry]:
        reader = ShardReader(self._store, checkpoint=ref)
        if reader.manifest.set is None:
            raise CheckpointError(
                f"checkpoint {ref.id} stands at no cut of a log: it is no set",
                hint="load it with ShardReader",
            )
        return reader, reader.manifest.set

    def _put_in(self, opened: _Opened, read: ReadBeside) -> None:
        opened.asked.trained.put_in(read, self._ranks)
        self._ranks.agree(lambda: _load_own(opened.own, opened.asked))

    def _own_part(
        self, manifest: Manifest, entry: SetEntry, asked: _Into, *, reseed_always: bool
    ) -> _Own:
        """What this rank alone has. Fails before anything is changed."""
        adopted = entry.adopted
        if adopted is not None and any(asked.trained):
            raise CheckpointError(
                f"set {manifest.id} has no weights: they are in the adopted folder "
                f"{adopted.folder}",
                hint="leave out model, optimizer and extra, and load `.adopted` as it was saved",
                step=manifest.training_step,
            )
        states = _rank_states(manifest)
        rank, world_size = self._ranks.rank, self._ranks.world_size
        randoms = [one.random for one in states]
        random = random_for_rank(randoms, rank, world_size, asked.reseed, always=reseed_always)
        require_random(random, asked.generators)
        place, scheduler, data = (states, rank, world_size), None, None
        if asked.scheduler is not None:
            scheduler = scheduler_for_rank(*place, asked.scheduler)
        if asked.data is not None:
            data = data_for_rank(*place, asked.data, reseed=asked.reseed)
        return _Own(states, scheduler, data, random, self._progress(manifest, states))

    def _progress(self, manifest: Manifest, states: list[TrainingState]) -> Any:
        """This rank's own; with another number of ranks what all gave alike."""
        rank, world_size = self._ranks.rank, self._ranks.world_size
        if len(states) == world_size:
            return states[rank].progress
        if len({one.progress_bytes for one in states}) == 1:
            return states[0].progress
        if rank == 0:
            _logger.warning(
                "set %s was saved by %d ranks with progress of their own, and %d go on: "
                "restored.progress is None; make it from restored.progress_of_ranks",
                manifest.id,
                len(states),
                world_size,
            )
        return None

    def _finish(self, opened: _Opened, back: SessionsBack) -> RestoredSet:
        manifest, own = opened.reader.manifest, opened.own
        restored = RestoredSet(
            manifest,
            opened.entry,
            back,
            _parts_of(manifest, own),
            own.progress,
            own.states,
            own.random,
            opened.asked.generators,
        )
        self._ranks.agree(restored.restore_random)
        self._warn_of_left_out(restored, opened.asked)
        return restored

    def _warn_of_left_out(self, restored: RestoredSet, asked: _Into) -> None:
        left = restored.parts - asked.parts()
        if left and self._ranks.rank == 0:
            _logger.warning(
                "set %s holds %s, which this restore was not given: it stays as it was made, in "
                "the next set too; give it, unless that is meant",
                restored.set_id,
                ", ".join(sorted(left)),
            )


def _load_own(own: _Own, asked: _Into) -> None:
    for name, owner, value in (
        (SCHEDULER, asked.scheduler, own.scheduler),
        (DATA, asked.data, own.data),
    ):
        if owner is not None:
            with refusal_named(name):
                load_state(owner, value, name)


def _parts_of(manifest: Manifest, own: _Own) -> frozenset[str]:
    """What the set holds, by the names that `checkpoint` has for it."""
    parts = {str(entry.path[0]) for entry in manifest.tensors.values()}
    parts |= {str(entry.path[0]) for entry in manifest.values.values()}
    parts -= {RANK_STATES}
    parts |= {SCHEDULER} if own.states[0].scheduler is not None else set()
    parts |= {DATA} if own.states[0].data is not None else set()
    return frozenset(parts)


def _rank_states(manifest: Manifest) -> list[TrainingState]:
    found = []
    for rank in range(manifest.world_size):
        entry = manifest.values.get(f"{RANK_STATES}.rank-{rank}")
        data = None if entry is None else decode(entry.data)
        if not isinstance(data, bytes):
            raise CheckpointError(
                f"set {manifest.id} has nothing of rank {rank}", hint="restore another set"
            )
        found.append(decode_training_state(data))
    return found
