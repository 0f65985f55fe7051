"""Random states, schedulers and loaders of torch: exact through a training state's bytes."""

import io
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="torch is not installed: torch checkpoints not shown")

from torch.optim import lr_scheduler as schedulers  # noqa: E402

from eventlog.canonical import decode, encode  # noqa: E402
from eventlog.errors import StateError, ValueNotEncodableError  # noqa: E402
from snapshots.random_state import capture_random, reseeded, restore_random  # noqa: E402
from snapshots.sample_order import SampleOrder  # noqa: E402
from snapshots.training_state import (  # noqa: E402
    capture_training_state,
    decode_training_state,
)
from tests.support.rank_states import restore_data, restore_scheduler  # noqa: E402
from tests.support.sources import ROOT  # noqa: E402

FRESH = """
from pathlib import Path
from eventlog.canonical import decode, encode
from snapshots.random_state import restore_random
value = decode(Path("state").read_bytes())
import torch
own = torch.Generator()
restore_random(value, {"own": own})
import random, numpy
drawn = [torch.rand(100).tolist(), torch.randn(3).tolist(), torch.randn(5, generator=own).tolist()]
drawn += [numpy.random.random(100).tolist(), [random.random() for _ in range(100)]]
Path("drawn").write_bytes(encode(drawn))
"""


def test_a_fresh_process_draws_the_same(tmp_path: Path) -> None:
    """Case D4 (trl #3247): and what is saved loads with weights_only, where torch saved it."""
    import random

    import numpy

    own = torch.Generator()
    for seed in (random.seed, numpy.random.seed, torch.manual_seed, own.manual_seed):
        seed(7)
    for _ in range(13):
        random.random(), numpy.random.random(), torch.rand(1), torch.rand(1, generator=own)
    value = capture_random({"own": own})
    (tmp_path / "state").write_bytes(encode(value))
    saved = io.BytesIO()
    torch.save(value, saved)
    assert torch.load(io.BytesIO(saved.getvalue()), weights_only=True) == value
    drawn = [torch.rand(100).tolist(), torch.randn(3).tolist()]
    drawn += [torch.randn(5, generator=own).tolist(), numpy.random.random(100).tolist()]
    drawn.append([random.random() for _ in range(100)])
    subprocess.run(
        [sys.executable, "-c", FRESH], cwd=tmp_path, check=True, timeout=300,
        env={"PYTHONPATH": str(ROOT)},
    )  # fmt: skip
    assert decode((tmp_path / "drawn").read_bytes()) == decode(encode(drawn))


def test_a_random_state_that_does_not_fit_sets_nothing() -> None:
    own = torch.Generator()
    value: Any = capture_random({"own": own})
    kept = value["generators"]["own"]
    torch.rand(1)
    before = encode(capture_random({"own": own}))
    faults = [
        ({**value, "torch": b"1"}, "torch does not fit"),
        ({**value, "torch": [1]}, "torch does not fit"),
        ({**value, "cuda": [b"x" * 16]}, "saved with 1 CUDA devices, here are 0"),
        ({**value, "cuda": 1}, "cuda does not fit"),
        ({**value, "generators": {"own": {**kept, "device": "cuda"}}}, "saved is one of cuda"),
        ({**value, "generators": {"own": {**kept, "state": b"1"}}}, "generator 'own' does not"),
    ]  # fmt: skip
    for fault, message in faults:
        with pytest.raises(StateError, match=message):
            restore_random(fault, {"own": own})
        assert encode(capture_random({"own": own})) == before


def test_the_states_of_cuda_devices(monkeypatch: pytest.MonkeyPatch) -> None:
    """With stand-ins for two devices: there is none here."""
    states = [torch.arange(16, dtype=torch.uint8), torch.ones(16, dtype=torch.uint8)]
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: len(states))
    monkeypatch.setattr(torch.cuda, "get_rng_state_all", lambda: list(states))
    monkeypatch.setattr(
        torch.cuda, "set_rng_state_all", lambda new: states.__setitem__(slice(None), new)
    )
    value: Any = decode(encode(capture_random()))
    assert value["cuda"] == [bytes(range(16)), b"\1" * 16]
    states[:] = [state + 1 for state in states]
    restore_random(value)
    assert [bytes(state.tolist()) for state in states] == value["cuda"]
    states.pop()
    with pytest.raises(StateError, match="saved with 2 CUDA devices, here are 1"):
        restore_random(value)
    states[:] = [torch.zeros(8, dtype=torch.uint8)] * 2
    with pytest.raises(StateError, match="saved are 16 bytes, a device has 8"):
        restore_random(value)


def test_fresh_seeds_of_torch() -> None:
    def draws(seed: int, rank: int) -> list[float]:
        own = torch.Generator()
        restore_random(reseeded(seed, rank), {"own": own})
        return [torch.rand(1).item(), torch.rand(1, generator=own).item()]

    first = draws(1, 0)
    torch.manual_seed(99)
    assert draws(1, 0) == first
    assert len({*first, *draws(1, 1), *draws(2, 0)}) == 6


MAKERS: dict[str, Callable[[Any], Any]] = {
    "step": lambda o: schedulers.StepLR(o, 3),
    "multi_step": lambda o: schedulers.MultiStepLR(o, [2, 5, 5]),
    "lambda": lambda o: schedulers.LambdaLR(o, lambda step: 1 / (1 + step)),
    "cosine": lambda o: schedulers.CosineAnnealingLR(o, 10),
    "warm_restarts": lambda o: schedulers.CosineAnnealingWarmRestarts(o, 4),
    "one_cycle": lambda o: schedulers.OneCycleLR(o, 0.1, total_steps=40),
    "cyclic": lambda o: schedulers.CyclicLR(o, 0.001, 0.1, step_size_up=3),
    "exponential": lambda o: schedulers.ExponentialLR(o, 0.9),
    "polynomial": lambda o: schedulers.PolynomialLR(o, 12),
    "plateau": lambda o: schedulers.ReduceLROnPlateau(o, patience=1),
    "sequential": lambda o: schedulers.SequentialLR(
        o, [schedulers.LinearLR(o, total_iters=3), schedulers.ExponentialLR(o, 0.8)], [3]
    ),
    "chained": lambda o: schedulers.ChainedScheduler(
        [schedulers.ConstantLR(o, total_iters=2), schedulers.ExponentialLR(o, 0.8)]
    ),
}


def training(maker: Callable[[Any], Any], *, as_tensor: bool = False) -> tuple[Any, Any]:
    rate = torch.tensor(0.05, dtype=torch.float64) if as_tensor else 0.05
    optimizer = torch.optim.SGD([torch.nn.Parameter(torch.ones(2))], lr=rate, momentum=0.9)
    return optimizer, maker(optimizer)


def rates(optimizer: Any, scheduler: Any, steps: int) -> list[float]:
    found = []
    for step in range(steps):
        optimizer.step()
        plateau = isinstance(scheduler, schedulers.ReduceLROnPlateau)
        scheduler.step(*([1.0 + step % 3] if plateau else []))
        found.append(float(optimizer.param_groups[0]["lr"]))
    return found


@pytest.mark.filterwarnings("ignore:The epoch parameter in:UserWarning")  # SequentialLR's own, 2.6
@pytest.mark.parametrize("name", MAKERS)
def test_every_scheduler_goes_on_exactly(name: str) -> None:
    optimizer, scheduler = training(MAKERS[name])
    rates(optimizer, scheduler, 4)
    data = capture_training_state(scheduler)
    groups = [
        {key: value for key, value in group.items() if key != "params"}
        for group in optimizer.param_groups
    ]
    groups = decode(encode(groups))  # type: ignore[assignment]
    whole = rates(optimizer, scheduler, 12)
    for _ in range(2):  # torchtitan #647: resumed twice from the same bytes
        again, fresh = training(MAKERS[name])
        for group, kept in zip(again.param_groups, groups, strict=True):
            group.update(kept)
        restore_scheduler([decode_training_state(data)], 0, 1, fresh)
        assert rates(again, fresh, 12) == whole


def test_a_rate_that_is_a_tensor() -> None:
    optimizer, scheduler = training(MAKERS["exponential"], as_tensor=True)
    rates(optimizer, scheduler, 4)
    state = decode_training_state(capture_training_state(scheduler))
    kept = scheduler.state_dict()
    _, fresh = training(MAKERS["exponential"], as_tensor=True)
    restore_scheduler([state], 0, 1, fresh)
    found = fresh.state_dict()
    assert encode(found["_last_lr"]) == encode([one.detach() for one in kept["_last_lr"]])


class Kept:
    """Something with a state."""

    def __init__(self, state: Any = None) -> None:
        self.state = state

    def state_dict(self) -> Any:
        return self.state

    def load_state_dict(self, state: Any) -> None:
        self.state = state


def test_tensors_of_every_dtype_and_shape() -> None:
    names = "bool uint8 int16 int64 float16 bfloat16 float32 float64 complex64 float8_e4m3fn"
    state = {
        name: torch.arange(12).reshape(3, 4).to(torch.float32).to(getattr(torch, name))
        for name in names.split()
    }
    state["turned"] = state["float32"].t()
    state["empty"], state["single"] = torch.empty(0, 3), torch.tensor(1.5, dtype=torch.bfloat16)
    state["nan"] = torch.tensor([float("nan"), -0.0])
    state["parameter"] = torch.nn.Parameter(torch.ones(2))
    loader = Kept()
    restore_data([decode_training_state(capture_training_state(None, Kept(state)))], 0, 1, loader)
    for name, tensor in state.items():
        found = loader.state[name]
        assert (found.dtype, found.shape) == (tensor.dtype, tensor.shape), name
        assert encode(found) == encode(tensor.detach()), name
        assert not found.requires_grad
        if found.numel() and tensor.is_contiguous():
            assert found.data_ptr() != tensor.data_ptr()
    with pytest.raises(ValueNotEncodableError) as caught:
        capture_training_state(None, Kept({"sparse": [torch.eye(2).to_sparse()]}))
    assert caught.value.path == "$.data.sparse[0]"


def test_an_order_of_samples_drives_a_loader() -> None:
    def loader_of(order: SampleOrder) -> Any:
        samples = torch.utils.data.TensorDataset(torch.arange(60))
        return torch.utils.data.DataLoader(samples, batch_sampler=order)

    def batches(order: SampleOrder, count: int) -> Iterator[list[int]]:
        for _ in range(3):
            for (batch,) in loader_of(order):
                yield batch.tolist()
                count -= 1
                if not count:
                    return

    def order_of() -> SampleOrder:
        return SampleOrder(60, batch_size=10, seed=7)

    assert len(loader_of(order_of())) == 6
    whole = list(batches(order_of(), 18))
    order = order_of()
    seen: list[list[int]] = []
    for steps in (3, 3, 1, 5):  # resumed after steps 3, 6 (the end of epoch 0) and 7
        seen += batches(order, steps)
        data = capture_training_state(None, order)
        order = order_of()
        restore_data([decode_training_state(data)], 0, 1, order)
    assert seen == whole[:12]


class StandInLoader:
    """A loader with the protocol of torchdata's StatefulDataLoader, whose shuffle is torch's.

    Its state holds the generator's state at the start of the epoch as a tensor, and counts.
    """

    def __init__(self) -> None:
        self._resumed: dict[str, Any] | None = None
        self._state: dict[str, Any] = {}

    def __iter__(self) -> Iterator[list[int]]:
        # As torch's does: making the iterator draws, also where it goes on within an epoch.
        generator = torch.Generator()
        generator.manual_seed(int(torch.empty((), dtype=torch.int64).random_().item()))
        begun = generator.get_state()
        skipped = 0
        if self._resumed is not None:
            begun, skipped = self._resumed["generator"], self._resumed["yielded"]
            generator.set_state(begun)
            self._resumed = None
        return self._batches(torch.randperm(60, generator=generator).tolist(), begun, skipped)

    def _batches(self, order: list[int], begun: Any, skipped: int) -> Iterator[list[int]]:
        for number in range(skipped, 6):
            self._state = {"generator": begun, "yielded": number + 1, "sampler": {"nested": None}}
            yield order[number * 10 : number * 10 + 10]

    def state_dict(self) -> dict[str, Any]:
        return self._state

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self._resumed = state


def torchdata_loader(workers: int) -> Any:
    stateful = pytest.importorskip(
        "torchdata.stateful_dataloader",
        reason="torchdata is not installed: its StatefulDataLoader not shown",
    )
    return stateful.StatefulDataLoader(
        range(60), batch_size=10, shuffle=True, num_workers=workers, collate_fn=list
    )


LOADERS: dict[str, Callable[[], Any]] = {
    "stand-in": StandInLoader,
    "torchdata": lambda: torchdata_loader(0),
    "torchdata with workers": lambda: torchdata_loader(2),
}


@pytest.mark.filterwarnings("ignore:'set_vital' is deprecated:UserWarning")
@pytest.mark.parametrize("name", LOADERS)
def test_a_stateful_loader_resumed_three_times_in_one_epoch(name: str) -> None:
    """torchdata #1437, #1251; and Megatron-Bridge #5257: no draw more, no draw less."""
    torch.manual_seed(7)
    loader = LOADERS[name]()
    whole = [(batch, torch.rand(1).item()) for batch in loader]
    assert len(whole) == 6
    torch.manual_seed(7)
    seen: list[Any] = []
    loader = LOADERS[name]()
    batches = iter(loader)
    for steps in (1, 2, 1, 2):
        if seen:
            data = capture_training_state(None, loader)
            loader = LOADERS[name]()
            state = decode_training_state(data)
            restore_data([state], 0, 1, loader)
            batches = iter(loader)
            restore_random(state.random)  # last: making the iterator drew
        seen += [(next(batches), torch.rand(1).item()) for _ in range(steps)]
    assert seen == whole
    assert next(batches, None) is None
