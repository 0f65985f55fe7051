"""Checkpoint sets of several ranks: `python -m tests.support.set_ranks SCENARIO,... FOLDER`.

As tests/support/torch_ranks.py, whose worlds it forks: torch is loaded once.
"""

import logging
import os
import random
import sys
import threading
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from pprint import pformat
from typing import Any

import numpy
import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

from eventlog.errors import (
    CheckpointError,
    ConfigError,
    FencedError,
    ReshardError,
    SteplogError,
)
from eventlog.log import SessionFilter
from replay.workspace import Workspace, open_workspace
from snapshots import shard_saver
from snapshots.checkpoint_config import CheckpointConfig
from snapshots.checkpoints.manifest import CheckpointRef
from snapshots.checkpoints.object_folder import ObjectFolder
from snapshots.sample_order import SampleOrder
from snapshots.sets.journal import CHECKPOINT
from snapshots.sets.keeping import SetKeeper
from snapshots.shards import one_folder
from snapshots.training_run import TrainingRun
from tests.support.set_toy import Toy, toy_at
from tests.support.torch_ranks import (
    LOAD_WORLDS,
    SAVE_WORLD,
    _model,
    _state,
    _whole,
    learn,
    run_world,
)
from tests.support.torch_states import fingerprint

NAME = "run"
TIMEOUT_S = 120
SOON_S = 60
"""Half of what a rank that waits for another would take."""


def main() -> None:
    """Run the scenarios that the command line names, in turn."""
    warnings.simplefilter("ignore")
    Toy().advance()  # its optimizer loads what takes a second: once here, not once in each process
    for scenario in sys.argv[1].split(","):
        SCENARIOS[scenario](Path(sys.argv[2]) / scenario)
    print("done", flush=True)


def training(ws: Workspace, **settings: Any) -> TrainingRun:
    """The scenario's training; nobody waits long."""
    return ws.training(NAME, config=CheckpointConfig(timeout_s=TIMEOUT_S, **settings))


def refusal(call: Callable[[], object]) -> Exception:
    """What it raises, and soon."""
    begun = time.monotonic()
    try:
        call()
    except (SteplogError, ValueError) as error:
        assert time.monotonic() - begun < SOON_S, "a rank waited for another"
        return error
    raise AssertionError("nothing was raised")


class Bad:
    """A scheduler whose state nothing keeps."""

    def state_dict(self) -> object:
        return {"code": lambda: None}

    def load_state_dict(self, state: object) -> None:
        raise ValueError("it does not fit")


def one_rank_fails(folder: Path) -> None:
    """What one rank cannot save or load fails all ranks at once, and the next save is whole."""

    def rank_of(rank: int) -> None:
        toy = Toy()
        with open_workspace(folder / "ws") as ws, training(ws) as run:
            toy.advance()
            run.checkpoint(1, **toy.objects())
            bad = {**toy.objects(), "scheduler": Bad()} if rank == 1 else toy.objects()
            told = refusal(lambda: run.checkpoint(2, **bad))
            if rank == 0:
                assert "code" in str(told), told
            refusal(lambda: run.adopt(2, folder / "missing"))
            dist.barrier()
            (folder / "theirs").mkdir(exist_ok=True)
            dist.barrier()
            refusal(
                lambda: run.adopt(
                    2, folder / "theirs", scheduler=bad["scheduler"] if rank else None
                )
            )
            refusal(lambda: run.restore_latest(**bad))
            other = torch.nn.Linear(2, 2) if rank == 1 else toy.model
            refusal(lambda: run.restore_latest(model=other))
            wrong = {"gen": numpy.random.default_rng()} if rank == 1 else {}
            refusal(lambda: run.restore_latest(**toy.objects(), generators=wrong))
            refusal(lambda: run.checkpoint(3 + rank, **toy.objects()))
            toy.advance()
            assert run.checkpoint(2, **toy.objects()).wait(TIMEOUT_S).training_step == 2
            again = Toy()
            restored = run.restore_latest(**again.objects())
            assert restored is not None
            assert restored.step == 2
            assert again.seen() == toy_at(2)

    run_world(2, folder, rank_of)


def mixed(folder: Path) -> None:
    """One rank cannot put in what all have read: no rank saves or publishes until all can."""

    def rank_of(rank: int) -> None:
        toy = Toy()
        with open_workspace(folder / "ws") as ws, training(ws) as run:
            toy.advance()
            run.checkpoint(1, **toy.objects())
            again = Toy()
            hook: Any = None
            if rank == 1:
                hook = again.model.register_load_state_dict_pre_hook(_no_room)
            told = refusal(lambda: run.restore_latest(**again.objects()))
            assert "no room on this rank" in str(told), told
            assert isinstance(told, CheckpointError)
            for save in (
                lambda: run.checkpoint(2, **again.objects()),
                lambda: run.publish_policy(2, again.model),
            ):
                assert "may hold a mix" in str(refusal(save))
            if hook is not None:
                hook.remove()
            assert run.restore_latest(**again.objects()) is not None
            assert again.seen() == toy_at(1)
            run.publish_policy(2, again.model)
            run.checkpoint(2, **again.objects())

    run_world(2, folder, rank_of)


def _no_room(*_: object) -> None:
    raise MemoryError("no room on this rank")


def own_folders(folder: Path) -> None:
    """Each rank has a folder of its own: refused before the training is claimed."""

    def rank_of(rank: int) -> None:
        one_folder.SEEN_WITHIN_S = 0.3  # type: ignore[misc]
        own = [folder / f"of-{number}" for number in range(2)]
        config = CheckpointConfig(timeout_s=TIMEOUT_S)
        with open_workspace(folder / "ws") as ws:
            run = ws.training(NAME, config=config, checkpoints=own[rank])
            told = refusal(run.__enter__)
            assert isinstance(told, ConfigError), told
            assert "not seen by rank 1" in told.message
            assert all(str(one) in told.message for one in own)
            assert "checkpoints=FOLDER" in told.hint
            assert not ws.log.holds_session(NAME)
            with ws.training(NAME, config=config, checkpoints=own[0]) as run:
                run.checkpoint(1, **Toy().objects())
            dist.barrier()
            assert not list(folder.glob("of-*/.*.tmp")), "the file was left there"

    run_world(2, folder, rank_of)


def never_entered(folder: Path) -> None:
    """One rank dies before it enters: the other is told within `timeout_s` and a little."""

    def rank_of(rank: int) -> None:
        dist.barrier()
        if rank == 1:
            os._exit(0)
        with open_workspace(folder / "ws") as ws:
            run = ws.training(NAME, config=CheckpointConfig(timeout_s=5))
            told = refusal(run.__enter__)
            assert isinstance(told, CheckpointError), told
            assert "a rank is gone" in told.message
            assert not ws.log.holds_session(NAME)
        os._exit(0)  # the group is of no use any more, not for its own end either

    run_world(2, folder, rank_of)


def full_disk(folder: Path) -> None:
    """One rank cannot write: all are told on their handles, the next save is whole."""

    def rank_of(rank: int) -> None:
        toy = Toy()
        keep = ObjectFolder.keep_objects
        with open_workspace(folder / "ws") as ws, training(ws, async_save=True) as run:
            toy.advance()
            run.checkpoint(1, **toy.objects()).wait(TIMEOUT_S)
            if rank == 1:
                ObjectFolder.keep_objects = _full  # type: ignore[method-assign, assignment]
            toy.advance()
            handle = run.checkpoint(2, **toy.objects())
            assert "disk is full" in str(refusal(lambda: handle.wait(TIMEOUT_S)))
            ObjectFolder.keep_objects = keep  # type: ignore[method-assign]
            run.checkpoint(3, **toy.objects()).wait(TIMEOUT_S)
            restored = run.restore_latest(**toy.objects())
            assert restored is not None
            assert restored.step == 3
        with open_workspace(folder / "ws") as ws, training(ws) as run:
            if rank == 0:
                sets = ws.sessions(SessionFilter(environment=CHECKPOINT))
                assert {info.status for info in sets} == {"closed"}, "a set was left open"

    run_world(2, folder, rank_of)


def _full(*_: object) -> None:
    raise CheckpointError("the disk is full", hint="free some space")


def rank_dies(folder: Path) -> None:
    """A rank is killed in a save: the other is told, and the next trainers have the old set."""

    def save_rank(rank: int) -> None:
        toy = Toy()
        ws = open_workspace(folder / "ws")
        run = ws.training(NAME, config=CheckpointConfig(async_save=True, timeout_s=30)).__enter__()
        toy.advance()
        run.checkpoint(1, **toy.objects()).wait(TIMEOUT_S)
        dist.barrier()
        if rank == 1:
            ObjectFolder.keep_objects = _gone  # type: ignore[method-assign, assignment]
        toy.advance()
        handle = run.checkpoint(2, **toy.objects())
        assert isinstance(refusal(lambda: handle.wait(TIMEOUT_S)), CheckpointError)
        assert isinstance(refusal(lambda: run.checkpoint(3, **toy.objects())), CheckpointError)
        run.__exit__(None, None, None)
        ws.close()
        os._exit(0)  # the group is of no use any more, not for its own end either

    def go_on(rank: int) -> None:
        toy = Toy()
        with open_workspace(folder / "ws") as ws, training(ws) as run:
            restored = run.restore_latest(**toy.objects())
            assert restored is not None
            toy.step = restored.step
            assert toy.seen() == toy_at(1)
            toy.advance()
            run.checkpoint(2, **toy.objects())

    run_world(2, folder, save_rank)
    run_world(2, folder, go_on)


def _gone(*_: object) -> None:
    os._exit(0)


def fenced(folder: Path) -> None:
    """Another trainer claims the training: every rank of the first is told so, saving or not."""

    def rank_of(rank: int) -> None:
        toy = Toy()
        with open_workspace(folder / "ws") as ws, open_workspace(folder / "ws") as other:
            run = training(ws, async_save=True).__enter__()
            run.checkpoint(0, **toy.objects()).wait(TIMEOUT_S)
            with training(other) as newer:
                handle = run.checkpoint(1, **toy.objects())
                assert isinstance(refusal(lambda: handle.wait(TIMEOUT_S)), FencedError)
                told = refusal(lambda: run.restore_latest(**toy.objects()))
                assert isinstance(told, FencedError), told
                assert newer.restore_latest(**toy.objects()) is not None
                newer.checkpoint(1, **toy.objects())

    run_world(2, folder, rank_of)


def reshard(folder: Path) -> None:
    """FSDP2 and AdamW, of 4 ranks: the whole comes back to 1, 2, 3 and 8, random states do not."""
    expected = folder / "expected"

    def save_as_four(rank: int) -> None:
        model, optimizer = _model(sharded=True)
        with open_workspace(folder / "ws") as ws, training(ws) as run:
            for step in range(3):
                learn(model, torch.arange(8) + step)
                optimizer.step()
                optimizer.zero_grad()
            more = {"data": {"at": rank}, "progress": {"tokens": 7}}
            run.checkpoint(3, model=model, optimizer=optimizer, **more)
        whole = fingerprint(_whole(_state(model, optimizer)))
        if rank == 0:
            expected.write_text(pformat(whole))

    def load_as(world: int) -> Callable[[int], None]:
        def load_rank(rank: int) -> None:
            model, optimizer = _model(sharded=world > 1)
            with torch.no_grad():
                for one in model.parameters():
                    one.fill_(9)
            into = {"model": model, "optimizer": optimizer}
            with open_workspace(folder / "ws") as ws, training(ws) as run:
                told = refusal(lambda: run.restore_latest(**into))
                assert isinstance(told, ReshardError), told
                restored = run.restore_latest(**into, reseed=5)
                assert restored is not None
                assert restored.progress == {"tokens": 7}, "all ranks gave the same"
                found = fingerprint(_whole(_state(model, optimizer)))
                assert pformat(found) == expected.read_text(), f"world {world}"
                drawn = [None] * world
                dist.all_gather_object(drawn, torch.rand(1).item())
                assert len(set(drawn)) == world, "ranks drew alike"

        return load_rank

    run_world(SAVE_WORLD, folder, save_as_four)
    for world in LOAD_WORLDS:
        run_world(world, folder, load_as(world))


def gathered(folder: Path) -> None:
    """Without dist_checkpoint rank 0 writes the whole, and sharded ranks load it."""

    def rank_of(rank: int) -> None:
        model, optimizer = _model(sharded=True)
        into = {"model": model, "optimizer": optimizer}
        with open_workspace(folder / "ws") as ws, training(ws, dist_checkpoint=False) as run:
            learn(model, torch.arange(8))
            optimizer.step()
            ref = run.checkpoint(1, **into).wait(TIMEOUT_S)
            manifest = run.checkpoints.read_manifest(ref)
            assert all(len(one.chunks) == 1 for one in manifest.tensors.values())
            expected = fingerprint(_whole(_state(model, optimizer)))
            optimizer.step()
            run.restore_latest(**into)
            assert fingerprint(_whole(_state(model, optimizer))) == expected

    run_world(2, folder, rank_of)


def own_random(folder: Path) -> None:
    """Each of 4 ranks draws on as itself (Megatron-LM #6858, Automodel #3437, Bridge #5257)."""

    def draw() -> list[object]:
        return [random.random(), numpy.random.random(3).tolist(), torch.randn(100).tolist()]

    def save_rank(rank: int) -> None:
        model = torch.nn.Linear(2, 2)
        for one in model.parameters():  # alike on all ranks, as a model is
            torch.nn.init.ones_(one)
        torch.manual_seed(50 + rank)
        random.seed(60 + rank)
        numpy.random.seed(70 + rank)
        with open_workspace(folder / "ws") as ws, training(ws) as run:
            draw()
            run.checkpoint(1, model=model, progress=rank)
            (folder / f"draws-{rank}").write_text(repr(draw()))

    def load_rank(rank: int) -> None:
        with open_workspace(folder / "ws") as ws, training(ws) as run:
            restored = run.restore_latest(model=torch.nn.Linear(2, 2))
            assert restored is not None
            assert restored.progress == rank
            expected = (folder / f"draws-{rank}").read_text()
            assert repr(draw()) == expected
            # A loader that is iterated after the restore draws one number (Bridge #5257).
            torch.randint(1 << 60, (1,))
            restored.restore_random()
            assert repr(draw()) == expected

    run_world(4, folder, save_rank)
    assert len({(folder / f"draws-{rank}").read_text() for rank in range(4)}) == 4
    for _ in range(2):  # a second resume of the same set (torchtitan #647)
        run_world(4, folder, load_rank)

    def load_fewer(rank: int) -> None:
        """None of two ranks takes the progress of one of the four for its own."""
        told: list[str] = []
        heard = logging.Handler()
        heard.emit = lambda record: told.append(record.getMessage())  # type: ignore[method-assign]
        logging.getLogger("steplog.training").addHandler(heard)
        with open_workspace(folder / "ws") as ws, training(ws) as run:
            restored = run.restore_latest(model=torch.nn.Linear(2, 2), reseed=5)
            assert restored is not None
            assert restored.progress is None
            assert restored.progress_of_ranks == (0, 1, 2, 3)
        assert ["progress_of_ranks" in one for one in told] == [True] * (rank == 0)

    run_world(2, folder, load_fewer)


STEPS = 52
STOPS = (7, 24, 37)
SAMPLES = 60


def resumed(folder: Path) -> None:
    """Stopped 3 times, once at the end of an epoch: losses and weights as if it never had been."""

    def run_to(ws: Workspace, stop: int | None, out: Path, rank: int) -> None:
        torch.manual_seed(4)
        net = torch.nn.Sequential(
            torch.nn.Linear(6, 8), torch.nn.Dropout(0.25), torch.nn.Linear(8, 1)
        )
        model = DistributedDataParallel(net)
        optimizer = torch.optim.AdamW(model.parameters(), lr=0.02)
        scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, STEPS)
        order = SampleOrder(SAMPLES, batch_size=10, seed=7, rank=rank, world_size=2)
        torch.manual_seed(100 + rank)
        objects = {"model": model, "optimizer": optimizer, "scheduler": scheduler, "data": order}
        step = 0
        with training(ws, async_save=True, save_interval=3) as run, out.open("a") as lines:
            restored = run.restore_latest(**objects)
            step = 0 if restored is None else restored.step
            while step < STEPS:
                if step == stop:
                    run.checkpoint(step, **objects).wait(TIMEOUT_S)
                    return
                epoch, ids = order.epoch, order.next_batch()
                chance = torch.Generator().manual_seed(sum(ids))
                x = torch.randn(len(ids), 6, generator=chance) + torch.randn(1)
                loss = (model(x) - x.sum(1, keepdim=True)).square().mean()
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
                scheduler.step()
                step += 1
                lines.write(f"{step} {epoch} {sorted(ids)} {loss.item().hex()}\n")
            lines.write(repr(fingerprint(net.state_dict())))
            lines.write(repr(torch.get_rng_state().sum()))

    def never_stopped(rank: int) -> None:
        with open_workspace(folder / "whole") as ws:
            run_to(ws, None, folder / f"whole-{rank}", rank)

    def stopped_at(stop: int | None) -> Callable[[int], None]:
        def rank_of(rank: int) -> None:
            with open_workspace(folder / "ws") as ws:
                run_to(ws, stop, folder / f"parts-{rank}", rank)

        return rank_of

    run_world(2, folder, never_stopped)
    for stop in (*STOPS, None):
        run_world(2, folder, stopped_at(stop))
    seen: list[tuple[int, int]] = []
    for rank in range(2):
        whole = (folder / f"whole-{rank}").read_text()
        assert (folder / f"parts-{rank}").read_text() == whole
        for line in whole.splitlines()[:STEPS]:
            _, epoch, rest = line.split(" ", 2)
            ids = rest[1 : rest.index("]")].split(", ")
            seen += [(int(epoch), int(one)) for one in ids]
    assert len(seen) == len(set(seen)) == STEPS * 10, "a sample was skipped or seen twice"


def wrapped(folder: Path) -> None:
    """What DDP wraps is named as it is by itself; one rank goes on with it, bare."""

    def save_rank(rank: int) -> None:
        toy = Toy()
        with open_workspace(folder / "ws") as ws, training(ws) as run:
            toy.advance()
            objects = {**toy.objects(), "model": DistributedDataParallel(toy.model)}
            run.checkpoint(1, **objects)
            toy.advance()
            run.restore_latest(**objects)
            toy.step = 1
            assert toy.seen() == toy_at(1)

    def load_rank(rank: int) -> None:
        toy = Toy()
        with open_workspace(folder / "ws") as ws, training(ws) as run:
            run.restore_latest(**toy.objects(), reseed=1)
            assert toy.seen() == toy_at(1)

    run_world(2, folder, save_rank)
    run_world(1, folder, load_rank)


def beside(folder: Path) -> None:
    """A version is published while a set is saved in the background; two groups in all."""

    def rank_of(rank: int) -> None:
        gate, toy = threading.Event(), Toy()
        groups = counted(dist, "new_group")
        asked = counted(shard_saver.ShardSaver, "refuse_overlap")
        commit = SetKeeper.commit

        def wait(*given: Any) -> CheckpointRef:
            assert gate.wait(TIMEOUT_S)
            return commit(*given)

        with open_workspace(folder / "ws") as ws, training(ws, async_save=True) as run:
            assert len(groups) == 1
            toy.advance()
            run.checkpoint(1, **toy.objects()).wait(TIMEOUT_S)
            SetKeeper.commit = wait  # type: ignore[method-assign, assignment]
            toy.advance()
            handle = run.checkpoint(2, **toy.objects())
            assert len(asked) == 2, "the ranks were asked twice"
            assert run.publish_policy(2, toy.model) == "2"
            assert not handle.done
            dist.barrier()
            gate.set()
            assert handle.wait(TIMEOUT_S).training_step == 2
            run.checkpoint(3, **toy.objects()).wait(TIMEOUT_S)
            assert len(groups) == 2

    run_world(2, folder, rank_of)


def counted(owner: Any, name: str) -> list[str]:
    """One entry for each call of it from now on, in this process."""
    real = getattr(owner, name)
    calls: list[str] = []

    def call(*given: Any, **named: Any) -> Any:
        calls.append(name)
        return real(*given, **named)

    setattr(owner, name, call)
    return calls


SCENARIOS: dict[str, Callable[[Path], None]] = {
    "beside": beside,
    "fenced": fenced,
    "full_disk": full_disk,
    "gathered": gathered,
    "mixed": mixed,
    "own_folders": own_folders,
    "never_entered": never_entered,
    "one_rank_fails": one_rank_fails,
    "own_random": own_random,
    "rank_dies": rank_dies,
    "reshard": reshard,
    "resumed": resumed,
    "wrapped": wrapped,
}


if __name__ == "__main__":
    main()
