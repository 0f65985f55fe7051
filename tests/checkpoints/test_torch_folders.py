"""Import of what torch's own writers wrote, and export for its readers: real torch, real files."""

import io
import os
import pickle
import subprocess
import sys
import warnings
import zipfile
from collections import OrderedDict
from pathlib import Path
from random import Random
from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="torch is not installed: torch checkpoints not shown")

import torch.distributed.checkpoint as dcp  # noqa: E402
from torch.distributed.checkpoint import FileSystemWriter  # noqa: E402

from eventlog.errors import CheckpointError, CheckpointIncompleteError  # noqa: E402
from snapshots.checkpoint_store import CheckpointStore  # noqa: E402
from snapshots.interchange.export import export_checkpoint  # noqa: E402
from snapshots.interchange.safetensors_import import import_safetensors  # noqa: E402
from snapshots.interchange.torch_import import import_dcp_folder  # noqa: E402
from snapshots.interchange.torch_item import read_value  # noqa: E402
from snapshots.shard_reader import ShardReader  # noqa: E402
from snapshots.shard_writer import ShardWriter  # noqa: E402
from tests.support.processes import ROOT  # noqa: E402
from tests.support.torch_states import (  # noqa: E402
    emptied,
    fingerprint,
    load,
    load_again,
    odd_state,
    random_tensor,
    save,
)


@pytest.fixture
def store(tmp_path: Path) -> CheckpointStore:
    return CheckpointStore(tmp_path / "ckpt")


def torch_save(state: dict[str, Any], folder: Path, **options: Any) -> Path:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        dcp.save(state, storage_writer=FileSystemWriter(folder, **options))
    return folder


def test_sharded_by_four_ranks_and_loaded_by_others_bit_for_bit(tmp_path: Path) -> None:
    """FSDP2, DTensors of every layout, AdamW, frozen and tied, nested paths."""
    done = subprocess.run(
        [sys.executable, "-m", "tests.support.torch_folder_ranks", str(tmp_path)],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.endswith("done\n")


@pytest.mark.parametrize("options", [{}, {"thread_count": 3}, {"single_file_per_rank": False}])
def test_every_kind_of_tensor_and_value_comes_over(
    store: CheckpointStore, tmp_path: Path, options: dict[str, Any]
) -> None:
    state = odd_state()
    done = import_dcp_folder(store, torch_save(state, tmp_path / "t", **options), step=3)
    assert done.checkpoint == store.head()
    assert done.left_out == ()
    assert fingerprint(load_again(state, store.folder)) == fingerprint(state)


def test_folders_of_older_versions_of_torch_are_read(
    store: CheckpointStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Those wrote no strides, no version and no place of the folder."""
    from torch.distributed.checkpoint.metadata import TensorProperties

    state = {"a": {"w": torch.randn(3, 2).t()}, "n": 3}
    folder = torch_save(state, tmp_path / "t")
    metadata = pickle.loads((folder / ".metadata").read_bytes())
    metadata.storage_meta = metadata.version = None
    now = TensorProperties.__getstate__
    monkeypatch.setattr(TensorProperties, "__getstate__", lambda one: now(one)[:5])
    for protocol in (2, 3, 4, 5):
        (folder / ".metadata").write_bytes(pickle.dumps(metadata, protocol))
        import_dcp_folder(store, folder, step=protocol)
        assert fingerprint(load_again(state, store.folder)) == fingerprint(state)


def test_sets_sizes_and_bytes_come_over(store: CheckpointStore, tmp_path: Path) -> None:
    values: dict[str, Any] = {
        "set": {1, "a"},
        "frozen": frozenset([b"x"]),
        "complex": 1 + 2j,
        "empty": b"",
        "big": 2**70,
    }
    ordered = OrderedDict(b=1, a=2)
    state = {"values": values, "size": torch.Size([2, 3]), "list": [ordered]}
    import_dcp_folder(store, torch_save(state, tmp_path / "t"), step=3)
    found = load_again(state, store.folder)
    assert found["values"] == values
    assert found["size"] == (2, 3)
    assert found["list"] == [dict(ordered)]


def test_values_of_other_kinds_are_refused_or_left_out_by_name(
    store: CheckpointStore, tmp_path: Path
) -> None:
    state = {"w": torch.ones(3), "good": 7, "path": Path("/tmp"), "dtype": torch.float32}
    folder = torch_save(state, tmp_path / "t")
    with pytest.raises(CheckpointError, match=r"'(path|dtype)' cannot be imported: .*it names"):
        import_dcp_folder(store, folder, step=1)
    assert store.head() is None
    done = import_dcp_folder(store, folder, step=1, skip_values=True)
    assert done.left_out == ("dtype", "path")
    assert (done.tensors, done.values) == (1, 1)


def test_sparse_tensors_and_extensions_are_refused_by_name(
    store: CheckpointStore, tmp_path: Path
) -> None:
    extensions = pytest.importorskip(
        "torch.distributed.checkpoint._extension", reason="this torch has no extensions"
    )
    packed = torch_save({"w": torch.ones(3)}, tmp_path / "z", _extensions=[extensions.ZStandard()])
    with pytest.raises(CheckpointError, match=r"'w' was written through .*'stream\.zstd"):
        import_dcp_folder(store, packed, step=1)
    if "serialization_format" in FileSystemWriter.__init__.__annotations__:
        from torch.distributed.checkpoint.filesystem import SerializationFormat

        pytest.importorskip("safetensors")
        other = torch_save(
            {"w": torch.ones(3)},
            tmp_path / "s",
            serialization_format=SerializationFormat.SAFETENSORS,
        )
        with pytest.raises(CheckpointError, match=r"'w' cannot be imported: .*safetensors"):
            import_dcp_folder(store, other, step=1)
    assert store.head() is None


def test_what_is_missing_cut_or_altered_is_named(store: CheckpointStore, tmp_path: Path) -> None:
    """torch compares no checksum: every one of such flips loads there in silence."""
    with pytest.raises(CheckpointIncompleteError, match=r"no file \.metadata"):
        import_dcp_folder(store, tmp_path, step=1)
    state = {"w": random_tensor(torch.float32, 500), "n": 3}
    folder = torch_save(state, tmp_path / "t")
    (path,) = folder.glob("*.distcp")
    whole = path.read_bytes()
    payload = whole.index(bytes(state["w"].numpy().tobytes()))
    chance = Random(1)
    for _ in range(25):
        data = bytearray(whole)
        data[payload + chance.randrange(2000)] ^= 1 << chance.randrange(8)
        path.write_bytes(data)
        with pytest.raises(CheckpointError, match=r"'w' cannot be imported: .* is damaged"):
            import_dcp_folder(store, folder, step=1)
    for _ in range(100):  # anywhere: an error of ours, or the same state
        data = bytearray(whole)
        data[chance.randrange(len(data))] ^= 1 << chance.randrange(8)
        path.write_bytes(data)
        try:
            import_dcp_folder(store, folder, step=1)
        except CheckpointError:
            continue
        assert fingerprint(load_again(state, store.folder)) == fingerprint(state)
    for size in (0, 1, len(whole) // 2):
        path.write_bytes(whole[:size])
        with pytest.raises(CheckpointError):
            import_dcp_folder(store, folder, step=1)
    path.unlink()
    with pytest.raises(CheckpointError, match=path.name):
        import_dcp_folder(store, folder, step=1)


def test_archives_without_checksums_are_read(store: CheckpointStore, tmp_path: Path) -> None:
    if not hasattr(torch.serialization, "set_crc32_options"):
        pytest.skip("this torch always computes them")
    torch.serialization.set_crc32_options(False)
    try:
        folder = torch_save({"w": torch.arange(9)}, tmp_path / "t")
    finally:
        torch.serialization.set_crc32_options(True)
    import_dcp_folder(store, folder, step=1)
    assert load_again({"w": torch.zeros(9).long()}, store.folder)["w"].tolist() == list(range(9))


class Evil:
    def __reduce__(self) -> tuple[Any, ...]:
        return (os.mkdir, ("made",))


def test_hostile_folders_run_nothing(
    store: CheckpointStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The same files run code in `dcp.load` (pytorch #189308)."""
    (tmp_path / "cwd").mkdir()
    monkeypatch.chdir(tmp_path / "cwd")
    folder = torch_save({"w": torch.ones(3), "n": 3}, tmp_path / "t")
    metadata = pickle.loads((folder / ".metadata").read_bytes())
    for spoil in ("planner_data", "storage_data", "whole"):
        altered = pickle.loads(pickle.dumps(metadata))
        if spoil != "whole":
            setattr(altered, spoil, Evil())
        (folder / ".metadata").write_bytes(pickle.dumps(Evil() if spoil == "whole" else altered))
        with pytest.raises(CheckpointError, match=r"names 'posix\.mkdir'"):
            import_dcp_folder(store, folder, step=1)
    (folder / ".metadata").write_bytes(pickle.dumps(metadata))
    torch_save({"w": torch.ones(3), "n": Evil()}, folder)
    with pytest.raises(CheckpointError, match=r"'n' cannot be imported: .*'posix\.mkdir'"):
        import_dcp_folder(store, folder, step=1)
    assert not os.listdir(tmp_path / "cwd")


@pytest.mark.parametrize(
    ("spoil", "what"),
    [
        (lambda info: setattr(info, "relative_path", "../t/__0_0.distcp"), "outside of the folder"),
        (lambda info: setattr(info, "relative_path", "/etc/passwd"), "outside of the folder"),
        (lambda info: setattr(info, "relative_path", "nothing.distcp"), "nothing.distcp"),
        (lambda info: setattr(info, "offset", -1), "no place"),
        (lambda info: setattr(info, "length", 10**12), "takes 1000000000000 bytes"),
        (lambda info: setattr(info, "offset", 10**12), "from 1000000000000"),
    ],
)
def test_places_that_lie_are_refused(
    store: CheckpointStore, tmp_path: Path, spoil: Any, what: str
) -> None:
    folder = torch_save({"w": torch.ones(3)}, tmp_path / "t")
    metadata = pickle.loads((folder / ".metadata").read_bytes())
    for info in metadata.storage_data.values():
        spoil(info)
    (folder / ".metadata").write_bytes(pickle.dumps(metadata))
    with pytest.raises(CheckpointError, match=what):
        import_dcp_folder(store, folder, step=1)


def test_shapes_that_lie_are_refused(store: CheckpointStore, tmp_path: Path) -> None:
    folder = torch_save({"w": torch.ones(3, 2)}, tmp_path / "t")
    whole = (folder / ".metadata").read_bytes()
    for size, chunk, what in (
        ((4, 2), (3, 2), "hold 6 numbers of 8"),
        ((2, 3), (2, 3), r"of \(3, 2\) lies in"),
        ((2, 2), (3, 2), "outside"),
    ):
        metadata = pickle.loads(whole)
        metadata.state_dict_metadata["w"].size = torch.Size(size)
        metadata.state_dict_metadata["w"].chunks[0].sizes = torch.Size(chunk)
        (folder / ".metadata").write_bytes(pickle.dumps(metadata))
        with pytest.raises(CheckpointError, match=what):
            import_dcp_folder(store, folder, step=1)


def test_values_that_are_far_larger_than_they_look_are_refused() -> None:
    laughs: list[Any] = ["ha" * 1000]
    for _ in range(40):
        laughs = [laughs, laughs]
    archive = io.BytesIO()
    torch.save(laughs, archive)
    assert len(archive.getvalue()) < 10_000
    with pytest.raises(CheckpointError, match="'n' cannot be imported: it takes more than"):
        read_value("n", archive.getbuffer())


def test_archives_that_lie_about_a_tensor_are_refused(
    store: CheckpointStore, tmp_path: Path
) -> None:
    folder = torch_save({"w": torch.ones(4)}, tmp_path / "t")
    (path,) = folder.glob("*.distcp")
    archive = zipfile.ZipFile(path)
    entries = {one.filename: archive.read(one) for one in archive.infolist()}
    archive.close()
    described = next(name for name in entries if name.endswith("data.pkl"))
    for old, new, what in (
        (b"K\x00K\x04\x85", b"K\x01K\x04\x85", "do not lie in the 16 bytes"),
        (b"K\x00K\x04\x85", b"K\x00K\x05\x85", "do not lie in the 16 bytes"),
        (b"FloatStorage", b"DoubleStorage", "do not lie in the 16 bytes"),
        (b"cpu", b"cud", None),
    ):
        made = io.BytesIO()
        with zipfile.ZipFile(made, "w") as file:
            for name, data in entries.items():
                changed = data.replace(old, new, 1) if name == described else data
                assert name != described or changed != data
                file.writestr(name, changed)
        metadata = pickle.loads((folder / ".metadata").read_bytes())
        (info,) = metadata.storage_data.values()
        info.offset, info.length = 0, len(made.getvalue())
        (folder / ".metadata").write_bytes(pickle.dumps(metadata))
        path.write_bytes(made.getvalue())
        if what is None:
            import_dcp_folder(store, folder, step=1)
            continue
        with pytest.raises(CheckpointError, match=what):
            import_dcp_folder(store, folder, step=1)


def test_torch_and_safetensors_read_what_is_exported(
    store: CheckpointStore, tmp_path: Path
) -> None:
    safetensors = pytest.importorskip("safetensors.torch", reason="safetensors is not installed")
    state = {"model": {f"layer{n}.weight": torch.randn(50, 7).bfloat16() for n in range(5)}}
    state["model"]["tied"] = state["model"]["layer0.weight"]
    ref = save(state, ShardWriter(store, step=1))
    folder = tmp_path / "hf"
    export_checkpoint(
        *(store, ref, folder), prefix="model.", layout="huggingface", shard_bytes_max=1500
    )
    found: dict[str, Any] = {}
    for path in sorted(folder.glob("*.safetensors")):
        found |= safetensors.load_file(path)
    assert fingerprint(found) == fingerprint(dict(sorted(state["model"].items())))
    try:
        from torch.distributed.checkpoint import HuggingFaceStorageReader
    except ImportError:
        pass  # of a later torch
    else:
        loaded = emptied(state["model"])
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            dcp.load(loaded, storage_reader=HuggingFaceStorageReader(str(folder)))
        assert fingerprint(loaded) == fingerprint(state["model"])


def test_a_version_that_is_stored_as_a_difference_is_exported_whole(
    store: CheckpointStore, tmp_path: Path
) -> None:
    safetensors = pytest.importorskip("safetensors.torch", reason="safetensors is not installed")
    weights = torch.randn(100_000).bfloat16()
    save({"w": weights}, ShardWriter(store, step=1, delta=True))
    weights[::50] += 1
    ref = save({"w": weights}, ShardWriter(store, step=2, delta=True))
    assert store.read_manifest(ref).ancestor is not None
    export_checkpoint(store, ref, tmp_path / "out")
    found = safetensors.load_file(tmp_path / "out" / "model.safetensors")
    assert fingerprint(found) == fingerprint({"w": weights})


def test_what_safetensors_wrote_loads_into_a_model(store: CheckpointStore, tmp_path: Path) -> None:
    safetensors = pytest.importorskip("safetensors.torch", reason="safetensors is not installed")
    model = torch.nn.Sequential(torch.nn.Linear(5, 3), torch.nn.BatchNorm1d(3))
    safetensors.save_file(model.state_dict(), tmp_path / "model.safetensors")
    import_safetensors(store, tmp_path, step=0)
    state = {"model": emptied(model.state_dict())}
    load(state, ShardReader(store))
    assert fingerprint(state["model"]) == fingerprint(dict(model.state_dict()))
