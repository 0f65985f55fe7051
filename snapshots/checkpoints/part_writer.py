"""`PartWriter`: cuts tensors' bytes into parts, encodes them in a few threads, and keeps them.

What the last checkpoint holds already is not stored again; small parts share an object; a part may
become the difference to the same part of an ancestor. The first error in any thread ends the whole
and is raised; nothing of it is ever committed. Needs no torch. Used by the shard writer.
"""

import logging
import secrets
import threading
from collections import deque
from collections.abc import Iterator
from concurrent.futures import Future
from hashlib import sha256
from itertools import chain
from types import TracebackType
from typing import Final, NamedTuple

from eventlog.errors import CheckpointError
from snapshots.checkpoint_store import CheckpointStore
from snapshots.checkpoints.added_objects import AddedObjects
from snapshots.checkpoints.limits import PENDING_PER_THREAD
from snapshots.checkpoints.manifest import Chunk, Part
from snapshots.checkpoints.object_keeper import ObjectKeeper
from snapshots.checkpoints.parts import PartReader
from snapshots.checkpoints.workers import Workers
from snapshots.compression import ReadableBuffer
from snapshots.tensor_codec import Encoding, encode_part

PART_BYTES: Final = 1 << 24
"""Raw bytes of one part: enough to compress well, few enough to keep several threads busy."""
PACKED_BYTES_MAX: Final = 1 << 16
"""A part that takes fewer bytes than this shares an object with others."""
PACK_BYTES: Final = 1 << 23
"""A shared object is written when it has so many bytes."""
READ_ONE_IN: Final = 16
"""Of the objects that are used again, so many are read and re-hashed in one save: one in 16."""

_logger: Final = logging.getLogger("steplog.checkpoints")


class _Packed(NamedTuple):
    """A small part that waits for its object; `slot` is where it goes in `parts`."""

    parts: "list[Part | None]"
    slot: int
    digest: str
    raw_bytes: int
    encoding: Encoding
    data: bytes
    base: str | None


class PartWriter:
    """Writes the parts of one rank. Use as a context: leaving it waits for, or ends, its threads.

    `head` is the last checkpoint, whose parts are used again; `ancestor` the one that differences
    are made to. Only one thread may call it.
    """

    def __init__(
        self,
        store: CheckpointStore,
        *,
        head: PartReader | None,
        ancestor: PartReader | None,
        threads: int,
    ) -> None:
        self._store = store
        self._head = head
        self._ancestor = ancestor
        self._pending: deque[Future[None]] = deque()
        self._pending_max = threads * PENDING_PER_THREAD
        self._workers = Workers(threads, "steplog-shard")
        self._keeper = ObjectKeeper(store.objects)
        self._pack: list[_Packed] = []
        self._pack_bytes = 0
        self._lock = threading.Lock()
        self._sound: dict[str, bool] = {}
        self._chance = secrets.randbelow(READ_ONE_IN)

    def __enter__(self) -> "PartWriter":
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._workers.close(cancel=True)
        self._keeper.close()

    @property
    def added(self) -> AddedObjects:
        """The objects that were not there before it wrote them."""
        return self._keeper.added

    def add_chunk(
        self, name: str, raw: memoryview, item_bytes: int, base: Chunk | None = None
    ) -> "list[Part | None]":
        """Begin to write the bytes of one chunk; the list is full after `finish`.

        `raw` must not change until then. `base` is the chunk of the ancestor at the same place.
        Raises what any earlier part met.
        """
        starts = range(0, len(raw), PART_BYTES)
        parts: list[Part | None] = [None] * len(starts)
        bases = base.parts if base is not None and len(base.parts) == len(parts) else ()
        for slot, start in enumerate(starts):
            piece = raw[start : start + PART_BYTES]
            above = bases[slot] if bases and bases[slot].raw_bytes == len(piece) else None
            while len(self._pending) >= self._pending_max:
                self._pending.popleft().result()
            self._pending.append(
                self._workers.submit(self._write_part, name, piece, item_bytes, above, parts, slot)
            )
        return parts

    def finish(self) -> None:
        """Return when every part is durable. Raises what any of them met."""
        while self._pending:
            self._pending.popleft().result()
        self._write_pack(self._pack)
        self._pack = []
        self._keeper.finish()

    def _write_part(
        self,
        name: str,
        piece: memoryview,
        item_bytes: int,
        above: Part | None,
        parts: "list[Part | None]",
        slot: int,
    ) -> None:
        digest = sha256(piece).hexdigest()
        known = self._known_part(name, digest, item_bytes, above)
        if known is not None:
            parts[slot] = known
            return
        base = self._base_of(name, above, item_bytes)
        encoded = encode_part(piece, item_bytes=item_bytes, base=base)
        base_digest = above.digest if above and encoded.encoding.needs_base else None
        front = _front_of(encoded.pieces)
        if sum(map(len, front)) < PACKED_BYTES_MAX:
            data = b"".join(front)
            self._add_packed(
                _Packed(parts, slot, digest, len(piece), encoded.encoding, data, base_digest)
            )
            return
        stored = self._keeper.put_object(chain(front, encoded.pieces))
        parts[slot] = Part(
            digest, len(piece), encoded.encoding, stored, 0, stored.size, base_digest
        )

    def _base_of(self, name: str, above: Part | None, item_bytes: int) -> ReadableBuffer | None:
        if above is None or self._ancestor is None:
            return None
        try:
            return self._ancestor.read_part(name, above, item_bytes)
        except CheckpointError as error:
            _logger.warning("tensor %r is stored whole, not as a difference: %s", name, error)
            return None

    def _known_part(
        self, name: str, digest: str, item_bytes: int, above: Part | None
    ) -> Part | None:
        """A stored part of the same bytes, whose bases the new checkpoint's chain holds too."""
        if above is not None and above.digest == digest and self._is_sound(above, name):
            return above
        found = None if self._head is None else self._head.find_part(digest, item_bytes)
        if found is None or found.base is not None or not self._is_sound(found, name):
            return None
        return found

    def _is_sound(self, part: Part, name: str) -> bool:
        """Whether the object is in place, and for some, by chance, whether it is what it was.

        What never changes would else be damaged once and missing in all later checkpoints. Here its
        bytes are at hand: they are written anew, and where that makes the same object, as it does
        with the same zstd, the older checkpoints are mended too.
        """
        known = self._sound.get(part.stored.digest)
        if known is None:
            try:
                self._store.objects.verify_in_place(part.stored, name)
                if (int(part.stored.digest[:8], 16) + self._chance) % READ_ONE_IN == 0:
                    self._store.objects.get_object(part.stored, name)
                known = True
            except CheckpointError as error:
                _logger.warning("tensor %r is written anew: %s", name, error)
                known = False
            self._sound[part.stored.digest] = known
        return known

    def _add_packed(self, packed: _Packed) -> None:
        with self._lock:
            self._pack.append(packed)
            self._pack_bytes += len(packed.data)
            if self._pack_bytes < PACK_BYTES:
                return
            full, self._pack, self._pack_bytes = self._pack, [], 0
        self._write_pack(full)

    def _write_pack(self, pack: list[_Packed]) -> None:
        if not pack:
            return
        # In an order of their own, not of the threads: the same parts make the same object.
        pack = sorted(pack, key=lambda one: one.digest)
        # The same bytes (tied parameters, states of zeros) are kept once.
        places: dict[bytes, int] = {}
        size = 0
        for one in pack:
            if one.data not in places:
                places[one.data] = size
                size += len(one.data)
        stored = self._keeper.put_object(places)
        for one in pack:
            one.parts[one.slot] = Part(
                one.digest,
                one.raw_bytes,
                one.encoding,
                stored,
                places[one.data],
                len(one.data),
                one.base,
            )


def _front_of(pieces: Iterator[ReadableBuffer]) -> list[ReadableBuffer]:
    """The first pieces, enough to see that a part is no small one; all, where it is one."""
    front: list[ReadableBuffer] = []
    size = 0
    for piece in pieces:
        front.append(piece)
        size += len(piece)
        if size >= PACKED_BYTES_MAX:
            break
    return front
