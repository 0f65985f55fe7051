"""`SetSaver`: one set of a training, from all ranks' values to the handle of its save.

What rank 0 tells the log stands in `sets.keeping`, what is refused in `sets.save_rules`; here is
what all ranks do together, and in which order. Imports torch, which steplog itself never needs.
"""

from functools import partial
from typing import Any

from eventlog.errors import CheckpointError
from eventlog.log import EventLog
from eventlog.recorder import SessionRecorder
from snapshots.checkpoints.saved_parts import RANK_STATES
from snapshots.checkpoints.set_entry import SetEntry
from snapshots.save_handle import SaveEnds, SaveHandle
from snapshots.sets.finding import SetFinder
from snapshots.sets.journal import BegunSet
from snapshots.sets.keeping import SetKeeper
from snapshots.sets.members import joined_sessions, named_sessions
from snapshots.sets.save_rules import SaveRules, SetRequest
from snapshots.shard_saver import ShardSaver
from snapshots.shards.ranks import Ranks


class SetSaver:
    """Saves the sets of one claim of a training. Every rank makes one. Not thread-safe."""

    def __init__(
        self,
        log: EventLog,
        ranks: Ranks,
        saver: ShardSaver,
        keeper: SetKeeper,
        finder: SetFinder,
        rules: SaveRules,
        recorder: SessionRecorder | None,
    ) -> None:
        """`recorder` is of the training session, on rank 0."""
        self._log = log
        self._ranks = ranks
        self._saver = saver
        self._keeper = keeper
        self._finder = finder
        self._rules = rules
        self._recorder = recorder

    def save(
        self, request: SetRequest, tree: dict[str, Any], own: bytes, *, is_meant: bool = True
    ) -> SaveHandle:
        """Save `tree`, and what this rank has of its own; a collective, after `require_begun`.

        See `TrainingRun`. `is_meant`: this rank gave something that makes it a set.
        """
        step = request.step
        self._saver.refuse_overlap(step)
        request = request._replace(sessions=self._asked_sessions(request, is_meant=is_meant))
        self._rules.check(step, request.parts)
        # A call is recorded before it is durable: what this process has submitted is to be below
        # the cut, as the random state after it is in the set.
        self._ranks.agree(self._log.settle)
        begun: list[tuple[SessionRecorder, BegunSet, SetEntry]] = []

        def begin() -> str:
            assert self._recorder is not None, "rank 0 has claimed the training"
            made, entry = self._keeper.begin(self._recorder, request)
            begun.append((self._recorder, made, entry))
            return made.set_id

        set_id = self._ranks.ask(begin)
        tree[RANK_STATES] = {f"rank-{self._ranks.rank}": own}
        self._rules.go_on_from(step, request.parts)
        ends = SaveEnds()
        for owner, made, entry in begun:
            commit = partial(self._keeper.commit, owner, made, entry)
            ends = SaveEnds(commit, partial(self._keeper.give_up, made))
        return self._saver.save_in_turn(
            tree, step, set_id, ends, in_background=request.in_background
        )

    def require_begun(self) -> None:
        """Raise `CheckpointError` where the weights are not this training's: none were restored,
        or not whole; a collective."""
        self._rules.require_whole()
        if not self._rules.is_begun:
            self._rules.begin(self._ranks.ask(self._newest))

    def _asked_sessions(self, request: SetRequest, *, is_meant: bool) -> list[str] | None:
        given = request.sessions
        named = self._ranks.agree(lambda: None if given is None else named_sessions(given))
        told = self._ranks.gather((named, is_meant))
        if not any(meant for _names, meant in told):
            raise CheckpointError(
                f"the set of step {request.step} would hold nothing: no model was given, nor "
                "anything else",
                hint="give model= and optimizer=; or sessions= or progress= for a set without",
                step=request.step,
            )
        return joined_sessions([names for names, _meant in told])

    def _newest(self) -> tuple[str, int] | None:
        ref = self._finder.latest()
        return None if ref is None else (ref.id, ref.training_step)
