"""Where the numbers of a chunk lie in the whole tensor, and whether chunks make up the whole.

Pure arithmetic in C order. Used by whoever puts a tensor's chunks together: export, and the
comparison of two checkpoints; and by import.
"""

import math
from collections.abc import Iterator, Sequence

from eventlog.errors import CheckpointError

Block = tuple[tuple[int, ...], tuple[int, ...]]
"""A block of a tensor: its offset and its shape."""


def check_cover(name: str, shape: tuple[int, ...], blocks: Sequence[Block]) -> None:
    """Return where the blocks hold every number of the tensor exactly once.

    Raises `CheckpointError` naming the tensor where one lies outside, two overlap or some is held
    by none.
    """
    held = 0
    for offset, size in blocks:
        if not len(offset) == len(size) == len(shape) or any(
            start < 0 or length < 0 or start + length > limit
            for start, length, limit in zip(offset, size, shape, strict=True)
        ):
            raise _misfit(name, "a chunk lies outside of it")
        held += math.prod(size)
    if held != math.prod(shape):
        raise _misfit(name, f"its chunks hold {held} numbers of {math.prod(shape)}")
    # Swept along the first dimension: only blocks that share a row are compared.
    open_: list[Block] = []
    for block in sorted(one for one in blocks if math.prod(one[1])):
        open_ = [one for one in open_ if not shape or one[0][0] + one[1][0] > block[0][0]]
        if any(_overlap(one, block) for one in open_):
            raise _misfit(name, "two of its chunks overlap")
        open_.append(block)


def runs_of(
    shape: tuple[int, ...], block: Block, start: int, end: int
) -> Iterator[tuple[int, int, int]]:
    """Where the numbers `start` to `end` of a block (half-open, C order) lie in the tensor.

    Yields (place in the block, place in the tensor, count), all in numbers, each run as long as
    memory goes on in both.
    """
    offset, size = block
    first = _first_axis(shape, size)
    run = math.prod(size[first:])
    strides = [math.prod(shape[axis + 1 :]) for axis in range(len(shape))]
    within = offset[first] * strides[first] if shape else 0
    at = start
    while at < end:
        row, into = divmod(at, run)
        place = within + into
        for axis in range(first - 1, -1, -1):
            row, index = divmod(row, size[axis])
            place += (offset[axis] + index) * strides[axis]
        count = min(run - into, end - at)
        yield at, place, count
        at += count


def spacing_of(shape: tuple[int, ...], block: Block) -> tuple[int, int, int]:
    """How the runs of a block follow one another: the numbers of one run, the numbers from one
    run's begin to the next's in the tensor, and how many in turn are so far apart."""
    _offset, size = block
    first = _first_axis(shape, size)
    if not first:
        return math.prod(size), math.prod(shape), 1
    return math.prod(size[first:]), math.prod(shape[first:]), size[first - 1]


def _first_axis(shape: tuple[int, ...], size: tuple[int, ...]) -> int:
    """The axis that one run goes along: the last that the block does not take whole, or 0."""
    inner = len(shape)
    while inner > 0 and size[inner - 1] == shape[inner - 1]:
        inner -= 1
    return max(inner - 1, 0)


def _overlap(left: Block, right: Block) -> bool:
    return all(
        start < other + length and other < start + size
        for start, size, other, length in zip(*left, *right, strict=True)
    )


def _misfit(name: str, what: str) -> CheckpointError:
    return CheckpointError(
        f"tensor {name!r} cannot be put together: {what}",
        hint="it was not saved whole; use another checkpoint",
        tensor=name,
    )
