"""The error for a value without a canonical form, naming the path to the part that has none.

The path is found afterwards, by encoding part by part: only a refusal pays for it.
"""

from collections.abc import Callable, Iterator

from eventlog.errors import ValueNotEncodableError
from eventlog.values.extension_values import DEPTH_MAX, Refusal
from eventlog.values.opaque_values import Registered
from eventlog.values.registered_types import close_value, is_native
from eventlog.values.value_path import key_text, path_step


def refusal_error(
    root: object, refusal: Refusal, encode_part: Callable[[object, int], object]
) -> ValueNotEncodableError:
    """Our error for `refusal`, met while `root` was encoded.

    `encode_part(part, depth)` raises `Refusal` where the part, inside `depth` containers, has no
    canonical form.
    """
    value, path, depth = root, "$", 0
    why, hint = refusal.why, refusal.hint
    # With each path the object itself: an id is another's as soon as its object is gone, and what
    # a codec made of a value is held by nobody else.
    around: dict[int, tuple[str, object]] = {}
    while id(value) not in around:
        around[id(value)] = path, value
        for step, part, inside in _parts(value, depth):
            try:
                encode_part(part, inside)
            except Refusal as inner:
                value, path, depth = part, path + step, inside
                why, hint = inner.why, inner.hint
                break
        else:
            break
    else:
        why, hint = f"is the object at {around[id(value)][0]}: it contains itself", "cut the cycle"
    kind = type(value).__qualname__
    return ValueNotEncodableError(f"{kind} at {path} {why}", hint=hint, path=path)


def _parts(value: object, depth: int) -> Iterator[tuple[str, object, int]]:
    """The parts of a value, each with its step of a path and the containers around it."""
    kind = type(value)
    inside = depth + 1
    if inside > DEPTH_MAX:
        return
    if kind is dict:
        for key, item in value.items():  # type: ignore[attr-defined]
            if type(key) is not str:
                yield f"{path_step(key)}(key)", key, inside
            yield path_step(key), item, inside
    elif kind is list or kind is tuple:
        for position, item in enumerate(value):  # type: ignore[arg-type]
            yield f"[{position}]", item, inside
    elif kind is set or kind is frozenset:
        for item in value:  # type: ignore[attr-defined]
            yield f"{{{key_text(item)}}}", item, inside
    elif kind is Registered:
        yield f"<{value.name}>", value.value, inside  # type: ignore[attr-defined]
    elif not is_native(kind):
        try:
            closed = close_value(value)
        except Refusal:
            return
        if isinstance(closed, Registered):
            yield f"<{closed.name}>", closed.value, inside
