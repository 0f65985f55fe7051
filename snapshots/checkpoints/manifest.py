"""The manifest of one checkpoint: which tensors and values it holds, and where each part lies.

JSON with sorted keys and no NaN, read strictly: every field is looked at before it is believed,
sizes are bounded, and nothing in it names code. Whole without its file; `checkpoint_store` keeps
it, the shard writer makes it and the shard reader follows it. docs/checkpoints.md shows one.
"""

import json
import math
import re
from base64 import b64decode, b64encode
from collections.abc import Iterator, Mapping
from typing import Final, NamedTuple

from snapshots.checkpoints.fields import Json, JsonFields, StatePath, read_json, refuse
from snapshots.checkpoints.set_entry import SetEntry
from snapshots.tensor_codec import PART_BYTES_MAX, Encoding

FORMAT: Final = 1
MANIFEST_BYTES_MAX: Final = 1 << 28
"""Largest manifest that is read or written; a part takes about 150 bytes."""
VALUE_BYTES_MAX: Final = 1 << 26
"""Largest canonical form of one value that is not a tensor."""
NAME_CHARACTERS_MAX: Final = 4096
"""Longest name of a tensor or value."""
ID_PATTERN: Final = r"[a-z0-9][a-z0-9_-]{0,63}"
"""What the id of a checkpoint and the name of a pin match."""

ITEM_BYTES: Final[Mapping[str, int]] = {
    "bfloat16": 2,
    "bool": 1,
    "complex128": 16,
    "complex32": 4,
    "complex64": 8,
    "float16": 2,
    "float32": 4,
    "float64": 8,
    "float8_e4m3fn": 1,
    "float8_e4m3fnuz": 1,
    "float8_e5m2": 1,
    "float8_e5m2fnuz": 1,
    "float8_e8m0fnu": 1,
    "int16": 2,
    "int32": 4,
    "int64": 8,
    "int8": 1,
    "uint16": 2,
    "uint32": 4,
    "uint64": 8,
    "uint8": 1,
}
"""The dtypes that are kept, by torch's short name, and the bytes of one number."""

_ENCODINGS: Final[Mapping[str, Encoding]] = {one.value: one for one in Encoding}
_ID: Final = re.compile(ID_PATTERN)


class StoredObject(NamedTuple):
    """An object by its SHA-256 in hex and its size in bytes."""

    digest: str
    size: int


class Part(NamedTuple):
    """One run of a chunk's bytes. `digest` is the SHA-256 of its raw bytes, in hex.

    It is stored as `length` bytes from `start` of `stored`. `base` is the digest of the raw bytes
    it is a difference to, which an ancestor of the checkpoint holds; None where it stands alone.
    """

    digest: str
    raw_bytes: int
    encoding: Encoding
    stored: StoredObject
    start: int
    length: int
    base: str | None = None


class TensorPart(NamedTuple):
    """A part with the tensor it is of, by name, and the bytes of one of its numbers."""

    tensor: str
    part: Part
    item_bytes: int


class Chunk(NamedTuple):
    """The block of a tensor from `offset`, of `shape`; its parts in C order."""

    offset: tuple[int, ...]
    shape: tuple[int, ...]
    parts: tuple[Part, ...]


class TensorEntry(NamedTuple):
    """A tensor. `path` leads to it in the nested state that was saved."""

    dtype: str
    shape: tuple[int, ...]
    chunks: tuple[Chunk, ...]
    path: StatePath


class ValueEntry(NamedTuple):
    """Anything that is no tensor, in canonical bytes (docs/formats.md)."""

    data: bytes
    path: StatePath


class CheckpointRef(NamedTuple):
    """A checkpoint: its step in training, its id, and the SHA-256 of its manifest in hex."""

    training_step: int
    id: str
    digest: str


class Manifest(NamedTuple):
    """All there is to know of one checkpoint.

    `created_ns` is in nanoseconds since 1970. `generation` counts the checkpoints since one without
    an ancestor: 0 where there is none. `set` ties it to a cut of a log, None for one by itself.
    """

    id: str
    training_step: int
    world_size: int
    created_ns: int
    versions: Mapping[str, str]
    generation: int
    ancestor: CheckpointRef | None
    tensors: Mapping[str, TensorEntry]
    values: Mapping[str, ValueEntry]
    set: SetEntry | None = None

    def parts(self) -> Iterator[TensorPart]:
        """Every part, in the order of tensors and of their chunks."""
        for name, tensor in self.tensors.items():
            item_bytes = ITEM_BYTES[tensor.dtype]
            for chunk in tensor.chunks:
                for part in chunk.parts:
                    yield TensorPart(name, part, item_bytes)

    def objects(self) -> dict[StoredObject, str]:
        """Every object that its own parts lie in, each with one tensor that needs it."""
        return {one.part.stored: one.tensor for one in self.parts()}

    @property
    def raw_bytes(self) -> int:
        """The bytes of all tensors, before any encoding."""
        return sum(one.part.raw_bytes for one in self.parts())


def check_id(value: str, what: str) -> str:
    """`value`, a fit name for a checkpoint or pin. Raises `ValueError`."""
    if _ID.fullmatch(value) is None:
        raise ValueError(f"{what} must match {ID_PATTERN}, not {value!r}")
    return value


def encode_manifest(manifest: Manifest) -> bytes:
    """The bytes of manifest.json. Raises `CheckpointError` over `MANIFEST_BYTES_MAX`."""
    objects = sorted(manifest.objects())
    index = {stored: number for number, stored in enumerate(objects)}
    fields: Json = {
        "created_ns": manifest.created_ns,
        "format": FORMAT,
        "generation": manifest.generation,
        "id": manifest.id,
        "objects": [{"bytes": one.size, "sha256": one.digest} for one in objects],
        "tensors": {
            name: _tensor_fields(name, one, index) for name, one in manifest.tensors.items()
        },
        "training_step": manifest.training_step,
        "values": {
            name: {"data": b64encode(one.data).decode(), **_path_field(name, one.path)}
            for name, one in manifest.values.items()
        },
        "versions": dict(manifest.versions),
        "world_size": manifest.world_size,
    }
    if manifest.ancestor is not None:
        fields["ancestor"] = {
            "id": manifest.ancestor.id,
            "sha256": manifest.ancestor.digest,
            "training_step": manifest.ancestor.training_step,
        }
    if manifest.set is not None:
        fields["set"] = manifest.set.to_fields()
    text = json.dumps(
        fields, sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False
    )
    data = text.encode("utf-8")
    if len(data) > MANIFEST_BYTES_MAX:
        refuse(f"it has {len(data)} bytes; at most {MANIFEST_BYTES_MAX} are kept")
    return data


def decode_manifest(data: bytes) -> Manifest:
    """The manifest of these bytes. Raises `CheckpointError` saying what is wrong with them."""
    read = read_json(data)
    if isinstance(read, dict) and read.get("format") != FORMAT:
        refuse(f"its format is {read.get('format')!r}; this version reads {FORMAT}")
    fields = JsonFields(
        read,
        "the manifest",
        "created_ns format generation id objects tensors training_step values versions world_size",
        optional="ancestor set",
    )
    objects = [_read_object(one) for one in fields.items("objects")]
    ancestor = _read_ancestor(fields.get("ancestor"))
    tensors = {
        _name(name): _read_tensor(name, one, objects)
        for name, one in fields.mapping("tensors").items()
    }
    values = {_name(name): _read_value(name, one) for name, one in fields.mapping("values").items()}
    if tensors.keys() & values.keys():
        refuse("a name stands for a tensor and for a value")
    versions = fields.mapping("versions")
    made = Manifest(
        id=_checked_id(fields.text("id")),
        training_step=fields.count("training_step"),
        world_size=fields.count("world_size"),
        created_ns=fields.count("created_ns"),
        versions={key: str(value) for key, value in versions.items()},
        generation=fields.count("generation"),
        ancestor=ancestor,
        tensors=tensors,
        values=values,
        set=None if fields.get("set") is None else SetEntry.from_fields(fields.get("set")),
    )
    if (ancestor is None) != (made.generation == 0):
        refuse("its generation does not fit its ancestor")
    if ancestor is None and any(one.part.base is not None for one in made.parts()):
        refuse("a part has a base, and the manifest no ancestor")
    return made


def _tensor_fields(name: str, tensor: TensorEntry, index: Mapping[StoredObject, int]) -> Json:
    chunks = []
    for chunk in tensor.chunks:
        fields: Json = {"parts": [_part_fields(part, index) for part in chunk.parts]}
        # A chunk that is the whole tensor, as most are in one process, says so by silence.
        if chunk.shape != tensor.shape:
            fields |= {"offset": list(chunk.offset), "shape": list(chunk.shape)}
        chunks.append(fields)
    return {
        "chunks": chunks,
        "dtype": tensor.dtype,
        "shape": list(tensor.shape),
        **_path_field(name, tensor.path),
    }


def _part_fields(part: Part, index: Mapping[StoredObject, int]) -> Json:
    fields: Json = {"object": index[part.stored], "raw": part.digest}
    if part.encoding is not Encoding.RAW:
        fields |= {"bytes": part.raw_bytes, "encoding": part.encoding.value}
    if part.base is not None:
        fields["base"] = part.base
    # A part alone in its object needs no place in it.
    if (part.start, part.length) != (0, part.stored.size):
        fields |= {"length": part.length, "start": part.start}
    return fields


def _path_field(name: str, path: StatePath) -> Json:
    return {} if path == (name,) else {"path": list(path)}


def _read_object(read: object) -> StoredObject:
    fields = JsonFields(read, "an object", "bytes sha256")
    return StoredObject(fields.digest("sha256"), fields.count("bytes"))


def _read_ancestor(read: object) -> CheckpointRef | None:
    if read is None:
        return None
    fields = JsonFields(read, "the ancestor", "id sha256 training_step")
    id_ = _checked_id(fields.text("id"))
    return CheckpointRef(fields.count("training_step"), id_, fields.digest("sha256"))


def _read_tensor(name: str, read: object, objects: list[StoredObject]) -> TensorEntry:
    what = f"tensor {name!r}"
    fields = JsonFields(read, what, "chunks dtype shape", optional="path")
    dtype, shape = fields.text("dtype"), fields.counts("shape")
    if dtype not in ITEM_BYTES:
        refuse(f"{what}: the dtype {dtype!r} is not known")
    chunks = tuple(_read_chunk(what, one, dtype, shape, objects) for one in fields.items("chunks"))
    held = sum(math.prod(chunk.shape) for chunk in chunks)
    if held != math.prod(shape):
        refuse(f"{what}: its chunks hold {held} numbers of {math.prod(shape)}")
    if len({chunk.offset for chunk in chunks if math.prod(chunk.shape)}) < sum(
        1 for chunk in chunks if math.prod(chunk.shape)
    ):
        refuse(f"{what}: two chunks begin at one place")
    return TensorEntry(dtype, shape, chunks, fields.path(name))


def _read_chunk(
    what: str, read: object, dtype: str, whole: tuple[int, ...], objects: list[StoredObject]
) -> Chunk:
    fields = JsonFields(read, f"a chunk of {what}", "parts", optional="offset shape")
    if fields.get("offset") is None:
        offset, shape = (0,) * len(whole), whole
    else:
        offset, shape = fields.counts("offset"), fields.counts("shape")
    if not len(offset) == len(shape) == len(whole) or any(
        start + size > limit for start, size, limit in zip(offset, shape, whole, strict=True)
    ):
        refuse(f"{what}: a chunk lies outside of it")
    parts = tuple(_read_part(what, one, objects) for one in fields.items("parts"))
    held, due = sum(part.raw_bytes for part in parts), math.prod(shape) * ITEM_BYTES[dtype]
    if held != due:
        refuse(f"{what}: a chunk's parts hold {held} bytes of {due}")
    if any(part.raw_bytes % ITEM_BYTES[dtype] for part in parts):
        refuse(f"{what}: a part ends inside a number")
    return Chunk(offset, shape, parts)


def _read_part(what: str, read: object, objects: list[StoredObject]) -> Part:
    optional = "base bytes encoding length start"
    fields = JsonFields(read, f"a part of {what}", "object raw", optional=optional)
    number = fields.count("object")
    if number >= len(objects):
        refuse(f"{what}: a part lies in object {number} of {len(objects)}")
    stored = objects[number]
    start, length = fields.count("start", 0), fields.count("length", stored.size)
    if start + length > stored.size:
        refuse(f"{what}: a part lies outside of its object")
    named = fields.get("encoding") or "raw"
    encoding = _ENCODINGS.get(named) if isinstance(named, str) else None
    if encoding is None:
        refuse(f"{what}: the encoding {named!r} is not known")
    base = None if fields.get("base") is None else fields.digest("base")
    if encoding.needs_base != (base is not None):
        refuse(f"{what}: the encoding {named!r} does not fit its base")
    raw_bytes = fields.count("bytes", length)
    if raw_bytes > PART_BYTES_MAX or (encoding is Encoding.RAW and raw_bytes != length):
        refuse(f"{what}: a part cannot hold {raw_bytes} bytes")
    return Part(fields.digest("raw"), raw_bytes, encoding, stored, start, length, base)


def _read_value(name: str, read: object) -> ValueEntry:
    fields = JsonFields(read, f"value {name!r}", "data", optional="path")
    try:
        data = b64decode(fields.text("data"), validate=True)
    except ValueError as error:
        refuse(f"value {name!r} is not base64: {error}")
    if len(data) > VALUE_BYTES_MAX:
        refuse(f"value {name!r} has {len(data)} bytes; at most {VALUE_BYTES_MAX} are read")
    return ValueEntry(data, fields.path(name))


def _name(name: str) -> str:
    if not 0 < len(name) <= NAME_CHARACTERS_MAX:
        refuse(f"a name has {len(name)} characters; 1 to {NAME_CHARACTERS_MAX} are read")
    return name


def _checked_id(value: str) -> str:
    if _ID.fullmatch(value) is None:
        refuse(f"the id {value!r} is not one")
    return value
