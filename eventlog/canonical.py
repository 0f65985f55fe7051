"""Canonical values: every value we store or hash has exactly one encoding (FORMATS section 1).

`encode` and `decode` are inverse; `digest` is the SHA-256 of the encoding, which is what a state
digest is. Values of registered types that this process cannot build stay closed as `Registered`
or `ArrayValue` and re-encode to the same bytes. Nothing read here can run code.
"""

from hashlib import sha256

from eventlog import canonical_reference
from eventlog.opaque_values import ArrayValue, Registered

__all__ = ["ArrayValue", "Registered", "decode", "digest", "digest_of", "encode", "sorted_digest"]


def encode(value: object) -> bytes:
    """The canonical bytes of `value`. Raises `ValueNotEncodableError` naming the path."""
    return canonical_reference.encode(value)


def decode(data: bytes, *, opaque: bool = False) -> object:
    """The value of canonical bytes; `opaque` keeps ext 9 and ext 10 closed.

    Raises `EventCorruptError` for anything but the one encoding of one value.
    """
    return canonical_reference.decode(data)


def digest(value: object) -> bytes:
    """SHA-256 (32 bytes) of the canonical bytes of `value`."""
    return sha256(encode(value)).digest()


def digest_of(data: bytes) -> bytes:
    """SHA-256 (32 bytes) of canonical bytes already at hand."""
    return sha256(data).digest()


def sorted_digest(value: object) -> bytes:
    """A digest that ignores the order of dict keys; only to compare, never stored."""
    return sha256(encode(_sorted(value))).digest()


def _sorted(value: object) -> object:
    if type(value) is dict:
        return {key: _sorted(item) for key, item in sorted(value.items(), key=lambda pair: encode(pair[0]))}
    if type(value) is list or type(value) is tuple:
        return type(value)(map(_sorted, value))
    return value
