"""Strict reading of JSON that anyone may have changed: known keys, checked types, bounded sizes.

Used for a checkpoint's manifest, and for the entry of a checkpoint set in it. What is refused
leaves as `CheckpointError`.
"""

import json
import re
from functools import lru_cache
from typing import Final, NoReturn

from eventlog.errors import CheckpointError

DIMENSIONS_MAX: Final = 64
"""Most dimensions of a tensor, and most steps of the path to one."""

_COUNT_MAX: Final = (1 << 63) - 1
_DIGEST: Final = re.compile(r"[0-9a-f]{64}")

StatePath = tuple[str | int, ...]
"""The way to a tensor or value in the nested state that was saved: keys and places."""

Json = dict[str, object]


def read_json(data: bytes) -> object:
    """The value of strict UTF-8 JSON: no NaN, no key twice. Raises `CheckpointError`."""
    try:
        return json.loads(
            data.decode("utf-8"), object_pairs_hook=_once, parse_constant=_refuse_constant
        )
    except (UnicodeDecodeError, ValueError, RecursionError) as error:
        refuse(f"it is not JSON: {error}")


def refuse(what: str) -> NoReturn:
    """Raise the error for a manifest that cannot be used."""
    raise CheckpointError(
        f"the checkpoint's manifest cannot be used: {what}",
        hint="it is damaged, or of another version of steplog; load an older checkpoint",
    )


class JsonFields:
    """A JSON object whose keys are known, and whose fields are asked for by their type.

    All raise `CheckpointError` naming the thing and the field.
    """

    def __init__(self, read: object, what: str, required: str, *, optional: str = "") -> None:
        if not isinstance(read, dict):
            refuse(f"{what} is not an object")
        due, allowed = _known_fields(required, optional)
        found = set(read)
        if not (due <= found <= allowed):
            refuse(f"{what} has the wrong fields: {sorted(found ^ due)[:4]}")
        self._read: Json = read
        self._what = what

    def get(self, key: str) -> object:
        """The field as it is, None where it is left out."""
        return self._read.get(key)

    def count(self, key: str, default: int | None = None) -> int:
        """A whole number from 0 to 2**63 - 1."""
        value = self._read.get(key, default)
        if type(value) is not int or not 0 <= value <= _COUNT_MAX:
            refuse(f"{self._what}: {key} is {value!r}, no count")
        return value

    def text(self, key: str) -> str:
        """A text."""
        value = self._read.get(key)
        if not isinstance(value, str):
            refuse(f"{self._what}: {key} is {value!r}, no text")
        return value

    def digest(self, key: str) -> str:
        """A SHA-256 in hex."""
        value = self.text(key)
        if _DIGEST.fullmatch(value) is None:
            refuse(f"{self._what}: {key} is {value!r}, no SHA-256 in hex")
        return value

    def items(self, key: str) -> list[object]:
        """A list."""
        value = self._read.get(key)
        if not isinstance(value, list):
            refuse(f"{self._what}: {key} is no list")
        return value

    def mapping(self, key: str) -> Json:
        """An object."""
        value = self._read.get(key)
        if not isinstance(value, dict):
            refuse(f"{self._what}: {key} is no object")
        return value

    def counts(self, key: str) -> tuple[int, ...]:
        """A list of at most `DIMENSIONS_MAX` whole numbers."""
        found = self.items(key)
        if len(found) > DIMENSIONS_MAX:
            refuse(f"{self._what}: {key} has {len(found)} dimensions")
        for one in found:
            if type(one) is not int or not 0 <= one <= _COUNT_MAX:
                refuse(f"{self._what}: {key} holds {one!r}, no count")
        return tuple(one for one in found if isinstance(one, int))

    def path(self, name: str) -> StatePath:
        """The field `path`, `(name,)` where it is left out."""
        if "path" not in self._read:
            return (name,)
        found = self.items("path")
        if not found or len(found) > DIMENSIONS_MAX:
            refuse(f"{self._what}: its path has {len(found)} steps")
        if any(type(one) not in (str, int) for one in found):
            refuse(f"{self._what}: its path holds what is neither text nor number")
        return tuple(one for one in found if isinstance(one, str | int))


@lru_cache(maxsize=64)
def _known_fields(required: str, optional: str) -> tuple[frozenset[str], frozenset[str]]:
    due = frozenset(required.split())
    return due, due | frozenset(optional.split())


def _once(pairs: list[tuple[str, object]]) -> Json:
    made = dict(pairs)
    if len(made) != len(pairs):
        raise ValueError("a key stands twice in one object")
    return made


def _refuse_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is no number of JSON")
