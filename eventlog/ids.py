"""Ids: 16-byte event ids, session ids and writer ids.

The only module of eventlog that draws randomness or reads the wall clock for an identity. Minted
ids are UUIDv7 (RFC 9562), so they sort by the time they were minted; an id from an idempotency key
is a UUIDv8 and depends on nothing but the session and the key. Randomness comes from the operating
system, some of it ahead of time; forked processes are safe: a child throws away what it inherits.
"""

import os
import struct
import time
import uuid
from collections import OrderedDict
from hashlib import sha256
from typing import Final

EVENT_ID_BYTES: Final = 16

MINTED_KEPT_MAX: Final = 65_536
"""For so many session ids it is remembered that they were minted here: about 10 MiB."""

DRAWN_AT_ONCE: Final = 256
"""So many draws are asked for together: each question lets another thread run first."""

_KEY_DOMAIN: Final = b"steplog event id"
_NS_PER_MS: Final = 1_000_000
_UNKNOWN: Final = object()


def mint_event_id() -> bytes:
    """A new event id: UUIDv7, 16 bytes."""
    now_ms, rest_ns = divmod(time.time_ns(), _NS_PER_MS)
    # RFC 9562 section 6.2, method 3: rand_a holds the fraction of the millisecond in 12 bits.
    fraction = (rest_ns << 12) // _NS_PER_MS
    try:
        tail = _drawn.pop()
    except IndexError:
        tail = _draw()
    tail &= 0x3FFF_FFFF_FFFF_FFFF
    whole = (now_ms & 0xFFFF_FFFF_FFFF) << 80 | 0x7 << 76 | fraction << 64 | 0b10 << 62 | tail
    return whole.to_bytes(EVENT_ID_BYTES, "big")


def _draw() -> int:
    """64 random bits; as many more are kept as are drawn at once."""
    first, *others = struct.unpack(f"{DRAWN_AT_ONCE}Q", os.urandom(8 * DRAWN_AT_ONCE))
    _drawn.extend(others)
    return int(first)


def mint_session_id() -> str:
    """A new session id: UUIDv7 as text, never met before in any log."""
    session_id = str(uuid.UUID(bytes=mint_event_id()))
    _minted[session_id] = None
    if len(_minted) > MINTED_KEPT_MAX:
        _minted.popitem(last=False)
    return session_id


def use_minted(session_id: str) -> bool:
    """Whether this process minted the id, asked for the first time.

    True once at most: whoever gets it may take the id for one that no log has ever met. False also
    for an id minted so long ago that it was forgotten.
    """
    return _minted.pop(session_id, _UNKNOWN) is None


def mint_writer_id() -> str:
    """A new writer id: UUIDv7 as text; one for each opened log handle and process."""
    return str(uuid.UUID(bytes=mint_event_id()))


def event_id_from_key(session_id: str, key: str) -> bytes:
    """The event id of an idempotency key: the same for the same session and key, everywhere.

    UUIDv8 from the first 16 bytes of SHA-256('steplog event id' 00 session_id 00 key). Keys that
    hold lone surrogates are taken with `surrogatepass`, so every str has an id.
    """
    # A session id never holds a NUL (no control characters), so the join is unambiguous.
    text = b"\x00".join(
        (
            _KEY_DOMAIN,
            session_id.encode("utf-8", "surrogatepass"),
            key.encode("utf-8", "surrogatepass"),
        )
    )
    raw = bytearray(sha256(text).digest()[:EVENT_ID_BYTES])
    raw[6] = raw[6] & 0x0F | 0x80
    raw[8] = raw[8] & 0x3F | 0x80
    return bytes(raw)


_minted: OrderedDict[str, object] = OrderedDict()
_drawn: list[int] = []
"""Each is taken once: `pop` gives one to one thread."""


def _forget_parent() -> None:
    # A forked child and its parent could both use what was minted, or drawn, before.
    _minted.clear()
    _drawn.clear()


os.register_at_fork(after_in_child=_forget_parent)
