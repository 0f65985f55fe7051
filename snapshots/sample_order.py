"""`SampleOrder`: which samples come next, as data: a position that is saved and restored exactly.

An order per epoch that depends on the seed and the epoch alone, cut into global batches of which
each rank takes its share. The state is global: it says which samples of which epoch are done, never
how many batches a rank has seen, so any number of ranks goes on from it. Used by trainers as a
sampler (`for indices in order`, or `DataLoader(..., batch_sampler=order)`) and by checkpoint sets.

    order = SampleOrder(60, batch_size=10, seed=7, rank=rank, world_size=world_size)
    while step < steps:
        for indices in order:      # the rest of this epoch: at least one batch
            ...
"""

import random
from array import array
from collections import Counter, defaultdict, deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from hashlib import sha256
from typing import Final

from eventlog.errors import CheckpointError, ConfigError, StateError
from snapshots.consumed_samples import IntRanges

FORMAT: Final = 1
"""Of the state, and of how an epoch is shuffled: what is stored are places in that order."""
SAMPLES_MAX: Final = 1 << 32
"""More would not be shuffled evenly by numbers of 53 bits; an epoch's order is held in memory."""
_SAME: Final = ("format", "sample_count", "seed", "shuffle", "drop_last", "out_of_order", "yielded")
"""What of the states of one checkpoint is the same on all ranks."""
_KEYS: Final = (*_SAME, "of_rank", "epoch", "consumed")
_HINT: Final = "give the value that its `state_dict()` returned"


def epoch_order(sample_count: int, seed: int, epoch: int) -> "array[int]":
    """The shuffled ids of one epoch: the same for ever, on every machine and Python.

    Fisher and Yates with `random.Random.random`, the only sequence that Python promises to keep.
    """
    name = f"steplog sample order {FORMAT}\0{seed}\0{epoch}".encode()
    draw = random.Random(int.from_bytes(sha256(name).digest(), "big")).random
    order = array("q", range(sample_count))
    for last in range(sample_count - 1, 0, -1):
        other = int(draw() * (last + 1))
        order[last], order[other] = order[other], order[last]
    return order


class SampleOrder:
    """The order in which samples are taken, and how far that is.

    `batch_size` counts the samples of a global batch; rank r of n takes every n-th from the r-th.
    A batch is shorter at the end of an epoch (unless `drop_last`, which leaves out the last
    `sample_count % batch_size` places), and a rank's share of it may then be empty: all ranks make
    the same steps. Batches never mix epochs.

    In order, a sample is done when it is yielded: save after the step that used it. A loader that
    fetches ahead, or rollouts that finish in any order, need `out_of_order=True`: a sample is done
    when `consume` says so; what was yielded and not consumed comes again after a restore, before
    anything new. Each rank consumes what it was given itself, so `merge_states` of all ranks is
    what each of them loads (checkpoint sets do so). Not for several threads at once.
    """

    state_is_global = True

    def __init__(
        self,
        sample_count: int,
        *,
        batch_size: int,
        seed: int,
        rank: int = 0,
        world_size: int = 1,
        drop_last: bool = False,
        shuffle: bool = True,
        out_of_order: bool = False,
    ) -> None:
        """The start of epoch 0. Raises `ConfigError` for numbers out of range."""
        _require_int("sample_count", sample_count, 1, SAMPLES_MAX)
        _require_int("batch_size", batch_size, 1, SAMPLES_MAX)
        _require_int("seed", seed, None, None)
        _require_int("world_size", world_size, 1, None)
        _require_int("rank", rank, 0, world_size - 1)
        for name, flag in (
            ("drop_last", drop_last), ("shuffle", shuffle), ("out_of_order", out_of_order)
        ):  # fmt: skip
            if type(flag) is not bool:
                raise ConfigError(f"{name} is {flag!r}", hint="give True or False")
        self._sample_count = sample_count
        self._batch_size = batch_size
        self._seed = seed
        self._rank = rank
        self._world_size = world_size
        self._shuffle = shuffle
        self._drop_last = drop_last
        self._out_of_order = out_of_order
        self._places = sample_count - (sample_count % batch_size if drop_last else 0)
        if self._places == 0:
            raise ConfigError(
                f"no batch of {batch_size} in {sample_count} samples, and drop_last",
                hint="make batch_size smaller, or drop_last False",
            )
        self._restart(0, {})

    def _restart(self, epoch: int, done: dict[int, IntRanges]) -> None:
        self._done = done
        # Not yielded (again) by this object: decided when it starts, so that what is consumed
        # on one rank meanwhile cannot change what the others yield.
        self._left_out = {key: IntRanges(value.ranges()) for key, value in done.items()}
        self._oldest = self._epoch = epoch
        self._place = 0
        self._orders: dict[int, array[int]] = {}
        self._open: defaultdict[int, deque[tuple[int, int]]] = defaultdict(deque)
        self._era = object()
        self._go_past_ends()

    @property
    def world_size(self) -> int:
        """Among how many ranks each batch is shared."""
        return self._world_size

    @property
    def epoch(self) -> int:
        """The epoch of the next batch: after the last batch of epoch 0 it is 1."""
        return self._epoch

    def consumed_ids(self, epoch: int) -> list[int]:
        """The ids of an epoch that are done, ascending; those of other ranks once yielded."""
        known = self._done.get(epoch, IntRanges())
        places: Iterable[int] = range(self._places) if epoch < self._oldest else known
        return sorted(map(self._id_at(epoch).__getitem__, places))

    def __len__(self) -> int:
        """Global batches of a whole epoch, which is also how many a rank yields of it."""
        return -(-self._places // self._batch_size)

    def __iter__(self) -> Iterator[list[int]]:
        """This rank's ids of each batch that is left of the epoch: at least one batch.

        Raises `StateError` where a state was loaded since.
        """
        era, epoch = self._era, self._epoch
        while self._epoch == epoch:
            yield self.next_batch()
            if self._era is not era:
                raise StateError(
                    "a state was loaded into this SampleOrder while it was iterated",
                    hint="leave the loop, and begin another one after loading",
                )

    def next_batch(self) -> list[int]:
        """This rank's ids of the next global batch, of the next epoch where this one is over."""
        epoch, spans = self._epoch, self._take()
        ids = self._id_at(epoch)
        mine = [place for span in spans for place in span][self._rank :: self._world_size]
        held = set(mine) if self._out_of_order else set()
        for place in held:
            self._open[ids[place]].append((epoch, place))
        for span in spans:
            if not held:
                self._mark(epoch, span.start, span.stop)
            for place in span if held else ():
                if place not in held:
                    self._mark(epoch, place, place + 1)
        self._go_past_ends()
        self._forget_done()
        return [ids[place] for place in mine]

    def _take(self) -> list[range]:
        taken, missing = [], self._batch_size
        left_out = self._left_out.get(self._epoch, IntRanges())
        for hole in left_out.holes(self._place, self._places):
            span = range(hole.start, min(hole.stop, hole.start + missing))
            taken.append(span)
            missing -= len(span)
            self._place = span.stop
            if not missing:
                break
        return taken

    def _go_past_ends(self) -> None:
        while True:
            left_out = self._left_out.get(self._epoch, IntRanges())
            if next(left_out.holes(self._place, self._places), None) is not None:
                return
            self._epoch, self._place = self._epoch + 1, 0

    def consume(self, ids: Iterable[int]) -> None:
        """Mark samples as done; all of these ids, or none where it raises.

        An id that was yielded for several epochs is done in the oldest where it was not.

        Raises `StateError` for an id that this rank was not given, or that it marked already.
        """
        if not self._out_of_order:
            raise StateError(
                "this SampleOrder is in order: a sample is done as soon as it is yielded",
                hint="make it with out_of_order=True to consume ids as they finish",
            )
        counted = Counter(ids)
        for one, count in counted.items():
            if type(one) is not int or len(self._open.get(one, ())) < count:
                raise StateError(
                    f"sample {one!r} was not yielded to rank {self._rank}, or is done already",
                    hint="consume each id that was yielded once, when its rollout is finished",
                )
        for one in counted.elements():
            epoch, place = self._open[one].popleft()
            self._mark(epoch, place, place + 1)
            if not self._open[one]:
                del self._open[one]
        self._forget_done()

    def _mark(self, epoch: int, start: int, stop: int) -> None:
        self._done.setdefault(epoch, IntRanges()).add_range(start, stop)

    def _forget_done(self) -> None:
        while self._is_done(self._oldest):
            for known in (self._done, self._left_out, self._orders):
                known.pop(self._oldest, None)
            self._oldest += 1

    def _is_done(self, epoch: int) -> bool:
        done = self._done.get(epoch)
        return done is not None and next(done.holes(0, self._places), None) is None

    def _id_at(self, epoch: int) -> Sequence[int]:
        if not self._shuffle:
            return range(self._sample_count)
        known = self._orders.get(epoch)
        if known is None:
            known = epoch_order(self._sample_count, self._seed, epoch)
            if epoch >= self._oldest:
                self._orders[epoch] = known
        return known

    def state_dict(self) -> dict[str, object]:
        """What is done, as a canonical value of its own.

        `consumed` holds, for each epoch from `epoch` on, the ranges of places in its order that
        are done: few, where the ids would be many. `yielded` is where the next batch begins.
        Out of order it is the state of this rank alone, named by `of_rank`: what other ranks were
        given counts as done until `merge_states` of all of them says otherwise.
        """
        last = max(self._done, default=self._oldest - 1)
        alone = self._out_of_order and self._world_size > 1
        return {
            "format": FORMAT,
            "sample_count": self._sample_count,
            "seed": self._seed,
            "shuffle": self._shuffle,
            "drop_last": self._drop_last,
            "out_of_order": self._out_of_order,
            "yielded": [self._epoch, self._place],
            "of_rank": [self._rank, self._world_size] if alone else None,
            "epoch": self._oldest,
            "consumed": [
                self._done.get(epoch, IntRanges()).ranges()
                for epoch in range(self._oldest, last + 1)
            ],
        }

    def load_state_dict(self, state: Mapping[str, object]) -> None:
        """Go on from `state`, of any number of ranks; another `batch_size` is fine.

        Raises `StateError` where it is of other samples, of another order, or of one rank of
        several; then nothing is changed.
        """
        epoch, done = _read(state)
        mine = {
            "sample_count": self._sample_count,
            "seed": self._seed,
            "shuffle": self._shuffle,
            "drop_last": self._drop_last,
        }
        for key, value in mine.items():
            if state[key] != value:
                raise StateError(
                    f"the state has {key} {state[key]!r}, this SampleOrder {value!r}: "
                    "its places are those of another order",
                    hint="make it as the one that was saved, or start a new order without loading",
                )
        if state["of_rank"] is not None:
            raise StateError(
                f"this is what one rank of several has done (of_rank {state['of_rank']})",
                hint="load `SampleOrder.merge_states` of the states of all ranks",
            )
        self._restart(epoch, done)
        self._forget_done()

    @staticmethod
    def merge_states(states: Sequence[Mapping[str, object]]) -> dict[str, object]:
        """The state that any number of ranks goes on from, of those of all ranks in their order.

        Raises `CheckpointError` where the ranks do not stand at one place of one order,
        `StateError` for what is no state.
        """
        return _merged(states)


def _merged(states: Sequence[Mapping[str, object]]) -> dict[str, object]:
    read = [_read(state) for state in states]
    first = dict(states[0])
    alone = first["of_rank"] is not None
    for rank, state in enumerate(states):
        for key in _SAME if alone else _KEYS:
            if state[key] != first[key]:
                raise CheckpointError(
                    f"of its samples rank {rank} has {key} {state[key]!r}, rank 0 {first[key]!r}",
                    hint="save after the same number of batches on every rank",
                )
        if alone and state["of_rank"] != [rank, len(states)]:
            raise CheckpointError(
                f"as the samples of rank {rank} of {len(states)} came those of_rank "
                f"{state['of_rank']!r}",
                hint="give the states of all ranks, in their order",
            )
    return first if not alone else {**first, "of_rank": None, **_in_all(first, read)}


def _in_all(
    first: Mapping[str, object], read: Sequence[tuple[int, dict[int, IntRanges]]]
) -> dict[str, object]:
    """What is done in the eyes of all ranks: what no rank has still open."""
    count = first["sample_count"]
    assert isinstance(count, int)
    oldest = min(epoch for epoch, _ in read)
    consumed = []
    for key in range(oldest, max((one for _, done in read for one in done), default=-1) + 1):
        open_places = IntRanges()
        for epoch, done in read:
            if key >= epoch:
                for hole in done.get(key, IntRanges()).holes(0, count):
                    open_places.add_range(hole.start, hole.stop)
        consumed.append([[hole.start, hole.stop] for hole in open_places.holes(0, count)])
    return {"epoch": oldest, "consumed": consumed}


def _read(state: Mapping[str, object]) -> tuple[int, dict[int, IntRanges]]:
    if not isinstance(state, Mapping) or set(state) != set(_KEYS):
        raise StateError("this is not the state of a SampleOrder", hint=_HINT)
    if state["format"] != FORMAT:
        raise StateError(
            f"the sample order is of format {state['format']!r}, known is {FORMAT}",
            hint="restore with the steplog that saved it, or a newer one",
        )
    epoch, consumed, count = state["epoch"], state["consumed"], state["sample_count"]
    if (
        type(epoch) is not int
        or epoch < 0
        or type(count) is not int
        or not isinstance(consumed, list)
        or not all(isinstance(ranges, list) for ranges in consumed)
    ):
        raise StateError("this is not the state of a SampleOrder", hint=_HINT)
    done = {epoch + number: IntRanges(ranges) for number, ranges in enumerate(consumed)}
    for one in done.values():
        ends = one.ranges()
        if ends and not 0 <= ends[0][0] < ends[-1][1] <= count:
            raise StateError("the state names places beyond its samples", hint=_HINT)
    return epoch, done


def _require_int(name: str, value: int, least: int | None, most: int | None) -> None:
    if type(value) is not int:
        raise ConfigError(f"{name} is {value!r}", hint="give an int")
    if (least is not None and value < least) or (most is not None and value > most):
        upper = "" if most is None else f" to {most}"
        raise ConfigError(f"{name} is {value}", hint=f"give an int from {least}{upper}")
