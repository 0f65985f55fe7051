"""State patches: the difference between two states, and its application (docs/formats.md).

A patch is a list of operations, applied in order:

    ['set', path, value]                  replace; a new dict key goes to the end; [] is the state
    ['del', path]                         remove a dict key
    ['cut', path, start, remove, insert]  of a list, str or bytes: replace a range
    ['ord', path, keys]                   move these keys of a dict to its end, in this order

A path is a list: a key for a dict, an index for a list; it passes through a `Registered` into its
value. States are in opaque form, as `decode(data, opaque=True)` gives them. Always, for all states:
`apply(diff(a, b), a)` has the canonical bytes of b. Pure; used by recorder, reducers and command.
"""

from collections.abc import Iterable, Sequence
from contextlib import suppress
from typing import Final, NoReturn, TypeAlias, cast

from eventlog.canonical import encode
from eventlog.errors import EventCorruptError, ValueNotEncodableError
from eventlog.patches.part_index import large_parts
from eventlog.patches.state_diff import ROOT, OmittedError, Path, patch_between, read_patch
from eventlog.patches.state_narrowing import narrow
from eventlog.values.opaque_values import Registered

Operation: TypeAlias = list[object]
"""One operation: its name, the path, and what the name asks for."""

# What an error shows of an operation.
SHOWN_SYMBOLS_MAX: Final = 200
_CUT_TYPES: Final = (list, str, bytes)


def same(a: object, b: object) -> bool:
    """Whether two values are the same: whether their canonical bytes are equal.

    1, True and 1.0 differ, 0.0 and -0.0 differ, a tuple and a list differ, the order of keys
    counts, and NaN is the same as NaN. Raises `ValueNotEncodableError`.
    """
    return encode(a) == encode(b)


def diff(
    before: object,
    after: object,
    *,
    touched: Iterable[Sequence[object]] | None = None,
    close: bool = False,
) -> list[Operation]:
    """The operations that make `before` into `after`; an empty list where they are the same.

    Neither value is changed, and the operations share nothing with them. Where no operations are
    smaller than the whole, the one operation is `['set', [], after]`.

    `touched` are the paths that may have changed: nothing else is compared, and the caller answers
    for it. A path that only one of the two states has counts as its nearest common parent.

    `close` is for showing a difference to people: edits go into lists and dicts even where setting
    the whole would be smaller.

    Raises `ValueNotEncodableError` naming the path of what has no canonical form, and for states so
    deep that no patch can hold their change.
    """
    if touched is not None:
        return _diff_touched(before, after, touched, close)
    narrowed = narrow(before, after)
    if narrowed is not None:
        path = ROOT._replace(close=close, omitted=narrowed.omitted)
        old, new = encode(narrowed.before), encode(narrowed.after)
        with suppress(OmittedError):
            return read_patch(patch_between(old, new, large_parts(old), path)[0])
    return diff_encoded(encode(before), encode(after), close=close)


def diff_encoded(before: bytes, after: bytes, *, close: bool = False) -> list[Operation]:
    """As `diff`, of two states given as canonical bytes.

    Who captures one large state again and again keeps an `EncodedState`, which is much faster.
    """
    path = ROOT._replace(close=close)
    return read_patch(patch_between(before, after, large_parts(before), path)[0])


def apply(operations: object, state: object) -> object:
    """The state after the operations of a patch, as `decode(patch, opaque=True)` gives them.

    Containers of `state` are changed in place and belong to the caller; those inside a `Registered`
    too. Values of the operations go into the state as they are: pass operations just decoded, and
    not twice.

    Raises `EventCorruptError` with the operation's index for a path that is not there, a target of
    the wrong type, an unknown operation, or arguments out of range. The state is undefined then.
    """
    if type(operations) is not list:
        raise _corrupt("a state patch is no list", operations)
    number = -1
    try:
        for operation in operations:
            number += 1
            if type(operation) is not list or len(operation) < 2 or type(operation[1]) is not list:
                _refuse("is not a list of a name, a path and arguments")
            name, path = operation[0], operation[1]
            if name == "set":
                state = _set(state, path, operation)
            elif name == "cut":
                state = _cut(state, path, operation)
            elif name == "del":
                _delete(state, path, operation)
            elif name == "ord":
                _order(state, path, operation)
            else:
                _refuse("has an unknown name")
    except _RefusedError as error:
        raise _corrupt(f"operation {number} of a state patch {error}", operations[number]) from None
    return state


class _RefusedError(Exception):
    """Why an operation does not apply; never leaves this module."""


def _refuse(why: str) -> NoReturn:
    raise _RefusedError(why)


def _corrupt(what: str, shown: object) -> EventCorruptError:
    text = repr(shown)
    if len(text) > SHOWN_SYMBOLS_MAX:
        text = f"{text[:SHOWN_SYMBOLS_MAX]}..."
    return EventCorruptError(
        f"{what}: {text}",
        hint="the patch is damaged, or made for another state; run `steplog check`",
    )


def _set(state: object, path: list[object], operation: Operation) -> object:
    if len(operation) != 3:
        _refuse("does not have one value")
    if not path:
        return operation[2]
    _put(_holder(state, path), path[-1], operation[2])
    return state


def _delete(state: object, path: list[object], operation: Operation) -> None:
    if len(operation) != 2 or not path:
        _refuse("does not name one key")
    holder = _holder(state, path)
    if type(holder) is not dict:
        _refuse("does not lead to a dict")
    if not _has_key(holder, path[-1]):
        _refuse("names a key that is not there")
    del holder[path[-1]]


def _order(state: object, path: list[object], operation: Operation) -> None:
    if len(operation) != 3 or type(operation[2]) is not list:
        _refuse("does not have one list of keys")
    keys: list[object] = operation[2]
    target = state
    for element in path:
        target = _child(target, element)
    target = _inside(target)
    if type(target) is not dict:
        _refuse("does not lead to a dict")
    for key in keys:
        if not _has_key(target, key):
            _refuse("names a key that is not there")
    if len(set(keys)) != len(keys):
        _refuse("names a key twice")
    for key in keys:
        target[key] = target.pop(key)


def _cut(state: object, path: list[object], operation: Operation) -> object:
    if len(operation) != 5:
        _refuse("does not have a start, a count and an insert")
    start, count, insert = operation[2:]
    if type(start) is not int or type(count) is not int or start < 0 or count < 0:
        _refuse("has a start or count that is no natural number")
    holder = _holder(state, path) if path else None
    whole = _child(holder, path[-1]) if path else state
    text = _inside(whole)
    if type(text) not in _CUT_TYPES or type(insert) is not type(text):
        _refuse("does not cut a list, str or bytes to insert the same")
    old, end = cast("list[object]", text), start + count
    if end > len(old):
        _refuse("cuts outside of its target")
    if type(text) is list:
        old[start:end] = cast("list[object]", insert)
        return state
    new = _with_inside(whole, old[:start] + cast("list[object]", insert) + old[end:])
    if not path:
        return new
    _put(holder, path[-1], new)
    return state


def _holder(state: object, path: list[object]) -> object:
    """The container of the path's last element."""
    for key in path[:-1]:
        if type(state) is dict and type(key) is str:
            if key not in state:
                _refuse("has a path that is not there")
            state = state[key]
        else:
            state = _child(state, key)
    return _inside(state)


def _child(state: object, key: object) -> object:
    holder = _inside(state)
    if type(holder) is dict:
        if not _has_key(holder, key):
            _refuse("has a path that is not there")
        return holder[key]
    if type(holder) is list:
        return holder[_index(holder, key)]
    _refuse("has a path through what is no container")


def _put(holder: object, key: object, value: object) -> None:
    """Replace in place, or add to a dict's end."""
    if type(holder) is dict:
        if type(key) is str or _has_key(holder, key) or _may_be_key(key):
            holder[key] = value
    elif type(holder) is list:
        holder[_index(holder, key)] = value
    else:
        _refuse("does not lead into a dict or list")


def _index(holder: list[object], index: object) -> int:
    if type(index) is not int or not 0 <= index < len(holder):
        _refuse("has an index that is not in the list")
    return index


def _has_key(holder: dict[object, object], key: object) -> bool:
    """Whether the dict has this very key; refuses one that is only equal to it in Python."""
    try:
        if key not in holder:
            return False
    except (TypeError, ArithmeticError):  # unhashable; a signaling NaN
        _refuse("has a key that no dict can have")
    if type(key) is not str and encode(_stored_key(holder, key)) != encode(key):
        _refuse("has a key that is equal in Python to another one of the dict")
    return True


def _may_be_key(key: object) -> bool:
    """Whether a new key other than str has a canonical form as a key (NaN has not)."""
    try:
        encode({key: None})
    except ValueNotEncodableError:
        _refuse("has a key that no dict can have")
    return True


class _Probe:
    """Finds the key that a dict holds in place of an equal one, without a walk over its keys."""

    __slots__ = ("key", "stored")

    def __init__(self, key: object) -> None:
        self.key = key
        self.stored: object = None

    def __hash__(self) -> int:
        return hash(self.key)

    def __eq__(self, other: object) -> bool:
        self.stored = other
        return bool(self.key == other)


def _stored_key(holder: dict[object, object], key: object) -> object:
    probe = _Probe(key)
    return probe.stored if cast(object, probe) in holder else None


def _inside(value: object) -> object:
    """The value within registered types, which have no path element of their own."""
    while type(value) is Registered:
        value = value.value
    return value


def _with_inside(whole: object, inside: object) -> object:
    """`whole` with another value within its registered types, which are immutable."""
    wrappers = []
    while type(whole) is Registered:
        wrappers.append(whole)
        whole = whole.value
    for wrapper in reversed(wrappers):
        inside = Registered(wrapper.name, wrapper.version, inside)
    return inside


def _diff_touched(
    before: object, after: object, touched: Iterable[Sequence[object]], close: bool
) -> list[Operation]:
    operations: list[Operation] = []
    done: set[tuple[bytes, ...]] = set()
    found = [_common_place(before, after, path) for path in touched]
    for elements, old, new in sorted(found, key=lambda place: len(place[0])):
        if any(elements[:length] in done for length in range(len(elements) + 1)):
            continue
        done.add(elements)
        path = Path(len(elements), b"".join(elements), len(elements), close)
        data = encode(old)
        operations += read_patch(patch_between(data, encode(new), large_parts(data), path)[0])
    return operations


def _common_place(
    before: object, after: object, path: Sequence[object]
) -> tuple[tuple[bytes, ...], object, object]:
    """How far a touched path leads to one place in both states, and what stands there."""
    elements: list[bytes] = []
    for element in path:
        old, new = before, after
        while type(old) is Registered and type(new) is Registered:
            if (old.name, old.version) != (new.name, new.version):
                break
            old, new = old.value, new.value
        if type(old) is dict and type(new) is dict:
            if not _both_have(old, new, element):
                break
            before, after = old[element], new[element]
        elif type(old) is list and type(new) is list and len(old) == len(new):
            if type(element) is not int or not 0 <= element < len(old):
                break
            before, after = old[element], new[element]
        else:
            break
        elements.append(encode(element))
    return tuple(elements), before, after


def _both_have(old: dict[object, object], new: dict[object, object], key: object) -> bool:
    try:
        return _has_key(old, key) and _has_key(new, key)
    except _RefusedError:
        return False
