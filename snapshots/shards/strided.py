"""Tensors that do not lie in C order in memory, brought into it. Imports torch."""

import torch

from snapshots.interchange.torch_item import ItemTensor
from snapshots.shards.tensor_bytes import bytes_of, dtype_of


def arrange(name: str, item: ItemTensor) -> memoryview:
    """The bytes of a tensor in C order, with the views that torch had left open carried out."""
    numbers = torch.frombuffer(bytearray(item.memory), dtype=dtype_of(name, item.dtype))
    tensor = numbers.as_strided(item.shape, item.strides, item.start)
    if "conj" in item.marks:
        tensor = tensor.conj()
    if "neg" in item.marks:
        tensor = torch._neg_view(tensor)
    return bytes_of(name, tensor)[0]
