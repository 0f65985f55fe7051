"""Files of safetensors made by hand, and checkpoints to export. Needs no torch."""

from collections.abc import Mapping
from pathlib import Path
from random import Random

from snapshots.checkpoint_store import CheckpointStore
from snapshots.checkpoints.chunk_layout import Block, runs_of
from snapshots.checkpoints.manifest import ITEM_BYTES, CheckpointRef
from snapshots.interchange.import_writer import ImportedTensor, ImportWriter
from snapshots.interchange.safetensors_file import DTYPES, lay_out, read_header, tensor_bytes

Tensors = Mapping[str, tuple[str, tuple[int, ...], bytes]]
"""By name: dtype, shape and bytes."""


def random_tensors(
    chance: Random, *shapes: tuple[int, ...]
) -> dict[str, tuple[str, tuple[int, ...], bytes]]:
    """One tensor of each dtype that safetensors has, of random bits, with these shapes in turn."""
    made = {}
    for number, dtype in enumerate(sorted(DTYPES.values())):
        shape = shapes[number % len(shapes)]
        bits = chance.randbytes(tensor_bytes(dtype, shape))
        if dtype == "bool":
            bits = bytes(one & 1 for one in bits)
        made[f"layers.{number}.{dtype}"] = (dtype, shape, bits)
    return made


def write_file(path: Path, tensors: Tensors, metadata: Mapping[str, str] | None = None) -> None:
    """A file of these tensors."""
    front, header = lay_out(
        {name: (dtype, shape) for name, (dtype, shape, _data) in tensors.items()}, metadata or {}
    )
    path.write_bytes(front + b"".join(tensors[name][2] for name in header.tensors))


def read_file(path: Path) -> dict[str, tuple[str, tuple[int, ...], bytes]]:
    """The tensors of a file, as our reader finds them."""
    data = path.read_bytes()
    with open(path, "rb", buffering=0) as file:
        header = read_header(file, len(data), path)
    start = header.data_start
    return {
        name: (one.dtype, one.shape, data[start + one.start : start + one.end])
        for name, one in header.tensors.items()
    }


def keep_tensors(
    store: CheckpointStore,
    step: int,
    tensors: Tensors,
    blocks: Mapping[str, list[Block]] | None = None,
    values: Mapping[str, object] | None = None,
) -> CheckpointRef:
    """Commit these tensors, each as the chunks that `blocks` names, whole without."""
    with ImportWriter(store, step=step, versions={}) as writer:
        for name, (dtype, shape, data) in tensors.items():
            writer.add_tensor(name, ImportedTensor(dtype, shape, (name,)))
            width = ITEM_BYTES[dtype]
            whole: Block = ((0,) * len(shape), shape)
            for block in (blocks or {}).get(name, [whole]):
                raw = b"".join(
                    data[place * width : (place + count) * width]
                    for _at, place, count in runs_of(shape, block, 0, _count(block))
                )
                writer.add_chunk(name, block, memoryview(raw), width)
        for name, value in (values or {}).items():
            writer.add_value(name, value, (name,))
        return writer.commit().checkpoint


def _count(block: Block) -> int:
    count = 1
    for size in block[1]:
        count *= size
    return count
