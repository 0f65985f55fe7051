"""Room beside a training's tensors: what is loaded comes there first, and is copied when all has.

A load that fails midway, in any rank, has then changed nothing. The price is memory for the
tensors once more while they are loaded; no more is copied, since `load_state_dict` copies anyway.
Used by `Trained`. Imports torch, which steplog itself never needs.
"""

import copy
from collections.abc import Mapping, MutableMapping
from typing import Any

import torch
from torch.distributed.tensor import DTensor

from eventlog.errors import CheckpointError


def room_beside(value: Any, name: str) -> Any:
    """The same structure with tensors of its own, whose contents are not set.

    Raises `CheckpointError` for a tensor that nothing can be loaded into; `name` says where it is.
    """
    if type(value) in (torch.Tensor, torch.nn.Parameter, DTensor):
        return _tensor_beside(value.detach(), name)
    if isinstance(value, Mapping):
        # A copy keeps what a module's state carries beside its entries.
        made = copy.copy(value) if isinstance(value, MutableMapping) else dict(value)
        for key, one in value.items():
            made[key] = room_beside(one, f"{name}.{key}")
        return made
    if type(value) in (list, tuple):
        return type(value)(room_beside(one, f"{name}.{at}") for at, one in enumerate(value))
    return value


def put_into(given: Any, loaded: Any) -> Any:
    """What `given` is to be: itself, with the tensors in it set; or `loaded`, a value."""
    if isinstance(given, torch.Tensor) and isinstance(loaded, torch.Tensor):
        with torch.no_grad():
            given.copy_(loaded)
        return given
    if isinstance(given, MutableMapping) and isinstance(loaded, Mapping):
        for key, one in loaded.items():
            given[key] = put_into(given.get(key), one)
        return given
    if type(given) is list and type(loaded) is list and _holds_tensors(given):
        given[:] = map(put_into, given, loaded)
        return given
    if type(given) is tuple and type(loaded) is tuple and _holds_tensors(given):
        return tuple(map(put_into, given, loaded))
    return loaded


def _tensor_beside(tensor: torch.Tensor, name: str) -> torch.Tensor:
    spread = any(
        size > 1 and stride == 0
        for size, stride in zip(tensor.shape, tensor.stride(), strict=True)
        if tensor.layout is torch.strided
    )
    fixed = tensor.is_inference() and not torch.is_inference_mode_enabled()
    if tensor.is_meta or spread or fixed:
        raise CheckpointError(
            f"nothing can be loaded into {name!r}: it "
            + (
                "has no memory (device meta)"
                if tensor.is_meta
                else "is one item, expanded"
                if spread
                else "was made in inference mode, and can be changed only there"
            ),
            hint="give it memory of its own before: `model.to_empty(device=...)`, or `.clone()`",
            tensor=name,
        )
    with torch.inference_mode(False):  # what is made in inference mode can be changed only there
        return torch.empty_like(tensor)


def _holds_tensors(value: Any) -> bool:
    if isinstance(value, Mapping):
        return any(map(_holds_tensors, value.values()))
    if type(value) in (list, tuple):
        return any(map(_holds_tensors, value))
    return isinstance(value, torch.Tensor)
