"""What is saved is what the tensor means, in the background too; what is not kept, by its name."""

import os
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="torch is not installed: torch checkpoints not shown")

from eventlog.errors import CheckpointError, ConfigError  # noqa: E402
from eventlog.training_facts import TRAINING_STEP_MAX  # noqa: E402
from replay.workspace import open_workspace  # noqa: E402
from snapshots.checkpoint_config import CheckpointConfig  # noqa: E402
from snapshots.checkpoint_store import CheckpointStore  # noqa: E402
from snapshots.interchange.import_writer import ImportedTensor, ImportWriter  # noqa: E402
from snapshots.save_handle import SaveEnds  # noqa: E402
from snapshots.shard_saver import ShardSaver  # noqa: E402
from snapshots.shards.staging import Staging  # noqa: E402
from tests.support.torch_states import fingerprint, load_again  # noqa: E402

pytestmark = pytest.mark.filterwarnings(
    "ignore:torch.distributed is", "ignore:.*(beta state|prototype|quantize)"
)


def views_of_one_memory() -> dict[str, Any]:
    """Views that begin at one address, each of which means other numbers."""
    whole = torch.randn(4, 4, dtype=torch.complex64, generator=torch.Generator().manual_seed(1))
    real = torch.view_as_real(whole)
    flat = torch.arange(16.0)
    return {
        "as it is": whole,
        "conjugated": whole.conj(),
        "twice": whole.conj().conj(),
        "adjoint": whole.mH,
        "transposed": whole.T,
        "real part": whole.real,
        "imaginary": whole.imag,
        "negated": whole.conj().imag,
        "negated by hand": torch._neg_view(whole),
        "both": torch._neg_view(whole.conj()),
        "as pairs": real,
        "its bits": whole.view(torch.int64),
        "sliced": whole[:2],
        "a column": whole[:, 0],
        "expanded": whole[:1].expand(4, 4),
        "one item": whole[0, 0],
        "zeros": torch._efficientzerotensor(4, 4),
        "flat": flat,
        "windows": flat.as_strided((4, 4), (1, 1)),
        "square": flat.view(4, 4),
        "square transposed": flat.view(4, 4).T,
        "as double": flat.view(torch.float64),
        "as words": flat.view(torch.int32),
        "channels last": flat.view(1, 4, 2, 2).contiguous(memory_format=torch.channels_last),
        "empty": flat[:0],
    }


@pytest.mark.parametrize("backwards", [False, True])
def test_a_view_in_the_background_is_not_the_tensor_that_shares_its_memory(
    tmp_path: Path, backwards: bool
) -> None:
    """A conjugated view came back as what it is the conjugate of."""
    state = views_of_one_memory()
    if backwards:
        state = dict(reversed(state.items()))
    expected = {name: fingerprint(one.clone()) for name, one in state.items()}
    with ShardSaver(tmp_path) as saver:
        for step, save in enumerate((saver.save_async, saver.save, saver.save_async)):
            done = save(state, step=step)
            if step != 1:
                done.wait(60)
            room = {name: torch.empty_like(one.clone()) for name, one in state.items()}
            found = load_again(room, tmp_path)
            for name, one in found.items():
                assert fingerprint(one) == expected[name], (name, save)


def _quantized() -> Any:
    return torch.quantize_per_tensor(torch.ones(3), 0.1, 0, torch.qint8)


NOT_KEPT: dict[str, tuple[Callable[[], Any], str]] = {
    "meta": (lambda: torch.empty(3, device="meta"), "device meta"),
    "coo": (lambda: torch.eye(3).to_sparse(), "layout torch.sparse_coo"),
    "csr": (lambda: torch.eye(3).to_sparse_csr(), "layout torch.sparse_csr"),
    "nested": (lambda: torch.nested.nested_tensor([torch.ones(2), torch.ones(3)]), "layout nested"),
    "quantized": (_quantized, "dtype torch.qint8"),
    "bits": (lambda: torch.ones(2, dtype=torch.uint8).view(torch.bits8), "dtype torch.bits8"),
}


@pytest.mark.parametrize("kind", NOT_KEPT)
def test_a_tensor_that_is_not_kept_is_named_alike_by_both_ways_to_save(
    tmp_path: Path, kind: str
) -> None:
    """In the background it was torch's own RuntimeError or NotImplementedError."""
    make, what = NOT_KEPT[kind]
    given_up: list[int] = []
    ends = SaveEnds(give_up=lambda: given_up.append(1))
    with ShardSaver(tmp_path) as saver:
        for save in (saver.save, saver.save_async):
            with pytest.raises(CheckpointError, match=rf"'outer\.t' has the {what}") as caught:
                save({"outer": {"t": make()}}, step=3, ends=ends)
            assert (caught.value.tensor, caught.value.step) == ("outer.t", 3)
        saver.save_async({"w": torch.ones(2)}, step=4).wait(60)
    assert len(given_up) == 2, "the set that was begun must be ended"
    assert len(CheckpointStore(tmp_path).list_checkpoints()) == 1


def test_versions_are_published_up_to_what_a_checkpoint_takes(tmp_path: Path) -> None:
    """0 to 2**53 was promised, and 10**12 was a ValueError of the writer's."""
    with open_workspace(tmp_path) as ws, ws.training("run") as run:
        model = torch.nn.Linear(2, 2)
        assert run.publish_policy(TRAINING_STEP_MAX, model) == str(TRAINING_STEP_MAX)
        for beyond in (TRAINING_STEP_MAX + 1, 2**53):
            with pytest.raises(ConfigError, match=f"0 to {TRAINING_STEP_MAX}, not {beyond}"):
                run.publish_policy(beyond, model)


@pytest.mark.parametrize("background", [False, True])
@pytest.mark.parametrize("end", [KeyboardInterrupt(), SystemExit(143)], ids=["Ctrl-C", "SIGTERM"])
def test_what_ends_a_program_is_no_error_of_the_save(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, end: BaseException, background: bool
) -> None:
    """`except SteplogError` caught Ctrl-C, and a program could not be stopped."""

    def handler(*_: object) -> None:
        raise end

    before = signal.signal(signal.SIGUSR1, handler)
    owner = Staging if background else CheckpointStore
    name = "copy_state" if background else "verify_in_place"
    real = getattr(owner, name)

    def interrupted(*arguments: Any) -> Any:
        os.kill(os.getpid(), signal.SIGUSR1)
        return real(*arguments)

    config = CheckpointConfig(async_save=background)
    model = torch.nn.Linear(2, 2)
    try:
        with open_workspace(tmp_path) as ws, ws.training("run", config=config) as run:
            with monkeypatch.context() as patch:
                patch.setattr(owner, name, interrupted)
                with pytest.raises(type(end)) as caught:
                    run.checkpoint(1, model=model)
            assert caught.value.args == end.args
            assert run.checkpoint(2, model=model).wait(60).training_step == 2
            assert run.restore_latest(model=model).step == 2
    finally:
        signal.signal(signal.SIGUSR1, before)


@pytest.mark.parametrize(
    "given", [{1: torch.ones(2), "1": torch.zeros(2)}, {"a.b": 1, "a": {"b": 2}}]
)
def test_two_values_of_one_name_are_refused_by_it(tmp_path: Path, given: Any) -> None:
    with ShardSaver(tmp_path) as saver:
        for save in (saver.save, saver.save_async):
            with pytest.raises(CheckpointError, match=r"two values have the name 'x\.(1|a\.b)'"):
                save({"x": given}, step=1)


def test_a_dtype_that_this_torch_has_not_yet_is_told_by_its_tensor(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """torch 2.6 lacks one that 2.7 saves: the load ended in an AttributeError."""
    monkeypatch.delattr(torch, "float8_e8m0fnu", raising=False)
    with ImportWriter(CheckpointStore(tmp_path), step=1, versions={}) as writer:
        writer.add_tensor("scale", ImportedTensor("float8_e8m0fnu", (4,), ("scale",)))
        writer.add_chunk("scale", ((0,), (4,)), memoryview(b"abcd"), 1)
        writer.commit()
    with pytest.raises(CheckpointError, match=r"the dtype float8_e8m0fnu, which torch") as told:
        load_again({"scale": torch.zeros(4, dtype=torch.uint8)}, tmp_path)
    assert told.value.tensor == "scale"


@pytest.mark.parametrize("background", [False, True])
def test_what_is_nested_too_deep_is_refused(tmp_path: Path, background: bool) -> None:
    """It was a RecursionError."""
    deep: Any = torch.ones(1)
    for _ in range(900):
        deep = {"in": deep}
    config = CheckpointConfig(async_save=background)
    with open_workspace(tmp_path) as ws, ws.training("run", config=config) as run:
        with pytest.raises(CheckpointError, match=r"'extra\.deep\.in' is nested deeper than"):
            run.checkpoint(1, extra={"deep": deep})
        assert run.checkpoint(1, extra={"w": torch.ones(1)}).wait(60).training_step == 1
