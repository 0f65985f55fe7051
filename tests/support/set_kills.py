"""Trainings killed between any two promises of a checkpoint set, over and over in one workspace.

`python -m tests.support.set_kills FOLDER WORLD ROUNDS POINTS [PLACE]`. In each round 3 processes
record 6 sessions, every one inside an open call, and never stop writing; a trainer goes on from the
newest set, and is killed while it saves the next; then another trainer takes over, and all that a
restore promises is compared with what the log and the manifest say. What else varies goes by the
round's number; POINT@NUMBER names another than its place. Only for tests with torch.
"""

import os
import select
import signal
import sys
import time
import warnings
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any
from urllib.parse import quote

import torch.distributed as dist

from eventlog.canonical import digest as digest_of_state
from eventlog.event import ToolCalled, ToolReturned
from eventlog.kafka_log import KafkaLog
from eventlog.log import SessionFilter
from eventlog.recorder import SessionRecorder
from eventlog.sqlite_log import SqliteLog
from replay.workspace import Workspace, open_workspace
from snapshots import checkpoint_retention, checkpoint_store, shard_saver  # noqa: F401  (once here too)
from snapshots.checkpoint_config import CheckpointConfig
from snapshots.checkpoint_store import CheckpointStore
from snapshots.checkpoints.object_folder import ObjectFolder
from snapshots.sets import journal as set_journal
from snapshots.sets import keeping as set_keeping
from snapshots.sets.journal import CHECKPOINT, KEPT, is_committed
from snapshots.sets.keeping import SetKeeper
from snapshots.sets.restored_set import RestoredSet
from snapshots.shards import policy_keeper, set_restorer  # noqa: F401  (once here too)
from snapshots.training_run import TrainingRun
from tests.support.set_toy import (
    DEADLINE_S,
    TRAINING,
    Recorders,
    Toy,
    ended_well,
    forked,
    kill,
    toy_at,
)
from tests.support.torch_ranks import start_world

KEEP = 2
PLACE = Callable[[str], str | Path]


def _die(*_: object, **__: object) -> None:
    os.kill(os.getpid(), signal.SIGKILL)
    time.sleep(60)


def _die_at_note(real: Callable[..., int]) -> Callable[..., int]:
    def annotate(recorder: SessionRecorder, name: str, value: object, **more: Any) -> int:
        if name == KEPT:
            _die()
        return real(recorder, name, value, **more)

    return annotate


def _die_in_purge(self: SetKeeper, _ref: object) -> None:
    """Between two removals: the first set that retention would take is taken."""
    real = checkpoint_retention._remove_set

    def remove(path: Path) -> None:
        real(path)
        _die()

    checkpoint_retention._remove_set = remove
    _LET_GO(self, _ref)  # type: ignore[arg-type]
    _die()  # there was nothing to take away yet


_LET_GO = SetKeeper._let_go


def arm(point: str) -> None:
    """Make this process kill itself when it comes to the point."""
    if point == "objects":
        ObjectFolder.keep_objects = _die  # type: ignore[method-assign, assignment]
    elif point == "manifest":  # all objects are there
        CheckpointStore.keep_manifest = _die  # type: ignore[method-assign, assignment]
    elif point == "in_manifest":
        CheckpointStore.verify_in_place = _die  # type: ignore[method-assign, assignment]
    elif point == "note":
        SessionRecorder.annotate = _die_at_note(SessionRecorder.annotate)  # type: ignore[method-assign]
    elif point == "committed":
        set_keeping.commit_set = _die
    elif point == "head":
        CheckpointStore.move_head = _die  # type: ignore[method-assign, assignment]
    elif point == "retention":
        SetKeeper._let_go = _die  # type: ignore[method-assign, assignment]
    elif point == "in_retention":
        SetKeeper._let_go = _die_in_purge  # type: ignore[method-assign]
    else:
        raise ValueError(point)


def arm_restore(point: str) -> None:
    """The same for a trainer that takes over."""
    if point == "giving_up":  # between the claim of a set that is open and its end
        set_journal.EventBatch.close = _die  # type: ignore[method-assign, assignment]
    elif point == "loaded":
        set_restorer.note_value = _die  # type: ignore[assignment]
    elif point == "noted":
        checkpoint_store.write_pointer = _die
    elif point == "head_moved":
        set_restorer.rewind_sessions = _die  # type: ignore[assignment]
    elif point == "rewound":
        for log in (SqliteLog, KafkaLog):
            log.release = _die  # type: ignore[method-assign, assignment]
    elif point == "released":
        set_restorer.members_beside = _die  # type: ignore[assignment]
    else:
        raise ValueError(point)


RESTORING = ("", "giving_up", "loaded", "noted", "head_moved", "rewound", "released")
COMMITTED = ("head", "retention", "in_retention")
"""Points after which the set is what training goes on from."""


def main() -> None:
    """The rounds that the command line asks for."""
    warnings.simplefilter("ignore")
    Toy().advance()  # its optimizer loads what takes a second: once here, not once in each process
    points, folder, world = sys.argv[1].split(","), Path(sys.argv[2]), int(sys.argv[3])
    folder.mkdir(parents=True, exist_ok=True)
    all_rounds = Rounds(folder, world, _places(folder, sys.argv[4] if len(sys.argv) > 4 else None))
    for place, told in enumerate(points):
        point, _, number = told.partition("@")
        all_rounds.run(int(number or place), point)
    print("done", flush=True)


def _places(folder: Path, kafka: str | None) -> PLACE:
    """The workspace as each process opens it: in Kafka, each has a folder of its own."""
    if kafka is None:
        return lambda _who: folder / "ws"
    return lambda who: f"{kafka}&folder={quote(str(folder / who))}"


class Rounds:
    """One training, killed round after round."""

    def __init__(self, folder: Path, world: int, place: PLACE) -> None:
        self.folder, self.world, self.place = folder, world, place
        self.expected = 0
        self.known: dict[int, str] = {}

    def run(self, number: int, point: str) -> None:
        """Record, train, kill, take over, compare."""
        background = number % 2 == 1
        ready, go = os.pipe(), os.pipe()
        train = partial(self._train, point, background, (ready[1], go[0]))
        ranks = start_world(self.world, self.folder, train)
        # The trainer's own restore takes the sessions; only then are they recorded.
        _await(ready[0])
        recorders = Recorders(lambda one: self.place(f"recorder{one}"), "env")
        os.write(go[1], b".")
        for pipe in (*ready, *go):
            os.close(pipe)
        try:
            self._after_kill(number, point, ranks, recorders)
        finally:
            recorders.kill()

    def _after_kill(self, number: int, point: str, ranks: list[int], recorders: Recorders) -> None:
        _, code = os.waitpid(ranks[0], 0)
        assert os.WIFSIGNALED(code), f"rank 0 was not killed at {point}: {code}"
        assert os.WTERMSIG(code) == signal.SIGKILL, f"rank 0 failed before {point}: {code}"
        for pid in ranks[1:]:
            kill(pid)
        if number % 3 == 2:  # else they write until the restore takes their sessions
            recorders.kill()
        after = self.expected + (point in COMMITTED)
        self._kill_a_restore(RESTORING[number % len(RESTORING)], after)
        check = partial(self._go_on, after, recorders.names, point)
        ended_well(*start_world(self.world, self.folder, check))
        if number % 3 != 2 and after > 0:
            recorders.fenced()
        recorders.kill()
        ended_well(forked(partial(self._compare, recorders.names)))
        self.expected = after + 1

    def _run_in(self, ws: Workspace, *, background: bool = False) -> TrainingRun:
        config = CheckpointConfig(async_save=background, keep_last_n=KEEP, timeout_s=30)
        return ws.training(TRAINING, config=config, checkpoints=self.folder / "checkpoints")

    def _train(self, point: str, background: bool, pipes: tuple[int, int], rank: int) -> None:
        toy = Toy()
        with (
            open_workspace(self.place("trainer")) as ws,
            self._run_in(ws, background=background) as run,
        ):
            restored = run.restore_latest(**toy.objects())
            toy.step = 0 if restored is None else restored.step
            assert toy.step == self.expected
            toy.advance()
            if rank == 0:
                os.write(pipes[0], b".")
                _await(pipes[1])
                arm(point)
            dist.barrier()
            run.checkpoint(toy.step, **toy.objects(), progress={"step": toy.step}).wait(60)
            dist.barrier()

    def _kill_a_restore(self, point: str, after: int) -> None:
        """The trainer that takes over is killed too; the next one is none the worse for it."""

        def die_there(rank: int) -> None:
            toy = Toy()
            if rank == 0:
                arm_restore(point)
            with open_workspace(self.place("next")) as ws, self._run_in(ws) as run:
                run.restore_latest(**toy.objects())
                dist.barrier()

        if not point:
            return
        ranks = start_world(self.world, self.folder, die_there)
        _, code = os.waitpid(ranks[0], 0)
        for pid in ranks[1:]:
            kill(pid)
        # Where there is nothing to give up or to restore, nothing kills it.
        expected = (signal.SIGKILL,) if after and point != "giving_up" else (0, signal.SIGKILL)
        assert code in expected, f"{code} at {point}"

    def _go_on(self, after: int, names: list[str], point: str, rank: int) -> None:
        toy = Toy()
        with open_workspace(self.place("next")) as ws, self._run_in(ws) as run:
            restored = run.restore_latest(**toy.objects())
            if after == 0:
                assert restored is None, "a set that was not committed was restored"
            else:
                assert restored is not None, f"nothing was restored after {point}"
                toy.step = restored.step
                assert restored.step == after, f"step {restored.step} after {point}, not {after}"
                assert toy.seen() == toy_at(after)
                if rank == 0:
                    self._compare_restored(ws, run, restored, names)
            dist.barrier()
            toy.advance()
            ref = run.checkpoint(toy.step, **toy.objects(), progress={"step": toy.step}).wait(60)
            dist.barrier()
            if rank == 0:
                self._compare_store(ws, run, ref.training_step)

    def _compare_restored(
        self, ws: Workspace, run: TrainingRun, restored: RestoredSet, names: list[str]
    ) -> None:
        head = run.checkpoints.head()
        assert head is not None, "HEAD is missing"
        assert head.id == restored.set_id, "HEAD is not healed"
        assert is_committed(ws.log, head, TRAINING)
        entry = run.checkpoints.read_manifest(head).set
        assert entry is not None
        assert restored.progress == {"step": restored.step}
        assert not set(entry.sessions) & set(restored.later_sessions)
        for name, stood in entry.sessions.items():
            line = list(ws.log.read_session(name))
            assert line[stood.step].digest == stood.event_digest, f"{name} was not rewound"
            rest = [one.prefix.kind for one in line[stood.step + 1 :]]
            assert rest == ["session_resumed", "session_released"], rest
            assert stood.state_digest == digest_of_state(ws.replay(name).state)

    def _compare_store(self, ws: Workspace, run: TrainingRun, newest: int) -> None:
        head = run.checkpoints.head()
        assert head is not None
        assert head.training_step == newest, "the next save did not become the head"
        kept = run.checkpoints.list_checkpoints()
        committed = [one for one in kept if is_committed(ws.log, one, TRAINING)]
        steps = sorted({one.training_step for one in committed})
        assert steps == list(range(max(1, newest - KEEP + 1), newest + 1)), steps
        for one in committed:
            run.checkpoints.verify_in_place(run.checkpoints.read_manifest(one))
        for info in ws.sessions(SessionFilter(environment=CHECKPOINT)):
            assert info.status == "closed", f"{info.session_id} was never ended"

    def _compare(self, names: list[str]) -> None:
        """By another process: every session is sound, and goes on where it stood."""
        with open_workspace(self.place("next")) as ws:
            reports = list(ws.check())
            bad = [one for one in reports if one.verdict != "ok" or one.conflicts]
            assert not bad, bad
            open_calls = 0
            for name in names:
                expected = _open_calls_in(ws, name)
                session = ws.resume(name)
                assert [one.step for one in session.open_calls] == expected
                open_calls += bool(expected)
            assert open_calls >= 5, open_calls


def _open_calls_in(ws: Workspace, name: str) -> list[int]:
    calls: dict[int, None] = {}
    for event in ws.events(name):
        if isinstance(event.body, ToolCalled):
            calls[event.step] = None
        elif isinstance(event.body, ToolReturned):
            calls.pop(event.body.called_step, None)
    return list(calls)


def _await(reading: int) -> None:
    assert select.select([reading], [], [], DEADLINE_S)[0], "waited too long"
    assert os.read(reading, 1) == b"."


if __name__ == "__main__":
    main()
