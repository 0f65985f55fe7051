"""An optimizer's state by its parameters' names, and exactly back. Imports torch.

Tensors (moments, step counters) are saved as tensors; learning rates, betas and all else that
stands in its groups as one canonical value.
"""

from collections.abc import Mapping
from typing import Any, Final

import torch

from eventlog.canonical import decode
from eventlog.errors import CheckpointError
from snapshots.checkpoints.manifest import Manifest
from snapshots.checkpoints.saved_parts import OPTIMIZER
from snapshots.shards.tensor_bytes import dtype_of
from snapshots.training_state import decode_state, encode_state

_OF_SCHEDULERS: Final = {
    "initial_lr",
    "base_lr",
    "max_lr",
    "min_lr",
    "base_momentum",
    "max_momentum",
}
_FOREIGN_MIN: Final = 2
"""Options that each side has and the other has not, from which on they are of two kinds: one may
have been renamed."""

Names = Mapping[int, str]
Moments = dict[str, dict[str, torch.Tensor]]


def tensors_of(optimizer: torch.optim.Optimizer, names: Names) -> Moments:
    """The state's tensors, by parameter and by what they are.

    Raises `CheckpointError` for the state of a parameter that is in no group of the optimizer.
    """
    return {
        _name_of(parameter, names): {
            key: value for key, value in state.items() if isinstance(value, torch.Tensor)
        }
        for parameter, state in _state_in_groups(optimizer, names)
    }


def encode_settings(optimizer: torch.optim.Optimizer, names: Names) -> bytes:
    """All that is no moment: the groups with their parameters by name, and plain numbers."""
    groups = [
        {
            key: [_name_of(one, names) for one in value] if key == "params" else value
            for key, value in group.items()
        }
        for group in optimizer.param_groups
    ]
    numbers = {
        _name_of(parameter, names): {
            key: value for key, value in state.items() if not isinstance(value, torch.Tensor)
        }
        for parameter, state in _state_in_groups(optimizer, names)
    }
    kind = type(optimizer).__name__
    return encode_state({"kind": kind, "groups": groups, "numbers": numbers}, OPTIMIZER)


def decode_settings(manifest: Manifest, label: str) -> Any:
    """What `encode_settings` gave for the optimizer of this label. Raises `CheckpointError`."""
    entry = manifest.values.get(f"{OPTIMIZER}.{label}.settings")
    if entry is None:
        raise CheckpointError(
            f"checkpoint {manifest.id} has no optimizer {label!r}",
            hint="name the optimizers as they were named, or load the model alone",
        )
    data = decode(entry.data)
    if not isinstance(data, bytes):
        raise CheckpointError(
            f"checkpoint {manifest.id} holds no settings of optimizer {label!r}",
            hint="load another checkpoint",
        )
    return decode_state(data)


def room_for(
    manifest: Manifest,
    label: str,
    optimizer: torch.optim.Optimizer,
    parameters: Mapping[str, torch.nn.Parameter],
) -> Moments:
    """Tensors to load the moments into, sharded as their parameters are."""
    room: Moments = {}
    for entry in manifest.tensors.values():
        if entry.path[:3] != (OPTIMIZER, label, "state"):
            continue
        name, key = str(entry.path[3]), str(entry.path[4])
        parameter = parameters.get(name)
        if parameter is None:
            raise CheckpointError(
                f"checkpoint {manifest.id} has moments of {name!r}, which the model has not",
                hint="build the model as it was saved",
                tensor=name,
            )
        dtype = dtype_of(name, entry.dtype)
        known = optimizer.state.get(parameter, {}).get(key)
        # What is made in inference mode can be changed only there, and these become the moments.
        with torch.inference_mode(False):
            if tuple(parameter.shape) == entry.shape:
                made = torch.zeros_like(parameter, dtype=dtype, requires_grad=False)
            else:
                device = known.device if isinstance(known, torch.Tensor) else "cpu"
                made = torch.zeros(entry.shape, dtype=dtype, device=device)
        room.setdefault(name, {})[key] = made
    return room


def require_same_kind(label: str, optimizer: torch.optim.Optimizer, settings: Any) -> None:
    """Raise `CheckpointError` where another kind of optimizer was saved: its moments mean others.

    By the class's name, which older settings have not, and by the names of the groups' options:
    torch adds one or renames one, and what was saved before still loads.
    """
    kind = type(optimizer).__name__
    kept_kind = settings.get("kind", kind)
    groups = zip(optimizer.param_groups, settings["groups"], strict=False)
    only_kept, only_here = next(
        (found for found in (_other_options(optimizer, *each) for each in groups) if found),
        ([], []),
    )
    if kept_kind == kind and not only_kept:
        return
    of_kept = f": its options are {', '.join(only_kept)}" if only_kept else ""
    of_here = f", and those of {kind} {', '.join(only_here)}" if only_here else ""
    saved = "another kind of optimizer" if kept_kind == kind else f"{kept_kind!r}"
    raise CheckpointError(
        f"optimizer {label!r} was saved as {saved} and is {kind!r} here{of_kept}{of_here}",
        hint="build the optimizer as it was saved, or leave it out to load the model alone",
    )


def _other_options(
    optimizer: torch.optim.Optimizer, group: Mapping[str, Any], kept: Mapping[str, Any]
) -> tuple[list[str], list[str]] | None:
    """The options that one side alone has, where they are too many for the same kind's."""
    # What a scheduler or the user put into a group is none of the optimizer's own.
    only_kept = sorted(kept.keys() - group.keys() - _OF_SCHEDULERS)
    only_here = sorted(optimizer.defaults.keys() - kept.keys())
    shared = len(optimizer.defaults.keys() & kept.keys())
    least = min(len(only_kept), len(only_here))
    if least >= _FOREIGN_MIN and len(only_kept) + len(only_here) >= shared:
        return only_kept, only_here
    return None


def require_same_groups(
    label: str, optimizer: torch.optim.Optimizer, names: Names, settings: Any
) -> None:
    """Raise `CheckpointError` where the optimizer has other groups than were saved."""
    found = [[_name_of(one, names) for one in group["params"]] for group in optimizer.param_groups]
    if found != [group["params"] for group in settings["groups"]]:
        raise CheckpointError(
            f"optimizer {label!r} has other groups of parameters than were saved",
            hint="build the optimizer as it was saved",
        )


def put_state(
    optimizer: torch.optim.Optimizer, names: Names, moments: Moments, settings: Any
) -> None:
    """Make the optimizer, of the same groups, what it was."""
    groups = settings["groups"]
    for group, kept in zip(optimizer.param_groups, groups, strict=True):
        group.update({key: value for key, value in kept.items() if key != "params"})
    by_name = {
        _name_of(one, names): one for group in optimizer.param_groups for one in group["params"]
    }
    optimizer.state.clear()
    # What was saved of a parameter in no group, by an older steplog, is used by no step.
    # In the order of the groups, on every rank alike: what is saved next is compared among them.
    for name, parameter in by_name.items():
        if name in settings["numbers"] or name in moments:
            optimizer.state[parameter] = {
                **settings["numbers"].get(name, {}),
                **moments.get(name, {}),
            }


def _state_in_groups(
    optimizer: torch.optim.Optimizer, names: Names
) -> list[tuple[torch.Tensor, dict[str, Any]]]:
    grouped = {id(one) for group in optimizer.param_groups for one in group["params"]}
    for parameter, state in optimizer.state.items():
        if state and id(parameter) not in grouped:
            raise CheckpointError(
                f"an optimizer holds state of {_name_of(parameter, names)!r}, which is in none of "
                "its groups",
                hint="put the parameter into a group, or take its state away: "
                "`del optimizer.state[parameter]`",
            )
    return [one for one in optimizer.state.items() if id(one[0]) in grouped]


def _name_of(parameter: torch.Tensor, names: Names) -> str:
    name = names.get(id(parameter))
    if not isinstance(parameter, torch.Tensor):
        raise CheckpointError(
            f"an optimizer holds state under {parameter!r}, which is no parameter",
            hint="keep it in extra=, as an object with state_dict",
        )
    if name is None:
        raise CheckpointError(
            f"an optimizer holds a parameter of shape {tuple(parameter.shape)} that no model has",
            hint="pass every model whose parameters the optimizers hold",
        )
    return name
