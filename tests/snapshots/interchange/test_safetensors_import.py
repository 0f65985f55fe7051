"""Import of safetensors: exact, complete, and nothing that was not asked for."""

import json
from collections.abc import Callable
from pathlib import Path
from random import Random
from zipfile import ZipFile

import pytest

from eventlog.errors import CheckpointError, ConfigError
from snapshots.checkpoint_store import CheckpointStore
from snapshots.interchange.export import export_checkpoint
from snapshots.interchange.safetensors_import import import_safetensors
from tests.support.safetensors_files import keep_tensors, random_tensors, read_file, write_file

SHAPES = ((3, 5), (), (0, 4), (7,), (2, 1, 3))
INDEX = "model.safetensors.index.json"
TINY = ("uint8", (1,), b"x")


@pytest.fixture
def store(tmp_path: Path) -> CheckpointStore:
    return CheckpointStore(tmp_path / "ckpt")


def exported(store: CheckpointStore, folder: Path, **options: object) -> dict[str, object]:
    """All tensors of the head, by way of an export."""
    head = store.head()
    assert head is not None
    export_checkpoint(store, head, folder, **options)  # type: ignore[arg-type]
    return dict(read_file(folder / "model.safetensors"))


def test_a_file_comes_in_and_goes_out_bit_for_bit(store: CheckpointStore, tmp_path: Path) -> None:
    tensors = random_tensors(Random(1), *SHAPES)
    write_file(tmp_path / "a.safetensors", tensors, {"format": "pt"})
    done = import_safetensors(store, tmp_path / "a.safetensors", step=12)
    assert done.checkpoint == store.head()
    assert (done.checkpoint.training_step, done.tensors, done.values) == (12, len(tensors), 0)
    assert done.tensor_bytes == sum(len(one[2]) for one in tensors.values())
    assert exported(store, tmp_path / "out", prefix="model.") == tensors
    name = next(iter(tensors))
    entry = store.read_manifest(done.checkpoint).tensors[f"model.{name}"]
    assert entry.path == ("model", name)


@pytest.mark.parametrize(
    ("prefix", "name", "path"),
    [
        ("", "w", ("w",)),
        ("policy.", "policy.w", ("policy", "w")),
        ("a.b.", "a.b.w", ("a.b", "w")),
        ("x", "xw", ("xw",)),
    ],
)
def test_the_prefix_says_where_in_the_state(
    store: CheckpointStore, tmp_path: Path, prefix: str, name: str, path: tuple[str, ...]
) -> None:
    write_file(tmp_path / "a.safetensors", {"w": TINY})
    done = import_safetensors(store, str(tmp_path / "a.safetensors"), step=1, prefix=prefix)
    entry = store.read_manifest(done.checkpoint).tensors
    assert {key: one.path for key, one in entry.items()} == {name: path}


def hugging_face(tmp_path: Path) -> tuple[dict[str, object], Path]:
    tensors = random_tensors(Random(3), *SHAPES)
    source = CheckpointStore(tmp_path / "source")
    ref = keep_tensors(source, 1, tensors)
    export_checkpoint(source, ref, tmp_path / "hf", layout="huggingface", shard_bytes_max=60)
    return dict(tensors), tmp_path / "hf"


def test_a_folder_of_shards_with_and_without_its_index(
    store: CheckpointStore, tmp_path: Path
) -> None:
    tensors, folder = hugging_face(tmp_path)
    (folder / "other.safetensors").write_bytes(b"not of this model")
    import_safetensors(store, folder, step=1, prefix="")
    assert exported(store, tmp_path / "a") == tensors
    (folder / "other.safetensors").unlink()
    (folder / INDEX).unlink()
    import_safetensors(store, folder, step=2, prefix="")
    assert exported(store, tmp_path / "b") == tensors
    import_safetensors(store, sorted(folder.iterdir()), step=3, prefix="")
    assert exported(store, tmp_path / "c") == tensors
    head = store.head()
    assert head is not None
    assert head.training_step == 3


def test_a_missing_shard_is_named(store: CheckpointStore, tmp_path: Path) -> None:
    _tensors, folder = hugging_face(tmp_path)
    names = sorted(path.name for path in folder.glob("model-*"))
    (folder / names[1]).unlink()
    for source in (folder, sorted(folder.glob("model-*"))):
        with pytest.raises(CheckpointError, match=f"{names[1]} cannot be imported: it is missing"):
            import_safetensors(store, source, step=1)
    (folder / INDEX).unlink()
    with pytest.raises(CheckpointError, match=f"{names[1]} cannot be imported: it is missing"):
        import_safetensors(store, folder, step=1)
    with pytest.raises(ConfigError, match="not among the given files"):
        import_safetensors(store, [folder / names[2]], step=1)
    assert store.head() is None


def test_an_index_that_does_not_fit_is_refused(store: CheckpointStore, tmp_path: Path) -> None:
    folder = tmp_path / "hf"
    folder.mkdir()
    write_file(folder / "a.safetensors", {"x": TINY})
    write_file(folder / "b.safetensors", {"y": TINY})
    right = {"x": "a.safetensors", "y": "b.safetensors"}
    for index, what in (
        ({"x": "a.safetensors", "y": "a.safetensors"}, "tensor 'y' is not in it"),
        ({"x": "a.safetensors", "y": "c.safetensors"}, r"c.safetensors .*it is missing"),
        ({**right, "z": "b.safetensors"}, "tensor 'z' is not in it"),
        ({"x": "b.safetensors", "y": "a.safetensors"}, "does not say that tensor 'x' is in it"),
        ({"x": "../hf/a.safetensors"}, "no file beside it"),
        ({"x": "/etc/passwd"}, "no file beside it"),
        ({"x": ".."}, "no file beside it"),
        ({"x": 1}, "no file beside it"),
        ({}, "no weight_map"),
        ([], "no weight_map"),
    ):
        (folder / INDEX).write_text(json.dumps({"weight_map": index}))
        with pytest.raises(CheckpointError, match=what):
            import_safetensors(store, folder, step=1)
    for text in ("[", "[" * 100_000, "[]", "\xff"):
        (folder / INDEX).write_text(text, encoding="latin-1")
        with pytest.raises(CheckpointError, match="cannot be imported"):
            import_safetensors(store, folder, step=1)
    (folder / INDEX).write_text(json.dumps({"weight_map": right}))
    import_safetensors(store, folder, step=1)


def test_what_is_no_source_is_refused(store: CheckpointStore, tmp_path: Path) -> None:
    write_file(tmp_path / "a.safetensors", {"x": TINY})
    write_file(tmp_path / "b.safetensors", {"x": TINY})
    with pytest.raises(CheckpointError, match=r"tensor 'x' is in a\.safetensors too"):
        import_safetensors(store, tmp_path, step=1)
    (tmp_path / "empty").mkdir()
    with pytest.raises(ConfigError, match=r"no file that ends in \.safetensors"):
        import_safetensors(store, tmp_path / "empty", step=1)
    with pytest.raises(ConfigError, match="there is nothing at"):
        import_safetensors(store, tmp_path / "nothing", step=1)
    (tmp_path / "link").symlink_to(tmp_path / "unmounted")
    with pytest.raises(CheckpointError, match="link that leads nowhere"):
        import_safetensors(store, tmp_path / "link", step=1)
    (tmp_path / "cut.safetensors").write_bytes((tmp_path / "a.safetensors").read_bytes()[:-1])
    with pytest.raises(CheckpointError, match=r"cut\.safetensors cannot be used"):
        import_safetensors(store, tmp_path / "cut.safetensors", step=1)
    with pytest.raises(ValueError, match="step"):
        import_safetensors(store, tmp_path / "a.safetensors", step=-1)
    with pytest.raises(CheckpointError, match="has 5000 characters"):
        import_safetensors(store, tmp_path / "a.safetensors", step=1, prefix="p" * 4999)
    assert store.head() is None


def _zipped(path: Path) -> None:
    with ZipFile(path, "w") as file:
        file.writestr("archive/data.pkl", b"x" * 100)


def _old(path: Path) -> None:
    path.write_bytes(bytes.fromhex("80028a0a6cfc9c46f920") + bytes(100))


@pytest.mark.parametrize("write", [_zipped, _old])
def test_a_file_of_torch_save_is_told_as_one(
    store: CheckpointStore, tmp_path: Path, write: Callable[[Path], None]
) -> None:
    """Its first bytes were told as a header of 578712552184433488 bytes: fetch it again."""
    write(tmp_path / "model.pt")
    with pytest.raises(CheckpointError, match=r"model.pt is no file .* but of torch.save") as error:
        import_safetensors(store, tmp_path / "model.pt", step=1)
    assert "torch.load(..., weights_only=True)" in error.value.hint
    assert store.list_checkpoints() == []


def test_pieces_of_ranks_do_not_pass_for_whole_tensors(
    store: CheckpointStore, tmp_path: Path
) -> None:
    def pieces(**offsets: list[int]) -> dict[str, str]:
        saved = {name: {"saved_offsets": one} for name, one in offsets.items()}
        return {"DCP_SHARDING_INFO": json.dumps(saved)}

    whole = tmp_path / "model-00001-of-00001.safetensors"
    write_file(whole, {"x": TINY}, pieces(x=[0]))
    import_safetensors(store, whole, step=1)
    for name, metadata in (
        ("other.safetensors", pieces(x=[3])),
        ("shard-00001-model-00001-of-00001.safetensors", pieces(x=[0])),
        ("strange.safetensors", {"DCP_SHARDING_INFO": "[1]"}),
    ):
        write_file(tmp_path / name, {"x": TINY}, metadata)
        with pytest.raises(CheckpointError, match="pieces of tensors that ranks have saved"):
            import_safetensors(store, tmp_path / name, step=1)
