"""dcp.save and dcp.load through our writer and reader, in one process."""

import pickle
import threading
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="torch is not installed: torch checkpoints not shown")

from torch.distributed.checkpoint import DefaultLoadPlanner, DefaultSavePlanner  # noqa: E402
from torch.distributed.checkpoint.state_dict_loader import (  # noqa: E402
    _load_state_dict_from_keys,
)

from eventlog.errors import CheckpointError, CheckpointIncompleteError  # noqa: E402
from snapshots.checkpoint_store import CheckpointStore  # noqa: E402
from snapshots.checkpoints import part_writer  # noqa: E402
from snapshots.checkpoints.generations import GENERATIONS_MAX  # noqa: E402
from snapshots.checkpoints.object_folder import ObjectFolder  # noqa: E402
from snapshots.checkpoints.parts import ancestry_of  # noqa: E402
from snapshots.shard_reader import ShardReader  # noqa: E402
from snapshots.shard_writer import ShardWriter  # noqa: E402
from tests.support.torch_states import (  # noqa: E402
    emptied,
    fingerprint,
    load,
    load_again,
    odd_state,
    save,
)


def bytes_in(folder: Path) -> int:
    return sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())


def test_every_kind_of_tensor_and_value_comes_back_bit_for_bit(tmp_path: Path) -> None:
    state = odd_state()
    ref = save(state, ShardWriter(tmp_path, step=7))
    assert ref.training_step == 7
    assert fingerprint(load_again(state, tmp_path)) == fingerprint(state)


def test_parts_smaller_than_tensors_are_joined(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(part_writer, "PART_BYTES", 1 << 16)
    state = {"large": torch.randn(100_000), "wide": torch.randn(3, 50_000)}
    save(state, ShardWriter(tmp_path, step=1, threads=4))
    assert fingerprint(load_again(state, tmp_path, threads=4)) == fingerprint(state)


def test_model_and_optimizer_as_users_save_them(tmp_path: Path) -> None:
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(20, 30), torch.nn.BatchNorm1d(30))
    model[0].bias.requires_grad_(False)
    optimizer = torch.optim.AdamW([one for one in model.parameters() if one.requires_grad])
    model(torch.randn(8, 20)).sum().backward()
    optimizer.step()
    state = {"model": model.state_dict(), "optimizer": optimizer.state_dict()}
    save(state, ShardWriter(tmp_path, step=1))
    assert fingerprint(load_again(state, tmp_path)) == fingerprint(state)


def test_stateful_objects_are_loaded_in_place(tmp_path: Path) -> None:
    """A second resume saves what was loaded, not what stood there before (torchtitan #647)."""

    class Progress:
        def __init__(self, step: int) -> None:
            self.step = step

        def state_dict(self) -> dict[str, Any]:
            return {"step": self.step}

        def load_state_dict(self, state: dict[str, Any]) -> None:
            self.step = state["step"]

    save({"progress": Progress(5)}, ShardWriter(tmp_path, step=5))
    resumed = Progress(0)
    load({"progress": resumed}, ShardReader(tmp_path))
    assert resumed.step == 5
    resumed.step += 1
    save({"progress": resumed}, ShardWriter(tmp_path, step=6))
    again = Progress(0)
    load({"progress": again}, ShardReader(tmp_path))
    assert again.step == 6


def test_head_step_and_id_name_a_checkpoint(tmp_path: Path) -> None:
    refs = [save({"t": torch.tensor(n)}, ShardWriter(tmp_path, step=n)) for n in range(3)]
    named = save(
        {"t": torch.tensor(9)}, ShardWriter(tmp_path, step=9), checkpoint_id="before-the-change"
    )
    assert named.id == "before-the-change"
    assert load_again({"t": torch.tensor(0)}, tmp_path)["t"] == 9
    assert load_again({"t": torch.tensor(0)}, tmp_path, step=1)["t"] == 1
    assert load_again({"t": torch.tensor(0)}, tmp_path, checkpoint=refs[2].id)["t"] == 2
    by_id = load({"t": torch.tensor(0)}, ShardReader(tmp_path), checkpoint_id=refs[0].id)
    assert by_id["t"] == 0
    assert ShardReader(tmp_path, step=1).checkpoint == refs[1]
    assert load_again({"t": torch.tensor(0)}, tmp_path, checkpoint=refs[0])["t"] == 0
    with pytest.raises(CheckpointError, match="do not have the hash they were committed with"):
        ShardReader(tmp_path, checkpoint=refs[0]._replace(digest=refs[1].digest))
    with pytest.raises(ValueError, match="step=1 is not that of the checkpoint"):
        ShardReader(tmp_path, step=1, checkpoint=refs[0])
    with pytest.raises(CheckpointIncompleteError, match="no committed checkpoint has step 5"):
        ShardReader(tmp_path, step=5)
    with pytest.raises(CheckpointIncompleteError, match="no checkpoint was committed yet"):
        ShardReader(tmp_path / "elsewhere")


def test_a_state_is_built_from_the_checkpoint_alone(tmp_path: Path) -> None:
    state = {"model": {"a.b": torch.randn(4), "c": [torch.ones(2), {"d": 5}]}, "step": 3}
    save(state, ShardWriter(tmp_path, step=1))
    reader = ShardReader(tmp_path)
    with pytest.warns(UserWarning, match="torch.distributed is"):
        found = _load_state_dict_from_keys({"model", "step"}, storage_reader=reader)
    assert fingerprint(found) == fingerprint(state)


def test_a_part_of_a_state_is_loaded_by_partial_load(tmp_path: Path) -> None:
    save({"a": torch.ones(2), "b": 4}, ShardWriter(tmp_path, step=1))
    wanted = {"a": torch.zeros(2), "new": torch.zeros(1)}
    with pytest.raises(RuntimeError, match="Missing key in checkpoint state_dict: new"):
        load(dict(wanted), ShardReader(tmp_path))
    planner = DefaultLoadPlanner(allow_partial_load=True)
    assert load(wanted, ShardReader(tmp_path), planner=planner)["a"].tolist() == [1, 1]


def test_another_dtype_is_refused_unless_asked_for(tmp_path: Path) -> None:
    """torch casts in silence: float32 into bfloat16 loses bits that nobody misses at once."""
    save({"t": torch.tensor([1.0, 1 / 3])}, ShardWriter(tmp_path, step=1))
    target = {"t": torch.zeros(2, dtype=torch.bfloat16)}
    with pytest.raises(CheckpointError, match="kept as float32, and is to be loaded into bfloat16"):
        load(dict(target), ShardReader(tmp_path))
    got = load(target, ShardReader(tmp_path, convert_dtype=True))["t"]
    assert got.dtype == torch.bfloat16
    assert got[0] == 1


def test_another_shape_is_refused(tmp_path: Path) -> None:
    save({"t": torch.zeros(3)}, ShardWriter(tmp_path, step=1))
    with pytest.raises(ValueError, match="Size mismatch"):
        load({"t": torch.zeros(4)}, ShardReader(tmp_path))


@pytest.mark.parametrize(
    ("value", "message"),
    [
        (object(), "'odd.x' is a object, which has no canonical form"),
        (torch.nn.Linear(1, 1), "'odd.x' is a Linear, which has no canonical form"),
        (torch.zeros(2).to_sparse(), "tensor 'odd.x' has the layout torch.sparse_coo"),
        (torch.zeros(2, device="meta"), "tensor 'odd.x' has the device meta"),
    ],
)
def test_what_has_no_plain_form_is_refused_by_name(
    tmp_path: Path, value: object, message: str
) -> None:
    with pytest.raises(CheckpointError, match=message):
        save({"odd": {"x": value}, "fine": torch.zeros(2)}, ShardWriter(tmp_path, step=1))
    assert CheckpointStore(tmp_path).head() is None


def test_planners_that_pickle_are_refused_by_name(tmp_path: Path) -> None:
    class Pickling(DefaultLoadPlanner):  # type: ignore[misc]
        def load_bytes(self, read_item: Any, value: Any) -> None:
            raise AssertionError("never called")

    save({"v": 1}, ShardWriter(tmp_path, step=1))
    with pytest.raises(CheckpointError, match="Pickling takes it only as a pickle"):
        load({"v": 0}, ShardReader(tmp_path), planner=Pickling())


def test_nothing_is_pickled_or_unpickled(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def forbidden(*_args: object, **_options: object) -> None:
        raise AssertionError("a pickle")

    state = odd_state()
    for module, name in [(pickle, "dumps"), (pickle, "loads"), (pickle, "load"), (pickle, "dump")]:
        monkeypatch.setattr(module, name, forbidden)
    for name in ("save", "load"):
        monkeypatch.setattr(torch, name, forbidden)
    save(state, ShardWriter(tmp_path, step=1))
    assert fingerprint(load_again(state, tmp_path)) == fingerprint(state)


class Crafted:
    """What runs code when it is unpickled."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> tuple[Any, ...]:
        return (Path.touch, (self.path,))


@pytest.mark.parametrize("where", ["manifest.json", "HEAD", "manifest.sha256", "object", "value"])
def test_crafted_files_run_nothing(tmp_path: Path, where: str) -> None:
    """torch's `.metadata` is a pickle that dcp.load runs (pytorch #189308)."""
    folder, ran = tmp_path / "ckpt", tmp_path / "ran"
    state = {"t": torch.randn(100), "v": [1, 2]}
    ref = save(state, ShardWriter(folder, step=1))
    evil = pickle.dumps(Crafted(ran))
    store = CheckpointStore(folder)
    if where == "value":
        manifest = store.read_manifest(ref)
        values = {"v": manifest.values["v"]._replace(data=evil)}
        changed = manifest._replace(id="evil", values=values)
        store.commit_checkpoint(changed, expected_head=ref)
    for path in folder.rglob("*"):
        if path.name == where or (where == "object" and path.parent.parent.name == "objects"):
            path.write_bytes(evil)
    (folder / ".metadata").write_bytes(evil)
    found = []
    for step in (None, 1):
        try:
            load_again(state, folder, step=step)
        except CheckpointError as error:
            found.append(error)
    assert found
    assert not ran.exists()


def test_a_hundred_flipped_bits_are_found_and_named(tmp_path: Path) -> None:
    """torch loads all of them as if nothing were: 0 of 12 (research page, section 3)."""
    chance = torch.Generator().manual_seed(4)
    state = {f"layer{n}": torch.randn(64, 700, generator=chance) for n in range(6)}
    state["small"] = torch.arange(10)
    save(state, ShardWriter(tmp_path, step=1))
    files = sorted(path for path in (tmp_path / "objects").rglob("*") if path.is_file())
    for number in range(100):
        path = files[int(torch.randint(len(files), (1,), generator=chance))]
        data = bytearray(path.read_bytes())
        at = int(torch.randint(len(data) * 8, (1,), generator=chance))
        data[at // 8] ^= 1 << at % 8
        path.write_bytes(data)
        with pytest.raises(CheckpointError) as caught:
            load_again(state, tmp_path)
        assert caught.value.tensor in state, number
        assert caught.value.object_digest == path.name
        data[at // 8] ^= 1 << at % 8
        path.write_bytes(data)
    assert fingerprint(load_again(state, tmp_path)) == fingerprint(state)


def test_damage_never_reaches_the_tensor(tmp_path: Path) -> None:
    state = {"t": torch.randn(1000)}
    save(state, ShardWriter(tmp_path, step=1))
    (path,) = [path for path in (tmp_path / "objects").rglob("*") if path.is_file()]
    path.write_bytes(bytes(path.stat().st_size))
    target = {"t": torch.full((1000,), 5.0)}
    with pytest.raises(CheckpointError):
        load(target, ShardReader(tmp_path))
    assert bool((target["t"] == 5).all())


@pytest.mark.parametrize("failing", range(4))
def test_an_error_in_a_writer_thread_is_no_success(
    tmp_path: Path, failing: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """dcp.save said it was well, and the checkpoint could not be loaded (pytorch #191391)."""
    state = {f"t{n}": torch.randn(50_000) for n in range(12)}
    before = save(state, ShardWriter(tmp_path, step=1))
    put, calls, threads = ObjectFolder.write_object, iter(range(1000)), set()

    def write_object(self: ObjectFolder, pieces: Any) -> Any:
        threads.add(threading.current_thread())
        if next(calls) == failing:
            raise OSError(28, "No space left on device")
        return put(self, pieces)

    monkeypatch.setattr(ObjectFolder, "write_object", write_object)
    with pytest.raises((CheckpointError, OSError), match="No space left"):
        save(
            {name: one + 1 for name, one in state.items()}, ShardWriter(tmp_path, step=2, threads=4)
        )
    assert threading.main_thread() not in threads
    monkeypatch.undo()
    assert CheckpointStore(tmp_path).list_checkpoints() == [before]
    assert fingerprint(load_again(state, tmp_path)) == fingerprint(state)


def test_a_save_that_fails_leaves_the_old_head(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = save({"t": torch.zeros(2)}, ShardWriter(tmp_path, step=1))

    def lost(self: ObjectFolder, stored: Any, tensor: str) -> None:
        raise CheckpointError("not in place", hint="", tensor=tensor)

    monkeypatch.setattr(ObjectFolder, "verify_in_place", lost)
    with pytest.raises(CheckpointError, match="not in place"):
        save({"t": torch.ones(2)}, ShardWriter(tmp_path, step=2))
    assert CheckpointStore(tmp_path).head() == before


@pytest.mark.parametrize("what", ["manifest", "object"])
def test_a_damaged_checkpoint_does_not_stop_the_next_save(
    tmp_path: Path, what: str, caplog: pytest.LogCaptureFixture
) -> None:
    state = {"t": torch.randn(50_000)}
    ref = save(state, ShardWriter(tmp_path, step=1))
    if what == "manifest":
        (CheckpointStore(tmp_path).set_folder(ref) / "manifest.json").write_bytes(b"{}")
    else:
        (path,) = [path for path in (tmp_path / "objects").rglob("*") if path.is_file()]
        path.write_bytes(bytes(path.stat().st_size))
    state["t"][7] += 1
    save(state, ShardWriter(tmp_path, step=2, delta=True))
    assert ShardReader(tmp_path).manifest.ancestor is None
    assert fingerprint(load_again(state, tmp_path)) == fingerprint(state)
    assert any(record.levelname == "WARNING" for record in caplog.records)


def test_each_save_holds_the_moments_of_its_own_step(tmp_path: Path) -> None:
    """A persistent worker kept the first save's tensors for ever (NeMo RL #4183)."""
    for step in range(3):
        state = {"exp_avg": torch.full((1000,), float(step))}
        save(state, ShardWriter(tmp_path, step=step))
    for step in range(3):
        found = load_again({"exp_avg": torch.zeros(1000)}, tmp_path, step=step)
        assert bool((found["exp_avg"] == step).all())


def test_cached_plans_are_never_mixed_in(tmp_path: Path) -> None:
    """A cached plan carries the last save's ticket; nothing may be written under it."""
    folder = tmp_path / "ckpt"

    def planner() -> DefaultSavePlanner:
        try:
            return DefaultSavePlanner(enable_plan_caching=True)
        except TypeError:
            pytest.skip("this torch caches no plans")

    first = save({"t": torch.zeros(2)}, ShardWriter(folder, step=1), planner=planner())
    with pytest.raises(CheckpointError, match=r"plans must not be cached"):
        save({"t": torch.ones(2)}, ShardWriter(folder, step=2), planner=planner())
    assert CheckpointStore(folder).head() == first


def test_what_did_not_change_is_not_written_again(tmp_path: Path) -> None:
    chance = torch.Generator().manual_seed(6)
    state = {f"frozen{n}": torch.randn(100_000, generator=chance) for n in range(19)}
    state["adapter"] = torch.randn(100_000, generator=chance)
    save(state, ShardWriter(tmp_path, step=1))
    first = bytes_in(tmp_path)
    state["adapter"] = torch.randn(100_000, generator=chance)
    save(state, ShardWriter(tmp_path, step=2))
    assert bytes_in(tmp_path) - first <= 0.06 * first
    assert fingerprint(load_again(state, tmp_path)) == fingerprint(state)


def test_many_small_tensors_take_little(tmp_path: Path) -> None:
    state = {f"t{n:04}": torch.tensor([float(n)]) for n in range(2000)}
    save(state, ShardWriter(tmp_path, step=1))
    assert bytes_in(tmp_path) <= 400_000
    assert len([path for path in tmp_path.rglob("*") if path.is_file()]) <= 6
    assert fingerprint(load_again(state, tmp_path)) == fingerprint(state)


def test_policy_versions_are_kept_as_differences(tmp_path: Path) -> None:
    chance = torch.Generator().manual_seed(7)
    weights = (torch.randn(200_000, generator=chance) * 0.02).bfloat16()
    versions = []
    for version in range(GENERATIONS_MAX + 4):
        places = torch.randint(200_000, (400,), generator=chance)
        weights = weights.clone()
        weights.view(torch.int16)[places] ^= 1
        versions.append(weights)
        save({"w": weights}, ShardWriter(tmp_path, step=version, delta=True))
    raw = sum(one.nbytes for one in versions)
    assert bytes_in(tmp_path) * 15 < raw
    for version, expected in enumerate(versions):
        reader = ShardReader(tmp_path, step=version)
        assert torch.equal(load({"w": torch.zeros_like(weights)}, reader)["w"], expected)
    store = CheckpointStore(tmp_path)
    lines = [len(ancestry_of(store, ref)) - 1 for ref in store.list_checkpoints()]
    assert max(lines) == 3
    assert [n for n, above in enumerate(lines) if not above] == [0, GENERATIONS_MAX]


def test_a_difference_that_gains_nothing_is_a_whole(tmp_path: Path) -> None:
    for step in range(2):
        state = {"w": torch.randn(50_000)}
        save(state, ShardWriter(tmp_path, step=step, delta=True))
    assert ShardReader(tmp_path).manifest.ancestor is None
    assert fingerprint(load_again(state, tmp_path)) == fingerprint(state)


def test_a_full_save_after_differences_stands_alone(tmp_path: Path) -> None:
    weights = torch.randn(100_000)
    other = torch.randn(100_000)
    for step in range(3):
        weights[step] += 1
        save({"w": weights.clone(), "o": other}, ShardWriter(tmp_path, step=step, delta=True))
    state = {"w": weights, "o": other}
    save(state, ShardWriter(tmp_path, step=3))
    reader = ShardReader(tmp_path)
    assert reader.manifest.ancestor is None
    assert fingerprint(load(emptied(state), reader)) == fingerprint(state)


def test_after_going_back_a_difference_rests_on_what_was_gone_back_to(tmp_path: Path) -> None:
    weights = torch.randn(100_000)
    refs = []
    for step in range(3):
        weights[step] += 1
        refs.append(save({"w": weights.clone()}, ShardWriter(tmp_path, step=step, delta=True)))
    CheckpointStore(tmp_path).move_head(refs[1])
    state = load({"w": torch.zeros(100_000)}, ShardReader(tmp_path))
    state["w"][50] += 1
    save(state, ShardWriter(tmp_path, step=2, delta=True))
    assert fingerprint(load_again(state, tmp_path)) == fingerprint(state)
    assert fingerprint(load_again(state, tmp_path, step=2)) == fingerprint(state)


@pytest.mark.parametrize("options", [{"step": -1}, {"step": 10**12}, {"step": 1, "threads": 0}])
def test_what_is_out_of_range_is_refused(tmp_path: Path, options: dict[str, int]) -> None:
    with pytest.raises(ValueError, match="must be"):
        ShardWriter(tmp_path, **options)
    with pytest.raises(ValueError, match="must match"):
        save({}, ShardWriter(tmp_path, step=1), checkpoint_id="../up")
