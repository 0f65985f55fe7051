"""Tensors cut into blocks at random."""

from random import Random

from snapshots.checkpoints.chunk_layout import Block


def cut(chance: Random, shape: tuple[int, ...]) -> list[Block]:
    """Blocks that make up the shape, each dimension cut at random places."""
    blocks: list[Block] = [((), ())]
    for size in shape:
        ends = sorted({chance.randint(0, size) for _ in range(chance.randint(0, 3))} | {size})
        starts = [0, *ends[:-1]]
        blocks = [
            ((*offset, start), (*length, end - start))
            for offset, length in blocks
            for start, end in zip(starts, ends, strict=True)
        ]
    chance.shuffle(blocks)
    return blocks
