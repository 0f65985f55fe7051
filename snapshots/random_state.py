"""The random generators of a process as one canonical value, and exactly back.

Python's `random`, numpy's legacy global state and torch's (CPU and each CUDA device) where these
are loaded, and generators that the user names. The value is dicts, lists, ints, floats and bytes:
nothing is pickled, and neither library is needed to read it. Used by `training_state`; restored
last, because making a data loader's iterator draws a number (Megatron-Bridge #5257).
"""

import random
import sys
from collections.abc import Callable, Iterable, Mapping
from hashlib import sha256
from typing import Any, Final

from eventlog.errors import StateError

FORMAT: Final = 1
_WORD_BYTES: Final = 4
_WORDS: Final = 624
_LIBRARIES: Final = ("python", "numpy", "torch", "cuda")
_HINT_NAMES: Final = "give the same generators, by the same names, as when it was captured"

Apply = Callable[[], object]
"""Sets one generator; made only after the whole value was found to fit."""


def capture_random(generators: Mapping[str, object] | None = None) -> dict[str, object]:
    """The state of every generator of this process, as a canonical value of its own.

    `generators` are further ones by name: `random.Random`, `numpy.random.Generator` or
    `RandomState`, `torch.Generator`. Draws nothing. Raises `StateError` for any other object.
    """
    value: dict[str, object] = {"format": FORMAT, "python": _python_state(random.getstate())}
    numpy, torch = sys.modules.get("numpy"), sys.modules.get("torch")
    if numpy is not None:
        value["numpy"] = _plain(numpy.random.get_state(legacy=False))
    if torch is not None:
        value["torch"] = _tensor_bytes(torch.get_rng_state())
        if torch.cuda.is_available():
            value["cuda"] = [_tensor_bytes(state) for state in torch.cuda.get_rng_state_all()]
    named = _named(generators)
    value["generators"] = {name: _capture_one(name, one) for name, one in named.items()}
    return value


def restore_random(
    value: Mapping[str, object], generators: Mapping[str, object] | None = None
) -> None:
    """Set every generator as it was when `value` was captured: the next draws are the same.

    All of it is checked before anything is set. Raises `StateError` naming what does not fit:
    another kind of generator, names that are missing or too many, a library that is not installed,
    another number of CUDA devices. A value of `reseeded` sets what is loaded here to fresh seeds.
    """
    for apply in _applies(value, generators):
        apply()


def require_random(
    value: Mapping[str, object], generators: Mapping[str, object] | None = None
) -> None:
    """Raise `StateError` where `restore_random` would; nothing is set."""
    _applies(value, generators)


def _applies(value: Mapping[str, object], generators: Mapping[str, object] | None) -> list[Apply]:
    named = _named(generators)
    if not isinstance(value, Mapping) or value.get("format") != FORMAT:
        raise StateError(
            "this is not a random state that this steplog knows",
            hint="give what `capture_random` returned; a newer steplog may have saved it",
        )
    return _fresh_seeds(value["seed"], named) if "seed" in value else _checked(value, named)


def _named(generators: object) -> Mapping[str, object]:
    if generators is None:
        return {}
    if not isinstance(generators, Mapping):
        raise StateError(
            f"generators takes a dict, not {type(generators).__name__}",
            hint="give each a name, as generators={'sampler': generator}",
        )
    return generators


def reseeded(seed: int, rank: int) -> dict[str, object]:
    """A value for `restore_random` that sets fresh seeds, which depend on these two alone."""
    name = f"steplog reseed {FORMAT}\0{seed}\0{rank}".encode()
    return {"format": FORMAT, "seed": sha256(name).digest()}


def _checked(value: Mapping[str, object], named: Mapping[str, object]) -> list[Apply]:
    states = value.get("generators")
    if set(value) - {"format", "generators", *_LIBRARIES} or not isinstance(states, Mapping):
        raise StateError("this is not a random state", hint="give what `capture_random` returned")
    if states.keys() != named.keys():
        missing = sorted(states.keys() - named.keys())
        extra = sorted(named.keys() - states.keys())
        sides = (("saved, not given", missing), ("given, not saved", extra))
        told = "; ".join(f"{how}: {', '.join(map(repr, names))}" for how, names in sides if names)
        raise StateError(f"the generators differ: {told}", hint=_HINT_NAMES)
    applies: list[Apply] = []
    for name, one in named.items():
        applies.append(_fit("generator " + repr(name), _restore_one, name, one, states[name]))
    for name, check in (
        ("python", _restore_python), ("numpy", _restore_numpy),
        ("torch", _restore_torch), ("cuda", _restore_cuda),
    ):  # fmt: skip
        if name in value:
            applies.append(_fit(name, check, value[name]))
    return applies


def _fit(what: str, check: Callable[..., Apply], *arguments: object) -> Apply:
    """What sets one generator. The libraries' own refusals become ours."""
    try:
        return check(*arguments)
    except ImportError as error:
        raise StateError(
            f"the random state of {what} cannot be set: {error}",
            hint="install the library that the training used",
        ) from error
    except (TypeError, ValueError, LookupError, RuntimeError, OverflowError) as error:
        raise StateError(
            f"the random state of {what} does not fit: {error}",
            hint="restore with the versions of python, numpy and torch that saved it",
        ) from error


def _python_state(state: tuple[Any, ...]) -> list[object]:
    version, words, gauss_next = state
    packed = b"".join(word.to_bytes(_WORD_BYTES, "little") for word in words[:-1])
    return [version, packed, words[-1], gauss_next]


def _python_tuple(value: object) -> tuple[object, ...]:
    if not isinstance(value, list) or len(value) != 4:
        raise ValueError("not a state of random.Random")
    version, packed, position, gauss_next = value
    if version != random.Random.VERSION:
        raise ValueError(f"saved is version {version!r}, known is {random.Random.VERSION}")
    if type(packed) is not bytes or len(packed) != _WORDS * _WORD_BYTES:
        raise ValueError("not the words of random.Random")
    if type(position) is not int or (gauss_next is not None and type(gauss_next) is not float):
        raise ValueError("not a state of random.Random")
    words = (
        int.from_bytes(packed[at : at + _WORD_BYTES], "little")
        for at in range(0, len(packed), _WORD_BYTES)
    )
    state = (version, (*words, position), gauss_next)
    random.Random().setstate(state)  # a scratch one: raises here where the real one would
    return state


def _restore_python(value: object) -> Apply:
    state = _python_tuple(value)
    return lambda: random.setstate(state)


def _restore_numpy(value: object) -> Apply:
    import numpy

    state = _unplain(value)
    current = numpy.random.get_state(legacy=False)["bit_generator"]
    if state["bit_generator"] != current:
        raise ValueError(f"saved is {state['bit_generator']}, the global one is {current}")
    numpy.random.RandomState(getattr(numpy.random, current)()).set_state(state)
    return lambda: numpy.random.set_state(state)


def _restore_torch(value: object) -> Apply:
    import torch

    state = _byte_tensor(torch, value)
    torch.Generator().set_state(state)
    return lambda: torch.set_rng_state(state)


def _restore_cuda(value: object) -> Apply:
    import torch

    if not isinstance(value, list):
        raise ValueError("not the states of CUDA devices")
    count = torch.cuda.device_count() if torch.cuda.is_available() else 0
    if count != len(value):
        raise ValueError(f"saved with {len(value)} CUDA devices, here are {count}")
    states = [_byte_tensor(torch, state) for state in value]
    for current, state in zip(torch.cuda.get_rng_state_all(), states, strict=True):
        if current.numel() != state.numel():
            raise ValueError(f"saved are {state.numel()} bytes, a device has {current.numel()}")
    return lambda: torch.cuda.set_rng_state_all(states)


def _capture_one(name: str, one: Any) -> dict[str, object]:
    kind = _kind_of(name, one)
    if kind == "random.Random":
        return {"kind": kind, "state": _python_state(one.getstate())}
    if kind == "numpy.random.Generator":
        kept = {"kind": kind, "state": _plain(one.bit_generator.state)}
        return kept | _kept_seeds(one.bit_generator)
    if kind == "numpy.random.RandomState":
        return {"kind": kind, "state": _plain(one.get_state(legacy=False))}
    return {"kind": kind, "device": one.device.type, "state": _tensor_bytes(one.get_state())}


def _restore_one(name: str, one: Any, value: object) -> Apply:
    if not isinstance(value, Mapping):
        raise ValueError("not the state of a generator")
    kind = _kind_of(name, one)
    if value["kind"] != kind:
        raise ValueError(f"saved is a {value['kind']}, given a {kind}")
    if kind == "random.Random":
        python_state = _python_tuple(value["state"])
        return lambda: one.setstate(python_state)
    if kind == "torch.Generator":
        torch = sys.modules["torch"]
        tensor = _byte_tensor(torch, value["state"])
        if value["device"] != one.device.type:
            raise ValueError(f"saved is one of {value['device']}, given one of {one.device.type}")
        torch.Generator(one.device).set_state(tensor)
        return lambda: one.set_state(tensor)
    state = _unplain(value["state"])
    if kind == "numpy.random.RandomState":
        _like(one._bit_generator, state)
        return lambda: one.set_state(state)
    _like(one.bit_generator, state)
    seeds = _seeds_of(value)

    def set_generator() -> None:
        if seeds is None:
            one.bit_generator.state = state
        else:
            one.bit_generator.__setstate__((state, seeds))

    return set_generator


def _kept_seeds(bit_generator: Any) -> dict[str, object]:
    """What `spawn()` makes children of, and how many it has made; empty where it cannot."""
    seeds = bit_generator.seed_seq
    if type(seeds) is not sys.modules["numpy"].random.SeedSequence or not _takes_seeds(
        bit_generator
    ):
        return {}
    entropy = seeds.entropy
    words = isinstance(entropy, Iterable)
    return {
        "seeds": {
            "entropy": [int(one) for one in entropy] if words else int(entropy),
            "spawn_key": [int(one) for one in seeds.spawn_key],
            "pool_size": int(seeds.pool_size),
            "n_children_spawned": int(seeds.n_children_spawned),
        }
    }


def _takes_seeds(bit_generator: Any) -> bool:
    """Whether this numpy can set what children are made of: it then pickles it too."""
    return isinstance(bit_generator.__reduce__()[2], tuple)


def _seeds_of(value: Mapping[str, Any]) -> Any:
    """A SeedSequence that goes on as the kept one; None where none was kept."""
    kept = value.get("seeds")
    if kept is None:
        return None
    import numpy

    seeds = numpy.random.SeedSequence(
        kept["entropy"],
        spawn_key=tuple(kept["spawn_key"]),
        pool_size=kept["pool_size"],
        n_children_spawned=kept["n_children_spawned"],
    )
    scratch: Any = numpy.random.PCG64()  # raises here where the real one would
    scratch.__setstate__((scratch.state, seeds))
    return seeds


def _like(bit_generator: Any, state: dict[str, Any]) -> None:
    current = type(bit_generator).__name__
    if state["bit_generator"] != current:
        raise ValueError(f"saved is a {state['bit_generator']}, given a {current}")
    type(bit_generator)().state = state


def _kind_of(name: str, one: object) -> str:
    numpy, torch = sys.modules.get("numpy"), sys.modules.get("torch")
    if type(one) is random.Random:
        return "random.Random"
    if numpy is not None and type(one) is numpy.random.Generator:
        return "numpy.random.Generator"
    if numpy is not None and type(one) is numpy.random.RandomState:
        return "numpy.random.RandomState"
    if torch is not None and type(one) is torch.Generator:
        return "torch.Generator"
    raise StateError(
        f"the generator {name!r} is a {type(one).__qualname__}, which has no state to keep",
        hint="use random.Random, numpy.random.Generator, RandomState or torch.Generator",
    )


def _fresh_seeds(seed: object, named: Mapping[str, object]) -> list[Apply]:
    if type(seed) is not bytes:
        raise StateError("this is not a random state", hint="give what `reseeded` returned")

    def derived(name: str, bits: int) -> int:
        digest = sha256(seed + name.encode("utf-8")).digest()
        return int.from_bytes(digest, "big") >> (256 - bits)

    numpy, torch = sys.modules.get("numpy"), sys.modules.get("torch")
    applies: list[Apply] = [lambda: random.seed(derived("python", 256))]
    if numpy is not None:
        applies.append(lambda: numpy.random.seed(derived("numpy", 32)))
    if torch is not None:
        applies.append(lambda: torch.manual_seed(derived("torch", 63)))  # CUDA's as well
    for name, one in named.items():
        applies.append(_seed_one(_kind_of(name, one), one, derived(f"generator {name}", 63)))
    return applies


def _seed_one(kind: str, one: Any, seed: int) -> Apply:
    if kind == "random.Random":
        return lambda: one.seed(seed)
    if kind == "torch.Generator":
        return lambda: one.manual_seed(seed)
    if kind == "numpy.random.RandomState":
        return lambda: one.seed(seed & 0xFFFFFFFF)

    def set_generator() -> None:
        fresh = type(one.bit_generator)(seed)
        if _takes_seeds(fresh):
            one.bit_generator.__setstate__((fresh.state, fresh.seed_seq))
        else:
            one.bit_generator.state = fresh.state

    return set_generator


def _plain(value: Any) -> Any:
    """numpy's state of a generator without arrays: `["<u4", bytes]` for each."""
    if isinstance(value, dict):
        return {key: _plain(item) for key, item in value.items()}
    if hasattr(value, "dtype") and getattr(value, "shape", None):
        little = value.astype(value.dtype.newbyteorder("<"))
        return [little.dtype.str, little.tobytes()]
    if hasattr(value, "item"):
        return value.item()
    return value


def _unplain(value: Any) -> Any:
    import numpy

    if isinstance(value, Mapping):
        return {key: _unplain(item) for key, item in value.items()}
    if isinstance(value, list):
        dtype, data = value
        return numpy.frombuffer(data, dtype).copy()
    return value


def _tensor_bytes(state: Any) -> bytes:
    return bytes(state.tolist())


def _byte_tensor(torch: Any, data: object) -> Any:
    if type(data) is not bytes or not data:
        raise ValueError("not the bytes of a generator")
    return torch.frombuffer(bytearray(data), dtype=torch.uint8)
