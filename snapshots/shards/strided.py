"""Tensors that do not lie in C order in memory, brought into it. Imports torch."""

from collections.abc import Collection

import torch

from snapshots.shards.tensor_bytes import bytes_of, dtype_of


def arrange(
    name: str,
    memory: memoryview,
    *,
    dtype: str,
    shape: tuple[int, ...],
    strides: tuple[int, ...],
    start: int,
    marks: Collection[str],
) -> memoryview:
    """The bytes of a tensor in C order, with the views that torch had left open carried out.

    Its numbers of `dtype` lie in `memory` at `start` + index * `strides` (in numbers); `marks` are
    the names of those views ("conj", "neg").
    """
    numbers = torch.frombuffer(bytearray(memory), dtype=dtype_of(name, dtype))
    tensor = numbers.as_strided(shape, strides, start)
    if "conj" in marks:
        tensor = tensor.conj()
    if "neg" in marks:
        tensor = torch._neg_view(tensor)
    return bytes_of(name, tensor)[0]
