"""Ranks as real processes: `python -m tests.support.torch_ranks SCENARIO FOLDER`.

torch takes seconds to import, so it is imported once here, and each world is forked from there.
A scenario is a function of this module; what it finds wrong ends the process with its traceback.
"""

import multiprocessing
import os
import random
import select
import signal
import sys
import threading
import time
import traceback
import warnings
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
from torch.distributed.checkpoint.api import CheckpointException
from torch.distributed.checkpoint.state_dict import get_state_dict, set_state_dict
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import FSDPModule, fully_shard
from torch.distributed.tensor import DTensor, Shard, distribute_tensor

from eventlog.errors import CheckpointError
from snapshots.checkpoint_retention import Retention, apply_retention
from snapshots.checkpoint_store import CheckpointStore
from snapshots.checkpoints.object_folder import ObjectFolder
from snapshots.shard_reader import ShardReader
from snapshots.shard_saver import ShardSaver
from snapshots.shard_writer import ShardWriter
from tests.support.torch_states import bytes_of, emptied, fingerprint, first_error

Rank = Callable[[int], None]

LOOPBACK = "lo0" if sys.platform == "darwin" else "lo"
SAVE_WORLD = 4
LOAD_WORLDS = (1, 2, 3, 8)

FSDP_ON_CPU = hasattr(torch.cpu.Stream, "record_event")
"""Whether FSDP2 can run a model on CPUs: that of torch 2.6 cannot (pytorch #145935)."""


def main() -> None:
    """Run the scenarios that the command line names, as `disagree,two_writers`, in turn."""
    warnings.simplefilter("ignore")
    for scenario in sys.argv[1].split(","):
        SCENARIOS[scenario](Path(sys.argv[2]) / scenario, *map(int, sys.argv[3:]))
    print("done", flush=True)


def run_world(size: int, folder: Path, rank_of: Rank) -> None:
    """Run `rank_of(rank)` in `size` processes with a gloo group; all must end well."""
    end_world(start_world(size, folder, rank_of))


def end_world(children: list[int]) -> None:
    """Wait for the processes; all must end well."""
    failed = [pid for pid in children if os.waitpid(pid, 0)[1] != 0]
    if failed:
        sys.exit(f"{len(failed)} of {len(children)} ranks failed")


def start_world(size: int, folder: Path, rank_of: Rank) -> list[int]:
    """Begin them; returns their process ids."""
    # Gloo would take the address that the machine's name has: none, or one that is slow to find.
    os.environ.setdefault("GLOO_SOCKET_IFNAME", LOOPBACK)
    meeting = folder / f".meeting-{time.monotonic_ns()}"
    folder.mkdir(parents=True, exist_ok=True)
    return [_fork_rank(rank, size, meeting, rank_of) for rank in range(size)]


def _fork_rank(rank: int, size: int, meeting: Path, rank_of: Rank) -> int:
    pid = os.fork()
    if pid:
        return pid
    try:
        torch.set_num_threads(1)
        dist.init_process_group("gloo", init_method=f"file://{meeting}", rank=rank, world_size=size)
        rank_of(rank)
        dist.destroy_process_group()
    except BaseException:  # noqa: BLE001  (a forked rank ends here, whatever it met)
        traceback.print_exc()
        os._exit(1)
    os._exit(0)


class Model(torch.nn.Module):
    """Sharded layers of odd sizes, a frozen one, tied weights, buffers of whole numbers."""

    def __init__(self) -> None:
        super().__init__()
        self.embedding = torch.nn.Embedding(37, 16)
        self.first = torch.nn.Linear(16, 29)
        self.frozen = torch.nn.Linear(29, 16).requires_grad_(False)
        self.low = torch.nn.Linear(16, 3, bias=False)
        self.head = torch.nn.Linear(16, 37, bias=False)
        self.head.weight = self.embedding.weight
        self.register_buffer("count", torch.arange(11))
        self.register_buffer("scale", torch.tensor(0.1))

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        """Two numbers a token."""
        hidden = self.frozen(torch.relu(self.first(self.embedding(tokens))))
        return self.head(hidden).sum() + self.low(hidden).sum()


def _model(*, sharded: bool) -> tuple[Model, torch.optim.Optimizer]:
    torch.manual_seed(11)
    model = Model()
    if sharded:
        mesh = init_device_mesh("cpu", (dist.get_world_size(),))
        for layer in (model.first, model.frozen, model.low):
            fully_shard(layer, mesh=mesh)
        fully_shard(model, mesh=mesh)
    trained = [one for one in model.parameters() if one.requires_grad]
    return model, torch.optim.AdamW(trained, lr=0.01)


def learn(model: torch.nn.Module, inputs: torch.Tensor) -> None:
    """Gradients for the model: of what it answers, or else its weights times the inputs' mean."""
    if FSDP_ON_CPU or not isinstance(model, FSDPModule):
        model(inputs).square().mean().backward()
        return
    scale = inputs.double().mean().item()
    for one in model.parameters():
        one.grad = one.detach() * scale if one.requires_grad else None


def _whole(value: Any) -> Any:
    """DTensors as the whole they are parts of."""
    if isinstance(value, DTensor):
        return value.full_tensor()
    if isinstance(value, dict):
        return {key: _whole(one) for key, one in value.items()}
    return value


def _spread(world: int) -> dict[str, Any]:
    """DTensors over all ranks in each way of lying in memory, and what all ranks hold alike."""
    mesh = init_device_mesh("cpu", (world,))
    chance = torch.Generator().manual_seed(3)
    bits = torch.randint(0, 256, (24, 10), generator=chance, dtype=torch.uint8)
    spread = {
        "rows": distribute_tensor(torch.randn(24, 5, generator=chance), mesh, [Shard(0)]),
        "columns": distribute_tensor(torch.randn(7, 13, generator=chance), mesh, [Shard(1)]),
        "few": distribute_tensor(torch.randn(2, 3, generator=chance), mesh, [Shard(0)]),
        "bf16": distribute_tensor(torch.randn(50, generator=chance).bfloat16(), mesh, [Shard(0)]),
        "bytes": distribute_tensor(bits, mesh, [Shard(0)]),
        "long": distribute_tensor(torch.arange(100), mesh, [Shard(0)]),
    }
    alike = {"scalar": torch.tensor(2.5), "empty": torch.empty(0, 3), "flags": bits[0] > 9}
    own = {f"rank{rank}": bits[rank].clone() for rank in range(SAVE_WORLD)}
    return {"spread": spread, "alike": alike, "own": own, "values": {"lr": 0.1, "n": [1, 2]}}


def _state(model: Model, optimizer: torch.optim.Optimizer) -> dict[str, Any]:
    model_state, optimizer_state = get_state_dict(model, optimizer)
    return {"model": model_state, "optimizer": optimizer_state}


def reshard(folder: Path) -> None:
    """Saved by 4 ranks twice, the second time as differences; loaded by 1, 2, 3 and 8."""
    import torch._dynamo  # FSDP loads it; once here, not once in each rank

    expected = folder / "expected"

    def save_as_four(rank: int) -> None:
        model, optimizer = _model(sharded=True)
        for step in range(3):
            learn(model, torch.arange(8) + step)
            optimizer.step()
            optimizer.zero_grad()
            state = _state(model, optimizer) | _spread(SAVE_WORLD)
            writer = ShardWriter(folder / "ckpt", step=step, delta=step == 2)
            dcp.save(state, storage_writer=writer)
        whole = fingerprint(_whole(state))
        if rank == 0:
            assert writer.committed is not None
            expected.write_text(repr(whole))

    def load_as(world: int) -> Rank:
        def load_rank(rank: int) -> None:
            model, optimizer = _model(sharded=world > 1)
            with torch.no_grad():
                for one in model.parameters():
                    one.fill_(9)
            state = _state(model, optimizer)
            rest = _spread(world)
            for one in rest["spread"].values():
                bytes_of(one.to_local()).fill_(1)
            for name in ("alike", "own", "values"):
                rest[name] = emptied(rest[name])
            state |= rest
            dcp.load(state, storage_reader=ShardReader(folder / "ckpt"))
            set_state_dict(
                model,
                optimizer,
                model_state_dict=state["model"],
                optim_state_dict=state["optimizer"],
            )
            found = _state(model, optimizer) | {name: state[name] for name in rest}
            assert repr(fingerprint(_whole(found))) == expected.read_text(), f"world {world}"

        return load_rank

    run_world(SAVE_WORLD, folder, save_as_four)
    manifest = ShardReader(folder / "ckpt").manifest
    assert manifest.world_size == SAVE_WORLD
    assert manifest.ancestor is not None, "nothing was stored as a difference"
    for world in LOAD_WORLDS:
        run_world(world, folder, load_as(world))


def _save(state: dict[str, Any], folder: Path, step: int) -> None:
    dcp.save(state, storage_writer=ShardWriter(folder / "ckpt", step=step))


def _failure_of(call: Callable[[], object]) -> BaseException | None:
    """The error of the lowest rank that failed, None where none did."""
    try:
        call()
    except CheckpointException as error:
        return first_error(error)
    return None


def disagree(folder: Path) -> None:
    """Two ranks that save different steps, or read different checkpoints, are told so."""

    def rank_of(rank: int) -> None:
        state = {"t": torch.full((4,), float(rank))}
        failure = _failure_of(lambda: _save(state, folder, rank))
        assert "the ranks do not save the same" in str(failure)
        for step in range(2):
            _save(state, folder, step)
        reader = ShardReader(folder / "ckpt", step=rank)
        failure = _failure_of(lambda: dcp.load(state, storage_reader=reader))
        assert "would read different checkpoints" in str(failure)

    run_world(2, folder, rank_of)


def one_rank_fails(folder: Path) -> None:
    """An error in one rank is raised in all, and nothing is committed."""

    def rank_of(rank: int) -> None:
        mesh = init_device_mesh("cpu", (2,))
        state = {"t": distribute_tensor(torch.randn(100_000), mesh, [Shard(0)])}
        dcp.save(state, storage_writer=ShardWriter(folder / "ckpt", step=1))
        dist.barrier()
        before = CheckpointStore(folder / "ckpt").head()
        writer = ShardWriter(folder / "ckpt", step=2)
        if rank == 1:
            writer._store.objects.write_object = _full  # type: ignore[method-assign]
        state["t"].to_local().add_(1)
        failure = _failure_of(lambda: dcp.save(state, storage_writer=writer))
        assert isinstance(failure, CheckpointError)
        assert CheckpointStore(folder / "ckpt").head() == before

    run_world(2, folder, rank_of)


def _full(_pieces: object) -> Any:
    raise CheckpointError("the disk is full", hint="free some space")


def two_writers(folder: Path) -> None:
    """Two trainers save one step at once: two checkpoints, each of one trainer, one head."""

    both = multiprocessing.get_context("fork").Barrier(2, timeout=300)

    def train(number: int, _rank: int) -> None:
        for step in range(3):
            state = {f"t{n}": torch.full((20_000,), 10.0 * step + number) for n in range(4)}
            writer = ShardWriter(folder / "ckpt", step=step)
            both.wait()
            failure = _failure_of(partial(dcp.save, state, storage_writer=writer))
            assert failure is None or "another writer committed" in str(failure)
            both.wait()

    # Each in a world of its own: torch 2.6 cannot save by a group that rank 0 is not of.
    end_world([pid for n in range(2) for pid in start_world(1, folder, partial(train, n))])
    store = CheckpointStore(folder / "ckpt")
    found = store.list_checkpoints()
    assert len(found) == 6
    for ref in found:
        state = {f"t{n}": torch.zeros(20_000) for n in range(4)}
        dcp.load(state, storage_reader=ShardReader(store, checkpoint=ref.id))
        held = {float(value) for one in state.values() for value in one.unique()}
        assert held in ({10.0 * ref.training_step}, {10.0 * ref.training_step + 1}), held
    assert store.head() in found


def background(folder: Path) -> None:
    """Saves behind a training that talks on the default group; a slow rank holds up no other."""

    def rank_of(rank: int) -> None:
        mesh = init_device_mesh("cpu", (2,))
        weights = distribute_tensor(torch.zeros(50_000), mesh, [Shard(0)])
        store = CheckpointStore(folder / "ckpt")
        with ShardSaver(store, retention=Retention(2)) as saver:
            for step in range(5):
                handle = saver.save_async({"w": weights}, step=step)
                handle.guard()
                for _ in range(20):
                    weights.to_local().add_(1 / 20)
                    dist.all_reduce(torch.ones(10))
                assert handle.wait(60) == store.head()
                dist.barrier()
            _overlap(rank, saver, {"w": weights})

    run_world(2, folder, rank_of)
    # Rank 0 alone takes away what is old, after the others may have gone on.
    found = CheckpointStore(folder / "ckpt").list_checkpoints()
    assert [ref.training_step for ref in found] == [8, 9]


def absent(folder: Path) -> None:
    """A rank that never comes, or that dies: the others give up and say so (pytorch #157781)."""

    reading, writing = os.pipe()

    def rank_of(rank: int) -> None:
        state = {"w": torch.ones(1000)}
        dist.barrier()  # Both are here: the saver's short time is not for their start.
        saver = ShardSaver(folder / "ckpt", timeout_s=8)
        saver.save(state, step=1)
        if rank == 1:
            assert select.select([reading], [], [], 300)[0], "the other waits for ever"
            os._exit(0)
        begun = time.monotonic()
        refused = None
        try:
            saver.save_async(state, step=2).wait(60)
        except CheckpointError as error:
            refused = error
        assert "a rank is gone, or did not answer" in str(refused)
        os.write(writing, b".")
        assert time.monotonic() - begun < 60
        assert CheckpointStore(folder / "ckpt").find_checkpoint().training_step == 1
        os._exit(0)  # the group is of no use any more, not for its own end either

    run_world(2, folder, rank_of)


def own_states(folder: Path) -> None:
    """What each rank alone has comes back to that rank, at another count of ranks too.

    Random states of all ranks were one rank's after a resume (Megatron-LM #6858, Automodel #3437).
    """

    def save_rank(rank: int) -> None:
        torch.manual_seed(100 + rank)
        state = {"rng": {f"rank{rank}": torch.get_rng_state()}, "note": {f"rank{rank}": [rank]}}
        _save(state, folder, 1)

    def load_rank(rank: int) -> None:
        torch.manual_seed(100 + rank)
        expected = torch.get_rng_state()
        state = {
            "rng": {f"rank{rank}": torch.zeros_like(expected)},
            "note": {f"rank{rank}": None},
        }
        dcp.load(state, storage_reader=ShardReader(folder / "ckpt"))
        assert torch.equal(state["rng"][f"rank{rank}"], expected)
        assert state["note"] == {f"rank{rank}": [rank]}

    run_world(3, folder, save_rank)
    for world in (3, 2, 1):
        run_world(world, folder, load_rank)


def _overlap(rank: int, saver: ShardSaver, state: dict[str, Any]) -> None:
    """One rank's disk is slow: the next save is refused in both, and neither waits for ever."""
    put, runs = ObjectFolder.write_object, threading.Event()

    def slow(objects: ObjectFolder, pieces: Any) -> Any:
        assert runs.wait(60)
        return put(objects, pieces)

    if rank == 1:
        ObjectFolder.write_object = slow  # type: ignore[method-assign]
    handle = saver.save_async(state, step=8)
    refused = None
    try:
        saver.save_async(state, step=9)
    except CheckpointError as error:
        refused = error
    assert "still under way" in str(refused)
    runs.set()
    handle.wait(60)
    saver.save(state, step=9)


def _at_step(step: int) -> dict[str, torch.Tensor]:
    chance = torch.Generator().manual_seed(step)
    return {f"t{n}": torch.randn(60_000, generator=chance) for n in range(8)}


def killed(folder: Path, kills: int, seed: int) -> None:
    """Two ranks save one step after another and are killed: the head is old or new, bit for bit."""
    chance = random.Random(seed)
    spans: list[float] = []
    seen = {"old": 0, "new": 0}
    for number in range(kills):
        # Every third is killed in its first save of a fresh folder.
        ckpt = folder / (f"fresh{number}" if number % 3 == 0 else "again")
        store = CheckpointStore(ckpt)
        head = store.head()
        first = 0 if head is None else head.training_step + 1
        reading, writing = os.pipe()

        children = start_world(2, folder, partial(_save_steps, first, ckpt, writing))
        os.close(writing)
        _await_save(reading)
        begun = time.monotonic()
        if number % 4 == 3 or not spans:
            _await_save(reading)  # let one save come to its end; it gives the span of one
            spans.append(time.monotonic() - begun)
        time.sleep(chance.uniform(0, 1.1 * min(spans)))
        victims = children if chance.random() < 0.5 else [chance.choice(children)]
        for pid in victims:
            os.kill(pid, signal.SIGKILL)
        time.sleep(0.02)  # a rank that is left alone may go on for a moment
        for pid in children:
            os.kill(pid, signal.SIGKILL)
            os.waitpid(pid, 0)
        os.close(reading)
        after = store.head()
        seen["old" if after == head else "new"] += 1
        for ref in store.list_checkpoints():
            _check_step(store, ref.id, ref.training_step)
        assert head is None or after is not None
    print(seen, flush=True)
    assert seen["old"] or kills < 10
    assert seen["new"] or kills < 10


def _await_save(reading: int) -> None:
    assert os.read(reading, 1) == b".", "the ranks ended before they were killed"


def _save_steps(first: int, ckpt: Path, writing: int, rank: int) -> None:
    """Save one step after another, every second as differences, and take away what is old."""
    mesh = init_device_mesh("cpu", (2,))
    for step in range(first, first + 50):
        state = {
            name: distribute_tensor(one, mesh, [Shard(0)]) for name, one in _at_step(step).items()
        }
        dist.barrier()
        if rank == 0:
            os.write(writing, b".")
        dcp.save(state, storage_writer=ShardWriter(ckpt, step=step, delta=step % 2 == 1))
        if rank == 0:
            apply_retention(CheckpointStore(ckpt), Retention(2))


def _check_step(store: CheckpointStore, checkpoint: str, step: int) -> None:
    expected = _at_step(step)
    state = emptied(expected)
    dcp.load(state, storage_reader=ShardReader(store, checkpoint=checkpoint))
    assert fingerprint(state) == fingerprint(expected), f"step {step}"


SCENARIOS: dict[str, Callable[..., None]] = {
    "absent": absent,
    "background": background,
    "disagree": disagree,
    "killed": killed,
    "one_rank_fails": one_rank_fails,
    "own_states": own_states,
    "reshard": reshard,
    "two_writers": two_writers,
}


if __name__ == "__main__":
    main()
