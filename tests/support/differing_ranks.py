"""Ranks that differ, or fail alone: `python -m tests.support.differing_ranks SCENARIO,... FOLDER`.

As tests/support/set_ranks.py, whose training and refusals these use.
"""

import json
import sys
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

from eventlog.errors import CheckpointError, ReshardError
from replay.workspace import open_workspace
from snapshots.sample_order import SampleOrder
from tests.support.set_ranks import SOON_S, TIMEOUT_S, refusal, training
from tests.support.torch_ranks import _model, run_world


def main() -> None:
    """Run the scenarios that the command line names, in turn."""
    warnings.simplefilter("ignore")
    for scenario in sys.argv[1].split(","):
        SCENARIOS[scenario](Path(sys.argv[2]) / scenario)
    print("done", flush=True)


class Hooked(torch.nn.Linear):
    """A model whose `state_dict` fails on rank 1."""

    def state_dict(self, *args: Any, **kwargs: Any) -> Any:
        if dist.get_rank() == 1:
            raise RuntimeError("a hook of the user's")
        return super().state_dict(*args, **kwargs)


def fails_alone(folder: Path) -> None:
    """What fails on one rank is told to all at once, and the next save of all is whole."""

    def failing(call: Callable[[], object]) -> None:
        begun = time.monotonic()
        try:
            call()
        except (CheckpointError, RuntimeError) as error:
            told = str(error)
        else:
            raise AssertionError("nothing was raised")
        assert time.monotonic() - begun < SOON_S, "a rank waited for another"
        assert dist.get_rank() != 0 or "rank 1" in told or "meta" in told, told

    def rank_of(rank: int) -> None:
        device = "meta" if rank == 1 else "cpu"
        for background in (False, True):
            settings = {"async_save": background}
            with open_workspace(folder / f"ws-{background}") as ws, training(ws, **settings) as run:
                model = torch.nn.Linear(2, 2)
                dist.broadcast(model.weight.data, 0)
                dist.broadcast(model.bias.data, 0)
                failing(lambda: run.publish_policy(1, Hooked(2, 2)))
                failing(lambda: run.publish_policy(1, torch.nn.Linear(2, 2, device=device)))
                failing(lambda: run.checkpoint(1, model=Hooked(2, 2)))
                failing(lambda: run.checkpoint(1, model=torch.nn.Linear(2, 2, device=device)))
                assert run.publish_policy(1, model) == "1"
                assert run.checkpoint(1, model=model).wait(TIMEOUT_S).training_step == 1

    run_world(2, folder, rank_of)


class Counted(torch.nn.Module):
    """Weights, and a buffer that each rank may have its own of."""

    def __init__(self, weight: float, mean: float) -> None:
        super().__init__()
        self.weight = torch.nn.Parameter(torch.full((100_000,), weight))
        self.register_buffer("mean", torch.tensor(mean))


def differ(folder: Path) -> None:
    """Two names of which the ranks have other values would come back as a mix of ranks."""

    def rank_of(rank: int) -> None:
        with open_workspace(folder / "ws") as ws, training(ws) as run:
            alike, torn = Counted(1.0, 2.0 + rank), Counted(1.0 + rank, 2.0)
            slow = torch.optim.SGD(alike.parameters(), lr=0.1 * (1 + rank))
            for name, given in (
                ("model.weight", {"model": torn}),
                ("extra.mine", {"model": alike, "extra": {"mine": torch.tensor([rank])}}),
                ("extra.mine", {"model": alike, "extra": {"mine": torch.ones(1 + rank)}}),
                ("extra.mine", {"model": alike, "extra": {"mine": rank}}),
                ("extra.mine", {"model": alike, "extra": {"mine": torch.ones(1) if rank else 1}}),
                ("extra.ema.weight", {"model": alike, "extra": {"ema": torn}}),
                ("optimizer.default.settings", {"model": alike, "optimizer": slow}),
            ):
                told = refusal(lambda given=given: run.checkpoint(1, **given))  # type: ignore[misc]
                assert isinstance(told, CheckpointError), told
                assert told.tensor == name, told
                assert "rank 1 has another" in told.message, told
                assert "progress=" in told.hint, told
            assert "model.weight" in str(refusal(lambda: run.publish_policy(1, torn)))
            own = {"ema": alike, f"of-rank-{rank}": torch.ones(1)}
            run.checkpoint(1, model=DistributedDataParallel(alike), extra=own).wait(TIMEOUT_S)
            assert run.publish_policy(1, alike) == "1"
            sharded, optimizer = _model(sharded=True)
            run.checkpoint(2, model=sharded, optimizer=optimizer).wait(TIMEOUT_S)

    run_world(2, folder, rank_of)


COUNT = 60


def mixed_data(folder: Path) -> None:
    """An order that is of all ranks, beside what is each rank's own."""

    def order(rank: int, world: int) -> SampleOrder:
        return SampleOrder(
            COUNT, batch_size=10, seed=1, rank=rank, world_size=world, out_of_order=True
        )

    def save_rank(rank: int) -> None:
        with open_workspace(folder / "ws") as ws, training(ws) as run:
            mine = order(rank, 2)
            ids = mine.next_batch()
            mine.consume(ids[:2])
            data = {"order": mine, "tokens": 5 + rank, "more": [mine, {"at": rank}]}
            run.checkpoint(1, data=data).wait(TIMEOUT_S)
            (folder / f"open-{rank}").write_text(json.dumps(ids[2:]))

    def left() -> list[int]:
        told = [(folder / f"open-{rank}").read_text() for rank in (0, 1)]
        return sorted(one for text in told for one in json.loads(text))

    def load_rank(rank: int) -> None:
        with open_workspace(folder / "ws") as ws, training(ws) as run:
            mine, again = order(rank, 2), order(rank, 2)
            data = {"order": mine, "tokens": 0, "more": [again, {"at": -1}]}
            run.restore_latest(data=data)
            assert data["tokens"] == 5 + rank
            assert data["more"] == [again, {"at": rank}]
            for one in (mine, again):
                assert one.consumed_ids(0) == data["order"].consumed_ids(0)
                assert len(one.consumed_ids(0)) == 4
                assert not set(one.consumed_ids(0)) & set(left())

    def load_alone(_rank: int) -> None:
        with open_workspace(folder / "ws") as ws, training(ws) as run:
            alone, again = order(0, 1), order(0, 1)
            data = {"order": alone, "tokens": 0, "more": [again, {"at": -1}]}
            told = refusal(lambda: run.restore_latest(data=data))
            assert isinstance(told, ReshardError), told
            assert not alone.consumed_ids(0)
            run.restore_latest(data=data, reseed=3)
            assert len(alone.consumed_ids(0)) == len(again.consumed_ids(0)) == 4
            assert data["tokens"] == 0, "what is one rank's own begins anew"
            assert data["more"] == [again, {"at": -1}]

    run_world(2, folder, save_rank)
    run_world(2, folder, load_rank)
    run_world(1, folder, load_alone)


SCENARIOS: dict[str, Callable[[Path], None]] = {
    "differ": differ,
    "fails_alone": fails_alone,
    "mixed_data": mixed_data,
}


if __name__ == "__main__":
    main()
