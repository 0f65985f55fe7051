"""`TrainingState`: what one rank brings to a checkpoint set besides the tensors of its model.

Random generators, scheduler, position in the data, and progress, as canonical bytes: no pickle, and
floats, tuples, int keys and tensors come back as they were. A capture is a value: what is handed
out of it is a copy each time, so nothing that loads from it can change it (torchtitan #647). Each
rank has its own (Megatron-LM #6858). Used by `run.checkpoint` and `run.restore_latest`.

    data = capture_training_state(scheduler, order, {"tokens": 5_000_000})
    ...
    states = [decode_training_state(data)]               # of all ranks, in their order
    load_state(scheduler, scheduler_for_rank(states, rank, world_size, scheduler), "scheduler")
    load_state(order, data_for_rank(states, rank, world_size, order), "data")
    randoms = [state.random for state in states]
    restore_random(random_for_rank(randoms, rank, world_size))   # last: loading may draw
"""

import sys
from collections.abc import Mapping, Sequence
from typing import Any, Final, NamedTuple

from eventlog.canonical import decode, decode_live, encode
from eventlog.errors import CheckpointError, ConfigError, ReshardError, StateError
from eventlog.values.extension_values import DEPTH_MAX
from snapshots.random_state import capture_random, reseeded
from snapshots.state_owners import has_state, holds_state, kind_of, require_same, require_same_kind

FORMAT: Final = 1
_KEYS: Final = {"format", "random", "data_is_global"}
_PARTS: Final = {"scheduler", "data", "progress"}
_SCHEDULER_KIND: Final = "scheduler_kind"
_LEFT: Final = object()
"""In place of a value: what is there is left as it is."""


class TrainingState(NamedTuple):
    """The captured state of one rank.

    `random` is what `restore_random` takes. `scheduler`, `data` and `progress` are canonical bytes,
    None where there was none: `decode_state` makes a copy of each. `data_is_global`: the position
    in the data is not of this rank alone, so any number of ranks can go on from it; its class says
    so with `state_is_global = True`, as `SampleOrder` does. `scheduler_kind`: of `kind_of`; None
    also where it was saved before kinds were.
    """

    random: Any
    scheduler: bytes | None
    data: bytes | None
    data_is_global: bool
    progress_bytes: bytes | None
    scheduler_kind: Any = None

    @property
    def progress(self) -> Any:
        """What the trainer gave as progress, a copy; None where it gave none."""
        return None if self.progress_bytes is None else decode_state(self.progress_bytes)


def capture_training_state(
    scheduler: object = None,
    data: object = None,
    progress: object = None,
    generators: Mapping[str, object] | None = None,
) -> bytes:
    """The canonical bytes of this rank's state as of now, which `decode_training_state` reads.

    `scheduler` and `data` have a `state_dict()`, or are dicts, lists or tuples of what has one and
    of plain values. Tensors in them are kept as they are, those of other devices as CPU tensors.
    Raises `ValueNotEncodableError` naming the path of what has no canonical form (code, iterators,
    objects of unregistered classes), and `StateError` for a generator that cannot be kept.
    """
    parts: dict[str, object] = {}
    for name, owner in (("scheduler", scheduler), ("data", data), ("progress", progress)):
        if owner is not None:
            if name != "progress":
                _require_state(name, owner)
            parts[name] = decode(encode_state(owner, name), opaque=True)
    kind = kind_of(scheduler)
    if kind is not None:
        parts[_SCHEDULER_KIND] = kind
    return encode(
        {
            "format": FORMAT,
            "data_is_global": _is_global(data),
            **parts,
            # Last: a loader's state_dict() may make its iterator, which draws.
            "random": capture_random(generators),
        }
    )


def decode_training_state(data: bytes) -> TrainingState:
    """The state of canonical bytes. Needs no library of those whose values are in it.

    Raises `EventCorruptError` for bytes that are not canonical, `CheckpointError` for another
    value, or of a newer format.
    """
    value = decode(data, opaque=True)
    found = value.get("format") if isinstance(value, dict) else None
    if type(found) is int and found > FORMAT:
        raise CheckpointError(
            f"the training state is of format {found}, known is {FORMAT}",
            hint="restore with the steplog that saved it, or a newer one",
        )
    if (
        not isinstance(value, dict)
        or found != FORMAT
        or not _KEYS <= value.keys() <= _KEYS | _PARTS | {_SCHEDULER_KIND}
        or type(value["data_is_global"]) is not bool
    ):
        raise CheckpointError(
            "these bytes are not a training state", hint="restore another checkpoint set"
        )
    parts = {name: encode(value[name]) if name in value else None for name in _PARTS}
    return TrainingState(
        value["random"],
        parts["scheduler"],
        parts["data"],
        value["data_is_global"],
        parts["progress"],
        value.get(_SCHEDULER_KIND),
    )


def encode_state(owner: object, name: str) -> bytes:
    """The canonical bytes of a value, with the `state_dict()` of whatever in it has one.

    Raises `ValueNotEncodableError`, whose path begins with `name`.
    """
    # Inside a dict, so that the path of a refusal says which part it is.
    whole = decode(encode({name: _state_of(owner)}), opaque=True)
    assert isinstance(whole, dict)
    return encode(whole[name])


def decode_state(data: bytes) -> Any:
    """The value of `encode_state`, the caller's own.

    Raises `CodecMissingError` where it holds what this process cannot build.
    """
    return decode_live(data)


def random_for_rank(
    randoms: Sequence[Any],
    rank: int,
    world_size: int,
    reseed: int | None = None,
    *,
    always: bool = False,
) -> Any:
    """What this rank gives to `restore_random`: its own, of the saved ones of all ranks.

    With another number of ranks than saved there is no exact answer: raises `ReshardError`, unless
    `reseed` is given; then fresh seeds that depend on it and the rank alone. `always`: those of
    `reseed`, where it is given, with as many ranks too.
    """
    saved = _saved_ranks(randoms, rank, world_size)
    if reseed is not None and type(reseed) is not int:
        raise ConfigError(f"reseed is {reseed!r}", hint="give an int")
    if saved == world_size and (reseed is None or not always):
        return randoms[rank]
    if reseed is None:
        raise _reshard_error("random generators", saved, world_size)
    return reseeded(reseed, rank)


def data_for_rank(
    states: Sequence[TrainingState],
    rank: int,
    world_size: int,
    data: object,
    *,
    reseed: int | None = None,
) -> Any:
    """What `load_state` loads into `data`: where this rank goes on, of the states of all ranks that
    saved. Nothing is changed yet.

    A global position is merged of all ranks (`merge_states` of its class, else it must be the same
    on all of them) and fits any number of ranks. One of a rank alone fits as many ranks as saved
    it: else raises `ReshardError`, or leaves it at its start where `reseed` is given. In dicts and
    lists that hold both kinds, each entry is what it is by itself. Raises
    `StateError` where no data was saved or it does not fit.
    """
    saved = _saved_ranks(states, rank, world_size)
    values = _saved_parts("data", [state.data for state in states])
    is_global = _is_global(data)
    for number, state in enumerate(states):
        if state.data_is_global is not is_global:
            raise StateError(
                f"the position in the data saved by rank {number} is "
                f"{'' if state.data_is_global else 'not '}a global one, that of "
                f"{type(data).__qualname__} is {'' if is_global else 'not '}one",
                hint="restore into the kind of data source that was saved",
            )
    own = rank if saved == world_size else None
    if own is None and reseed is None and not is_global:
        raise _reshard_error("positions in the data", saved, world_size)
    return _for_rank(data, list(map(decode_state, values)), own)


def scheduler_for_rank(
    states: Sequence[TrainingState], rank: int, world_size: int, scheduler: object
) -> Any:
    """What `load_state` loads into the scheduler: this rank's state, with another number of ranks
    what all had alike. Nothing is changed yet.

    Raises `ReshardError` where they differ, `StateError` where none was saved, or one of another
    class (by its name).
    """
    saved = _saved_ranks(states, rank, world_size)
    values = _saved_parts("scheduler", [state.scheduler for state in states])
    if saved != world_size and len(set(values)) != 1:
        raise _reshard_error("differing schedulers", saved, world_size)
    own = rank if saved == world_size else 0
    if states[own].scheduler_kind is not None:
        require_same_kind(states[own].scheduler_kind, kind_of(scheduler), "scheduler")
    return decode_state(values[own])


def load_state(owner: object, value: Any, name: str) -> None:
    """Load what the two before this one gave: by `load_state_dict`, dicts and lists in place.

    Raises `StateError` where it does not fit, and what a `load_state_dict` raises; what was loaded
    before that stays loaded.
    """
    if value is not _LEFT:
        _load_into(owner, value, name)


def _saved_ranks(saved: Sequence[object], rank: int, world_size: int) -> int:
    if type(rank) is not int or type(world_size) is not int or not 0 <= rank < world_size:
        raise ConfigError(
            f"rank {rank!r} of {world_size!r} ranks", hint="give the rank and the world size"
        )
    if not saved:
        raise CheckpointError("no rank's state was given", hint="give those of all ranks")
    return len(saved)


def _saved_parts(part: str, found: list[bytes | None]) -> list[bytes]:
    values = [value for value in found if value is not None]
    if len(values) < len(found):
        without = [str(rank) for rank, value in enumerate(found) if value is None]
        raise StateError(
            f"no {part} was saved by rank {', '.join(without)}",
            hint=f"leave {part} out when restoring this checkpoint set",
        )
    return values


def _reshard_error(what: str, saved: int, here: int) -> ReshardError:
    return ReshardError(
        f"the {what} of {saved} ranks were saved, {here} ranks are to go on",
        hint=f"restore with {saved} ranks, or give reseed=<int> to start them anew",
    )


def _is_global(data: Any) -> bool:
    if type(data) in (dict, list, tuple) and holds_state(data):
        return all(map(_is_global, data.values() if type(data) is dict else data))
    return getattr(data, "state_is_global", False) is True


def _for_rank(data: Any, values: list[Any], own: int | None) -> Any:
    """What one rank loads: of each entry what all ranks have, or what rank `own` alone has.

    `_LEFT` where that is nobody's, because other ranks saved it.
    """
    if _is_global(data):
        return _merged(data, values)
    kind = type(data)
    if holds_state(data) and all(type(value) is kind for value in values):
        first = values[0]
        if kind is dict and all(value.keys() == first.keys() for value in values):
            return {
                key: _for_rank(data.get(key), [value[key] for value in values], own)
                for key in first
            }
        if kind is not dict and all(len(value) == len(data) for value in values):
            return kind(
                _for_rank(one, [value[at] for value in values], own) for at, one in enumerate(data)
            )
    return _LEFT if own is None else values[own]


def _merged(data: Any, values: list[Any]) -> Any:
    """What all ranks go on from, of the global states of all of them."""
    if hasattr(data, "merge_states"):
        return data.merge_states(values)
    if type(data) is dict and all(type(value) is dict for value in values):
        keys = values[0].keys() & data.keys()
        return {
            **values[0],
            **{key: _merged(data[key], [value.get(key) for value in values]) for key in keys},
        }
    if type(data) in (list, tuple):
        return type(data)(map(_merged, data, map(list, zip(*values, strict=True))))
    first = encode(values[0])
    for rank, value in enumerate(values):
        if encode(value) != first:
            raise CheckpointError(
                f"the global position in the data of rank {rank} is not that of rank 0",
                hint="save after the same step on every rank",
            )
    return values[0]


def _require_state(name: str, owner: object) -> None:
    if not has_state(owner) and not isinstance(owner, dict | list | tuple):
        raise StateError(
            f"{name} is a {type(owner).__qualname__}, which has no state_dict()",
            hint="give an object with state_dict() and load_state_dict(), or a dict",
        )


def _state_of(value: Any, around: frozenset[int] = frozenset(), *, owned: bool = True) -> object:
    """A value with the states of what has one, and with tensors that have a canonical form.

    What a state itself holds (not `owned`) is a value: an object in it could not be loaded into.
    """
    if owned and has_state(value):
        return _state_of(value.state_dict(), around, owned=False)
    kind = type(value)
    # A cycle, and what is nested too deep, are encode's to refuse.
    if kind in (dict, list, tuple) and id(value) not in around and len(around) < DEPTH_MAX:
        inside = around | {id(value)}
        if kind is dict:
            return {key: _state_of(item, inside, owned=owned) for key, item in value.items()}
        return kind([_state_of(item, inside, owned=owned) for item in value])
    torch = sys.modules.get("torch")
    if torch is not None and kind in (torch.Tensor, torch.nn.Parameter):
        return value.detach().cpu()
    return value


def _load_into(owner: Any, value: Any, path: str) -> None:
    """Load a state into what it was taken of: by `load_state_dict`, or dicts and lists in place."""
    if has_state(owner):
        owner.load_state_dict(value)
        return
    holds = holds_state(owner)
    if type(owner) is dict and isinstance(value, dict):
        if not holds:
            owner.clear()
            owner.update(value)
            return
        require_same(path, sorted(map(repr, owner)), sorted(map(repr, value)))
        for key, item in value.items():
            owner[key] = _loaded(owner[key], item, f"{path}.{key}")
    elif type(owner) is list and isinstance(value, list) and not holds:
        owner[:] = value
    elif type(owner) in (list, tuple) and type(value) is type(owner) and holds:
        require_same(path, f"{len(owner)} items", f"{len(value)} items")
        for at, item in enumerate(value):
            loaded = _loaded(owner[at], item, f"{path}[{at}]")
            if type(owner) is list:
                owner[at] = loaded
    else:
        raise StateError(
            f"a state cannot be loaded into {path}, a {type(owner).__qualname__}",
            hint="restore into objects of the same kinds as were saved",
        )


def _loaded(owner: Any, value: Any, path: str) -> Any:
    if value is _LEFT:
        return owner
    if not has_state(owner) and not holds_state(owner):
        return value
    _load_into(owner, value, path)
    return owner
