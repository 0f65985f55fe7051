"""What several ranks hold under one name, compared before it is kept once.

A set has one value of a name that is not sharded. Where the ranks' differ, it would come back on
all of them as one rank's, and of several names as a mix of ranks. Refused here; a model's buffers
are left out, since DDP and FSDP2 let them differ (BatchNorm's statistics). Imports torch, which
steplog itself never needs.
"""

from collections.abc import Iterator
from hashlib import sha256
from typing import Any, Final

import torch
from torch.distributed.checkpoint._nested_dict import flatten_state_dict
from torch.distributed.tensor import DTensor

from eventlog.canonical import encode
from eventlog.errors import CheckpointError, ValueNotEncodableError
from snapshots.checkpoints.saved_parts import EXTRA, MODEL
from snapshots.shards.ranks import Ranks
from snapshots.shards.tensor_bytes import bytes_of
from snapshots.shards.trained import Trained, Tree

COMPARED_BYTES: Final = 1 << 16
"""Of a tensor its first bytes are compared: training that went apart shows in all of it."""
_NAMED_MAX: Final = 3


def require_alike(trained: Trained, tree: Tree, ranks: Ranks) -> None:
    """Raise `CheckpointError` where ranks would keep different values under one name.

    `tree` is what `trained` saves. A collective; nothing is compared where there is one rank.
    """
    if ranks.group is None:
        return
    mine = ranks.agree(lambda: _digests(trained, tree))
    found = ranks.gather(mine)
    first_holder: dict[str, tuple[int, bytes]] = {}
    for rank, digests in enumerate(found):
        for name, digest in digests.items():
            first_holder.setdefault(name, (rank, digest))
    for rank, digests in enumerate(found):
        differing = [name for name, one in digests.items() if first_holder[name][1] != one]
        if differing:
            name = differing[0]
            raise CheckpointError(
                f"rank {rank} has another {name!r} than rank {first_holder[name][0]}, and "
                f"{len(differing)} differ so: {sorted(differing)[:_NAMED_MAX]}",
                hint="a set keeps one value of a name: give what is each rank's own as progress=",
                tensor=name,
            )


def _digests(trained: Trained, tree: Tree) -> dict[str, bytes]:
    buffers = set(_buffer_names(trained))
    flat = flatten_state_dict(tree)[0]
    return {
        name: digest
        for name, value in flat.items()
        if name not in buffers and (digest := _digest(name, value)) is not None
    }


def _digest(name: str, value: Any) -> bytes | None:
    if isinstance(value, torch.Tensor):
        if isinstance(value, DTensor) or hasattr(value, "global_shape"):
            return None
        if not value.is_contiguous():
            return None if value.nbytes > COMPARED_BYTES else _tensor_digest(name, value)
        count = COMPARED_BYTES // max(value.element_size(), 1)
        return _tensor_digest(name, value.detach().view(-1)[:count], value.shape)
    try:
        return sha256(encode(value)).digest()
    except ValueNotEncodableError:
        return None  # The save refuses it by its name.


def _tensor_digest(name: str, tensor: torch.Tensor, shape: torch.Size | None = None) -> bytes:
    form = f"{tensor.dtype} {tuple(tensor.shape if shape is None else shape)} ".encode()
    return sha256(form + bytes_of(name, tensor)[0]).digest()


def _buffer_names(trained: Trained) -> Iterator[str]:
    modules = {
        MODEL if name is None else f"{MODEL}.{name}": one for name, one in trained.models.items()
    }
    modules |= {
        f"{EXTRA}.{name}": one
        for name, one in trained.extra.items()
        if isinstance(one, torch.nn.Module)
    }
    for prefix, module in modules.items():
        for name, _buffer in module.named_buffers(remove_duplicate=False):
            yield f"{prefix}.{name}"
