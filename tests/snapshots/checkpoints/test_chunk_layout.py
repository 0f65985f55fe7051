"""Chunks of a tensor: where their numbers lie in the whole, and what is no whole."""

from random import Random

import pytest

from eventlog.errors import CheckpointError
from snapshots.checkpoints.chunk_layout import Block, check_cover, runs_of
from tests.support.chunk_blocks import cut


def test_chunks_put_together_are_the_whole() -> None:
    chance = Random(1)
    for _ in range(400):
        shape = tuple(chance.randint(0, 6) for _ in range(chance.randint(0, 4)))
        blocks = cut(chance, shape)
        check_cover("t", shape, blocks)
        total = 1
        for size in shape:
            total *= size
        whole: list[object] = [None] * total
        for block in blocks:
            count = 1
            for size in block[1]:
                count *= size
            middle = chance.randint(0, count)
            for start, end in ((0, middle), (middle, count)):
                at = start
                for begin, place, length in runs_of(shape, block, start, end):
                    assert begin == at
                    for step in range(length):
                        assert whole[place + step] is None
                        whole[place + step] = (block, begin + step)
                    at += length
                assert at == end
        for place, held in enumerate(whole):
            assert held is not None
            block, number = held  # type: ignore[misc]
            assert index_of(shape, place) == tuple(
                offset + inner
                for offset, inner in zip(block[0], index_of(block[1], number), strict=True)
            )


def index_of(shape: tuple[int, ...], place: int) -> tuple[int, ...]:
    found = []
    for size in reversed(shape):
        place, index = divmod(place, size)
        found.append(index)
    return tuple(reversed(found))


def test_a_block_that_is_whole_rows_is_one_run() -> None:
    assert list(runs_of((10, 4), ((3, 0), (5, 4)), 0, 20)) == [(0, 12, 20)]
    assert list(runs_of((2, 4), ((0, 1), (2, 2)), 0, 4)) == [(0, 1, 2), (2, 5, 2)]


@pytest.mark.parametrize(
    ("blocks", "what"),
    [
        ([((0,), (3,))], "hold 3 numbers of 4"),
        ([((0,), (2,)), ((1,), (2,))], "overlap"),
        ([((0,), (2,)), ((3,), (2,))], "outside"),
        ([((0, 0), (2, 2))], "outside"),
        ([((-1,), (4,))], "outside"),
    ],
)
def test_what_is_no_whole_is_refused(blocks: list[Block], what: str) -> None:
    with pytest.raises(CheckpointError, match=f"'t' cannot be put together: .*{what}") as caught:
        check_cover("t", (4,), blocks)
    assert caught.value.tensor == "t"


def test_blocks_that_overlap_beside_each_other_are_found() -> None:
    with pytest.raises(CheckpointError, match="overlap"):
        check_cover("t", (2, 4), [((0, 0), (2, 2)), ((0, 1), (2, 2))])
