"""Reads bytes that pickle wrote as plain data. Nothing is imported, called or built by their word.

A pickle is a program; Python's own reader runs it, with whatever functions it names. This one knows
the operations that data needs, and of names only those that its caller lists, each with a function
of ours that makes data of the arguments. All else is refused by its name. So there is no list of
bad names to be complete: what is not known does not exist here. Used for torch's checkpoint folders
(`torch_folder`, `torch_item`); steplog itself never writes a pickle.
"""

import struct
from collections.abc import Callable, Mapping
from typing import Final, NamedTuple, NoReturn

from eventlog.errors import CheckpointError

OBJECTS_MAX: Final = 1 << 24
"""Most containers and objects of one pickle: a byte of it may ask for one, which takes 64."""

_PROTOCOL_MAX: Final = 5
_LINE_BYTES_MAX: Final = 1024

Arguments = tuple[object, ...]


class Global(NamedTuple):
    """A name that a pickle refers to, as it stands there. Nothing is looked up under it."""

    module: str
    name: str

    def __str__(self) -> str:
        return f"{self.module}.{self.name}"


class Inert:
    """An object of a listed class, as the data that describes it: what class, which fields."""

    __slots__ = ("fields", "kind")

    def __init__(self, kind: str) -> None:
        self.kind = kind
        self.fields: dict[str, object] = {}


Maker = Callable[[Arguments], object]
"""Makes data of the arguments that a pickle gives to a name. Raises `ValueError` for unfit ones."""


def inert(kind: str) -> Maker:
    """A maker of `Inert` objects of a class, whose arguments are kept in the field `arguments`."""

    def make(arguments: Arguments) -> Inert:
        made = Inert(kind)
        made.fields["arguments"] = arguments
        return made

    return make


def read_pickle(
    data: bytes,
    names: Mapping[Global, Maker | None],
    *,
    persistent: Maker | None = None,
) -> object:
    """What the pickle describes, of plain values, `Inert`, `Global` and what the makers make.

    `names` are all it may refer to; None for a name that is data by itself, as a dtype's.
    `persistent` makes data of what stands outside of the pickle; without it that is refused.
    Raises `CheckpointError` saying what was met.
    """
    reader = _Reader(data, names, persistent)
    try:
        return reader.read_whole()
    except (IndexError, struct.error, UnicodeDecodeError):
        _refuse("it is cut short or damaged")


class _Reader:
    """The stack machine that a pickle is written for, of the operations that data needs."""

    def __init__(
        self, data: bytes, names: Mapping[Global, Maker | None], persistent: Maker | None
    ) -> None:
        self._data = data
        self._names = names
        self._persistent = persistent
        self._at = 0
        self._stack: list[object] = []
        self._below: list[list[object]] = []
        self._memo: list[object] = []
        self._made = 0

    def read_whole(self) -> object:
        """The value that is left when the pickle ends."""
        data, operations = self._data, _OPERATIONS
        while True:
            code = data[self._at]
            self._at += 1
            if code == _STOP:
                if len(self._stack) != 1 or self._below:
                    _refuse("it does not end with one value")
                return self._stack[0]
            operation = operations[code]
            if operation is None:
                _refuse(f"it has the operation {bytes((code,))!r}, which no plain data needs")
            operation(self)

    # Reading the bytes

    def _take(self, count: int) -> bytes:
        end = self._at + count
        if end > len(self._data):
            _refuse("it is cut short or damaged")
        taken = self._data[self._at : end]
        self._at = end
        return taken

    def _count(self, width: int) -> int:
        return int.from_bytes(self._take(width), "little")

    def _line(self) -> str:
        end = self._data.find(b"\n", self._at, self._at + _LINE_BYTES_MAX)
        if end < 0:
            _refuse("it is cut short or damaged")
        line = self._take(end - self._at).decode("utf-8")
        self._at += 1
        return line

    def _count_made(self) -> None:
        self._made += 1
        if self._made > OBJECTS_MAX:
            _refuse(f"it asks for more than {OBJECTS_MAX} objects")

    # Operations

    def protocol(self) -> None:
        """How the pickle is written."""
        if self._count(1) > _PROTOCOL_MAX:
            _refuse("it is of a newer kind than is known")

    def frame(self) -> None:
        """How many bytes may be read at once: they are all here already."""
        self._take(8)

    def mark(self) -> None:
        """What follows belongs together."""
        self._below.append(self._stack)
        self._stack = []

    def _since_mark(self) -> list[object]:
        found = self._stack
        self._stack = self._below.pop()
        return found

    def push_small(self, value: object) -> None:
        """A value of its own."""
        self._stack.append(value)

    def new_dict(self) -> None:
        """An empty dict."""
        self._count_made()
        self._stack.append({})

    def new_list(self) -> None:
        """An empty list."""
        self._count_made()
        self._stack.append([])

    def append(self) -> None:
        """One item into the list below it."""
        self._extend([self._stack.pop()])

    def appends(self) -> None:
        """The items since the mark into the list below it."""
        self._extend(self._since_mark())

    def _extend(self, items: list[object]) -> None:
        into = self._stack[-1]
        if type(into) is not list:
            _refuse("it adds items to what is no list")
        into.extend(items)

    def set_item(self) -> None:
        """One key and value into the dict below them."""
        value = self._stack.pop()
        self._update([self._stack.pop(), value])

    def set_items(self) -> None:
        """The keys and values since the mark into the dict below it."""
        self._update(self._since_mark())

    def _update(self, items: list[object]) -> None:
        into = self._stack[-1]
        if type(into) is not dict or len(items) % 2:
            _refuse("it adds keys to what is no dict")
        for key in items[::2]:
            # Tuples that hold one another many times take for ever to hash.
            if not isinstance(key, _KEYS):
                _refuse(f"it has a key of type {type(key).__name__}")
        into.update(zip(items[::2], items[1::2], strict=True))

    def tuple_since_mark(self) -> None:
        """A tuple of all since the mark."""
        self._count_made()
        items = tuple(self._since_mark())
        self._stack.append(items)

    def tuple_of(self, count: int) -> None:
        """A tuple of the last `count` values."""
        self._count_made()
        if len(self._stack) < count:
            _refuse("it is cut short or damaged")
        items = tuple(self._stack[-count:])
        del self._stack[-count:]
        self._stack.append(items)

    def whole_number(self, form: struct.Struct) -> None:
        """A number of this form."""
        self._stack.append(form.unpack(self._take(form.size))[0])

    def long_number(self) -> None:
        """A number of up to 255 bytes."""
        self._stack.append(int.from_bytes(self._take(self._count(1)), "little", signed=True))

    def text(self, width: int) -> None:
        """A text, after its length."""
        self._stack.append(self._take(self._count(width)).decode("utf-8"))

    def raw(self, width: int) -> None:
        """Bytes, after their length."""
        self._stack.append(self._take(self._count(width)))

    def memoize(self) -> None:
        """Remember the last value under the next number."""
        self._memo.append(self._stack[-1])

    def put(self, width: int) -> None:
        """Remember the last value under this number: the next, or one that is there."""
        number = self._count(width)
        if number > len(self._memo):
            _refuse("it is cut short or damaged")
        self._memo[number : number + 1] = [self._stack[-1]]

    def get(self, width: int) -> None:
        """The value that is remembered under this number."""
        self._stack.append(self._memo[self._count(width)])

    def global_line(self) -> None:
        """A name, as two lines."""
        self._push_global(Global(self._line(), self._line()))

    def global_stack(self) -> None:
        """A name, as two texts."""
        name, module = self._stack.pop(), self._stack.pop()
        # Exactly texts: what only says that it is one is not looked at.
        if type(name) is not str or type(module) is not str:
            _refuse("it names something by what is no text")
        self._push_global(Global(module, name))

    def _push_global(self, name: Global) -> None:
        if name not in self._names:
            _refuse(f"it names {str(name)[:200]!r}, which is not read")
        self._stack.append(name)

    def call(self) -> None:
        """What a name makes of arguments."""
        arguments, name = self._stack.pop(), self._stack.pop()
        maker = self._names.get(name) if type(name) is Global else None
        if maker is None or type(arguments) is not tuple:
            _refuse(f"it calls {str(name) if type(name) is Global else type(name).__name__!r}")
        self._make(maker, arguments, str(name))

    def persistent_id(self) -> None:
        """What stands outside of the pickle."""
        described = self._stack.pop()
        if self._persistent is None or type(described) is not tuple:
            _refuse("it refers to something outside of itself")
        self._make(self._persistent, described, "what lies outside of it")

    def _make(self, maker: Maker, arguments: Arguments, what: str) -> None:
        self._count_made()
        try:
            self._stack.append(maker(arguments))
        except ValueError as error:
            _refuse(f"it describes {what} wrongly: {error}")

    def build(self) -> None:
        """The fields of an object."""
        state, target = self._stack.pop(), self._stack[-1]
        if not isinstance(target, Inert):
            _refuse(f"it sets fields of a {type(target).__name__}")
        if type(state) is dict:
            target.fields.update((str(key), one) for key, one in state.items())
        else:
            target.fields["state"] = state


def _refuse(what: str) -> NoReturn:
    raise CheckpointError(
        f"a pickle cannot be read as plain data: {what}",
        hint="it was not written by torch's own checkpoint writers, or is damaged",
    )


_KEYS: Final = (str, int, float, bytes, type(None), Inert)
_STOP: Final = ord(".")
_INT: Final = struct.Struct("<i")
_FLOAT: Final = struct.Struct(">d")

_KNOWN: Final[Mapping[int, Callable[[_Reader], None]]] = {
    0x80: _Reader.protocol,
    0x95: _Reader.frame,
    ord("("): _Reader.mark,
    ord("}"): _Reader.new_dict,
    ord("]"): _Reader.new_list,
    ord(")"): lambda reader: reader.push_small(()),
    ord("N"): lambda reader: reader.push_small(None),
    0x88: lambda reader: reader.push_small(True),
    0x89: lambda reader: reader.push_small(False),
    ord("a"): _Reader.append,
    ord("e"): _Reader.appends,
    ord("s"): _Reader.set_item,
    ord("u"): _Reader.set_items,
    ord("t"): _Reader.tuple_since_mark,
    0x85: lambda reader: reader.tuple_of(1),
    0x86: lambda reader: reader.tuple_of(2),
    0x87: lambda reader: reader.tuple_of(3),
    ord("K"): lambda reader: reader.push_small(reader._count(1)),
    ord("M"): lambda reader: reader.push_small(reader._count(2)),
    ord("J"): lambda reader: reader.whole_number(_INT),
    ord("G"): lambda reader: reader.whole_number(_FLOAT),
    0x8A: _Reader.long_number,
    0x8C: lambda reader: reader.text(1),
    ord("X"): lambda reader: reader.text(4),
    ord("C"): lambda reader: reader.raw(1),
    ord("B"): lambda reader: reader.raw(4),
    0x94: _Reader.memoize,
    ord("q"): lambda reader: reader.put(1),
    ord("r"): lambda reader: reader.put(4),
    ord("h"): lambda reader: reader.get(1),
    ord("j"): lambda reader: reader.get(4),
    ord("c"): _Reader.global_line,
    0x93: _Reader.global_stack,
    ord("R"): _Reader.call,
    0x81: _Reader.call,
    ord("b"): _Reader.build,
    ord("Q"): _Reader.persistent_id,
}
_OPERATIONS: Final = tuple(_KNOWN.get(code) for code in range(256))
