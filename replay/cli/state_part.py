"""A part of a state, named on the command line: `orders.A1.price`, `$.orders["A1"][3]`."""

import ast
import re
from collections.abc import Iterator
from math import prod
from typing import Any, Final

import typer

from eventlog.values.extension_values import item_bytes
from eventlog.values.opaque_values import ArrayValue, Registered
from replay.views import readable_path

KEYS_LISTED_MAX: Final = 12

_STEP: Final = re.compile(
    r"""\.?(?P<name>[^.\[\]]+)|\[(?P<key>(?:"(?:[^"\\]|\\.)*"|'(?:[^'\\]|\\.)*'|[^\]])+)\]"""
)


def find_part(state: object, text: str) -> object:
    """The part of an opaque state that `text` leads to.

    A name is a key, or a position in a list or an array; in brackets stands a position, or a key
    as Python writes it. A path goes through values of registered types. Raises a usage error that
    says what is there instead.
    """
    part: Any = state
    taken: list[object] = []
    for step in _steps(text):
        part = part.value if isinstance(part, Registered) else part
        key = _key_in(part, step)
        if key is None:
            raise typer.BadParameter(
                f"no part {step!r} at {readable_path(taken)}: {_what_is_there(part)}"
            )
        taken.append(key[0])
        part = _item(part, key[0]) if isinstance(part, ArrayValue) else part[key[0]]
    return part


def _steps(text: str) -> Iterator[object]:
    """The keys of a path; a name as a str, what stands in brackets as what it says."""
    at = 1 if text.startswith("$") else 0
    while at < len(text):
        found = _STEP.match(text, at)
        if found is None:
            raise typer.BadParameter(f'{text!r} is no path: write orders.A1.price or $["A.1"][3]')
        at = found.end()
        if found["name"] is not None:
            yield found["name"]
            continue
        try:
            key = ast.literal_eval(found["key"])
            hash(key)
        except (ValueError, TypeError, SyntaxError) as error:
            raise typer.BadParameter(f"[{found['key']}] is neither position nor key") from error
        yield key


def _key_in(part: object, step: object) -> tuple[object] | None:
    """The key that `step` means here, in a tuple of one; None where there is none."""
    number = int(step) if isinstance(step, str) and re.fullmatch(r"-?[0-9]{1,18}", step) else step
    if isinstance(part, dict):
        for key in (step, number):
            # Keys equal in Python may differ (1 and True): the stored one is what is shown.
            if key in part:
                return (key,)
    elif isinstance(number, int) and -(length := _length(part)) <= number < length:
        return (number,)
    return None


def _length(part: object) -> int:
    """How many positions there are in a part: the first axis of an array."""
    if isinstance(part, ArrayValue):
        return part.shape[0] if part.shape else 0
    return len(part) if isinstance(part, list | tuple) else 0


def _item(array: ArrayValue, position: Any) -> ArrayValue:
    """The part of an array at a position of its first axis; a scalar where that is its only one."""
    rest = array.shape[1:]
    size = prod(rest) * item_bytes(array.family, array.dtype)
    start = position % array.shape[0] * size
    family = "scalar" if array.family == "array" and not rest else array.family
    return ArrayValue(family, array.dtype, rest, array.data[start : start + size])


def _what_is_there(part: object) -> str:
    if isinstance(part, dict):
        keys = [repr(key) for key in part][:KEYS_LISTED_MAX]
        more = f", and {len(part) - len(keys)} more" if len(part) > len(keys) else ""
        return f"keys {', '.join(keys)}{more}" if keys else "an empty dict"
    if isinstance(part, list | tuple):
        return f"a {type(part).__name__} of {len(part)}"
    if isinstance(part, ArrayValue):
        return f"an array of shape {list(part.shape)}" if part.shape else "a number, no parts"
    return f"a {type(part).__name__}, which has no parts"
