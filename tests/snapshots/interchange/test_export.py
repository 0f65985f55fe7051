"""Export to safetensors: the exact bytes, put together from chunks, whole or not at all."""

import json
import os
import tracemalloc
from pathlib import Path
from random import Random

import pytest

from eventlog.errors import CheckpointError, ConfigError
from snapshots.checkpoint_store import CheckpointStore
from snapshots.checkpoints import part_writer
from snapshots.interchange import placed_file
from snapshots.interchange.export import INDEX_NAME, export_checkpoint
from snapshots.interchange.safetensors_file import read_header, tensor_bytes
from tests.support.chunk_blocks import cut
from tests.support.safetensors_files import keep_tensors, random_tensors, read_file
from tests.support.scale import scaled

SHAPES = ((3, 5), (), (0, 4), (7,), (2, 1, 3))


def store_of(tmp_path: Path) -> CheckpointStore:
    return CheckpointStore(tmp_path / "ckpt")


def test_one_file_holds_every_tensor_bit_for_bit(tmp_path: Path) -> None:
    tensors = random_tensors(Random(1), *SHAPES)
    ref = keep_tensors(store_of(tmp_path), 7, tensors, values={"lr": 0.1, "n": [1]})
    done = export_checkpoint(store_of(tmp_path), ref, tmp_path / "out")
    assert read_file(tmp_path / "out" / "model.safetensors") == tensors
    assert (done.files, done.tensors) == (("model.safetensors",), len(tensors))
    assert (done.tensors_left_out, done.values_left_out) == (0, 2)
    assert done.tensor_bytes == sum(len(data) for _d, _s, data in tensors.values())
    with open(tmp_path / "out" / "model.safetensors", "rb", buffering=0) as file:
        metadata = read_header(file, os.fstat(file.fileno()).st_size, done.folder).metadata
    assert metadata == {
        "format": "pt",
        "steplog.checkpoint": ref.id,
        "steplog.manifest_sha256": ref.digest,
        "steplog.training_step": "7",
    }


def test_the_same_checkpoint_gives_the_same_bytes(tmp_path: Path) -> None:
    ref = keep_tensors(store_of(tmp_path), 7, random_tensors(Random(1), *SHAPES))
    for name in ("a", "b"):
        export_checkpoint(
            store_of(tmp_path), ref, tmp_path / name, layout="huggingface", shard_bytes_max=40
        )
    names = sorted(os.listdir(tmp_path / "a"))
    assert names == sorted(os.listdir(tmp_path / "b"))
    for name in names:
        assert (tmp_path / "a" / name).read_bytes() == (tmp_path / "b" / name).read_bytes()


def test_chunks_along_any_dimension_are_put_together(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(part_writer, "PART_BYTES", 64)
    chance = Random(2)
    tensors = {
        name: ("int16", shape, chance.randbytes(2 * size))
        for name, shape, size in (("rows", (10, 30), 300), ("columns", (10, 30), 300))
    } | {"both": ("float32", (4, 6, 5), chance.randbytes(480))}
    blocks = {
        "rows": [((6, 0), (4, 30)), ((0, 0), (6, 30))],
        "columns": [((0, start), (10, 10)) for start in (20, 0, 10)],
        "both": [
            ((first, second, 0), (2, size, 5))
            for first in (0, 2)
            for second, size in ((0, 1), (1, 0), (1, 5))
        ],
    }
    ref = keep_tensors(store_of(tmp_path), 1, tensors, blocks)
    export_checkpoint(store_of(tmp_path), ref, tmp_path / "out")
    assert read_file(tmp_path / "out" / "model.safetensors") == tensors


def test_tensors_cut_at_random_are_put_together(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Runs of every length: woven in memory in spans, or written one by one."""
    monkeypatch.setattr(part_writer, "PART_BYTES", 48)
    monkeypatch.setattr(placed_file, "SHORT_RUN_BYTES", 12)
    monkeypatch.setattr(placed_file, "SPAN_BYTES", 64)
    chance = Random(8)
    tensors, blocks = {}, {}
    for number in range(scaled(150, 1000)):
        shape = tuple(chance.randint(0, 7) for _ in range(chance.randint(0, 4)))
        dtype = chance.choice(("uint8", "int16", "float32", "complex64"))
        data = chance.randbytes(tensor_bytes(dtype, shape))
        tensors[f"t{number}"] = (dtype, shape, data)
        blocks[f"t{number}"] = cut(chance, shape)
    ref = keep_tensors(store_of(tmp_path), 1, tensors, blocks)
    export_checkpoint(store_of(tmp_path), ref, tmp_path / "out")
    assert read_file(tmp_path / "out" / "model.safetensors") == tensors


def test_a_subtree_is_chosen_and_its_prefix_taken_away(tmp_path: Path) -> None:
    one = ("uint8", (2,), b"ab")
    names = ("model.a.weight", "model.a.bias", "model.b.weight", "optim.a.weight")
    ref = keep_tensors(store_of(tmp_path), 1, dict.fromkeys(names, one))
    done = export_checkpoint(store_of(tmp_path), ref, tmp_path / "all", prefix="model.")
    assert list(read_file(tmp_path / "all" / "model.safetensors")) == [
        "a.bias",
        "a.weight",
        "b.weight",
    ]
    assert (done.tensors, done.tensors_left_out) == (3, 1)
    export_checkpoint(
        store_of(tmp_path), ref, tmp_path / "some", prefix="model.", tensors=["*.a.*", "*.nothing"]
    )
    assert list(read_file(tmp_path / "some" / "model.safetensors")) == ["a.bias", "a.weight"]
    for prefix, patterns, what in (
        ("modell.", [], "no tensor of checkpoint .* is chosen: it has 4, as 'model.a.bias'"),
        ("", ["b*"], "no tensor"),
        ("model.a.bias", [], "nothing is left"),
    ):
        with pytest.raises(ConfigError, match=what):
            export_checkpoint(
                store_of(tmp_path), ref, tmp_path / "no", prefix=prefix, tensors=patterns
            )
    assert not (tmp_path / "no").exists()


def test_hugging_face_shards_and_their_index(tmp_path: Path) -> None:
    tensors = {f"model.t{n}": ("uint8", (10,), bytes([n]) * 10) for n in range(6)}
    tensors["model.t3"] = ("uint8", (50,), bytes(50))
    ref = keep_tensors(store_of(tmp_path), 1, tensors)
    done = export_checkpoint(
        *(store_of(tmp_path), ref, tmp_path / "out"),
        prefix="model.",
        layout="huggingface",
        shard_bytes_max=30,
    )
    files = [f"model-{n:05}-of-00003.safetensors" for n in (1, 2, 3)]
    assert done.files == (*files, INDEX_NAME)
    index = json.loads((tmp_path / "out" / INDEX_NAME).read_text())
    assert index["metadata"] == {"total_size": 100}
    expected = {"t0": 0, "t1": 0, "t2": 0, "t3": 1, "t4": 2, "t5": 2}
    assert index["weight_map"] == {name: files[number] for name, number in expected.items()}
    found = {}
    for file in files:
        found |= read_file(tmp_path / "out" / file)
    assert {f"model.{name}": one for name, one in found.items()} == tensors
    small = export_checkpoint(store_of(tmp_path), ref, tmp_path / "one", layout="huggingface")
    assert small.files == ("model.safetensors",)


def test_what_safetensors_cannot_hold_is_refused_by_name_and_can_be_left_out(
    tmp_path: Path,
) -> None:
    tensors = {"a": ("uint8", (1,), b"x"), "model.odd": ("complex128", (1,), bytes(16))}
    ref = keep_tensors(store_of(tmp_path), 1, tensors)
    with pytest.raises(CheckpointError, match=r"'model\.odd' is of dtype complex128"):
        export_checkpoint(store_of(tmp_path), ref, tmp_path / "out")
    assert sorted(os.listdir(tmp_path)) == ["ckpt"]
    export_checkpoint(store_of(tmp_path), ref, tmp_path / "out", tensors=["a"])


def test_a_folder_in_use_is_left_alone_and_an_empty_one_is_taken(tmp_path: Path) -> None:
    ref = keep_tensors(store_of(tmp_path), 1, {"a": ("uint8", (1,), b"x")})
    (tmp_path / "used").mkdir()
    (tmp_path / "used" / "mine").write_text("mine")
    (tmp_path / "file").write_text("mine")
    (tmp_path / "link").symlink_to(tmp_path / "nowhere")
    for name in ("used", "file", "link"):
        with pytest.raises(ConfigError, match="is there already"):
            export_checkpoint(store_of(tmp_path), ref, tmp_path / name)
    (tmp_path / "empty").mkdir()
    export_checkpoint(store_of(tmp_path), ref, tmp_path / "empty")
    export_checkpoint(store_of(tmp_path), ref, tmp_path / "deep" / "er")
    assert sorted(os.listdir(tmp_path)) == ["ckpt", "deep", "empty", "file", "link", "used"]
    assert os.listdir(tmp_path / "used") == ["mine"]


def test_damage_is_told_and_leaves_nothing(tmp_path: Path) -> None:
    data = Random(4).randbytes(200_000)
    ref = keep_tensors(store_of(tmp_path), 1, {"model.w": ("uint8", (200_000,), data)})
    (damaged,) = (
        path for path in (tmp_path / "ckpt" / "objects").rglob("*") if len(path.name) == 64
    )
    bits = bytearray(damaged.read_bytes())
    bits[100_000] ^= 1
    damaged.write_bytes(bits)
    with pytest.raises(CheckpointError, match=r"'model\.w'") as caught:
        export_checkpoint(store_of(tmp_path), ref, tmp_path / "out", prefix="model.")
    assert caught.value.object_digest == damaged.name
    assert sorted(os.listdir(tmp_path)) == ["ckpt"]


def test_the_memory_it_takes_is_that_of_parts_not_of_the_model(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(part_writer, "PART_BYTES", 1 << 18)
    tensors = {f"w{n}": ("uint8", (1 << 23,), Random(n).randbytes(1 << 23)) for n in range(6)}
    ref = keep_tensors(store_of(tmp_path), 1, tensors)
    tracemalloc.start()
    try:
        export_checkpoint(store_of(tmp_path), ref, tmp_path / "out")
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < 6 << 20, f"{peak >> 20} MiB for 48 MiB of tensors"


def test_a_layout_that_is_none(tmp_path: Path) -> None:
    ref = keep_tensors(store_of(tmp_path), 1, {"a": ("uint8", (1,), b"x")})
    with pytest.raises(ValueError, match="layout"):
        export_checkpoint(
            store_of(tmp_path),
            ref,
            tmp_path / "out",
            layout="pickle",  # type: ignore[arg-type]
        )
