"""The file format safetensors: tensors by name in one file that runs nothing when it is read.

    u64, little-endian: bytes of the header | header, JSON | the tensors' bytes, without gaps

This module makes and reads headers; the bytes behind them are the caller's. A header is read as
strictly as the format's own reader does: places that overlap, leave a gap or end outside of the
file are refused, so no tensor is ever made of another's bytes. Used by export and import. Needs
neither torch nor the package safetensors.
"""

import json
import math
from collections.abc import Mapping
from io import FileIO
from pathlib import Path
from typing import Final, NamedTuple, NoReturn

from eventlog.errors import CheckpointError
from eventlog.untrusted_file import read_at_most
from snapshots.checkpoints.fields import DIMENSIONS_MAX
from snapshots.checkpoints.manifest import ITEM_BYTES

HEADER_BYTES_MAX: Final = 100_000_000
"""Largest header that is read or written, as in the format's own reader."""

DTYPES: Final[Mapping[str, str]] = {
    "BOOL": "bool",
    "U8": "uint8",
    "I8": "int8",
    "F8_E5M2": "float8_e5m2",
    "F8_E4M3": "float8_e4m3fn",
    "F8_E8M0": "float8_e8m0fnu",
    "F8_E4M3FNUZ": "float8_e4m3fnuz",
    "F8_E5M2FNUZ": "float8_e5m2fnuz",
    "I16": "int16",
    "U16": "uint16",
    "F16": "float16",
    "BF16": "bfloat16",
    "I32": "int32",
    "U32": "uint32",
    "F32": "float32",
    "C64": "complex64",
    "F64": "float64",
    "I64": "int64",
    "U64": "uint64",
}
"""torch's short name of each dtype of the format that a checkpoint can hold, in the format's order:
files hold the last ones first, so that all lie aligned."""

METADATA_KEY: Final = "__metadata__"
"""What stands in a header under this name is no tensor: texts by name."""

_NAMES: Final = {ours: theirs for theirs, ours in DTYPES.items()}
_ORDER: Final = {dtype: number for number, dtype in enumerate(DTYPES.values())}
_LENGTH_BYTES: Final = 8
_BEGINS_OF_TORCH: Final = (b"PK\x03\x04", b"\x80\x02\x8a\x0a\x6c\xfc\x9c\x46")
"""What a file of `torch.save` begins with: a zip file's begin, and before torch 1.6 a number."""
_ALIGNMENT: Final = 8


class TensorPlace(NamedTuple):
    """A tensor of a file: `dtype` by torch's short name; its bytes in the data, half-open."""

    dtype: str
    shape: tuple[int, ...]
    start: int
    end: int


class SafetensorsHeader(NamedTuple):
    """What a file says of itself. The data begins `data_start` bytes after the file's begin."""

    tensors: Mapping[str, TensorPlace]
    metadata: Mapping[str, str]
    data_start: int

    @property
    def data_bytes(self) -> int:
        """The bytes of all tensors."""
        return max((place.end for place in self.tensors.values()), default=0)


def tensor_bytes(dtype: str, shape: tuple[int, ...]) -> int:
    """The bytes of a tensor; `dtype` by torch's short name."""
    return math.prod(shape) * ITEM_BYTES[dtype]


def lay_out(
    tensors: Mapping[str, tuple[str, tuple[int, ...]]], metadata: Mapping[str, str]
) -> tuple[bytes, SafetensorsHeader]:
    """The front of a file that holds tensors of these dtypes and shapes, and where each lies.

    The order is the format's own writer's: by dtype, then by name. Pure: the same arguments give
    the same bytes, which are those of that writer. Raises `CheckpointError` naming a
    tensor that the format cannot hold.
    """
    for name, (dtype, _shape) in tensors.items():
        if dtype not in _NAMES:
            raise CheckpointError(
                f"tensor {name!r} is of dtype {dtype}, which safetensors cannot hold",
                hint="choose other tensors, or convert it before it is saved",
                tensor=name,
            )
        if name == METADATA_KEY:
            raise CheckpointError(
                f"no tensor of safetensors can be named {name!r}", hint="rename it", tensor=name
            )
    places: dict[str, TensorPlace] = {}
    at = 0
    for name in sorted(tensors, key=lambda one: (-_ORDER[tensors[one][0]], one)):
        dtype, shape = tensors[name]
        end = at + tensor_bytes(dtype, shape)
        places[name] = TensorPlace(dtype, shape, at, end)
        at = end
    fields: dict[str, object] = {METADATA_KEY: dict(sorted(metadata.items()))} if metadata else {}
    for name, place in places.items():
        fields[name] = {
            "dtype": _NAMES[place.dtype],
            "shape": list(place.shape),
            "data_offsets": [place.start, place.end],
        }
    header = json.dumps(fields, separators=(",", ":"), ensure_ascii=False).encode("utf-8")
    header += b" " * (-len(header) % _ALIGNMENT)
    if len(header) > HEADER_BYTES_MAX:
        raise CheckpointError(
            f"the header takes {len(header)} bytes; safetensors allows {HEADER_BYTES_MAX}",
            hint="export fewer tensors to one file, as with the layout huggingface",
        )
    front = len(header).to_bytes(_LENGTH_BYTES, "little") + header
    return front, SafetensorsHeader(places, dict(metadata), len(front))


def read_header(file: FileIO, file_bytes: int, path: Path) -> SafetensorsHeader:
    """The checked header of the file of `file_bytes` that is open at its begin.

    Raises `CheckpointError` naming `path` where it is not whole and exact, `OSError` where it
    cannot be read.
    """
    begin = read_at_most(file, _LENGTH_BYTES)
    header_bytes = int.from_bytes(begin, "little")
    if file_bytes < _LENGTH_BYTES or header_bytes > file_bytes - _LENGTH_BYTES:
        if begin.startswith(_BEGINS_OF_TORCH):
            _refuse_torch_save(path)
        _refuse(path, f"its header of {header_bytes} bytes ends outside of it")
    if header_bytes > HEADER_BYTES_MAX:
        _refuse(path, f"its header takes {header_bytes} bytes; at most {HEADER_BYTES_MAX} are read")
    data = read_at_most(file, header_bytes)
    if len(data) != header_bytes:
        _refuse(path, "it became shorter while it was read")
    data_start = _LENGTH_BYTES + header_bytes
    return parse_header(data, file_bytes - data_start, path)._replace(data_start=data_start)


def parse_header(header: bytes, data_bytes: int, path: Path) -> SafetensorsHeader:
    """The header of a file whose data takes `data_bytes`. Raises `CheckpointError`."""
    fields = _read_json(header, path)
    found = fields.pop(METADATA_KEY, {})
    if not isinstance(found, dict) or any(not isinstance(one, str) for one in found.values()):
        _refuse(path, "its metadata are not texts")
    places = {name: _read_place(name, one, path) for name, one in fields.items()}
    at = 0
    for name, place in sorted(places.items(), key=lambda one: (one[1].start, one[1].end)):
        if place.start != at:
            what = "overlaps another" if place.start < at else "leaves a gap before it"
            _refuse(path, f"tensor {name!r} {what}", name)
        at = place.end
    if at != data_bytes:
        _refuse(path, f"its tensors take {at} bytes and its data {data_bytes}")
    return SafetensorsHeader(places, found, _LENGTH_BYTES + len(header))


def _read_json(header: bytes, path: Path) -> dict[str, object]:
    # The format wants the brace first; Python's reader would pass over spaces.
    if not header.startswith(b"{"):
        _refuse(path, "it has no header of safetensors")
    try:
        read = json.loads(
            header.decode("utf-8"), object_pairs_hook=_once, parse_constant=_refuse_constant
        )
    except (ValueError, RecursionError) as error:
        _refuse(path, f"its header is not JSON: {error}")
    if not isinstance(read, dict):
        _refuse(path, "its header is no object")
    return read


def _read_place(name: str, read: object, path: Path) -> TensorPlace:
    if not isinstance(read, dict) or read.keys() != {"dtype", "shape", "data_offsets"}:
        _refuse(path, f"tensor {name!r} has the wrong fields", name)
    named = read["dtype"]
    dtype = DTYPES.get(named) if isinstance(named, str) else None
    if dtype is None:
        _refuse(path, f"tensor {name!r} is of dtype {named!r}, which is not kept", name)
    shape = _counts(name, read["shape"], path)
    offsets = _counts(name, read["data_offsets"], path)
    if len(offsets) != 2 or offsets[1] - offsets[0] != tensor_bytes(dtype, shape):
        _refuse(path, f"tensor {name!r}: its place and its shape do not fit", name)
    return TensorPlace(dtype, shape, *offsets)


def _counts(name: str, read: object, path: Path) -> tuple[int, ...]:
    if not isinstance(read, list) or len(read) > DIMENSIONS_MAX:
        _refuse(path, f"tensor {name!r} has no fit shape or place", name)
    if any(type(one) is not int or not 0 <= one < 1 << 63 for one in read):
        _refuse(path, f"tensor {name!r}: its shape or place holds what is no count", name)
    return tuple(read)


def _once(pairs: list[tuple[str, object]]) -> dict[str, object]:
    made = dict(pairs)
    if len(made) != len(pairs):
        raise ValueError("a key stands twice in one object")
    for key in made:
        key.encode("utf-8")  # Half a character, written as \ud800, is no name that can be kept.
    return made


def _refuse_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is no number of JSON")


def _refuse_torch_save(path: Path) -> NoReturn:
    raise CheckpointError(
        f"{path} is no file of safetensors, but of torch.save, or another zip file",
        hint="nothing that is imported may run code, as such a file can: where you trust it, "
        "torch.load(..., weights_only=True) reads it; then import what dcp.save, or "
        "safetensors.torch.save_file, makes of that",
    )


def _refuse(path: Path, what: str, tensor: str | None = None) -> NoReturn:
    raise CheckpointError(
        f"{path} cannot be used: {what}",
        hint="it is no file of safetensors, or damaged: fetch it again",
        tensor=tensor,
    )
