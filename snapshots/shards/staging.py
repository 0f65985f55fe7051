"""`Staging`: copies of states, so that a save in the background has the values of its call.

Refuses, before anything is copied, tensors that no save keeps: quantized, sparse, nested, without
memory. `ShardSaver` has one. Imports torch, which steplog itself never needs.
"""

import copy
from collections.abc import Iterator, Mapping
from typing import Any, Final

import torch
from torch.distributed.tensor import DTensor

from eventlog.errors import CheckpointError
from eventlog.values.extension_values import DEPTH_MAX
from snapshots.shards.tensor_bytes import require_kept

Path = tuple[str, ...]
State = Mapping[str, Any]
_Kept = dict[Path, torch.Tensor]
_Aliases = dict[tuple[object, ...], torch.Tensor]
_NAMED_MAX: Final = 3


def require_kept_tensors(state: State) -> State:
    """The state itself.

    Raises `CheckpointError` for a tensor that is not kept, by its name, and for two of one name.
    """
    names: set[str] = set()
    for path, value in _leaves(state, ()):
        name = ".".join(path)
        if name in names:
            raise CheckpointError(
                f"two values have the name {name!r}",
                hint="give them keys that differ as texts, without dots",
                tensor=name,
            )
        names.add(name)
        if isinstance(value, torch.Tensor):
            local = value.to_local() if isinstance(value, DTensor) else value
            if _is_plain(local):
                require_kept(name, local)
    return state


class Staging:
    """Copies in the process's own memory, which is used again from one save to the next."""

    def __init__(self) -> None:
        self._kept: _Kept = {}

    def copy_state(self, state: State) -> dict[str, Any]:
        """A state of the same structure that shares no memory with `state`.

        Raises `CheckpointError` as `require_kept_tensors`; then nothing was copied.
        """
        require_kept_tensors(state)
        before, self._kept = self._kept, {}
        aliases: _Aliases = {}
        # A copy made in inference mode could be used again only there.
        with torch.inference_mode(False), torch.no_grad():
            return {
                name: self._copy(value, (name,), before, aliases) for name, value in state.items()
            }

    def _copy(self, value: Any, path: Path, before: _Kept, aliases: _Aliases) -> Any:
        if isinstance(value, DTensor):
            local = self._copy(value.to_local(), path, before, aliases)
            return DTensor.from_local(
                local,
                value.device_mesh,
                value.placements,
                run_check=False,
                shape=value.shape,
                stride=value.stride(),
            )
        if _is_plain(value):
            return self._copy_tensor(value.detach(), path, before, aliases)
        if isinstance(value, Mapping):
            return {
                key: self._copy(one, (*path, str(key)), before, aliases)
                for key, one in value.items()
            }
        if type(value) in (list, tuple):
            return type(value)(
                self._copy(one, (*path, str(index)), before, aliases)
                for index, one in enumerate(value)
            )
        return copy.deepcopy(value)

    def _copy_tensor(
        self, value: torch.Tensor, path: Path, before: _Kept, aliases: _Aliases
    ) -> torch.Tensor:
        # Tied parameters are one tensor under several names, and are copied once. The same memory
        # under other marks is other numbers: a conjugated or negated view is not carried out yet.
        same = (
            value.data_ptr(),
            value.dtype,
            value.shape,
            value.stride(),
            value.device,
            value.is_conj(),
            value.is_neg(),
            value._is_zerotensor(),
        )
        known = aliases.get(same)
        if known is not None and value.numel():
            return known
        kept = before.pop(path, None)
        if kept is None or (kept.dtype, kept.shape) != (value.dtype, value.shape):
            kept = torch.empty(value.shape, dtype=value.dtype, device="cpu")
        kept.copy_(value)
        self._kept[path] = aliases[same] = kept
        return kept


def _is_plain(value: Any) -> bool:
    """Whether it is a tensor of its own. Shards that say so by attributes keep all they are."""
    return type(value) in (torch.Tensor, torch.nn.Parameter) and not hasattr(value, "global_shape")


def _leaves(value: Any, path: Path) -> Iterator[tuple[Path, Any]]:
    if len(path) > DEPTH_MAX:
        raise CheckpointError(
            f"{'.'.join(path[:_NAMED_MAX])!r} is nested deeper than {DEPTH_MAX} levels",
            hint="save it flat, or as one value of bytes",
        )
    if isinstance(value, Mapping):
        for key, one in value.items():
            yield from _leaves(one, (*path, str(key)))
    elif type(value) in (list, tuple):
        for index, one in enumerate(value):
            yield from _leaves(one, (*path, str(index)))
    else:
        yield path, value
