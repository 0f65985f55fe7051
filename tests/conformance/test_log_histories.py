"""Every keeper against a plain model: random histories of several writers, forks and rewinds.

The model is a dict from digest to (event, parent digest) and a head digest per session: the line is
the chain of parents, nothing else. A seed that failed is kept in `SEEDS`.
"""

import random
from typing import NamedTuple

import pytest

from eventlog.codec import EncodedEvent, decode_event
from eventlog.cut import Cut
from eventlog.errors import FencedError, StepConflictError
from eventlog.event import Event, LineHead
from eventlog.log import EventLog
from tests.support.events import EventChain
from tests.support.keepers import Keeper
from tests.support.scale import scaled

SEEDS = range(scaled(12, 150))
ACTIONS = 120


class Kept(NamedTuple):
    """An event as the model keeps it."""

    data: bytes
    event: Event


class Model:
    """What was acknowledged, and what must stand."""

    def __init__(self) -> None:
        self.events: dict[bytes, Kept] = {}
        self.own: dict[str, list[bytes]] = {}
        self.head: dict[str, LineHead] = {}
        self.owner: dict[str, EventLog | None] = {}
        self.order: list[bytes] = []
        self.ended: dict[str, bool] = {}

    def take(self, session_id: str, digest: bytes, data: bytes) -> None:
        event = decode_event(data)
        self.events[digest] = Kept(data, event)
        self.own.setdefault(session_id, []).append(digest)
        self.head[session_id] = LineHead(session_id, event.step, event.attempt, digest)
        self.order.append(digest)
        if event.kind in ("session_closed", "session_released", "session_resumed"):
            self.ended[session_id] = event.kind != "session_resumed"

    def line(self, digest: bytes) -> list[bytes]:
        """The chain of parents that ends in this event, as bytes."""
        chain: list[bytes] = []
        while digest in self.events:
            kept = self.events[digest]
            chain.append(kept.data)
            digest = kept.event.parent
        return chain[::-1]


class History:
    """Random actions on a keeper, each mirrored in the model."""

    def __init__(self, keeper: Keeper, seed: int) -> None:
        self.rng = random.Random(seed)
        self.handles = [keeper.log, keeper.another_handle(), keeper.another_handle()]
        self.model = Model()
        self.names = 0

    def act(self) -> None:
        actions = [self.seed, self.fork, self.rewind, self.release, self.close, self.retry]
        if not self.model.head or self.rng.random() < 0.05:
            self.seed()
        elif self.rng.random() < 0.6:
            self.append()
        else:
            self.rng.choice(actions)()

    def seed(self) -> None:
        chain = self._chain()
        handle = self.rng.choice(self.handles)
        self._write(handle, [chain.seed(writer=handle.writer_id)])
        self.model.owner[chain.session_id] = handle

    def fork(self) -> None:
        parent = self._session()
        digest = self.rng.choice(self.model.own[parent])
        event = self.model.events[digest].event
        chain = self._chain()
        handle = self.rng.choice([*self.handles, None])
        writer = None if handle is None else handle.writer_id
        fork = chain.forked(LineHead(parent, event.step, event.attempt, digest), writer=writer)
        self._write(self.handles[0], [fork])
        self.model.owner[chain.session_id] = handle
        self.model.ended[chain.session_id] = handle is None

    def append(self) -> None:
        session_id = self._session()
        handle = self.rng.choice(self.handles)
        owner = self.model.owner[session_id]
        if owner is not None and self.rng.random() < 0.8:
            handle = owner
        chain = self._chain(session_id)
        batch = []
        for _ in range(self.rng.choice((1, 1, 2, 5, 40))):
            kind = self.rng.randrange(3)
            if kind == 0:
                batch.append(chain.call())
            elif kind == 1:
                batch.append(chain.returned(max(chain.head.step, 0), reward=self.rng.random()))
            else:
                batch.append(chain.verified(self.rng.random()))
        if self.model.ended.get(session_id, False) or handle is not owner:
            if handle is owner and batch[0].event.kind == "verified":
                return
            with pytest.raises((FencedError, StepConflictError)):
                handle.append_events(session_id, batch, expected_step=batch[0].event.step - 1)
            return
        self._write(handle, batch)

    def rewind(self) -> None:
        session_id = self._session()
        handle = self.rng.choice(self.handles)
        own = self.model.own[session_id]
        digest = self.rng.choice([self.model.head[session_id].digest, self.rng.choice(own)])
        handle.take_over([session_id], stands_on={session_id: digest}, reason="test")
        self._take_new(handle, session_id)
        assert self.model.events[self.model.own[session_id][-1]].event.parent == digest
        self.model.owner[session_id] = handle

    def release(self) -> None:
        session_id = self._session()
        owner = self.model.owner[session_id]
        if owner is None or self.model.ended.get(session_id, False):
            with pytest.raises((FencedError, StepConflictError)):
                self.rng.choice(self.handles).release(session_id)
            return
        owner.release(session_id)
        self._take_new(owner, session_id)

    def close(self) -> None:
        session_id = self._session()
        owner = self.model.owner[session_id]
        if owner is not None and not self.model.ended.get(session_id, False):
            self._write(owner, [self._chain(session_id).closed()])

    def retry(self) -> None:
        session_id = self._session()
        line = self.model.line(self.model.head[session_id].digest)
        own = [decode_event(data) for data in line]
        own = [event for event in own if event.session_id == session_id]
        start = self.rng.randrange(len(own))
        batch = own[start : start + self.rng.choice((1, 3, 50))]
        encoded = [self._encoded(event) for event in batch]
        receipt = self.rng.choice(self.handles).append_events(
            session_id, encoded, expected_step=batch[0].step - 1
        )
        assert (receipt.first_step, receipt.last_step) == (batch[0].step, batch[-1].step)
        assert receipt.event_digest == encoded[-1].digest

    def compare(self) -> None:
        """Everything that can be read is what the model says."""
        log = self.rng.choice(self.handles)
        model = self.model
        tail = list(log.tail_events(Cut.empty()))
        if {record.partition for record in tail} <= {0}:
            assert [record.digest for record in tail] == model.order
            assert [info.session_id for info in log.list_sessions()] == list(model.own)
        assert {record.digest for record in tail} == set(model.order)
        assert len(tail) == len(model.order)
        assert {info.session_id for info in log.list_sessions()} == set(model.own)
        for session_id, head in model.head.items():
            line = model.line(head.digest)
            assert [record.data for record in log.read_session(session_id)] == line
            assert log.session_info(session_id).head == head
            assert [record.digest for record in log.read_records(session_id)] == model.own[
                session_id
            ]
            for digest in self.rng.sample(model.own[session_id], 1):
                records = log.read_session(session_id, through=digest)
                assert [record.data for record in records] == model.line(digest)
            start = self.rng.randrange(len(line))
            end = self.rng.randrange(start, len(line)) + 1
            part = [record.data for record in log.read_session(session_id, start, end)]
            assert part == line[start:end]
        assert list(log.find_damage()) == []

    def _session(self) -> str:
        return self.rng.choice(list(self.model.own))

    def _chain(self, session_id: str | None = None) -> EventChain:
        self.names += 1
        chain = EventChain(session_id or f"s{self.names}", seed=self.rng.randrange(2**60))
        if session_id is not None:
            chain.head = self.model.head[session_id]
        return chain

    def _encoded(self, event: Event) -> EncodedEvent:
        for digest in self.model.own[event.session_id]:
            kept = self.model.events[digest]
            if kept.event == event:
                return EncodedEvent(event, kept.data, digest)
        raise AssertionError("an event of the line is not in the model")

    def _write(self, handle: EventLog, batch: list[EncodedEvent]) -> None:
        session_id = batch[0].event.session_id
        receipt = handle.append_events(session_id, batch, expected_step=batch[0].event.step - 1)
        assert receipt.event_digest == batch[-1].digest
        for encoded in batch:
            self.model.take(session_id, encoded.digest, encoded.data)

    def _take_new(self, handle: EventLog, session_id: str) -> None:
        """Take over into the model what the log itself appended.

        That is one event; or two, where a keeper must win a release before it may go back.
        """
        records = list(handle.read_records(session_id))
        new = [record for record in records if record.digest not in self.model.events]
        assert [record.prefix.kind for record in new] in (
            ["session_released"],
            ["session_resumed"],
            ["session_resumed"] * 2,
        )
        for record in new:
            self.model.take(session_id, record.digest, record.data)


@pytest.mark.parametrize("seed", SEEDS)
def test_any_history_reads_back_as_the_model_says(keeper: Keeper, seed: int) -> None:
    history = History(keeper, seed)
    for number in range(ACTIONS):
        history.act()
        if number % 40 == 39:
            history.compare()
