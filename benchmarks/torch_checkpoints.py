"""Torch checkpoints against torch's own DCP in the same run: faults, bytes, time.

What needs several ranks or SIGKILL is shown by the tests (tests/checkpoints). The weights are those
of a small language model that is trained here on the repository's own sources, so that they and
their Adam moments are as dense as real ones.
"""

import random
import shutil
import tempfile
import time
import warnings
from collections.abc import Callable
from concurrent.futures import Future
from functools import partial
from pathlib import Path
from typing import Any, Final

from benchmarks._torch_sides import Bench, raw_size, size_of
from benchmarks.harness import NOT_INSTALLED, Row, peer_installed, report

TRAIN_STEPS: Final = 30
POLICY_VERSIONS: Final = 20
POLICY_LR: Final = 3e-6
FLIPS: Final = 100
PEER_FLIPS: Final = 12
ROUNDS: Final = 5
WALL_TENSORS: Final = 24  # of 8 MiB


def main() -> None:
    """Measure and print."""
    if not peer_installed("torch", "numpy"):
        report([Row("torch checkpoints", "-", NOT_INSTALLED, NOT_INSTALLED, None)])
        return
    warnings.filterwarnings("ignore", message="torch.distributed is")
    warnings.filterwarnings("ignore", message="Detected an existing checkpoint")
    import torch

    torch.set_num_threads(1)
    model, optimizer, batches = trained_model()
    with tempfile.TemporaryDirectory() as folder:
        bench = Bench(Path(folder))
        report(
            [
                *flip_rows(bench),
                *size_rows(bench, model, optimizer),
                *wall_rows(bench),
                async_row(bench),
                *policy_rows(bench, model, optimizer, batches),
                *unchanged_rows(bench),
                small_row(bench),
            ]
        )


def trained_model() -> tuple[Any, Any, list[Any]]:
    """A byte-level language model, its AdamW after some steps, and the batches that follow."""
    import torch

    torch.manual_seed(0)
    root = Path(__file__).resolve().parents[1]
    text = b"".join(path.read_bytes() for path in sorted(root.glob("*/*.py")))
    data = torch.frombuffer(bytearray(text), dtype=torch.uint8).long()
    layer = torch.nn.TransformerEncoderLayer(256, 4, 1024, batch_first=True, dropout=0.0)
    model = torch.nn.Sequential(
        torch.nn.Embedding(256, 256),
        torch.nn.TransformerEncoder(layer, 4, enable_nested_tensor=False),
        torch.nn.Linear(256, 256),
    )
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    batches = []
    for _ in range(TRAIN_STEPS + POLICY_VERSIONS):
        starts = torch.randint(len(data) - 33, (8,))
        batches.append(torch.stack([data[at : at + 33] for at in starts]))
    for batch in batches[:TRAIN_STEPS]:
        train_step(model, optimizer, batch)
    return model, optimizer, batches[TRAIN_STEPS:]


def train_step(model: Any, optimizer: Any, batch: Any) -> None:
    """One step on one batch."""
    import torch

    logits = model(batch[:, :-1])
    loss = torch.nn.functional.cross_entropy(logits.flatten(0, 1), batch[:, 1:].flatten())
    optimizer.zero_grad()
    loss.backward()  # type: ignore[no-untyped-call]
    optimizer.step()


def dense_state(tensors: int, dtype: Any, *, seed: int = 0) -> dict[str, Any]:
    """Tensors of two million numbers, spread as weights are."""
    import torch

    chance = torch.Generator().manual_seed(seed)
    return {
        f"layer{number}": (torch.randn(1024, 2048, generator=chance) * 0.02).to(dtype)
        for number in range(tensors)
    }


def seconds(work: Callable[[], object]) -> tuple[float, float]:
    """Wall and CPU seconds of one call."""
    wall, cpu = time.perf_counter(), time.process_time()
    work()
    return time.perf_counter() - wall, time.process_time() - cpu


def flip_rows(bench: Bench) -> list[Row]:
    """Random bits of the stored tensors, flipped one at a time."""
    import torch

    state = {f"t{number}": torch.randn(100, 100) for number in range(8)}
    path, peer_path = bench.ours(state, bench.fresh()), bench.dcp(state, bench.fresh())
    files = [one for one in (path / "objects").rglob("*") if one.is_file()]
    ours = flips_found(state, files, partial(bench.load_ours, path=path), FLIPS)
    peer_files = list(peer_path.glob("*.distcp"))
    peer = flips_found(state, peer_files, partial(bench.load_dcp, path=peer_path), PEER_FLIPS)
    return [
        Row(
            f"{FLIPS} random bit flips",
            f"{FLIPS}/{FLIPS}, named",
            f"{peer}/{PEER_FLIPS} (DCP)",
            f"{ours}/{FLIPS}, naming tensor and object",
            ours == FLIPS,
        )
    ]


def flips_found(
    state: dict[str, Any], files: list[Path], load: Callable[[dict[str, Any]], None], count: int
) -> int:
    """How many of `count` flipped bits make `load` fail, naming the file where it names any."""
    import torch
    from torch.distributed.checkpoint.api import CheckpointException

    chance = random.Random(0)
    found = 0
    for _ in range(count):
        file = chance.choice(files)
        sound = file.read_bytes()
        altered = bytearray(sound)
        at = chance.randrange(len(sound) * 8)
        altered[at // 8] ^= 1 << at % 8
        file.write_bytes(altered)
        try:
            load({name: torch.zeros_like(one) for name, one in state.items()})
        except CheckpointException as error:
            cause = error.failures[0][0]
            found += getattr(cause, "object_digest", file.name) == file.name
        file.write_bytes(sound)
    return found


def size_rows(bench: Bench, model: Any, optimizer: Any) -> list[Row]:
    """What a trained model takes."""
    weights = {name: one.detach() for name, one in model.state_dict().items()}
    states = [
        (
            "fp32 weights + Adam moments",
            {"model": weights, "optimizer": optimizer.state_dict()},
            1.20,
        ),
        ("bf16 weights", {name: one.bfloat16() for name, one in weights.items()}, 1.48),
    ]
    rows = []
    for what, state, bar in states:
        raw = raw_size(state)
        ours = raw / size_of(bench.ours(state, bench.fresh()))
        plain = raw / size_of(bench.dcp(state, bench.fresh()))
        zstd = raw / size_of(bench.dcp_zstd(state, bench.fresh()))
        rows.append(
            Row(
                f"size, {what} ({raw / 1e6:.0f} MB)",
                f">= {bar:.2f}x smaller",
                f"{plain:.2f}x, DCP+ZStandard {zstd:.2f}x",
                f"{ours:.3f}x",
                ours >= bar,
            )
        )
    return rows


def wall_rows(bench: Bench) -> list[Row]:
    """Saving the same dense weights, in turn, the best of some rounds."""
    import torch

    rows = []
    for what, dtype in (("fp32", torch.float32), ("bf16", torch.bfloat16)):
        state = dense_state(WALL_TENSORS * 4 // dtype.itemsize, dtype)
        best: dict[str, tuple[float, float]] = {}
        for _ in range(ROUNDS):
            for side in (bench.dcp, bench.dcp_zstd, bench.ours):
                path = bench.fresh()
                once = seconds(partial(side, state, path))
                shutil.rmtree(path)
                known = best.get(side.__name__, once)
                best[side.__name__] = (min(known[0], once[0]), min(known[1], once[1]))
        ours, plain, zstd = (best[name] for name in ("ours", "dcp", "dcp_zstd"))
        megabytes = raw_size(state) / 1e6
        rows.append(
            Row(
                f"save {megabytes:.0f} MB of {what} weights, wall",
                "<= 1.25x DCP, <= 0.55x DCP+ZStandard (2 idle cores)",
                f"{plain[0]:.2f} s, DCP+ZStandard {zstd[0]:.2f} s",
                f"{ours[0]:.2f} s: {ours[0] / plain[0]:.2f}x, {ours[0] / zstd[0]:.2f}x",
                ours[0] <= 1.25 * plain[0] and ours[0] <= 0.55 * zstd[0],
            )
        )
        rows.append(
            Row(
                "the same, CPU",
                "-",
                f"{plain[1]:.2f} s, DCP+ZStandard {zstd[1]:.2f} s",
                f"{ours[1]:.2f} s: {ours[1] / plain[1]:.2f}x, {ours[1] / zstd[1]:.2f}x",
                None,
            )
        )
    return rows


def async_row(bench: Bench) -> Row:
    """How long the caller of save_async waits, against cloning the same tensors."""
    import torch
    from torch.distributed.checkpoint.state_dict_saver import async_save

    from snapshots.shard_saver import ShardSaver

    state = dense_state(WALL_TENSORS, torch.float32)
    blocked, cloned, peers = [], [], []
    with ShardSaver(bench.fresh()) as saver:
        for step in range(ROUNDS + 1):
            cloned.append(seconds(lambda: [one.clone() for one in state.values()])[0])
            begun = time.perf_counter()
            handle = saver.save_async(state, step=step)
            blocked.append(time.perf_counter() - begun)
            handle.wait()
            path = bench.fresh()
            begun = time.perf_counter()
            future = async_save(state, checkpoint_id=path)
            peers.append(time.perf_counter() - begun)
            assert isinstance(future, Future)
            future.result()
            shutil.rmtree(path)
    # The first save takes the memory that the later ones use again.
    ratio, peer = min(blocked[1:]) / min(cloned[1:]), min(peers[1:]) / min(cloned[1:])
    return Row(
        "save_async: the caller waits, against a plain clone",
        "<= 1.15x",
        f"{peer:.2f}x (DCP async_save)",
        f"{ratio:.2f}x ({min(blocked[1:]) * 1e3:.0f} ms; the first {blocked[0] / cloned[0]:.2f}x)",
        ratio <= 1.15,
    )


def policy_rows(bench: Bench, model: Any, optimizer: Any, batches: list[Any]) -> list[Row]:
    """Each version of a policy at an RL step's learning rate, in bf16."""
    for group in optimizer.param_groups:
        group["lr"] = POLICY_LR
    path, versions, raw, peer = bench.fresh(), [], 0, 0
    for version, batch in enumerate(batches):
        train_step(model, optimizer, batch)
        state = {name: one.detach().bfloat16() for name, one in model.state_dict().items()}
        versions.append(state)
        raw += raw_size(state)
        peer += size_of(bench.dcp(state, bench.fresh()))
        bench.ours(state, path, step=version, delta=True)
    alone = bench.ours(versions[-1], bench.fresh())
    target = {name: one.clone() for name, one in versions[0].items()}
    # Each version in turn with the full load, as often: the best of few is not set against the
    # best of many, nor a busy moment against a quiet one.
    load = partial(bench.load_ours, target)
    slowest, same = 0.0, True
    for version, state in enumerate(versions):
        full, once = [], []
        for _ in range(ROUNDS):
            full.append(seconds(partial(load, alone))[1])
            once.append(seconds(partial(load, path, step=version))[1])
        slowest = max(slowest, min(once) / min(full))
        same &= all(bool((target[name] == one).all()) for name, one in state.items())
    ratio = raw / size_of(path)
    return [
        Row(
            f"{len(versions)} versions of a bf16 policy, lr {POLICY_LR}",
            ">= 15x smaller",
            f"{raw / peer:.2f}x (DCP)",
            f"{ratio:.1f}x",
            ratio >= 15,
        ),
        Row(
            "restoring the slowest of them, CPU, against one full load",
            "<= 2x, bit-exact",
            "-",
            f"{slowest:.2f}x, {'bit-exact' if same else 'DIFFERENT'}",
            same and slowest <= 2,
        ),
    ]


def unchanged_rows(bench: Bench) -> list[Row]:
    """A second save of which 95 % is as it was."""
    import torch

    state = dense_state(20, torch.float32)
    path, peer_path = bench.fresh(), bench.fresh()
    bench.ours(state, path)
    bench.dcp(state, peer_path)
    first = size_of(path)
    once, again, peers = [], [], []
    for step in range(2, 2 + ROUNDS):
        state["layer7"] = dense_state(1, torch.float32, seed=step)["layer0"]
        before = size_of(path)
        again.append(seconds(partial(bench.ours, state, path, step=step))[0])
        added = size_of(path) - before
        peers.append(seconds(partial(bench.dcp, state, peer_path))[0])
        whole = bench.fresh()
        once.append(seconds(partial(bench.ours, state, whole))[0])
        shutil.rmtree(whole)
    return [
        Row(
            "saving again, 95 % of the tensors unchanged",
            "<= 6 % of the bytes",
            "100 % (DCP)",
            f"{100 * added / first:.1f} %",
            added <= 0.06 * first,
        ),
        Row(
            "the same, wall against saving all",
            "<= 0.3x",
            f"{min(peers) / min(once):.2f}x (DCP, all of it)",
            f"{min(again) / min(once):.2f}x",
            min(again) <= 0.3 * min(once),
        ),
    ]


def small_row(bench: Bench) -> Row:
    """Many tensors of one number."""
    import torch

    state = {f"t{number:04}": torch.tensor([float(number)]) for number in range(2000)}
    peer = size_of(bench.dcp(state, bench.fresh()))
    ours = size_of(bench.ours(state, bench.fresh()))
    return Row(
        "2,000 tensors of one float",
        "<= 0.4 MB",
        f"{peer / 1e6:.2f} MB (DCP)",
        f"{ours / 1e6:.2f} MB",
        ours <= 400_000,
    )


if __name__ == "__main__":
    main()
