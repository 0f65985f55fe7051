"""A restore that fails while it puts values in leaves a mix: nothing is saved of it, or published.

The next set was the mix, committed without a word. Of two ranks: tests/support/set_ranks.py.
"""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="torch is not installed: checkpoint sets not shown")

from eventlog.errors import CheckpointError, StateError  # noqa: E402
from replay.workspace import Workspace  # noqa: E402
from snapshots.training_run import TrainingRun  # noqa: E402
from tests.support.scenarios import run_scenarios  # noqa: E402
from tests.support.set_toy import Toy, save_at, toy_at  # noqa: E402
from tests.support.torch_states import fingerprint  # noqa: E402

pytestmark = pytest.mark.filterwarnings("ignore:torch.distributed is")


class Picky:
    """A scheduler, or a data source, that takes no state."""

    def state_dict(self) -> dict[str, int]:
        return {"at": 3}

    def load_state_dict(self, state: object) -> None:
        raise OSError("the shard is open elsewhere")


class Shut(torch.nn.Linear):  # type: ignore[misc, name-defined, unused-ignore]
    """A layer that cannot be set; torch's `load_state_dict` notes it, and goes on with the next."""

    def _load_from_state_dict(self, *args: Any) -> None:
        args[-1].append("no room in this layer")


def layered() -> Any:
    """A model whose second layer cannot be set."""
    return torch.nn.Sequential(torch.nn.Linear(4, 4), Shut(4, 4), torch.nn.Linear(4, 4))


def everything_refused(run: TrainingRun, step: int, folder: Path, why: str) -> None:
    """Nothing of the weights is kept, whoever asks."""
    folder.mkdir()
    (folder / "weights").write_bytes(b"of another framework")
    model = torch.nn.Linear(4, 4)
    asked: list[Callable[[], object]] = [
        lambda: run.checkpoint(step, model=model),
        lambda: run.adopt(step, folder),
        lambda: run.publish_policy(step, model),
    ]
    for ask in asked:
        with pytest.raises(CheckpointError, match=why) as caught:
            ask()
        assert "may hold a mix" in caught.value.message
        assert "restore_latest" in caught.value.hint


def test_a_mix_is_not_saved_until_a_restore_has_ended_well(ws: Workspace, tmp_path: Path) -> None:
    model = layered()
    with ws.training("run") as run:
        run.checkpoint(1, model=model)
        with torch.no_grad():
            model[0].weight.add_(1)
        with pytest.raises(
            CheckpointError, match=r"(?s)the model refused .*no room in this layer"
        ) as caught:
            run.restore_latest(model=model)
        assert isinstance(caught.value.__cause__, RuntimeError)
        everything_refused(run, 2, tmp_path / "saved", r"set \S+ was not put in whole")
        whole = torch.nn.Sequential(*(torch.nn.Linear(4, 4) for _ in range(3)))
        assert run.restore_latest(model=whole) is not None
        run.publish_policy(2, whole)
        assert run.checkpoint(2, model=whole).wait().training_step == 2


@pytest.mark.parametrize("part", ["scheduler", "data"])
def test_a_state_refused_after_the_weights_came(ws: Workspace, tmp_path: Path, part: str) -> None:
    with ws.training("run") as run:
        toy = Toy()
        state = {"model": toy.model, "optimizer": toy.optimizer, part: Picky()}
        toy.advance()
        run.checkpoint(1, **state)
        toy.advance()
        with pytest.raises(CheckpointError, match=f"{part} refused .*open elsewhere"):
            run.restore_latest(**state)
        everything_refused(run, 2, tmp_path / "saved", "open elsewhere")
        del state[part]
        assert run.restore_latest(**state) is not None
        run.checkpoint(2, **state)


def test_what_a_set_has_not_is_told_before_anything_is_changed(ws: Workspace) -> None:
    """The weights were the set's already, and the scheduler's lack was told then."""
    with ws.training("run") as run:
        toy = Toy()
        toy.advance()
        run.checkpoint(1, model=toy.model, optimizer=toy.optimizer)
        toy.advance()
        for part, one in (("scheduler", toy.scheduler), ("data", Picky())):
            into = {"model": toy.model, "optimizer": toy.optimizer, part: one}
            with pytest.raises(StateError, match=f"no {part} was saved"):
                run.restore_latest(**into)
        assert toy.seen() == toy_at(2)
        save_at(run, toy, 2)


def test_another_kind_of_scheduler_changes_nothing(ws: Workspace) -> None:
    with ws.training("run") as run:
        toy = Toy()
        save_at(run, toy, 1)
        toy.advance()
        other = torch.optim.lr_scheduler.CosineAnnealingLR(Toy().optimizer, 9)
        with pytest.raises(StateError, match="'ExponentialLR' and is 'CosineAnnealingLR' here"):
            run.restore_latest(**{**toy.objects(), "scheduler": other})
        assert toy.seen() == toy_at(2)
        save_at(run, toy, 2)


def test_an_interrupted_restore_is_none(ws: Workspace, tmp_path: Path) -> None:
    class Interrupted(Picky):
        def load_state_dict(self, state: object) -> None:
            raise KeyboardInterrupt

    with ws.training("run") as run:
        toy = Toy()
        state = {"model": toy.model, "data": Interrupted()}
        run.checkpoint(1, **state)
        with pytest.raises(KeyboardInterrupt):
            run.restore_latest(**state)
        everything_refused(run, 2, tmp_path / "saved", "KeyboardInterrupt")


def test_a_policy_that_was_not_loaded_whole(ws: Workspace, tmp_path: Path) -> None:
    model = layered()
    with ws.training("run") as run:
        run.publish_policy(1, model)
        with pytest.raises(CheckpointError, match="the model refused"):
            run.restore_policy(1, model)  # an actor's, perhaps: the training goes on
        run.checkpoint(1, model=model)
        with pytest.raises(CheckpointError, match="the model refused"):
            run.roll_back_policy(1, reason="trial", model=model)
        everything_refused(run, 2, tmp_path / "saved", "policy version 1 was not put in whole")
        whole = torch.nn.Sequential(*(torch.nn.Linear(4, 4) for _ in range(3)))
        run.roll_back_policy(1, reason="trial", model=whole)
        run.checkpoint(2, model=whole)


def test_a_mix_of_one_rank_is_saved_by_none(tmp_path: Path) -> None:
    """The ranks held the shards of two trainings, and the next set was committed."""
    run_scenarios("set_ranks", "mixed", tmp_path)


def test_a_model_that_nothing_was_restored_into_is_not_published(ws: Workspace) -> None:
    """A restore was forgotten: `checkpoint` refused, and the untrained version was in use."""
    toy = Toy()
    with ws.training("run") as run:
        run.publish_policy(1, toy.model)
        save_at(run, toy, 1)
    before = fingerprint(toy.model.state_dict())
    with ws.training("run") as run:
        with pytest.raises(CheckpointError, match="goes on from none of them"):
            run.publish_policy(2, toy.model)
        assert run.policy_in_use() == "1"
        run.roll_back_policy(1, reason="trial", model=toy.model)
        run.restore_latest(model=toy.model)
        assert fingerprint(toy.model.state_dict()) == before
        assert run.publish_policy(2, toy.model) == "2"
    with ws.training("run", fresh=True) as run:
        assert run.publish_policy(3, toy.model) == "3"
