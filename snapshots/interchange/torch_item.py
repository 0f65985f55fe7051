"""One item of a torch checkpoint folder: the archive that `torch.save` wrote for it, without torch.

An archive is a zip file, nothing in it compressed: `data.pkl` says what the item is, `data/0` holds
a tensor's memory. The former is read as plain data by `inert_pickle`; the latter's CRC-32, which
torch itself never looks at, is compared. Used by the import of such folders.
"""

import math
import struct
import zlib
from collections.abc import Mapping
from io import BytesIO
from typing import Final, NamedTuple, NoReturn
from zipfile import ZIP_STORED, BadZipFile, ZipFile, ZipInfo

from eventlog.errors import CheckpointError
from snapshots.checkpoints.manifest import ITEM_BYTES, VALUE_BYTES_MAX
from snapshots.interchange.inert_pickle import Arguments, Global, Maker, read_pickle
from snapshots.interchange.torch_folder import DTYPES, sizes_of

PICKLE_BYTES_MAX: Final = 2 * VALUE_BYTES_MAX
"""Largest description of an item that is read."""

_STORAGES: Final[Mapping[str, str | None]] = {
    "BFloat16Storage": "bfloat16",
    "BoolStorage": "bool",
    "ByteStorage": "uint8",
    "CharStorage": "int8",
    "ComplexDoubleStorage": "complex128",
    "ComplexFloatStorage": "complex64",
    "DoubleStorage": "float64",
    "FloatStorage": "float32",
    "HalfStorage": "float16",
    "IntStorage": "int32",
    "LongStorage": "int64",
    "ShortStorage": "int16",
}
_UNTYPED: Final = Global("torch.storage", "UntypedStorage")
_UTILS: Final = "torch._utils"
_LOCAL_HEADER_BYTES: Final = 30


class ItemTensor(NamedTuple):
    """A tensor as it lay in memory: numbers of `dtype` at `start` + index * `strides` (in numbers).

    `marks` are names of views that torch had not carried out yet ("conj", "neg").
    """

    dtype: str
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    start: int
    memory: memoryview
    marks: frozenset[str]

    @property
    def plain(self) -> memoryview | None:
        """Its bytes in C order where they lie so already; None where torch must arrange them."""
        if not math.prod(self.shape):
            return self.memory[:0]
        expected = 1
        for size, stride in zip(reversed(self.shape), reversed(self.strides), strict=True):
            if size != 1 and stride != expected:
                return None
            expected *= size
        if self.marks:
            return None
        width = ITEM_BYTES[self.dtype]
        return self.memory[self.start * width : (self.start + math.prod(self.shape)) * width]


class _Storage(NamedTuple):
    dtype: str | None
    key: str


class _Described(NamedTuple):
    storage: _Storage
    dtype: str
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    start: int
    marks: frozenset[str]


def read_tensor(name: str, archive: memoryview) -> ItemTensor:
    """The tensor of an archive; its memory is a view of `archive`.

    Raises `CheckpointError` naming the tensor where the archive is damaged, or holds anything but a
    dense tensor of a plain dtype.
    """
    entries = _entries_of(name, archive)
    read = _described(name, archive, entries, _TENSOR_NAMES, _storage_of)
    if not isinstance(read, _Described):
        _refuse(name, "it holds no tensor")
    memory = _bytes_of(name, archive, entries.get(f"data/{read.storage.key}"))
    count, width = math.prod(read.shape), ITEM_BYTES[read.dtype]
    reach = sum((size - 1) * stride for size, stride in zip(read.shape, read.strides, strict=True))
    held = len(memory) // width
    if count and (count > held or read.start + reach >= held):
        _refuse(name, f"its {count} numbers do not lie in the {len(memory)} bytes of its memory")
    start = read.start if count else 0
    return ItemTensor(read.dtype, read.shape, read.strides, start, memory, read.marks)


def read_value(name: str, archive: memoryview) -> object:
    """The value of an archive that holds no tensor: of numbers, texts, bytes, lists, tuples, sets
    and dicts (an ordered one as a plain one).

    Raises `CheckpointError` naming the value where the archive is damaged or holds anything else.
    """
    value = _described(name, archive, _entries_of(name, archive), _VALUE_NAMES, None)
    _check_size(name, value)
    return value


def _entries_of(name: str, archive: memoryview) -> dict[str, ZipInfo]:
    """What the archive holds, by names without their first folder."""
    if bytes(archive[:4]) != b"PK\x03\x04":
        _refuse(name, "it is no archive of torch.save (safetensors in such folders are not read)")
    try:
        with ZipFile(BytesIO(archive)) as file:
            return {one.filename.partition("/")[2]: one for one in file.infolist()}
    except (BadZipFile, ValueError, EOFError, OverflowError, struct.error) as error:
        _refuse(name, f"its archive cannot be read: {error}")


def _described(
    name: str,
    archive: memoryview,
    entries: Mapping[str, ZipInfo],
    names: Mapping[Global, Maker | None],
    persistent: Maker | None,
) -> object:
    order = entries.get("byteorder")
    if order is not None and bytes(_bytes_of(name, archive, order)) != b"little":
        _refuse(name, "it was written by a big-endian machine")
    data = _bytes_of(name, archive, entries.get("data.pkl"))
    if len(data) > PICKLE_BYTES_MAX:
        _refuse(name, f"its description takes {len(data)} bytes; {PICKLE_BYTES_MAX} are read")
    try:
        return read_pickle(bytes(data), names, persistent=persistent)
    except CheckpointError as error:
        _refuse(name, error.message)


def _bytes_of(name: str, archive: memoryview, entry: ZipInfo | None) -> memoryview:
    """An entry's bytes, where they lie, after its CRC-32 was compared."""
    if entry is None:
        _refuse(name, "its archive is not whole")
    begin = entry.header_offset
    header = archive[begin : begin + _LOCAL_HEADER_BYTES]
    if len(header) < _LOCAL_HEADER_BYTES or entry.compress_type != ZIP_STORED:
        _refuse(name, "its archive is damaged, or compressed")
    name_bytes, extra_bytes = struct.unpack("<HH", header[26:30])
    start = begin + _LOCAL_HEADER_BYTES + name_bytes + extra_bytes
    data = archive[start : start + entry.file_size]
    # 0 is what torch writes where it was told to compute none (`set_crc32_options`).
    if len(data) != entry.file_size or (entry.CRC and zlib.crc32(data) != entry.CRC):
        _refuse(name, f"{entry.filename!r} in its archive is damaged")
    return data


def _storage_of(described: Arguments) -> _Storage:
    """What torch writes for a tensor's memory: ("storage", class, key, device, count)."""
    if len(described) != 5 or described[0] != "storage":
        raise ValueError("it is no storage")
    kind, key = described[1], described[2]
    if not isinstance(kind, Global) or type(key) is not str:
        raise ValueError("it is no storage")
    return _Storage(None if kind == _UNTYPED else _STORAGES.get(kind.name), key)


def _tensor_v2(arguments: Arguments) -> _Described:
    storage, *rest = arguments
    if not isinstance(storage, _Storage) or storage.dtype is None:
        raise ValueError("its storage has no dtype")
    return _tensor_of(storage, storage.dtype, rest, marks_at=5)


def _tensor_v3(arguments: Arguments) -> _Described:
    storage, *rest = arguments
    dtype = rest[5] if len(rest) > 5 else None
    if not isinstance(storage, _Storage) or not isinstance(dtype, Global) or dtype not in DTYPES:
        raise ValueError("it has no dtype that is kept")
    return _tensor_of(storage, dtype.name, rest, marks_at=6)


def _tensor_of(storage: _Storage, dtype: str, rest: list[object], *, marks_at: int) -> _Described:
    if not marks_at <= len(rest) <= marks_at + 1:
        raise ValueError(f"it has {len(rest)} fields")
    start, shape, strides = rest[0], sizes_of((rest[1],)), sizes_of((rest[2],))
    if type(start) is not int or not 0 <= start < 1 << 63 or len(shape) != len(strides):
        raise ValueError("its place is none")
    marks = rest[marks_at] if len(rest) > marks_at else {}
    if not isinstance(marks, dict) or not marks.keys() <= {"conj", "neg"}:
        raise ValueError("it is a view of a kind that is not known")
    return _Described(
        storage, dtype, shape, strides, start, frozenset(key for key in marks if marks[key])
    )


def _parameter(arguments: Arguments) -> _Described:
    described = arguments[0] if arguments else None
    if not isinstance(described, _Described):
        raise ValueError("it holds no tensor")
    return described


def _no_items(arguments: Arguments) -> dict[object, object]:
    if arguments:
        raise ValueError("its items do not follow it")
    return {}


def _items_of_set(arguments: Arguments) -> list[object]:
    (items,) = arguments
    if type(items) is not list or any(
        not isinstance(one, str | int | float | bytes | None) for one in items
    ):
        raise ValueError("a set holds what is neither number nor text")
    return items


def _complex(arguments: Arguments) -> complex:
    real, imaginary = arguments
    if type(real) is not float or type(imaginary) is not float:
        raise ValueError("it is no number")
    return complex(real, imaginary)


def _latin_bytes(arguments: Arguments) -> bytes:
    # Bytes in the protocol that torch.save uses: a text of their values.
    text, encoding = arguments
    if type(text) is not str or encoding != "latin1":
        raise ValueError("it is no bytes")
    return text.encode("latin-1")


def _empty_bytes(arguments: Arguments) -> bytes:
    if arguments:
        raise ValueError("it is no bytes")
    return b""


def _check_size(name: str, value: object) -> None:
    """Raise where the value, written out, is too large: what it holds may stand in it often."""
    left, pending = VALUE_BYTES_MAX, [value]
    while pending:
        one = pending.pop()
        left -= 1 + (len(one) if isinstance(one, str | bytes) else 0)
        if isinstance(one, dict):
            left -= sum(len(key) if isinstance(key, str | bytes) else 1 for key in one)
            pending.extend(one.values())
        elif isinstance(one, list | tuple):
            pending.extend(one)
        if left - len(pending) < 0:
            _refuse(name, f"it takes more than {VALUE_BYTES_MAX} bytes")


def _refuse(name: str, what: str) -> NoReturn:
    raise CheckpointError(
        f"{name!r} cannot be imported: {what}",
        hint="values can be left out of an import; a damaged tensor needs another copy",
        tensor=name,
    )


_TENSOR_NAMES: Final[Mapping[Global, Maker | None]] = {
    **DTYPES,
    **{Global("torch", name): None for name in _STORAGES},
    _UNTYPED: None,
    Global("torch", "Size"): sizes_of,
    Global("collections", "OrderedDict"): _no_items,
    Global(_UTILS, "_rebuild_tensor_v2"): _tensor_v2,
    Global(_UTILS, "_rebuild_tensor_v3"): _tensor_v3,
    Global(_UTILS, "_rebuild_parameter"): _parameter,
}
_VALUE_NAMES: Final[Mapping[Global, Maker | None]] = {
    Global("torch", "Size"): sizes_of,
    Global("collections", "OrderedDict"): _no_items,
    Global("_codecs", "encode"): _latin_bytes,
    **{
        Global(module, name): maker
        for module in ("__builtin__", "builtins")
        for name, maker in (
            ("bytes", _empty_bytes),
            ("complex", _complex),
            ("frozenset", lambda arguments: frozenset(_items_of_set(arguments))),
            ("set", lambda arguments: set(_items_of_set(arguments))),
        )
    },
}
