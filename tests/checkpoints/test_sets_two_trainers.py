"""Two trainers of one training: whoever claimed it last goes on, the other finds out.

The older one is stopped at a point of its save or restore, in a thread, until the newer one has
claimed the training or restored it. Nothing here depends on who is faster.
"""

import threading
import time
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="torch is not installed: checkpoint sets not shown")

from eventlog.errors import CheckpointError, CheckpointIncompleteError, FencedError  # noqa: E402
from eventlog.event import SessionResumed  # noqa: E402
from eventlog.log import SessionFilter  # noqa: E402
from eventlog.recorder import SessionRecorder  # noqa: E402
from replay.workspace import Workspace  # noqa: E402
from snapshots import checkpoint_store  # noqa: E402
from snapshots.checkpoint_config import CheckpointConfig  # noqa: E402
from snapshots.checkpoint_store import CheckpointStore  # noqa: E402
from snapshots.checkpoints.object_folder import ObjectFolder  # noqa: E402
from snapshots.sets import keeping as set_keeping  # noqa: E402
from snapshots.sets.journal import CHECKPOINT, is_committed  # noqa: E402
from snapshots.shards import set_restorer as shard_restoring  # noqa: E402
from snapshots.training_run import TrainingRun  # noqa: E402
from tests.support.set_toy import Toy, toy_at  # noqa: E402

pytestmark = pytest.mark.filterwarnings("ignore:torch.distributed is")

NAME = "run"
BACKGROUND = CheckpointConfig(async_save=True)
WAIT_S = 30


class Gate:
    """A point that one trainer waits at, once: `reached`, until `open`."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, owner: Any, name: str) -> None:
        self.reached, self.open = threading.Event(), threading.Event()
        real = getattr(owner, name)

        def wait(*arguments: Any, **named: Any) -> Any:
            if not self.reached.is_set():
                self.reached.set()
                assert self.open.wait(WAIT_S)
            return real(*arguments, **named)

        monkeypatch.setattr(owner, name, wait)


POINTS: list[tuple[Any, str]] = [
    (ObjectFolder, "keep_objects"),
    (CheckpointStore, "keep_manifest"),
    (SessionRecorder, "annotate"),
    (set_keeping, "commit_set"),
]


def first_set(ws: Workspace) -> SessionRecorder:
    session = ws.record("env", environment="toy", state={"n": 0}, training=NAME)
    play(session)
    with ws.training(NAME) as run:
        toy = Toy()
        toy.advance()
        run.checkpoint(1, **toy.objects())
    return session


def play(session: SessionRecorder) -> None:
    call = session.record_tool_call("add", {})
    session.record_tool_return(call, call, state={"n": call})


def goes_on(ws: Workspace, run: TrainingRun, step: int) -> None:
    """The newer trainer restores this step and saves the next, and all is in order then."""
    toy = Toy()
    restored = run.restore_latest(**toy.objects())
    assert restored is not None
    assert restored.step == step
    toy.step = step
    assert toy.seen() == toy_at(step)
    toy.advance()
    ref = run.checkpoint(step + 1, **toy.objects()).wait(WAIT_S)
    assert run.checkpoints.head() == ref
    assert is_committed(ws.log, ref, NAME)


def in_order(ws: Workspace, committed: int) -> None:
    sets = list(ws.sessions(SessionFilter(environment=CHECKPOINT)))
    ended = [info for info in sets if info.status == "closed"]
    kinds = [[event.kind for event in ws.events(info.session_id)] for info in ended]
    assert sum("checkpoint_committed" in one for one in kinds) == committed
    assert all(report.verdict == "ok" for report in ws.check())


@pytest.mark.parametrize(("owner", "point"), POINTS, ids=[name for _, name in POINTS])
@pytest.mark.parametrize("background", [False, True], ids=["", "async"])
def test_claimed_while_the_other_saves(
    ws: Workspace,
    other: Workspace,
    monkeypatch: pytest.MonkeyPatch,
    owner: Any,
    point: str,
    background: bool,
) -> None:
    """Its set is never committed, and it is told; the files it left behind hurt nobody."""
    first_set(ws)
    gate: list[Gate] = []

    def older() -> None:
        config = CheckpointConfig(async_save=background)
        with ws.training(NAME, config=config) as run:
            toy = Toy()
            run.restore_latest(**toy.objects())
            toy.step = 1
            toy.advance()
            gate.append(Gate(monkeypatch, owner, point))
            started.set()
            run.checkpoint(2, **toy.objects()).wait(WAIT_S)

    started = threading.Event()
    with ThreadPoolExecutor(1) as pool:
        ended = pool.submit(older)
        assert started.wait(WAIT_S)
        assert gate[0].reached.wait(WAIT_S)
        with other.training(NAME) as run:
            gate[0].open.set()
            with pytest.raises(FencedError):
                ended.result(WAIT_S)
            goes_on(other, run, 1)
    in_order(other, committed=2)
    with other.training(NAME) as run:
        goes_on(other, run, 2)


def test_claimed_while_the_other_trains(ws: Workspace, other: Workspace) -> None:
    """It finds out by its next save, and its end does not end the training of the other."""
    first_set(ws)
    with pytest.raises(FencedError), ws.training(NAME) as older:  # noqa: PT012
        toy = Toy()
        older.restore_latest(**toy.objects())
        with other.training(NAME) as run:
            for _ in range(2):
                with pytest.raises(FencedError):
                    older.checkpoint(2, **toy.objects())
                with pytest.raises(FencedError):
                    older.restore_latest(**toy.objects())
            goes_on(other, run, 1)
            older.checkpoint(3, **toy.objects())
    in_order(other, committed=2)
    with other.training(NAME) as run:
        goes_on(other, run, 2)
    assert ws.session(NAME).status == "closed"


def test_committed_just_before_it_is_given_up(
    ws: Workspace, other: Workspace, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The newer trainer has seen the open set, and the older commits it before it is claimed."""
    first_set(ws)
    gate = Gate(monkeypatch, set_keeping, "commit_set")
    take_over = other.log.take_over

    def late(names: Any, **wish: Any) -> Any:
        if names[0].startswith("checkpoint/"):
            gate.open.set()
            assert ended.result(WAIT_S) is None
        return take_over(names, **wish)

    monkeypatch.setattr(other.log, "take_over", late)

    def older() -> None:
        run = ws.training(NAME)
        run.__enter__()
        toy = Toy()
        run.restore_latest(**toy.objects())
        toy.step = 1
        toy.advance()
        run.checkpoint(2, **toy.objects())

    with ThreadPoolExecutor(1) as pool:
        ended: Future[None] = pool.submit(older)
        assert gate.reached.wait(WAIT_S)
        with other.training(NAME) as run:
            assert ended.done()
            goes_on(other, run, 2)
    in_order(other, committed=3)


@pytest.mark.parametrize("point", ["note_value", "rewind_sessions", "members_beside"])
def test_claimed_while_the_other_restores(
    ws: Workspace, other: Workspace, monkeypatch: pytest.MonkeyPatch, point: str
) -> None:
    """The claims of a restore carry its attempt: the older changes no session any more."""
    session = first_set(ws)
    play(session)
    gate = Gate(monkeypatch, shard_restoring, point)

    def older() -> None:
        with ws.training(NAME) as run:
            toy = Toy()
            run.restore_latest(**toy.objects())
            toy.advance()
            run.checkpoint(9, **toy.objects())

    with ThreadPoolExecutor(1) as pool:
        ended = pool.submit(older)
        assert gate.reached.wait(WAIT_S)
        with other.training(NAME) as run:
            toy = Toy()
            restored = run.restore_latest(**toy.objects())
            assert restored is not None
            again = other.resume("env")
            play(again)
            gate.open.set()
            with pytest.raises(FencedError):
                ended.result(WAIT_S)
            play(again)  # not fenced
            ref = run.checkpoint(2, **toy.objects()).wait(WAIT_S)
            entry = run.checkpoints.read_manifest(ref).set
            assert entry is not None
            assert entry.sessions["env"].event_digest == again.event_digest
    in_order(other, committed=2)
    with other.training(NAME) as run:
        restored = run.restore_latest(**Toy().objects())
        assert restored is not None
        assert restored.set_id == ref.id


def saved(run: TrainingRun, *steps: int) -> list[str]:
    toy, ids = Toy(), []
    for step in steps:
        toy.step = step - 1
        toy.advance()
        ids.append(run.checkpoint(step, **toy.objects()).wait(WAIT_S).id)
    return ids


def restored_step(run: TrainingRun, set_id: str | None = None) -> int:
    into = Toy().objects()
    restored = run.restore_latest(**into) if set_id is None else run.restore(set_id, **into)
    assert restored is not None
    return restored.step


def head_of(run: TrainingRun) -> str:
    head = run.checkpoints.head()
    assert head is not None
    return head.id


KEEP_TWO = CheckpointConfig(keep_last_n=2)


@pytest.mark.parametrize("newer_saves", [False, True])
def test_stopped_between_the_log_and_head(
    ws: Workspace, other: Workspace, monkeypatch: pytest.MonkeyPatch, newer_saves: bool
) -> None:
    """Its set is committed, and it is told so; HEAD is left to the trainer that goes on.

    It moved HEAD to its own set; and where the newer one saved just then, that one was told that
    its set was not the head, though the log had it for committed.
    """
    older = ws.training(NAME)
    older.__enter__()
    ids = saved(older, 1, 2)
    gate = Gate(monkeypatch, CheckpointStore, "move_head")
    with ThreadPoolExecutor(1) as pool:
        ended = pool.submit(saved, older, 3)
        assert gate.reached.wait(WAIT_S)
        with other.training(NAME) as run:
            assert restored_step(run, ids[0]) == 1
            if newer_saves:
                last = Gate(monkeypatch, CheckpointStore, "move_head")
                newer = ThreadPoolExecutor(1)
                saving = newer.submit(saved, run, 33)
                assert last.reached.wait(WAIT_S)
                gate.open.set()
                ids += ended.result(WAIT_S)
                last.open.set()
                ids += saving.result(WAIT_S)
                newer.shutdown()
            else:
                gate.open.set()
                ids += ended.result(WAIT_S)
                assert head_of(run) == ids[0]
                ids += saved(run, 33)
            assert head_of(run) == ids[-1]
            with pytest.raises(FencedError):
                saved(older, 4)
            assert head_of(run) == ids[-1]
    in_order(other, committed=4)
    with other.training(NAME) as run:
        assert restored_step(run) == 33


def test_stopped_before_it_takes_old_sets_away(
    ws: Workspace, other: Workspace, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It took away the set that the newer trainer had just noted that it goes on from: no later
    trainer could restore the newest any more."""
    older = ws.training(NAME, config=KEEP_TWO)
    older.__enter__()
    first, _second = saved(older, 1, 2)
    gate = Gate(monkeypatch, set_keeping, "apply_retention")
    move_head = CheckpointStore.move_head
    with ThreadPoolExecutor(1) as pool:
        ended = pool.submit(saved, older, 3)
        assert gate.reached.wait(WAIT_S)

        def late(self: CheckpointStore, ref: Any, **asked: Any) -> bool:
            gate.open.set()
            ended.result(WAIT_S)
            return move_head(self, ref, **asked)

        with other.training(NAME, config=KEEP_TWO) as run:
            monkeypatch.setattr(CheckpointStore, "move_head", late)
            assert restored_step(run, first) == 1
            assert head_of(run) == first
    with other.training(NAME) as run:
        assert restored_step(run) == 1


@pytest.mark.parametrize("noted", [False, True])
def test_retention_and_a_restore_of_one_trainer_take_turns(
    ws: Workspace, monkeypatch: pytest.MonkeyPatch, noted: bool
) -> None:
    """A set that is gone when the restore comes to note it is never noted."""
    with ws.training(NAME) as run:
        first, last = saved(run, 1, 2)
        move_head = CheckpointStore.move_head

        def late(self: CheckpointStore, ref: Any, **asked: Any) -> bool:
            if not noted:
                (self.set_folder(ref) / "manifest.json").unlink()
            return move_head(self, ref, **asked)

        monkeypatch.setattr(CheckpointStore, "move_head", late)
        if noted:
            assert restored_step(run, first) == 1
        else:
            with pytest.raises(CheckpointIncompleteError):
                restored_step(run, first)
        monkeypatch.setattr(CheckpointStore, "move_head", move_head)
        assert restored_step(run) == (1 if noted else 2)
        assert head_of(run) == (first if noted else last)


def test_a_newest_set_that_is_gone_says_which_others_are_whole(ws: Workspace) -> None:
    """The error named the missing file, and no way on."""
    with ws.training(NAME) as run:
        first, second, third = saved(run, 1, 2, 3)
        refs = {ref.id: ref for ref in run.checkpoints.list_checkpoints()}
        for gone in (third, second):
            (run.checkpoints.set_folder(refs[gone]) / "manifest.json").unlink()
        with pytest.raises(CheckpointIncompleteError, match=f"go on from set {third}") as caught:
            restored_step(run)
        assert f"{first} (step 1)" in caught.value.hint
        assert second not in caught.value.hint
        assert restored_step(run, first) == 1
        assert restored_step(run) == 1
        (run.checkpoints.set_folder(refs[first]) / "manifest.json").unlink()
        with pytest.raises(CheckpointIncompleteError) as caught:
            restored_step(run)
        assert "no other set" in caught.value.hint


@pytest.mark.parametrize(
    ("error", "why"),
    [
        (CheckpointError("No space left on device", hint="free some space"), "No space left"),
        (ValueError("odd"), "ValueError: odd"),
    ],
)
def test_what_fails_after_a_set_is_committed_says_that_it_is(
    ws: Workspace, other: Workspace, monkeypatch: pytest.MonkeyPatch, error: Exception, why: str
) -> None:
    """The disk was full for HEAD: the error read as if the set had not been kept."""

    def full(*_: Any, **__: Any) -> None:
        raise error

    older = ws.training(NAME, config=KEEP_TWO)
    older.__enter__()
    saved(older, 1)
    with monkeypatch.context() as patch:
        patch.setattr(checkpoint_store, "write_pointer", full)
        with pytest.raises(CheckpointError, match=rf"is committed, but HEAD .*: {why}") as caught:
            saved(older, 2)
    assert getattr(error, "hint", "see the cause") in caught.value.hint
    assert "goes on from this set" in caught.value.hint
    assert older.checkpoints.find_checkpoint(step=2).id in caught.value.message
    third = saved(older, 3)[0]
    entry = older.checkpoints.read_manifest(older.checkpoints.find_checkpoint(step=3)).set
    assert entry is not None
    assert entry.previous == older.checkpoints.find_checkpoint(step=2).id
    with other.training(NAME) as run:
        assert restored_step(run) == 3
        assert head_of(run) == third


def test_the_clock_does_not_say_which_set_of_a_step_was_last(
    ws: Workspace, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The clock had gone back: of a step that was saved twice the older set was given."""
    with ws.training(NAME) as run:
        saved(run, 1, 5)
        with monkeypatch.context() as patch:
            now = time.time_ns
            patch.setattr(time, "time_ns", lambda: now() - 10**12)
            again = saved(run, 5, 6)[0]
        assert run.checkpoints.find_checkpoint(step=5).id == again


def test_a_session_taken_up_before_it_is_released(
    ws: Workspace, other: Workspace, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its own process was quicker: it stands where it was rewound to, and the restore goes on."""
    session = first_set(ws)
    stood = session.step
    play(session)
    release = ws.log.release
    taken: list[SessionRecorder] = []

    def late(name: str, *more: Any) -> Any:
        if name == "env":
            taken.append(other.resume(name))
        return release(name, *more)

    monkeypatch.setattr(ws.log, "release", late)
    with ws.training(NAME) as run:
        goes_on(ws, run, 1)
        play(taken[0])
        claims = [e.body for e in ws.events("env") if isinstance(e.body, SessionResumed)]
        assert claims[0].restore is not None
        assert claims[0].from_step == stood
    in_order(ws, committed=2)
