"""Saving and restoring under what torch makes new tensors by: a default device, inference mode."""

from collections.abc import Iterator
from pathlib import Path

import pytest

torch = pytest.importorskip("torch", reason="torch is not installed: torch checkpoints not shown")

from eventlog.errors import CheckpointError  # noqa: E402
from replay.workspace import open_workspace  # noqa: E402
from snapshots.checkpoint_config import CheckpointConfig  # noqa: E402
from snapshots.training_run import TrainingRun  # noqa: E402
from tests.support.set_toy import Toy, save_at, toy_at  # noqa: E402

pytestmark = pytest.mark.filterwarnings("ignore:torch.distributed is")

BACKGROUND = CheckpointConfig(async_save=True)


@pytest.fixture
def run(tmp_path: Path) -> Iterator[TrainingRun]:
    with open_workspace(tmp_path / "ws") as ws, ws.training("run", config=BACKGROUND) as entered:
        yield entered


def test_all_comes_back_where_new_tensors_have_another_device(run: TrainingRun) -> None:
    """What is read was put into new tensors of that device: nothing could be restored."""
    toy, generator = Toy(), torch.Generator().manual_seed(2)
    kept = {
        "extra": {"w": torch.ones(3, 2).t(), "none": torch.ones(0, 3)},
        "generators": {"g": generator},
    }
    progress = {"some": torch.ones(2), "none": torch.ones(0, 2)}
    toy.advance()
    into = Toy()
    with torch.device("meta"):
        save_at(run, toy, 1, progress=progress, **kept)
        found = run.restore_latest(**into.objects(), **kept)
        for version in (1, 2):
            run.publish_policy(version, toy.model)
        run.restore_policy(1, into.model)
    assert found is not None
    assert {name: one.device.type for name, one in found.progress.items()} == {
        "some": "cpu",
        "none": "cpu",
    }
    into.step = 1
    assert into.seen() == toy_at(1)


def test_a_save_in_inference_mode_leaves_nothing_to_the_next_one(run: TrainingRun) -> None:
    """Its copies were made in inference mode, and could be written over only there."""
    toy = Toy()
    toy.advance()
    with torch.inference_mode():
        save_at(run, toy, 1)
    save_at(run, toy, 2)
    into = Toy()
    assert run.restore_latest(**into.objects()) is not None
    assert into.seen() == toy_at(2)


@pytest.mark.parametrize("lr", [0.01, torch.tensor(0.01)])
def test_what_is_restored_in_inference_mode_can_be_trained_after_it(
    run: TrainingRun, lr: object
) -> None:
    """The moments were made in inference mode: the next step of the optimizer failed."""
    toy, into = Toy(), Toy()
    for one in (toy, into):
        one.optimizer = torch.optim.AdamW(one.model.parameters(), lr=lr)
        one.scheduler = torch.optim.lr_scheduler.ExponentialLR(one.optimizer, 0.99)
    with torch.inference_mode():
        save_at(run, toy, 0)
    toy.advance()
    run.checkpoint(1, **toy.objects(), progress=torch.ones(2)).wait()
    toy.advance()
    with torch.inference_mode():
        found = run.restore_latest(**into.objects())
    assert found is not None
    into.step = found.step
    found.progress.add_(1)
    into.advance()
    assert into.seen() == toy.seen()


def test_nothing_is_loaded_into_what_only_inference_mode_may_change(run: TrainingRun) -> None:
    """torch's own error came midway: some tensors were restored, and some were not."""
    with torch.inference_mode():
        head = torch.nn.Linear(2, 2)
    model = torch.nn.ModuleDict({"body": torch.nn.Linear(2, 2), "head": head})
    run.checkpoint(1, model=model).wait()
    kept = model["body"].weight.detach().clone()
    with torch.no_grad():
        model["body"].weight.add_(1)
    with pytest.raises(CheckpointError, match=r"into 'model\.head\.weight': it was made in infer"):
        run.restore_latest(model=model)
    assert torch.equal(model["body"].weight, kept + 1)
    with torch.inference_mode():
        assert run.restore_latest(model=model) is not None
    assert torch.equal(model["body"].weight, kept)
