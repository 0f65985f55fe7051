"""`TrainingRun`: a training whose checkpoints tie weights, data and sessions to one cut of the log.

    with ws.training("run-1") as run:
        restored = run.restore_latest(model=model, optimizer=optimizer)
        ...
        run.checkpoint(step, model=model, optimizer=optimizer)

Every rank makes one and calls the same methods in the same order; rank 0 alone writes to the log.
A set is begun in the log, then its objects, its manifest, a note in the training session (on which
a trainer that lost its claim fails), committed in the log, HEAD, and what retention lets go: a
crash after any of these leaves the set before it or this one. What needs torch is loaded when the
block is entered.
"""

import os
from collections.abc import Callable, Iterable, Mapping
from contextlib import ExitStack
from types import TracebackType
from typing import Any, NamedTuple, Unpack

from eventlog.errors import ConfigError
from eventlog.log import EventLog
from eventlog.recorder import SessionRecorder
from snapshots.checkpoint_config import CheckpointConfig
from snapshots.checkpoint_store import CheckpointStore
from snapshots.checkpoints.manifest import CheckpointRef
from snapshots.checkpoints.saved_parts import DATA, SCHEDULER
from snapshots.checkpoints.tracks import track_of_policies, track_of_training
from snapshots.save_handle import SaveHandle
from snapshots.sets.adopted_folder import hash_folder
from snapshots.sets.finding import SetFinder
from snapshots.sets.journal import give_up_open_sets
from snapshots.sets.keeping import SetKeeper
from snapshots.sets.restored_set import RestoredSet, RestoreInto
from snapshots.sets.save_rules import SaveRules, SetRequest, require_step
from snapshots.training_policies import KeptPolicies, TrainingPolicies
from snapshots.training_state import capture_training_state


class TrainingPlace(NamedTuple):
    """Where a training is recorded: its log, the folder of its checkpoints, and how it is claimed.

    `claim` seeds or resumes the training session; rank 0 calls it.
    """

    log: EventLog
    folder: str | os.PathLike[str]
    claim: Callable[[], SessionRecorder]


class TrainingRun(TrainingPolicies):
    """One process's part in a training. Use as a context manager; not thread-safe."""

    def __init__(
        self, name: str, place: TrainingPlace, config: CheckpointConfig, *, fresh: bool
    ) -> None:
        """Touches nothing; entering the block claims the training. Use `Workspace.training`."""
        super().__init__(name)
        if type(fresh) is not bool:
            raise ConfigError(f"fresh is {fresh!r}", hint="give True or False")
        self._place = place
        self._log = place.log
        self._config = config
        self._store = CheckpointStore(place.folder, track_of_training(name))
        self._rules = SaveRules(name, fresh=fresh)
        self._finder = SetFinder(place.log, self._store, name)
        self._keeper = SetKeeper(place.log, self._store, name, config.retention)

    @property
    def checkpoints(self) -> CheckpointStore:
        """The track of the folder that this training's sets lie in."""
        return self._store

    @property
    def attempt(self) -> int:
        """The number of the claim that this training goes on under."""
        self._require_entered()
        return self._attempt

    @property
    def rank(self) -> int:
        """This process's rank; 0 where there is no process group."""
        self._require_entered()
        return self._ranks.rank

    def __enter__(self) -> "TrainingRun":
        """Claim the training; a collective. Sets that an earlier trainer left half done are ended.

        Raises `ConfigError` where the ranks do not see one folder of checkpoints, before anything
        is claimed; and what claiming raises, in all ranks. What is raised after the claim ends the
        training session, as it would in the block.
        """
        if self._stage != "made":
            raise ConfigError(
                f"training {self._name!r} was entered before", hint="call ws.training anew"
            )
        self._stage = "could not be entered"
        with ExitStack() as ends:
            self._take_up(ends)
            self._ends = ends.pop_all()
        self._stage = "entered"
        return self

    def _take_up(self, ends: ExitStack) -> None:
        """Make the parts, each that has an end pushed as soon as it is there."""
        # torch takes seconds to load, and who only reads a training needs none of it.
        from snapshots.shard_saver import ShardSaver
        from snapshots.shards.one_folder import require_one_folder
        from snapshots.shards.policy_keeper import PolicyKeeper
        from snapshots.shards.ranks import Ranks
        from snapshots.shards.set_restorer import SetRestorer
        from snapshots.shards.set_saver import SetSaver

        threads = self._config.num_async_workers
        log, ranks = self._log, Ranks(self._config.timeout_s)
        self._ranks = ranks
        require_one_folder(self._store.folder, ranks)
        self._attempt = ranks.ask(lambda: self._claim(ends))
        self._saver = ShardSaver(self._store, threads=threads, ranks=ranks)
        ends.push(self._saver)
        self._restorer = SetRestorer(log, self._store, self._name, ranks, self._rules)
        self._sets = SetSaver(
            log, ranks, self._saver, self._keeper, self._finder, self._rules, self._recorder
        )
        policies = CheckpointStore(self._place.folder, track_of_policies(self._name))
        begun = self._sets.require_begun
        self._policies = PolicyKeeper(log, policies, self._name, ranks, begun, threads=threads)
        ends.callback(self._policies.close)

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Wait for the save under way; then the training session ends, as a session's block does.

        Raises what the save met, where nobody asked its handle and nothing else was raised; where
        something was, that is logged (logger `steplog.checkpoints`).
        """
        # Each is left as its own block would be, with what was raised here or by the one before.
        self._stage = "left"
        self._ends.__exit__(kind, error, trace)

    def is_due(self, step: int) -> bool:
        """Whether `save_interval` asks for a checkpoint after this step."""
        return self._config.schedule.is_due(require_step(step), self._rules.last_step)

    def checkpoint(
        self,
        step: int,
        *,
        model: object = None,
        optimizer: object = None,
        scheduler: object = None,
        data: object = None,
        progress: object = None,
        extra: Mapping[str, Any] | None = None,
        generators: Mapping[str, object] | None = None,
        sessions: Iterable[str] | None = None,
    ) -> SaveHandle:
        """Save a set after `step`; a collective. With `async_save` the rest is in the background.

        `model` and `optimizer`: one, or several in a dict. `scheduler` and `data`: anything with
        `state_dict`, or its value. `extra`: more tensors or values by name. `progress`: a value of
        yours. All are taken as they are now, and so is the cut. `sessions` are ids; None means
        every open session that was recorded with `training=` this one's name. Where they stand is
        read from the log. Python's, numpy's and torch's random state of each rank goes along, and
        the named `generators`.

        Raises `CheckpointError` where no rank gave anything but generators to save, where the save
        before is still under way, or what that met where
        nobody asked its handle; `FencedError` where another trainer has claimed the training.
        """
        self._require_inside()
        from snapshots.shards.replicas import require_alike
        from snapshots.shards.trained import Trained, gathered

        number = require_step(step)
        self._sets.require_begun()
        # Where one rank has what cannot be kept, the others must not wait for it.
        trained = self._ranks.agree(lambda: Trained.of(model, optimizer, extra))
        own_parts = {SCHEDULER: scheduler, DATA: data}
        parts = trained.parts() | {name for name, one in own_parts.items() if one is not None}
        tree, own = self._ranks.agree(
            lambda: (
                trained.to_tree(),
                capture_training_state(scheduler, data, progress, generators),
            )
        )
        require_alike(trained, tree, self._ranks)
        self._rules.warn_of_shares(data, self._ranks.world_size)
        if not self._config.dist_checkpoint:
            whole = gathered(tree)
            tree = whole if self._ranks.rank == 0 else {}
        is_meant = bool(parts) or progress is not None or sessions is not None
        request = SetRequest(number, sessions, parts, None, self._policy, self._config.async_save)
        return self._sets.save(request, tree, own, is_meant=is_meant)

    def adopt(
        self,
        step: int,
        folder: str | os.PathLike[str],
        *,
        scheduler: object = None,
        data: object = None,
        progress: object = None,
        generators: Mapping[str, object] | None = None,
        sessions: Iterable[str] | None = None,
    ) -> SaveHandle:
        """Make a set of a folder that somebody else's save has finished; a collective.

        The files stay where they are; their hashes are compared before `restore_latest(...)` gives
        the folder back as `.adopted`. The rest as for `checkpoint`.
        """
        self._require_inside()
        number = require_step(step)
        self._sets.require_begun()
        adopted = self._ranks.ask(lambda: hash_folder(folder))
        own = self._ranks.agree(
            lambda: capture_training_state(scheduler, data, progress, generators)
        )
        request = SetRequest(
            number, sessions, frozenset(), adopted, self._policy, self._config.async_save
        )
        return self._sets.save(request, {}, own)

    def restore_latest(self, **into: Unpack[RestoreInto]) -> RestoredSet | None:
        """Bring the newest committed set back, or the one restored last; None where there is none.

        Takes what `checkpoint` takes, as objects to load into (an object left out is left alone),
        and `reseed` for another number of ranks. A collective. Weights, optimizer, scheduler and
        data come first, then the sessions, the random states last. Raises `CheckpointError` where
        the set is damaged or of another log, or a save is under way; `FencedError` where another
        trainer has claimed the training or one of its sessions meanwhile.
        """
        self._require_inside()
        # A save under way would be committed after this, and be what is gone on from next time.
        self._saver.refuse_overlap()
        ref = self._ranks.ask(self._finder.latest)
        return None if ref is None else self._restore(ref, into)

    def restore(self, set_id: str, **into: Unpack[RestoreInto]) -> RestoredSet:
        """Bring a set of this training back, also an older one. As `restore_latest`.

        `set_id` is its id; or `pin:<name>`, or `step:<number>`: of a step that was saved again the
        one that was saved last.
        """
        self._require_inside()
        self._saver.refuse_overlap()
        ref = self._ranks.ask(lambda: self._finder.find(set_id))
        return self._restore(ref, into)

    def branch_from(self, training: str, set_id: str, **into: Unpack[RestoreInto]) -> RestoredSet:
        """Go on from a set of another training, which goes on undisturbed; a collective.

        Every session of the set gets a branch where it stood: `.sessions` has them by the ids of
        the sessions they branch from. The set is pinned in its own training. With `reseed` the
        random states are new ones, with as many ranks too. The rest as for `restore_latest`.
        Raises `ConfigError` for a set of this training itself, which `restore` brings back.
        """
        self._require_inside()
        from snapshots.shards.set_restorer import SetRestorer

        if training == self._name:
            raise ConfigError(
                f"training {training!r} cannot branch from itself",
                hint="restore the set, or branch in a training of another name",
            )
        self._saver.refuse_overlap()
        other = CheckpointStore(self._place.folder, track_of_training(training))
        finder = SetFinder(self._log, other, training)
        ref = self._ranks.ask(lambda: finder.find(set_id))
        restorer = SetRestorer(self._log, other, training, self._ranks, self._rules)
        restored = restorer.branch(ref, self._name, self._recorder, into)
        return self._gone_on(restored)

    def _policy_keeper(self) -> KeptPolicies:
        self._require_inside()
        return self._policies

    def _claim(self, ends: ExitStack) -> int:
        self._recorder = self._place.claim()
        ends.push(self._recorder)
        give_up_open_sets(self._log, self._name)
        self._keeper.remember_claim(self._recorder.attempt)
        return self._recorder.attempt

    def _restore(self, ref: CheckpointRef, into: RestoreInto) -> RestoredSet:
        return self._gone_on(self._restorer.restore(ref, self._recorder, into))

    def _gone_on(self, restored: RestoredSet) -> RestoredSet:
        self._rules.go_on_from(restored.step, restored.parts)
        self._keeper.go_on_from(restored.set_id, restored.entry)
        self._policies.label_in_use()  # HEAD of the policy track follows the log, also after a kill
        self._policy = restored.policy
        return restored
