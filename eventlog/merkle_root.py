"""`MerkleRoot`: one digest over a growing row of events, by RFC 6962 section 2.1.

Leaf = SHA-256(00 || bytes), node = SHA-256(01 || left || right), empty = SHA-256(""). Kept is one
hash for each complete subtree, at most 64 for any row there can be, so that the recorder can add
events one by one and a long session's root never needs its events again. Pure. Used by the
recorder and the importers for a session's close, by `check`, and by the audit's trees.
"""

from collections.abc import Iterable
from hashlib import sha256
from typing import Final

EMPTY_ROOT: Final = sha256(b"").digest()

_DIGEST_BYTES: Final = 32


def leaf_hash(event_bytes: bytes) -> bytes:
    """The hash (32 bytes) of one leaf: an event's exact single-object bytes."""
    return sha256(b"\x00" + event_bytes).digest()


def node_hash(left: bytes, right: bytes) -> bytes:
    """The hash (32 bytes) of the node over two subtrees."""
    return sha256(b"\x01" + left + right).digest()


class MerkleRoot:
    """Adds events one by one; `root()` is the root over all so far.

    `stored()` and `from_stored` bring it through storage. Adding costs two hashes on average.

    >>> row = MerkleRoot()
    >>> row.root() == EMPTY_ROOT
    True
    >>> row.add(b"first")
    >>> row.root() == leaf_hash(b"first")
    True
    """

    __slots__ = ("_count", "_peaks")

    def __init__(self, events: Iterable[bytes] = ()) -> None:
        self._count = 0
        # The complete subtrees from left to right: one for each bit set in the count.
        self._peaks: list[bytes] = []
        for event_bytes in events:
            self.add(event_bytes)

    @classmethod
    def from_stored(cls, count: int, peaks: bytes) -> "MerkleRoot":
        """What `stored()` gave. Raises `ValueError` where the two do not fit each other."""
        if count < 0 or len(peaks) != count.bit_count() * _DIGEST_BYTES:
            raise ValueError(f"{len(peaks)} bytes of subtree hashes do not fit {count} events")
        made = cls()
        made._count = count
        made._peaks = [
            peaks[start : start + _DIGEST_BYTES] for start in range(0, len(peaks), _DIGEST_BYTES)
        ]
        return made

    @property
    def count(self) -> int:
        """How many events were added."""
        return self._count

    def add(self, event_bytes: bytes) -> None:
        """Add the next event's exact bytes."""
        made = leaf_hash(event_bytes)
        # Each trailing one bit of the count is a subtree of the new one's size: they join.
        joins = self._count
        while joins & 1:
            made = node_hash(self._peaks.pop(), made)
            joins >>= 1
        self._peaks.append(made)
        self._count += 1

    def root(self) -> bytes:
        """The root (32 bytes) over everything added so far; adding may go on."""
        if not self._peaks:
            return EMPTY_ROOT
        made = self._peaks[-1]
        for peak in reversed(self._peaks[:-1]):
            made = node_hash(peak, made)
        return made

    def stored(self) -> tuple[int, bytes]:
        """The count and the subtree hashes, left to right, 32 bytes each: all there is to keep."""
        return self._count, b"".join(self._peaks)

    def copy(self) -> "MerkleRoot":
        """One that goes on from here on its own."""
        return MerkleRoot.from_stored(*self.stored())
