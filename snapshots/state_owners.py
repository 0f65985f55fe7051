"""What has a state of its own (`state_dict`), alone or in dicts, lists and tuples, and its kind.

A scheduler takes the state of any other kind without a word, and goes on with numbers that mean
something else. So its class's name is kept with it. Used by `training_state`.
"""

from typing import Any

from eventlog.errors import StateError


def has_state(owner: object) -> bool:
    """Whether it is an object with a `state_dict()`; a class is none."""
    return callable(getattr(owner, "state_dict", None)) and not isinstance(owner, type)


def holds_state(owner: Any) -> bool:
    """Whether it is a dict, a list or a tuple with something in it that has a state."""
    if type(owner) not in (dict, list, tuple):
        return False
    parts = owner.values() if type(owner) is dict else owner
    return any(has_state(part) or holds_state(part) for part in parts)


def kind_of(owner: Any) -> Any:
    """The name of its class, of each in a dict, list or tuple; None of a plain value."""
    if has_state(owner):
        return type(owner).__name__
    if not holds_state(owner):
        return None
    if type(owner) is dict:
        return {key: kind_of(one) for key, one in owner.items()}
    return type(owner)(map(kind_of, owner))


def require_same_kind(saved: Any, here: Any, path: str) -> None:
    """Raise `StateError` where a kind is another than was saved; both are of `kind_of`."""
    if type(saved) is dict and type(here) is dict:
        require_same(path, sorted(map(repr, here)), sorted(map(repr, saved)))
        for key, kind in saved.items():
            require_same_kind(kind, here[key], f"{path}.{key}")
    elif type(saved) in (list, tuple) and type(here) is type(saved):
        require_same(path, f"{len(here)} items", f"{len(saved)} items")
        for at, kind in enumerate(saved):
            require_same_kind(kind, here[at], f"{path}[{at}]")
    elif saved != here:
        raise StateError(
            f"{path} was saved as {_named(saved)} and is {_named(here)} here",
            hint="restore into objects of the same kinds as were saved, or leave it out",
        )


def require_same(path: str, mine: object, saved: object) -> None:
    """Raise `StateError` where the names, or the number, are other than were saved."""
    if mine != saved:
        raise StateError(
            f"{path} has {mine}, saved was {saved}",
            hint="restore into the same objects, by the same names, as were saved",
        )


def _named(kind: Any) -> str:
    return "a plain value" if kind is None else repr(kind)
