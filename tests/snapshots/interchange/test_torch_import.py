"""A folder that torch 2.15 wrote (tests/golden/torch_folder), imported without torch, for ever."""

from pathlib import Path

from eventlog.canonical import decode
from snapshots.checkpoint_store import CheckpointStore
from snapshots.checkpoints.parts import PartReader
from snapshots.interchange.torch_import import import_dcp_folder
from tests.support.sources import ROOT

FOLDER = ROOT / "tests" / "golden" / "torch_folder"
BF16_0_TO_11 = bytes.fromhex("0000803f004040408040a040c040e0400041104120413041")
F8_0_TO_4 = bytes.fromhex("0038404448")
TENSORS = {
    "model.w": ("bfloat16", (3, 4), ("model", "w"), BF16_0_TO_11),
    "model.f8": ("float8_e4m3fn", (5,), ("model", "f8"), F8_0_TO_4),
    "model.empty": ("float32", (0, 2), ("model", "empty"), b""),
    "optim.steps.0": ("float32", (), ("optim", "steps", 0), bytes.fromhex("00004040")),
}
VALUES = {
    "optim.lr": (("optim", "lr"), 0.1),
    "optim.betas": (("optim", "betas"), (0.9, 0.999)),
    "optim.steps.1": (("optim", "steps", 1), 7),
    "name": (("name",), "run"),
    "raw": (("raw",), b"\0\xff"),
}


def test_its_tensors_and_values(tmp_path: Path) -> None:
    store = CheckpointStore(tmp_path)
    done = import_dcp_folder(store, FOLDER, step=4)
    reader = PartReader(store, store.read_manifest(done.checkpoint))
    found = {
        name: (
            entry.dtype,
            entry.shape,
            entry.path,
            b"".join(
                bytes(reader.read_part(name, part, 1))
                for chunk in entry.chunks
                for part in chunk.parts
            ),
        )
        for name, entry in reader.manifest.tensors.items()
    }
    assert found == TENSORS
    values = {name: (one.path, decode(one.data)) for name, one in reader.manifest.values.items()}
    assert values == VALUES
