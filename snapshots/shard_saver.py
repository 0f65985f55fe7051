"""`ShardSaver`: checkpoints saved while training goes on, and the old ones taken away.

    saver = ShardSaver("ckpt/")
    handle = saver.save_async(state, step=7)      # the values as of this call are what is saved
    ...
    handle.wait()                                 # or let the next save_async raise what it met

One save at a time: one that would overlap is refused, in all ranks alike. Saves go through gloo
groups of steplog's own, so they never wait for, or take the place of, the training's collectives.
Imports torch, which steplog itself never needs.
"""

import os
from collections.abc import Callable
from concurrent.futures import Future
from functools import partial
from threading import Thread
from types import TracebackType
from typing import Any

import torch.distributed as dist
from torch.distributed.checkpoint.api import CheckpointException
from torch.distributed.checkpoint.state_dict_saver import save
from torch.distributed.checkpoint.stateful import Stateful

from eventlog.errors import CheckpointError, SteplogError
from snapshots.checkpoint_retention import Retention, apply_retention
from snapshots.checkpoint_store import CheckpointStore
from snapshots.checkpoints.after_commit import RetentionFaults
from snapshots.checkpoints.limits import COLLECTIVE_TIMEOUT_S, THREADS
from snapshots.checkpoints.manifest import CheckpointRef
from snapshots.checkpoints.workers import fulfil
from snapshots.save_handle import AS_ALONE, SaveEnds, SaveHandle
from snapshots.shard_writer import ShardWriter
from snapshots.shards.ranks import Group, Ranks, pass_interrupt_on
from snapshots.shards.staging import Staging, State, require_kept_tensors


class ShardSaver:
    """Saves checkpoints of one training, at once or in the background. Every rank makes one.

    `delta`, `threads` as for `ShardWriter`. With `retention`, rank 0 takes away what it does not
    keep, after each commit; where it cannot, it warns (logger `steplog.checkpoints`). A copy of the
    state's size is kept in memory from the first `save_async` on, so that later ones need not
    allocate it. Not thread-safe.
    """

    def __init__(
        self,
        folder: CheckpointStore | str | os.PathLike[str],
        *,
        delta: bool = False,
        threads: int = THREADS,
        retention: Retention | None = None,
        timeout_s: float = COLLECTIVE_TIMEOUT_S,
        ranks: Ranks | None = None,
    ) -> None:
        """In a process group this is a collective: all its ranks make their saver together.

        `ranks` are those of the training that this is a part of, with a timeout of their own; None
        makes new ones.
        """
        self._store = folder if isinstance(folder, CheckpointStore) else CheckpointStore(folder)
        self._delta = delta
        self._threads = threads
        self._retention = None if retention is None else retention.check()
        self._retention_faults = RetentionFaults()
        self._thread: Thread | None = None
        self._under_way: SaveHandle | None = None
        self._staging = Staging()
        self._ranks = Ranks(timeout_s) if ranks is None else ranks
        # What the caller's thread asks and saves comes in one order on all ranks: one group is
        # enough for all savers of a training. A save in the background talks meanwhile, on one rank
        # earlier than on another: it has a group of its own, or each would take the other's turn.
        self._background_group: Group = None

    def __enter__(self) -> "ShardSaver":
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Wait for the save under way, as `close`; with an error, log what it met."""
        if error is None:
            self.close()
            return
        self._await_thread()
        last, self._under_way = self._under_way, None
        if last is not None:
            last.log_untold_error()

    def save(
        self,
        state: State,
        *,
        step: int,
        checkpoint: str | None = None,
        ends: SaveEnds = AS_ALONE,
    ) -> CheckpointRef:
        """Save and return when it is committed. A collective. Raises `CheckpointError`.

        `checkpoint` as for `ShardWriter`; `ends` are rank 0's.
        """
        self.refuse_overlap(step)
        return self.save_in_turn(state, step, checkpoint, ends).wait()

    def save_async(
        self,
        state: State,
        *,
        step: int,
        checkpoint: str | None = None,
        ends: SaveEnds = AS_ALONE,
    ) -> SaveHandle:
        """Copy the values, and return; the rest is done in the background. A collective.

        What is saved is the state and `step` as of this call. Raises `CheckpointError` where the
        last save is still under way, and what that met where nobody asked its handle. `ends` run in
        the background too.
        """
        self.refuse_overlap(step)
        return self.save_in_turn(state, step, checkpoint, ends, in_background=True)

    def save_in_turn(
        self,
        state: State,
        step: int,
        checkpoint: str | None,
        ends: SaveEnds,
        *,
        in_background: bool = False,
    ) -> SaveHandle:
        """`save` or `save_async`, for who has called `refuse_overlap` itself; a collective."""
        writer = ShardWriter(
            self._store,
            step=step,
            delta=self._delta,
            threads=self._threads,
            checkpoint=checkpoint,
            commit=ends.commit,
        )
        ready = self._ready(state, step, ends, in_background=in_background)
        if not in_background:
            return SaveHandle.ended(self._save(ready, writer, ends, self._ranks.group))
        save = partial(self._save, ready, writer, ends, self._background_group)
        return self._begin(step, save, ends)

    def close(self) -> None:
        """Wait for the save under way. Raises what it met, where nobody asked its handle."""
        self._await_thread()
        last, self._under_way = self._under_way, None
        error = None if last is None else last.untold_error()
        if error is not None:
            raise error

    def refuse_overlap(self, step: int | None = None) -> None:
        """Raise, in all ranks alike, what `save_async` would raise before it begins. A collective.

        A rank that went on alone would wait for the others for ever. `step` None: for what is no
        save, and must not come while one is under way.
        """
        last = self._under_way
        busy = last is not None and not last.done
        try:
            found = self._ranks.gather((busy, step))
        except CheckpointError as error:
            if step is None:
                raise
            raise _silent_rank(step, error) from error
        if any(one for one, _step in found):
            under_way = "another" if last is None else last.step
            raise CheckpointError(
                f"the save of step {under_way} is still under way",
                hint="wait for its handle, or leave the block, which waits too; or save less often",
                step=step,
            )
        if any(one != step for _busy, one in found):
            raise CheckpointError(
                f"the ranks do not save the same step: {[one for _busy, one in found]}",
                hint="give every rank the same step",
            )
        untold = None if last is None else last.untold_error()
        self._under_way = None
        if untold is not None:
            raise untold

    def _begin(self, step: int, save: Callable[[], CheckpointRef], ends: SaveEnds) -> SaveHandle:
        """Begin the save in a thread of its own, which a program that ends waits for."""
        saving: Future[CheckpointRef] = Future()
        handle = SaveHandle(step, saving)
        self._thread = Thread(target=fulfil, args=(saving, save), name="steplog-save")
        try:
            # Known before it can begin: Ctrl-C may end this call at any moment, and a save that
            # nobody knew of would have its copies overwritten by the next one.
            self._under_way = handle
            self._thread.start()
        except BaseException:
            if saving.cancel():  # it has not begun, and does not any more
                self._under_way = None
                ends.give_up()
            raise
        return handle

    def _await_thread(self) -> None:
        # One whose start was broken off is not alive, and saves nothing.
        if self._thread is not None and self._thread.is_alive():
            self._thread.join()

    def _ready(self, state: State, step: int, ends: SaveEnds, *, in_background: bool) -> State:
        """What is to be saved, once every rank has it: none must wait for one that failed."""
        taken = self._staging.copy_state if in_background else require_kept_tensors
        try:
            ready = self._ranks.agree(lambda: taken(_plain_state(state)))
            if in_background and self._background_group is None:
                self._background_group = self._ranks.another_group()
            return ready
        except BaseException as error:
            ends.give_up()
            if isinstance(error, SteplogError):
                raise _failed_save(step, error) from error
            raise

    def _save(
        self, state: State, writer: ShardWriter, ends: SaveEnds, group: Group
    ) -> CheckpointRef:
        try:
            return self._saved(state, writer, group)
        except BaseException:
            writer.abandon()
            ends.give_up()
            raise

    def _saved(self, state: State, writer: ShardWriter, group: Group) -> CheckpointRef:
        try:
            save(dict(state), storage_writer=writer, process_group=group)
        except CheckpointException as error:
            writer.take_back()  # it has failed for all ranks: none of them names what is stored
            pass_interrupt_on(error, self._ranks.rank)
            raise _failed_save(writer.step, failure_of(error)) from error
        except RuntimeError as error:  # of the group itself: what a rank raises comes wrapped
            raise _silent_rank(writer.step, error) from error
        ref = _told(writer, group)
        if writer.committed is not None and self._retention is not None:
            with self._retention_faults.warned(ref):
                apply_retention(self._store, self._retention)
        return ref


def _told(writer: ShardWriter, group: Group) -> CheckpointRef:
    """What rank 0 committed, in every rank."""
    told = [writer.committed]
    if group is not None:
        try:
            dist.broadcast_object_list(told, src=0, group=group)
        except RuntimeError as error:
            raise _silent_rank(writer.step, error) from error
    assert told[0] is not None, "rank 0 has committed"
    return told[0]


def _silent_rank(step: int, error: Exception) -> CheckpointError:
    return CheckpointError(
        f"the save of step {step} was given up: a rank is gone, or did not answer: {error}",
        hint="start the ranks again, and with them their savers; if rank 0 is the one that is "
        "gone, it may have committed: `steplog checkpoint list` shows it",
        step=step,
    )


def failure_of(error: CheckpointException, hint: str = "see the cause") -> SteplogError:
    """steplog's own error for what torch wraps: that of the lowest rank which failed.

    `hint` is for what is no error of steplog's.
    """
    rank = min(error.failures)
    cause = error.failures[rank][0]
    if isinstance(cause, SteplogError):
        return cause
    return CheckpointError(
        f"rank {rank} failed: {type(cause).__name__}: {cause}",
        hint=hint,
    )


def _failed_save(step: int, error: SteplogError) -> SteplogError:
    """The error of a save that says which it was, and what that leaves."""
    if not isinstance(error, CheckpointError) or error.step is not None:
        return error  # of the log, or it says so itself
    return type(error)(
        f"the save of step {step} failed: {error.message}",
        hint=f"{error.hint}; what was committed before stands",
        tensor=error.tensor,
        object_digest=error.object_digest,
        session_id=error.session_id,
        step=step,
    )


def _plain_state(state: State) -> dict[str, Any]:
    return {
        name: value.state_dict() if isinstance(value, Stateful) else value
        for name, value in state.items()
    }
