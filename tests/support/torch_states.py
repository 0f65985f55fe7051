"""States of every kind that training saves, and saving and loading them as users do.

Only for tests that have torch: `pytest.importorskip` before importing this.
"""

import warnings
from collections.abc import Mapping
from hashlib import sha256
from pathlib import Path
from typing import Any

import torch
import torch.distributed.checkpoint as dcp
from torch.distributed.checkpoint.api import CheckpointException

from snapshots.checkpoints.manifest import ITEM_BYTES, CheckpointRef
from snapshots.shard_reader import ShardReader
from snapshots.shard_writer import ShardWriter

torch.set_num_threads(1)  # Two cores are shared by all that runs at once.


def save(state: dict[str, Any], writer: ShardWriter, **options: Any) -> CheckpointRef:
    """`dcp.save`; raises the rank's own error where torch wraps it."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="torch.distributed is")
        try:
            dcp.save(state, storage_writer=writer, **options)
        except CheckpointException as error:
            raise first_error(error) from error
    assert writer.committed is not None
    return writer.committed


def load(state: dict[str, Any], reader: ShardReader, **options: Any) -> dict[str, Any]:
    """`dcp.load` into `state`; raises the rank's own error where torch wraps it."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="torch.distributed is")
        try:
            dcp.load(state, storage_reader=reader, **options)
        except CheckpointException as error:
            raise first_error(error) from error
    return state


def load_again(state: dict[str, Any], folder: Path, **options: Any) -> dict[str, Any]:
    """What a fresh state of the same shape holds after loading."""
    return load(emptied(state), ShardReader(folder, **options))


def first_error(error: CheckpointException) -> BaseException:
    """The error of the lowest rank that failed."""
    return error.failures[min(error.failures)][0]


def emptied(value: Any) -> Any:
    """The same structure with other contents: what stays as it is was not loaded."""
    if isinstance(value, torch.Tensor):
        other = torch.empty_like(value)
        bytes_of(other).fill_(1)
        return other
    if isinstance(value, Mapping):
        return {key: emptied(one) for key, one in value.items()}
    if isinstance(value, list):
        return [emptied(one) for one in value]
    return "not loaded"


def bytes_of(tensor: torch.Tensor) -> torch.Tensor:
    """A tensor's bytes, as a flat tensor of uint8; a view where it is contiguous."""
    plain = tensor.detach().resolve_conj().resolve_neg().contiguous()
    return plain.reshape(-1).view(torch.uint8)


def fingerprint(value: Any) -> Any:
    """The same structure with each tensor's dtype, shape and hash: equal means bit for bit."""
    if isinstance(value, torch.Tensor):
        digest = sha256(bytes_of(value).numpy().tobytes()).hexdigest()
        return (str(value.dtype), tuple(value.shape), digest)
    if isinstance(value, Mapping):
        return {key: fingerprint(one) for key, one in value.items()}
    if isinstance(value, list | tuple):
        return type(value)(fingerprint(one) for one in value)
    return value


def kept_dtypes() -> list[torch.dtype]:
    """Every dtype that is kept and that this torch has."""
    return [getattr(torch, name) for name in ITEM_BYTES if hasattr(torch, name)]


def random_tensor(dtype: torch.dtype, *shape: int, seed: int = 0) -> torch.Tensor:
    """Random bits, NaNs of every payload among them; only truth values are 0 and 1."""
    chance = torch.Generator().manual_seed(seed)
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="ComplexHalf support is experimental")
        whole = torch.empty(shape, dtype=dtype)
    bits = torch.randint(0, 256, (whole.nbytes,), generator=chance, dtype=torch.uint8)
    bytes_of(whole).copy_(bits & 1 if dtype == torch.bool else bits)
    return whole


def odd_state() -> dict[str, Any]:
    """Tensors and values that checkpoints lost or changed somewhere in public."""
    base = torch.randn(40, 30, generator=torch.Generator().manual_seed(1))
    tied = torch.randn(64, 16, generator=torch.Generator().manual_seed(2))
    return {
        "dtypes": {str(one): random_tensor(one, 5, 7) for one in kept_dtypes()},
        "scalars": {str(one): random_tensor(one) for one in kept_dtypes()},
        "empty": {"first": torch.empty(0, 4), "last": torch.empty(4, 0), "flat": torch.empty(0)},
        "views": {
            "transposed": base.t(),
            "strided": base[::3, 5:25:2],
            "expanded": base[:1].expand(7, 30),
            "channels_last": torch.randn(2, 3, 4, 5).to(memory_format=torch.channels_last),
            "conjugate": torch.randn(6, dtype=torch.complex64).conj(),
            "negative": torch.randn(6, dtype=torch.complex64).conj().imag,
        },
        "tied": {"embedding": tied, "head": tied},
        "buffers": {"count": torch.arange(100), "mask": torch.arange(9) % 2 == 0},
        "grad": torch.nn.Parameter(torch.randn(3, 3)),
        "large": torch.randn(500_000),
        "values": {
            "none": None,
            "flag": True,
            "lr": 0.1 + 0.2,
            "big": 2**62,
            "name": "step ü",
            "raw": b"\0\xff",
            "betas": (0.9, 0.999),
            "nested": [1, [2.5, "x"], {"k": (None, False)}],
        },
        "list": [torch.ones(2), {"t": torch.zeros(3), "v": 7}],
        "a.name/with:all kinds ☃": torch.arange(3),
    }
