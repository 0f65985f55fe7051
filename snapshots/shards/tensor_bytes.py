"""Tensors as bytes and back: what the shard writer and the shard reader share. Imports torch."""

import torch

from eventlog.errors import CheckpointError
from snapshots.checkpoints.manifest import ITEM_BYTES


def dtype_name(dtype: torch.dtype) -> str:
    """torch's short name of a dtype, as manifests hold it."""
    return str(dtype).removeprefix("torch.")


def dtype_of(name: str, dtype: str) -> torch.dtype:
    """torch's dtype of a short name, which is the tensor's.

    Raises `CheckpointError` where this torch has not got it yet: a later one saved the tensor.
    """
    found = getattr(torch, dtype, None)
    if not isinstance(found, torch.dtype):
        raise CheckpointError(
            f"tensor {name!r} has the dtype {dtype}, which torch {torch.__version__} has not",
            hint="load it with a later torch",
            tensor=name,
        )
    return found


def bytes_view(data: torch.Tensor) -> memoryview:
    """The memory of a flat tensor of uint8."""
    return memoryview(data.numpy().data) if data.numel() else memoryview(b"")


def require_kept(name: str, tensor: torch.Tensor) -> int:
    """The size of one item, in bytes. Raises `CheckpointError` for a tensor that is not kept."""
    item_bytes = ITEM_BYTES.get(dtype_name(tensor.dtype))
    odd = (
        "layout nested"
        if tensor.is_nested
        else f"dtype {tensor.dtype}"
        if item_bytes is None
        else f"layout {tensor.layout}"
        if tensor.layout is not torch.strided
        else "device meta"
        if tensor.is_meta
        else None
    )
    if odd is not None or item_bytes is None:
        raise CheckpointError(
            f"tensor {name!r} has the {odd}, which is not kept",
            hint="save a dense tensor of a plain dtype",
            tensor=name,
        )
    return item_bytes


def bytes_of(name: str, tensor: torch.Tensor) -> tuple[memoryview, int]:
    """A tensor's bytes in C order, without a copy where it lies so in memory, and its item size.

    Raises as `require_kept`.
    """
    item_bytes = require_kept(name, tensor)
    whole = tensor.detach()
    if whole._is_zerotensor():  # of forward differentiation: it has no memory until it is copied
        whole = whole.clone()
    plain = whole.resolve_conj().resolve_neg().cpu().contiguous()
    return bytes_view(plain.reshape(-1).view(torch.uint8)), item_bytes
