"""`EncodedState`: a state as its canonical bytes, ready to be compared with the next one.

A recorder captures the same large state after each step. The bytes alone would have to be read
entry by entry each time to say what changed; this keeps where the large parts lie, and hands that
on to the next state. Holds no values and nothing of the caller's. Immutable but for that knowledge.
"""

from eventlog.canonical import decode
from eventlog.part_index import INDEXED_BYTES_MIN, PartIndex, encode_indexed
from eventlog.state_diff import patch_between


class EncodedState:
    """The canonical bytes of a state (`data`), as made by `encode`."""

    __slots__ = ("_index", "data")

    def __init__(self, data: bytes) -> None:
        self.data = data
        self._index: PartIndex | None = None

    def patch_to(self, after: bytes) -> "tuple[bytes, EncodedState]":
        """The canonical patch that makes this state into `after`, and that state.

        `after` is canonical bytes too. The patch is as `state_patch.diff` gives it, encoded; where
        nothing changed, that of an empty list. Costs little more than comparing the bytes, except
        the first time on a large state, which is read once.
        """
        if self._index is None and len(self.data) >= INDEXED_BYTES_MIN and self.data != after:
            self._index = encode_indexed(decode(self.data, opaque=True))[1]
        following = EncodedState(after)
        patch, following._index = patch_between(self.data, after, self._index)
        if len(after) < INDEXED_BYTES_MIN:
            following._index = None
        return patch, following
