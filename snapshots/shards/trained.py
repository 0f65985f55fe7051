"""A training's tensors by name, out of its models and optimizers and exactly back into them.

Parameters are named as `named_parameters()` names them, and an optimizer's moments by their
parameter, so that what 4 ranks saved is loaded by 1 or 8. Nothing here steps an optimizer to find
out what its state would be: a fresh one stays fresh. Imports torch, which steplog itself never
needs.
"""

from collections.abc import Iterable, Iterator, Mapping, MutableMapping
from contextlib import contextmanager
from typing import Any, Final, NamedTuple, TypeVar

import torch
from torch.distributed.checkpoint._nested_dict import flatten_state_dict
from torch.distributed.checkpoint.api import CheckpointException
from torch.distributed.checkpoint.state_dict_loader import load
from torch.distributed.checkpoint.stateful import Stateful
from torch.distributed.tensor import DTensor
from torch.nn.parallel import DistributedDataParallel

from eventlog.errors import CheckpointError, SteplogError
from snapshots.checkpoints.manifest import Manifest
from snapshots.checkpoints.saved_parts import EXTRA, MODEL, OPTIMIZER
from snapshots.shard_reader import ShardReader
from snapshots.shard_saver import failure_of
from snapshots.shards.optimizer_state import (
    decode_settings,
    encode_settings,
    put_state,
    require_same_groups,
    require_same_kind,
    room_for,
    tensors_of,
)
from snapshots.shards.ranks import Ranks, pass_interrupt_on
from snapshots.shards.room import put_into, room_beside
from snapshots.shards.tensor_bytes import dtype_name

ONE: Final = "default"
"""What an optimizer that is given by itself is called."""

NO_TENSOR: Final = "no tensor"

_KINDS: Final = {MODEL: "a torch.nn.Module", OPTIMIZER: "a torch.optim.Optimizer"}

T = TypeVar("T")
Tree = dict[str, Any]


class Trained(NamedTuple):
    """Models and optimizers, and whatever else a user keeps with them. Models are unwrapped."""

    models: Mapping[str | None, torch.nn.Module]
    optimizers: Mapping[str, torch.optim.Optimizer]
    extra: Mapping[str, Any]

    @classmethod
    def of(cls, model: object, optimizer: object, extra: Mapping[str, Any] | None) -> "Trained":
        """A model, or several in a dict, or None; and the same of optimizers.

        Raises `CheckpointError` for anything else.
        """
        models = _named(MODEL, model, torch.nn.Module, None)
        optimizers = _named(OPTIMIZER, optimizer, torch.optim.Optimizer, ONE)
        unwrapped = {name: _unwrapped(one) for name, one in models.items()}
        kept = {} if extra is None else extra
        if not isinstance(kept, Mapping):
            raise CheckpointError(
                f"extra takes a dict, not {type(kept).__name__}",
                hint="give each a name, as extra={'mean': tensor}",
            )
        _require_texts(EXTRA, kept)
        made = cls(unwrapped, {str(name): one for name, one in optimizers.items()}, kept)
        made._require_own_names()
        return made

    def parts(self) -> frozenset[str]:
        """Which of `model`, `optimizer` and `extra` there are."""
        given = {MODEL: self.models, OPTIMIZER: self.optimizers, EXTRA: self.extra}
        return frozenset(part for part, one in given.items() if one)

    def to_tree(self) -> Tree:
        """What is saved, nested."""
        tree = self._models_tree()
        if self.optimizers:
            names = self._parameter_names()
            tree[OPTIMIZER] = {
                label: {"state": tensors_of(one, names), "settings": encode_settings(one, names)}
                for label, one in self.optimizers.items()
            }
        if self.extra:
            tree[EXTRA] = {name: _plain_extra(one) for name, one in self.extra.items()}
        return tree

    def read(self, reader: ShardReader, ranks: Ranks) -> "ReadBeside":
        """What was saved of these, in memory beside them, for `put_in`; a collective.

        Raises `CheckpointError` where what was saved is not what is to be loaded, naming what is
        missing or other on either side, or where a tensor is damaged: nothing is changed yet, in
        any rank. It takes the memory of the weights once more.
        """
        tree, settings = ranks.agree(lambda: self._room_in(reader.manifest))
        if tree:
            try:
                load(tree, storage_reader=reader, process_group=ranks.group)
            except CheckpointException as error:
                pass_interrupt_on(error, ranks.rank)
                raise failure_of(error, "build the model as it was saved") from error
        return ReadBeside(tree, settings)

    def put_in(self, read: "ReadBeside", ranks: Ranks) -> None:
        """Make these what was read; a collective.

        Raises `CheckpointError` where one refuses it, in any rank. Then these may be a mix of what
        they were and what was read: torch's own `load_state_dict` copies on after an error.
        """
        ranks.agree(lambda: self._put_in(read.tree, read.settings))

    def _room_in(self, manifest: Manifest) -> tuple[Tree, dict[str, Any]]:
        """Tensors to load into, beside those of the models, and the optimizers' settings."""
        tree = self._models_tree()
        parameters = {name: one for one, name in self._named_parameters()}
        if self.optimizers:
            tree[OPTIMIZER] = {
                label: {"state": room_for(manifest, label, one, parameters)}
                for label, one in self.optimizers.items()
            }
        if self.extra:
            tree[EXTRA] = {name: _plain_extra(one) for name, one in self.extra.items()}
        tree |= {part: room_beside(tree[part], part) for part in (MODEL, EXTRA) if part in tree}
        _require_same_tensors(manifest, tree)
        names = self._parameter_names()
        settings = {label: decode_settings(manifest, label) for label in self.optimizers}
        for label, one in self.optimizers.items():
            require_same_kind(label, one, settings[label])
            require_same_groups(label, one, names, settings[label])
        return tree, settings

    def _put_in(self, tree: Tree, settings: Mapping[str, Any]) -> None:
        # Users' own objects first: they may refuse what they are given.
        for name, value in tree.get(EXTRA, {}).items():
            with refusal_named(f"extra {name!r}"):
                self._put_extra(name, value)
        names = self._parameter_names()
        for name, model in self.models.items():
            with refusal_named("the model" if name is None else f"the model {name!r}"):
                model.load_state_dict(tree[MODEL] if name is None else tree[MODEL][name])
        for label, one in self.optimizers.items():
            with refusal_named(f"the optimizer {label!r}"):
                put_state(one, names, tree[OPTIMIZER][label]["state"], settings[label])

    def _models_tree(self) -> Tree:
        if not self.models:
            return {}
        states = {name: one.state_dict() for name, one in self.models.items()}
        return {MODEL: states.get(None, states)}

    def _named_parameters(self) -> Iterator[tuple[torch.nn.Parameter, str]]:
        for prefix, model in self.models.items():
            for name, parameter in model.named_parameters(remove_duplicate=False):
                yield parameter, name if prefix is None else f"{prefix}.{name}"

    def _require_own_names(self) -> None:
        owners: dict[str, torch.nn.Parameter] = {}
        for parameter, name in self._named_parameters():
            if owners.setdefault(name, parameter) is not parameter:
                raise CheckpointError(
                    f"two parameters have the name {name!r}",
                    hint="name the models so that no name begins with another one and a dot",
                    tensor=name,
                )

    def _parameter_names(self) -> dict[int, str]:
        """Every parameter's name, by the object's identity; of tied ones the first."""
        names: dict[int, str] = {}
        for parameter, name in self._named_parameters():
            names.setdefault(id(parameter), name)
        return names

    def _put_extra(self, name: str, value: Any) -> None:
        given = self.extra[name]
        if isinstance(given, Stateful):
            given.load_state_dict(value)
            return
        put = put_into(given, value)
        if put is not given:
            if not isinstance(self.extra, MutableMapping):
                raise CheckpointError(
                    f"extra {name!r} cannot be put back into a {type(self.extra).__name__}",
                    hint="give extra as a dict",
                )
            self.extra[name] = put


class ReadBeside(NamedTuple):
    """What `Trained.read` has read: tensors and values as `to_tree` nests them, and optimizers'
    settings by label."""

    tree: Tree
    settings: Mapping[str, Any]


@contextmanager
def refusal_named(what: str) -> Iterator[None]:
    """Raise as `CheckpointError` what a `load_state_dict` raises; `what` it is that refuses."""
    try:
        yield
    except SteplogError:
        raise
    except Exception as error:
        raise CheckpointError(
            f"{what} refused what was saved ({type(error).__name__}: {error}), and may be a mix "
            "now of what it was and what was saved",
            hint="see what its load_state_dict says; then load again, or start this process anew",
        ) from error


def _named(what: str, given: object, kind: type[T], alone: str | None) -> dict[str | None, T]:
    if given is None:
        return {}
    found: Mapping[Any, Any] = given if isinstance(given, Mapping) else {alone: given}
    for one in found.values():
        if not isinstance(one, kind):
            raise CheckpointError(
                f"{what} takes {_KINDS[what]}, or a dict of such, not {type(one).__name__}",
                hint="pass other things as extra={...}",
            )
    if isinstance(given, Mapping):
        _require_texts(what, given)
    return dict(found)


def _require_texts(what: str, names: Iterable[Any]) -> None:
    for name in names:
        if type(name) is not str:
            raise CheckpointError(
                f"{what} has the name {name!r}, which is no text",
                hint=f"name them by texts, as {what}={{{str(name)!r}: ...}}",
            )


def _unwrapped(model: torch.nn.Module) -> torch.nn.Module:
    """The model itself: what wraps it for one run is not part of what is kept."""
    while True:
        inner = model.module if isinstance(model, DistributedDataParallel) else None
        inner = getattr(model, "_orig_mod", inner)  # of torch.compile
        if not isinstance(inner, torch.nn.Module):
            return model
        model = inner


def _plain_extra(value: Any) -> Any:
    return value.state_dict() if isinstance(value, Stateful) else value


def gathered(value: Any) -> Any:
    """The same, with sharded tensors as the whole they are parts of; a collective."""
    if isinstance(value, DTensor):
        return value.full_tensor()
    if isinstance(value, Mapping):
        return {key: gathered(one) for key, one in value.items()}
    return value


def _require_same_tensors(manifest: Manifest, tree: Tree) -> None:
    """Refuse a model of other names, which torch would leave out, and other shapes and dtypes."""
    parts = [part for part in (MODEL, EXTRA) if part in tree]
    kept = {
        name
        for entries in (manifest.tensors, manifest.values)
        for name, entry in entries.items()
        if entry.path[0] in parts
    }
    asked = flatten_state_dict({part: tree[part] for part in parts})[0]
    if kept != asked.keys():
        only_kept, only_asked = sorted(kept - asked.keys())[:3], sorted(asked.keys() - kept)[:3]
        of_extra = all(one.startswith(f"{EXTRA}.") for one in kept ^ asked.keys())
        raise CheckpointError(
            f"checkpoint {manifest.id} is not of this model: "
            + ", and ".join(
                f"{which} alone has {', '.join(map(repr, names))}"
                for which, names in (("it", only_kept), ("what is to be loaded", only_asked))
                if names
            ),
            hint="give extra as it was given; what makes its state only as it is used must have "
            "it before, or be kept as progress= and loaded from `restored.progress`"
            if of_extra
            else "build the model as it was saved; name several ones as they were named",
        )
    for name, into in asked.items():
        there, here = _kept_form(manifest, name), _form_of(into)
        if there != here:
            raise CheckpointError(
                f"{name!r} is {there} in checkpoint {manifest.id}, and {here} where it is to be "
                "loaded",
                hint="build the model as it was saved, and give extra as it was given",
                tensor=name,
            )


def _kept_form(manifest: Manifest, name: str) -> str:
    entry = manifest.tensors.get(name)
    return NO_TENSOR if entry is None else f"{entry.dtype} of shape {tuple(entry.shape)}"


def _form_of(value: Any) -> str:
    if not isinstance(value, torch.Tensor):
        return NO_TENSOR
    return f"{dtype_name(value.dtype)} of shape {tuple(value.shape)}"
