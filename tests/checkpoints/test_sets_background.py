"""Sets that are saved in the background: what they hold is of the call, and no error is lost."""

import threading
from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="torch is not installed: checkpoint sets not shown")

from eventlog.errors import CheckpointError  # noqa: E402
from eventlog.log import SessionFilter  # noqa: E402
from replay.workspace import Workspace  # noqa: E402
from snapshots.checkpoint_config import CheckpointConfig  # noqa: E402
from snapshots.checkpoint_store import CheckpointStore  # noqa: E402
from snapshots.sets.journal import CHECKPOINT  # noqa: E402
from snapshots.training_run import TrainingRun  # noqa: E402
from tests.support.set_toy import Toy, play, save_at  # noqa: E402

pytestmark = pytest.mark.filterwarnings("ignore:torch.distributed is")

NAME = "run"
BACKGROUND = CheckpointConfig(async_save=True, timeout_s=20)


def test_everything_is_as_of_the_call(ws: Workspace) -> None:
    """Values, step, progress, data, sessions (pytorch #144657, Megatron-Bridge #3267; D5)."""
    session = ws.record("env", environment="toy", state={"n": 0}, training=NAME)
    weight = torch.ones(2000)
    model = torch.nn.Module()
    model.weight = torch.nn.Parameter(weight)
    progress = {"step": 0, "list": [0]}
    data = {"at": 0}
    with ws.training(NAME, config=BACKGROUND) as run:
        for step in range(50):
            stood = session.step
            random = torch.get_rng_state()
            handle = run.checkpoint(step, model=model, progress=progress, data=data)
            assert handle.staged
            model.weight.data.add_(41)
            progress["step"] += 1
            progress["list"].append(step)
            data["at"] += 3
            torch.rand(3)
            play(session)
            ref = handle.wait(30)
            assert ref.training_step == step
            entry = run.checkpoints.read_manifest(ref).set
            assert entry is not None
            assert entry.sessions["env"].step == stood
            if step % 10 == 9:
                again = torch.nn.Module()
                again.weight = torch.nn.Parameter(torch.zeros(2000))
                into = {"at": -1}
                now = torch.get_rng_state()
                restored = run.restore_latest(model=again, data=into)
                session = ws.resume("env")
                assert restored is not None
                assert torch.equal(again.weight.data, torch.full((2000,), 1.0 + 41 * step))
                assert into == {"at": 3 * step}
                assert restored.progress == {"step": step, "list": [0, *range(step)]}
                assert torch.equal(torch.get_rng_state(), random)
                torch.set_rng_state(now)


def test_an_error_in_the_background_is_never_lost(
    ws: Workspace, monkeypatch: pytest.MonkeyPatch
) -> None:
    """On the handle, else at the next call, else at the end of the block; HEAD stays (D6)."""
    toy = Toy()
    keep = CheckpointStore.keep_manifest
    with ws.training(NAME, config=BACKGROUND) as run:
        first = save_at(run, toy, 1)
        monkeypatch.setattr(CheckpointStore, "keep_manifest", _full)
        toy.advance()
        handle = run.checkpoint(2, **toy.objects())
        with pytest.raises(CheckpointError, match="disk is full"):
            handle.wait(30)
        handle = run.checkpoint(2, **toy.objects())
        done(handle)
        with pytest.raises(CheckpointError, match="disk is full"):
            run.checkpoint(3, **toy.objects())
        monkeypatch.setattr(CheckpointStore, "keep_manifest", keep)
        run.checkpoint(3, **toy.objects()).wait(30)
        assert restored_toy_step(run) == 3
        monkeypatch.setattr(CheckpointStore, "keep_manifest", _full)
    with (
        pytest.raises(CheckpointError, match="disk is full"),
        ws.training(NAME, config=BACKGROUND, fresh=True) as run,
    ):
        done(run.checkpoint(4, **toy.objects()))
    monkeypatch.setattr(CheckpointStore, "keep_manifest", keep)
    with ws.training(NAME) as run:
        assert restored_toy_step(run) == 3
        assert run.checkpoints.find_checkpoint(step=1).id == first
    for info in ws.sessions(SessionFilter(environment=CHECKPOINT)):
        assert info.status == "closed"


def _full(*_: object) -> Any:
    raise CheckpointError("the disk is full", hint="free some space")


def done(handle: Any) -> None:
    """Wait for the end without asking how it was."""
    ended = threading.Event()
    handle._future.add_done_callback(lambda _: ended.set())
    assert ended.wait(30)


def restored_toy_step(run: TrainingRun) -> int:
    restored = run.restore_latest(**Toy().objects())
    assert restored is not None
    return restored.step
