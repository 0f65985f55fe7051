"""`EncodedState`: a state as its canonical bytes, ready to be compared with the next one.

A recorder captures the same large state after each step. The bytes alone would have to be read
entry by entry each time to say what changed; this keeps where the large parts lie, and hands that
on to the next state. Holds no values and nothing of the caller's. Immutable but for that knowledge.
"""

from typing import Final

from eventlog.patches.part_index import INDEXED_BYTES_MIN, PartIndex, large_parts
from eventlog.patches.state_diff import patch_between, read_patch

# A shorter patch cannot be nested too deep to be read back.
PATCH_READ_BYTES_MIN: Final = 150


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
        the first time on a large state, which is read once. Raises `ValueNotEncodableError` for a
        state so deep that no patch can hold its change.
        """
        if self._index is None:
            self._index = large_parts(self.data)
        following = EncodedState(after)
        patch, following._index = patch_between(self.data, after, self._index)
        if len(patch) >= PATCH_READ_BYTES_MIN:
            read_patch(patch)
        if len(after) < INDEXED_BYTES_MIN:
            following._index = None
        return patch, following
