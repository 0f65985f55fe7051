"""Random histories of one session's records, as a log could hold them after anything went wrong.

Writers go on from where they think the line is: crashed ones are taken over, zombies write on, two
claim at once, appends are lost (aborted), arrive twice, out of order, or not at all. Some records
are plain nonsense. `random_history(rng)` gives the records in log order.
"""

import random
from collections.abc import Callable
from dataclasses import replace

from eventlog.content import TEXT_PLAIN, Content
from eventlog.event import (
    NO_PARENT,
    Annotated,
    Body,
    MessageAdded,
    SessionClosed,
    SessionForked,
    SessionLost,
    SessionReleased,
    SessionResumed,
    SessionSeeded,
    StateChanged,
    SubjectErased,
    ToolCalled,
    ToolReturned,
    Verified,
)
from tests.support.line_records import (
    LineKeeper,
    Record,
    claim_record,
    fork_record,
    record_of,
    seed_record,
)

RECORDS_MAX = 60
TEXT = Content(TEXT_PLAIN, b"x")


class HistoryMaker:
    """Makes the records of one history; `records` is the log so far."""

    def __init__(self, rng: random.Random) -> None:
        self.rng = rng
        self.records: list[Record] = []
        self.made: list[Record] = []
        self.writers: list[Record] = []
        self.reader = LineKeeper()
        self.count = 0

    def nonce(self) -> int:
        """Tells a new record from all before it."""
        self.count += 1
        return self.count

    def put(self, record: Record, *, aborted: bool = False) -> Record:
        """A record is made; unless aborted, the log has it."""
        self.made.append(record)
        if not aborted:
            self.records.append(record)
            self.reader.accept(record)
        return record

    def begin(self) -> None:
        """A seed or a fork, now and then with something in front of it."""
        if self.rng.random() < 0.02:
            self.nonsense()
        if self.rng.random() < 0.3:
            writer = self.rng.choice((None, "w0"))
            fork_step = self.rng.randrange(6)
            first = fork_record(fork_step, self.rng.randbytes(32), writer, self.nonce())
        else:
            first = seed_record("w0", self.nonce())
        self.writers.append(self.put(first))

    def write(self, body: Body | None = None, *, aborted: bool = False) -> None:
        """One writer, living or fenced long ago, goes on from its own last record."""
        i = self.rng.randrange(len(self.writers)) if self.rng.random() < 0.15 else -1
        last = self.writers[i]
        self.writers[i] = self.put(
            record_of(
                ordinary_body(self.rng) if body is None else body,
                step=last.step + 1,
                attempt=last.attempt,
                parent=last.digest,
                nonce=self.nonce(),
            ),
            aborted=aborted,
        )

    def finish(self) -> None:
        """A close, a loss or a release."""
        bodies = (
            SessionClosed("done", 0, NO_PARENT),
            SessionLost("gone"),
            SessionReleased(self.rng.choice((None, "w1"))),
        )
        self.write(self.rng.choice(bodies))

    def write_batch(self) -> None:
        """Several events in one append, which may be aborted as a whole."""
        aborted = self.rng.random() < 0.2
        for _ in range(self.rng.randrange(1, 6)):
            self.write(aborted=aborted)
        if aborted and self.rng.random() < 0.7:
            self.claim()

    def claim(self) -> None:
        """A take-over or a rewind, mostly by one who read the log; else from any record made."""
        rng = self.rng
        line = self.reader.standing()
        released = self.reader.line.state.released
        if line and rng.random() < 0.85:
            onto = line[-1] if rng.random() < 0.6 else rng.choice(line[-6:])
            over_release = released if rng.random() < 0.9 else not released
        else:
            onto, over_release = rng.choice(self.made), rng.random() < 0.3
        top = max(record.attempt for record in self.made)
        attempt = top + rng.choice((1, 1, 1, 1, 1, 1, 1, 2, 0, -1))
        claim = claim_record(onto, attempt, over_release=over_release, nonce=self.nonce())
        self.writers.append(self.put(claim, aborted=rng.random() < 0.1))

    def claim_twice(self) -> None:
        """Two claimants take the same place with the same attempt; both then write."""
        self.claim()
        first = self.writers[-1]
        if isinstance(first.body, SessionResumed):
            self.writers.append(self.put(replace(first, nonce=self.nonce())))
        for _ in range(self.rng.randrange(4)):
            self.write()

    def repeat(self) -> None:
        """A record that was made before comes again, in the same bytes."""
        record = self.rng.choice(self.made)
        self.records.append(record)
        self.reader.accept(record)

    def rewrite(self) -> None:
        """Another record is sent for a step that was sent already."""
        record = self.rng.choice(self.made)
        self.put(replace(record, nonce=self.nonce()))

    def begin_again(self) -> None:
        """A second seed or fork for the same session, and its writer goes on."""
        attempt = self.rng.choice((1, 1, self.reader.line.state.attempt))
        body: Body = SessionSeeded("desk", writer="w9")
        if self.rng.random() < 0.3:
            body = SessionForked("parent", self.rng.randrange(3), None)
        step = body.parent_step + 1 if isinstance(body, SessionForked) else 0
        record = record_of(body, step=step, attempt=attempt, parent=NO_PARENT, nonce=self.nonce())
        self.writers.append(self.put(record))

    def nonsense(self) -> None:
        """Any step, attempt and parent at all; rarely of another session."""
        rng = self.rng
        parents = [NO_PARENT, rng.randbytes(32), *(record.digest for record in self.made[-8:])]
        bodies = [
            ordinary_body(rng),
            SessionResumed(rng.randrange(-1, 9), "?", "w?", rng.random() < 0.3),
            SessionSeeded("desk"),
            SessionForked("parent", rng.randrange(-1, 4)),
            SessionReleased(),
        ]
        self.put(
            record_of(
                rng.choice(bodies),
                step=rng.randrange(10),
                attempt=rng.randrange(5),
                parent=rng.choice(parents),
                session_id="s" if rng.random() < 0.95 else "another",
                nonce=self.nonce(),
            )
        )


def ordinary_body(rng: random.Random) -> Body:
    """A body of a kind that the line's status does not hang on."""
    return rng.choice(
        (
            ToolCalled("lookup", TEXT),
            ToolReturned(0, "ok"),
            MessageAdded("user", TEXT),
            StateChanged("test"),
            Verified("rules", reward=1.0),
            Annotated("note", TEXT),
            SubjectErased("someone", "asked"),
        )
    )


def random_history(rng: random.Random) -> list[Record]:
    """The records of one session in log order, at most about `RECORDS_MAX`."""
    maker = HistoryMaker(rng)
    maker.begin()
    acts: list[tuple[int, Callable[[], None]]] = [
        (rng.choice((10, 40)), maker.write),
        (10, maker.write_batch),
        (rng.choice((1, 4, 12)), maker.claim),
        (rng.choice((0, 2)), maker.claim_twice),
        (rng.choice((0, 1, 4)), maker.finish),
        (rng.choice((0, 3)), maker.repeat),
        (rng.choice((0, 1)), maker.rewrite),
        (rng.choice((0, 0, 1)), maker.begin_again),
        (rng.choice((0, 0, 0, 1)), maker.nonsense),
    ]
    weights = [weight for weight, _ in acts]
    size = rng.randrange(2, RECORDS_MAX)
    while len(maker.records) < size:
        rng.choices(acts, weights)[0][1]()
    records = maker.records
    for _ in range(rng.choice((0, 0, 0, 1, 3))):
        i = rng.randrange(len(records))
        if rng.random() < 0.5 and len(records) > 1:
            del records[i]
        else:
            records.insert(rng.randrange(len(records)), records.pop(i))
    return records
