"""`Part`: one value inside canonical bytes, looked into without decoding it.

Used by the state diff.
"""

from itertools import pairwise

from eventlog.patches.canonical_spans import end_of, key_at, layout_at
from eventlog.patches.part_index import INDEXED_BYTES_MIN, PartIndex, read_index


class Part:
    """The value between `start` and `end` of `data`; `index` says where its entries are, if known.

    `keep` is the index of the container it stands in, and its number there: the index of a large
    part is kept in it once it was read.
    """

    __slots__ = ("_keep", "data", "end", "index", "start")

    def __init__(
        self,
        data: bytes,
        start: int,
        end: int,
        index: PartIndex | None = None,
        keep: tuple[PartIndex, int] | None = None,
    ) -> None:
        self.data = data
        self.start = start
        self.end = end
        self.index = index
        self._keep = keep

    def encoded(self) -> bytes:
        """The canonical bytes of this part."""
        return self.data[self.start : self.end]

    def entries(self, like: PartIndex | None = None, alike: int = 0) -> PartIndex:
        """The places of its entries; only for a container.

        Its first `alike` entries have the same bytes as those of `like`, and are not read.
        """
        if self.index is None:
            layout = layout_at(self.data, self.start)
            assert layout is not None
            self.index = read_index(self.data, self.start, layout, like, alike)
            if self._keep is not None and self.end - self.start >= INDEXED_BYTES_MIN:
                above, number = self._keep
                above.parts[number] = self.index
        return self.index

    def count(self) -> int:
        """How many entries it has."""
        return len(self.entries().ends)

    def starts(self, start: int, end: int) -> list[int]:
        """Where the entries from `start` to `end` begin in `data`, and where the last one ends."""
        index, base = self.entries(), self.start
        return [base + index.start(start), *[base + place for place in index.ends[start:end]]]

    def slices(self, start: int, end: int) -> list[bytes]:
        """The bytes of the entries from `start` to `end`: items, or keys and their values."""
        data, skip = self.data, key_at(self.entries().kind, 0)
        return [data[skip + at : to] for at, to in pairwise(self.starts(start, end))]

    def key(self, number: int) -> bytes:
        """The canonical key of one entry of a dict."""
        index = self.entries()
        start = self.start + key_at(index.kind, index.start(number))
        return self.data[start : end_of(self.data, start)]

    def value(self, number: int) -> "Part":
        """The value of one entry."""
        index = self.entries()
        start = self.start + index.value_start(self.data, self.start, number)
        end = self.start + index.ends[number]
        return Part(self.data, start, end, index.parts.get(number), (index, number))

    def values_between(self, start: int, end: int) -> bytes:
        """The bytes of consecutive items of an array."""
        index = self.entries()
        return self.data[self.start + index.start(start) : self.start + index.start(end)]
