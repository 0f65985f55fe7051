"""Which earlier checkpoint the next save with differences rests on.

Pure. The first save of a chain is whole, generation 0; later ones store what changed since an
earlier one. Used by the shard writer.
"""

from typing import Final, NamedTuple

from snapshots.checkpoints.manifest import CheckpointRef, Manifest

GENERATIONS_MAX: Final = 32
"""Of so many saves in a row one is whole."""
_BASE: Final = 3
"""Generation k rests on k with its last digit in this base that is not 0 made 0: each of the 32 is
at most 3 steps from the whole one. In base 2 it is 5, and 20 versions take 5 % less; in base 4 it
is 3 too, and they take 3 % more (benchmarks/torch_checkpoints.py)."""


class Rest(NamedTuple):
    """What a save rests on, None where it is whole, and its generation."""

    ancestor: CheckpointRef | None
    generation: int


WHOLE: Final = Rest(None, 0)


def next_rest(head: CheckpointRef, chain: list[Manifest]) -> Rest:
    """What the save after `head` rests on.

    `chain` is the manifest of `head` and those it rests on, the nearest first.
    """
    generation = chain[0].generation + 1
    if generation < GENERATIONS_MAX:
        refs = [head, *(one.ancestor for one in chain if one.ancestor is not None)]
        for ref, one in zip(refs, chain, strict=True):
            if one.generation == _without_last_digit(generation):
                return Rest(ref, generation)
    return WHOLE


def _without_last_digit(generation: int) -> int:
    place = 1
    while generation % (place * _BASE) == 0:
        place *= _BASE
    return generation - generation // place % _BASE * place
