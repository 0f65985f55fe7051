"""Writers that obey the claim protocol of a log without conditional append, under faults.

Processes write one session through transactions that commit, abort, stay open, or end without the
writer learning how; they take over by fencing, hand over by release, race for a released session,
and rewind. What was acknowledged is kept outside the line: it must stand, in order, once, unless it
was rewound on purpose. The reader's rule must see neither an error nor a conflict.
"""

import random
from dataclasses import dataclass, field

import pytest

from eventlog.event import Body, SessionReleased, SessionResumed, StateChanged
from eventlog.line_state import VerdictKind
from tests.support.line_records import LineKeeper, Record, claim_record, record_of, seed_record
from tests.support.scale import scaled

RUNS = scaled(300, 6_000)
ACTS_PER_RUN = 40
RELEASED = "session_released"


class FencedOutError(Exception):
    """The producer's id was initialised by another."""


@dataclass
class Transaction:
    producer: str
    epoch: int
    state: str = "open"


@dataclass
class Broker:
    """A log of records in transactions; a producer's newer epoch aborts and fences the older."""

    rng: random.Random
    log: list[tuple[Record, Transaction]] = field(default_factory=list)
    epochs: dict[str, int] = field(default_factory=dict)
    open: list[Transaction] = field(default_factory=list)

    def initialise(self, producer: str) -> int:
        """A new epoch of this producer; its open transaction is aborted."""
        self.epochs[producer] = self.epochs.get(producer, 0) + 1
        for transaction in [each for each in self.open if each.producer == producer]:
            self._end(transaction, "aborted")
        return self.epochs[producer]

    def send(self, producer: str, epoch: int, records: list[Record]) -> Transaction:
        """Records in a new open transaction."""
        if self.epochs[producer] != epoch:
            raise FencedOutError
        transaction = Transaction(producer, epoch)
        self.open.append(transaction)
        self.log.extend((record, transaction) for record in records)
        return transaction

    def commit(self, transaction: Transaction) -> None:
        if transaction.state != "open":
            raise FencedOutError
        self._end(transaction, "committed")

    def abort(self, transaction: Transaction) -> None:
        """The transaction times out, if it is still open."""
        if transaction.state == "open":
            self._end(transaction, "aborted")

    def read_to_end(self) -> LineKeeper:
        """What a read_committed reader knows once it reached the end: nothing is open there."""
        while self.open:
            self._end(self.open[0], self.rng.choice(("committed", "aborted")))
        reader = LineKeeper()
        for record, transaction in self.log:
            if transaction.state == "committed":
                reader.accept(record)
        return reader

    def highest_attempt(self) -> int:
        """In the tail read_uncommitted."""
        return max(record.attempt for record, _ in self.log)

    def _end(self, transaction: Transaction, state: str) -> None:
        transaction.state = state
        self.open.remove(transaction)


@dataclass
class Process:
    """A writing process: its producer, and where it thinks its session's line is."""

    name: str
    epoch: int
    head: Record | None = None
    attempt: int = 0
    uncertain: bool = False
    sent: list[Record] = field(default_factory=list)
    """What was sent in a transaction of unknown outcome, and may be sent again as it is."""


class World:
    """The processes, the broker, and what was acknowledged to whoever recorded."""

    def __init__(self, seed: int) -> None:
        self.rng = random.Random(seed)
        self.broker = Broker(self.rng)
        self.acknowledged: list[Record] = []
        self.count = 0
        self.processes = [Process(n, self.broker.initialise(n)) for n in ("p1", "p2", "p3")]
        first = self.processes[0]
        seed_event = seed_record("p1")
        self.broker.commit(self.broker.send("p1", first.epoch, [seed_event]))
        self.acknowledged.append(seed_event)
        first.head, first.attempt = seed_event, 1

    def following(self, last: Record, attempt: int, body: Body) -> Record:
        """The next record after `last`: a (step, attempt) once sent is never used again."""
        self.count += 1
        return record_of(
            body, step=last.step + 1, attempt=attempt, parent=last.digest, nonce=self.count
        )

    def claim_on(self, onto: Record, writer: str, *, over_release: bool) -> Record:
        body = SessionResumed(onto.step, "test", writer, over_release)
        return self.following(onto, self.broker.highest_attempt() + 1, body)

    def append(self, process: Process, records: list[Record]) -> None:
        """One transaction through the process's own producer, ending in any way."""
        try:
            transaction = self.broker.send(process.name, process.epoch, records)
            end = self.rng.random()
            if end < 0.75:
                self.broker.commit(transaction)
                self.acknowledge(process, records)
                return
            if end < 0.83:
                self.broker.commit(transaction)
            elif end < 0.91:
                self.broker.abort(transaction)
        except FencedOutError:
            pass
        process.uncertain = True
        process.sent = records

    def acknowledge(self, process: Process, records: list[Record]) -> None:
        self.acknowledged.extend(records)
        released = records[-1].kind == RELEASED
        process.head, process.attempt = None if released else records[-1], records[-1].attempt
        process.uncertain = False

    def write(self, process: Process) -> None:
        """The owner, or one that still thinks so, records some events; now and then a release."""
        if process.head is None or process.uncertain:
            return
        records: list[Record] = []
        last = process.head
        bodies: list[Body] = [StateChanged("test")] * self.rng.randrange(1, 4)
        if self.rng.random() < 0.15:
            bodies.append(SessionReleased())
        for body in bodies:
            records.append(last := self.following(last, process.attempt, body))
        self.append(process, records)

    def recover(self, process: Process) -> None:
        """After an outcome that is not known, or a fence: initialise, read, go on or give up.

        What was sent and is not there is sent again as it is, byte for byte: a reader of all
        records skips the second as a duplicate. Only where another began to claim the session must
        it be claimed anew.
        """
        if not process.uncertain:
            return
        process.epoch = self.broker.initialise(process.name)
        reader = self.broker.read_to_end()
        sent, process.sent = process.sent, []
        process.uncertain, process.head = False, None
        line, state = reader.standing(), reader.line.state
        if state.writer != process.name or state.released:
            return
        contested = self.broker.highest_attempt() > state.attempt
        if sent and sent[-1].digest == line[-1].digest:
            self.acknowledge(process, sent)
        # Else the recorder has died: the next one does not know what was sent.
        follows = bool(sent) and sent[0].parent == line[-1].digest and not contested
        if follows and self.rng.random() < 0.8:
            self.append(process, sent)
            return
        last = claim = self.claim_on(self.foot(line), process.name, over_release=False)
        records = [claim]
        for _ in range(self.rng.randrange(3)):
            records.append(last := self.following(last, claim.attempt, StateChanged("test")))
        self.append(process, records)

    def take_over(self, process: Process) -> None:
        """Fence the recorded writer, read to the end, claim through the fencing producer."""
        seen = self.broker.read_to_end().line.state
        if seen.writer is None or seen.writer == process.name or seen.released:
            return
        epoch = self.broker.initialise(seen.writer)
        reader = self.broker.read_to_end()
        now = reader.line.state
        if (now.writer, now.head) != (seen.writer, seen.head):
            return
        line = reader.standing()
        onto = self.foot(line) if self.rng.random() < 0.7 else self.rng.choice(line)
        if onto is line[-1]:
            onto = self.foot(line)
        claim = self.claim_on(onto, process.name, over_release=False)
        transaction = self.broker.send(seen.writer, epoch, [claim])
        if self.rng.random() < 0.2:
            self.broker.abort(transaction)
            self.broker.initialise(seen.writer)
            return
        self.broker.commit(transaction)
        kept = {record.digest for record in line[: line.index(onto) + 1]}
        self.acknowledged = [each for each in self.acknowledged if each.digest in kept]
        process.epoch = self.broker.initialise(process.name)
        self.acknowledge(process, [claim])

    def race_for_release(self) -> None:
        """Several processes claim a released session at once; each reads back whether it won."""
        reader = self.broker.read_to_end()
        if not reader.line.state.released:
            return
        head = reader.standing()[-1]
        racers = self.rng.sample(self.processes, self.rng.randrange(1, 4))
        racers = [each for each in racers if not each.uncertain]
        claims: list[tuple[Process, Record, Transaction]] = []
        for process in racers:
            claim = self.claim_on(head, process.name, over_release=True)
            try:
                transaction = self.broker.send(process.name, process.epoch, [claim])
            except FencedOutError:
                process.uncertain = True
                continue
            claims.append((process, claim, transaction))
        self.rng.shuffle(claims)
        for _, _, transaction in claims:
            if self.rng.random() < 0.15:
                self.broker.abort(transaction)
            else:
                self.broker.commit(transaction)
        standing = self.broker.read_to_end().events
        for process, claim, _ in claims:
            process.head = None
            if claim.digest in standing:
                self.claim_again(process, head, claim)

    def claim_again(self, process: Process, release: Record, claim: Record) -> None:
        """Who won a race over a release claims it as its owner, if an aborted claim came before.

        A reader of all records believes the aborted claim over the release, not the one that won.
        """
        if self.is_settled(claim):
            self.acknowledge(process, [claim])
            return
        self.append(process, [self.claim_on(release, process.name, over_release=False)])

    def is_settled(self, claim: Record) -> bool:
        """Whether no aborted claim over the same release came before this one."""
        places = [record.digest for record, _ in self.broker.log]
        return not any(
            record.parent == claim.parent and transaction.state == "aborted"
            for record, transaction in self.broker.log[: places.index(claim.digest)]
        )

    def foot(self, line: list[Record]) -> Record:
        """The event that a claim on the whole line stands on: its last, or the release before."""
        body = line[-1].body
        if isinstance(body, SessionResumed) and body.over_release and not self.is_settled(line[-1]):
            return line[-2]
        return line[-1]

    def act(self) -> None:
        process = self.rng.choice(self.processes)
        match self.rng.randrange(10):
            case 0:
                self.take_over(process)
            case 1 | 2:
                self.race_for_release()
            case 3 | 4:
                self.recover(process)
            case _:
                self.write(process)


@pytest.fixture(scope="module")
def worlds() -> list[World]:
    made = []
    for seed in range(RUNS):
        world = World(seed)
        for _ in range(ACTS_PER_RUN):
            world.act()
        made.append(world)
    return made


def test_what_was_acknowledged_stands_in_order_and_nothing_is_wrong(worlds: list[World]) -> None:
    acknowledged = claims = lost = 0
    for seed, world in enumerate(worlds):
        reader = world.broker.read_to_end()
        state = reader.line.state
        assert state.error is None, f"seed {seed}: {state.error}"
        assert (state.counts.conflicts, state.counts.stopped) == (0, 0), f"seed {seed}"
        digests = [record.digest for record in reader.standing()]
        places = [digests.index(record.digest) for record in world.acknowledged]
        assert places == sorted(set(places)), f"seed {seed}"
        acknowledged += len(places)
        claims += state.attempt
        lost += state.counts.lost_claims
    assert acknowledged > 8 * RUNS
    assert claims > 3 * RUNS
    assert lost > RUNS // 10


def test_a_place_once_sent_is_never_used_again_by_another_event(worlds: list[World]) -> None:
    for seed, world in enumerate(worlds):
        digests: dict[tuple[int, int], bytes] = {}
        for record, _ in world.broker.log:
            if isinstance(record.body, SessionResumed) and record.body.over_release:
                continue
            place = (record.attempt, record.step)
            assert digests.setdefault(place, record.digest) == record.digest, f"seed {seed}"


def test_a_reader_of_uncommitted_records_agrees_at_every_committed_event(
    worlds: list[World],
) -> None:
    """Below the last committed event; that one may be a claim over a release, not yet settled."""
    unsettled_ones = 0
    for seed, world in enumerate(worlds):
        world.broker.read_to_end()
        committed, uncommitted = LineKeeper(), LineKeeper()
        unsettled = None
        for record, transaction in world.broker.log:
            seen = uncommitted.accept(record)
            if transaction.state != "committed":
                continue
            if committed.accept(record).kind is not VerdictKind.ACCEPTED:
                continue
            if seen.kind in (VerdictKind.ACCEPTED, VerdictKind.DUPLICATE):
                line = committed.standing()
                assert uncommitted.standing()[: len(line)] == line, f"seed {seed}"
                unsettled = None
                continue
            assert unsettled is None, f"seed {seed}: {record}"
            assert isinstance(record.body, SessionResumed), f"seed {seed}: {record}"
            assert record.body.over_release, f"seed {seed}: {record}"
            unsettled = record
            unsettled_ones += 1
    assert unsettled_ones > RUNS // 20


def test_an_aborted_claim_on_a_release_misleads_a_reader_until_its_winner_claims_again() -> None:
    """The aborted claim ends the release in the eyes of a reader of uncommitted records.

    So the committed one after it, which says that it stands over the release, is lost to it. Who
    won with that one owns the line, and claims once more, on the release, as an owner does.
    """
    seed = seed_record("p1")
    release = record_of(SessionReleased(), step=1, attempt=1, parent=seed.digest)
    aborted = claim_record(release, 2, over_release=True, writer="p2")
    committed = claim_record(release, 3, over_release=True, writer="p3")
    reader = LineKeeper()
    for record in (seed, release, aborted):
        assert reader.accept(record).kind is VerdictKind.ACCEPTED
    assert reader.accept(committed).kind is VerdictKind.LOST_CLAIM
    again = claim_record(release, 4, writer="p3")
    assert reader.accept(again).kind is VerdictKind.ACCEPTED
