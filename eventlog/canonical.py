"""Canonical values: every value we store or hash has exactly one encoding (docs/formats.md).

`encode` and `decode` are inverse; `digest` is the SHA-256 of the encoding, which is what a state
digest is. Values of registered types that this process cannot build stay closed as `Registered`
or `ArrayValue`, and re-encode to the same bytes. Nothing read here can run code: a stored name only
finds what this process registered. ormsgpack makes it fast where it is installed; the bytes are
the same without it.
"""

from collections.abc import Callable
from hashlib import sha256

from eventlog.errors import CodecMissingError, ValueNotEncodableError
from eventlog.values import canonical_reference, canonical_reference_decoder
from eventlog.values.extension_values import ZoneMissing
from eventlog.values.opaque_values import ArrayValue, Registered
from eventlog.values.registered_types import register_type
from eventlog.values.restoring import may_hold_closed, open_known, restore
from eventlog.values.shared_objects import find_shared, may_share_rngs

__all__ = [
    "ArrayValue",
    "Registered",
    "decode",
    "decode_live",
    "digest",
    "digest_of",
    "encode",
    "encode_decoded",
    "find_shared",
    "may_share_rngs",
    "register_type",
    "restore",
    "sorted_digest",
]

encode: Callable[[object], bytes]
encode_decoded: Callable[[object], bytes]
_decode_opaque: Callable[[bytes], object]
try:
    from eventlog.values import canonical_accelerated, canonical_accelerated_decoder
except ImportError:  # ormsgpack has no build for this platform: slower, the same bytes
    encode = encode_decoded = canonical_reference.encode
    _decode_opaque = canonical_reference_decoder.decode
else:
    encode = canonical_accelerated.encode
    encode_decoded = canonical_accelerated.encode_decoded
    _decode_opaque = canonical_accelerated_decoder.decode


def decode(data: bytes, *, opaque: bool = False) -> object:
    """The value of canonical bytes.

    Values of registered types are made live where this process can, and stay `Registered` or
    `ArrayValue` where not (all of them, where the live value would not encode to these bytes
    again); with `opaque` all stay so, whatever is registered or installed.

    Raises `EventCorruptError` for anything but the one encoding of one value: bytes after it, a key
    twice, a length or int that is not in its shortest form, an unknown ext, elements out of order;
    `CodecMissingError` for a time in a zone that this machine does not have.
    """
    try:
        value = _decode_opaque(data)
    except ZoneMissing as error:
        raise CodecMissingError(
            f"the time zone {error.key!r} of a stored time is unknown to this machine",
            hint="install the tz database: `pip install tzdata`",
            name=error.key,
            path="$",
        ) from error
    if opaque or not may_hold_closed(data):
        return value
    live = open_known(value)
    try:
        faithful = encode(live) == data
    except ValueNotEncodableError:
        faithful = False
    # A codec that does not give back what was stored would make another state of it.
    return live if faithful else value


def decode_live(data: bytes) -> object:
    """The value of canonical bytes as an environment needs it: nothing in it stays closed.

    Raises as `decode`, and `CodecMissingError` where a value of a registered type, or an array,
    cannot be made live here: a state that is half closed must not be mistaken for a state.
    """
    closed = decode(data, opaque=True)
    if not may_hold_closed(data):
        return closed
    live = restore(closed)
    try:
        faithful = encode(live) == data
    except ValueNotEncodableError:
        faithful = False
    if not faithful:
        raise CodecMissingError(
            "a registered codec does not give back what was stored",
            hint="register the class as it was when this was recorded, or a codec that reads it",
            name="",
            path="$",
        )
    return live


def digest(value: object) -> bytes:
    """SHA-256 (32 bytes) of the canonical bytes of `value`."""
    return sha256(encode(value)).digest()


def digest_of(data: bytes) -> bytes:
    """SHA-256 (32 bytes) of canonical bytes already at hand."""
    return sha256(data).digest()


def sorted_digest(value: object) -> bytes:
    """A digest that ignores the order of dict keys, at any depth; only to compare, never stored."""
    return sha256(encode(_in_key_order(decode(encode(value), opaque=True)))).digest()


def _in_key_order(value: object) -> object:
    if isinstance(value, dict):
        keyed = sorted((encode(_in_key_order(key)), key) for key in value)
        return {key: _in_key_order(value[key]) for _, key in keyed}
    if isinstance(value, list):
        return list(map(_in_key_order, value))
    if isinstance(value, tuple):
        return tuple(map(_in_key_order, value))
    if isinstance(value, Registered):
        return Registered(value.name, value.version, _in_key_order(value.value))
    return value
