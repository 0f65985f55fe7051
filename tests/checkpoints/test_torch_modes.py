"""Saving and restoring under what torch makes new tensors by: a default device, inference mode."""

from collections.abc import Iterator
from pathlib import Path

import pytest

torch = pytest.importorskip("torch", reason="torch is not installed: torch checkpoints not shown")

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
