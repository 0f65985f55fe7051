"""`ScriptedClient`: producers for a `FakeTopic` that do as a test's script says.

They are what a transactional producer is: initialising an id fences who had it, and aborts what was
left open under it. What is to go wrong with the next commits stands in `script`, one entry each:

- `"refused"`: the broker takes no such records; what was written of the transaction is aborted;
- `"broken, not sent"`, `"broken, open"`, `"broken, committed"`: the producer is lost, and so far
  the topic holds nothing, open records, or the whole transaction;
- `"fenced"`: another has initialised the id;
- a function: called with the records, then the commit goes on, or as one of these that it returns.

Without an entry a commit succeeds, but for records that `refuses` holds for.
"""

import threading
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

from eventlog.kafka.client import OutgoingRecord, TopicDescription, TopicProducer
from eventlog.kafka.client_errors import (
    BrokersUnavailable,
    ClientFault,
    ProducerBroken,
    ProducerFenced,
    RecordsRefused,
)
from eventlog.kafka_log import KafkaLog
from tests.support.topic import FakeClient, FakeTopic, FakeTransaction

Step = str | Callable[[Sequence[OutgoingRecord]], str | None]


@contextmanager
def given_s(log: KafkaLog, deadline_s: float) -> Iterator[None]:
    """Within, what the log is asked for is due so soon.

    Before and after it has time enough: a machine that is busy is slow at what is no wait, too.
    """
    claiming, usual_s = log._here().claiming, log.append_deadline_s
    log.append_deadline_s = claiming._deadline_s = deadline_s
    try:
        yield
    finally:
        log.append_deadline_s = claiming._deadline_s = usual_s


class ScriptedClient(FakeClient):
    """A client of a fake topic that also writes; all clients of a topic may share one script."""

    def __init__(self, topic: FakeTopic, *, shared: "ScriptedClient | None" = None) -> None:
        super().__init__(topic, 500)
        self.script: deque[Step] = deque()
        self.initialisations: deque[ClientFault | Callable[[], object]] = deque()
        """What the next initialisations raise, or call before they go on."""
        self.is_away = False
        """Whether no initialisation succeeds: it takes its time, and fails."""
        self.refuses: Callable[[OutgoingRecord], bool] = lambda record: False
        self.record_bytes_max = 1_000_000
        self.sent: list[list[OutgoingRecord]] = []
        """The records of each commit that was tried."""
        self.epochs: dict[str, int] = {} if shared is None else shared.epochs
        self.open: dict[str, list[FakeTransaction]] = {} if shared is None else shared.open
        self.lock = threading.RLock() if shared is None else shared.lock

    def describe(self, timeout_s: float = 10.0) -> TopicDescription:
        found = super().describe(timeout_s)
        return found._replace(settings={"max.message.bytes": str(self.record_bytes_max)})

    def go_away_with(self, step: str) -> None:
        """After this step of the script no initialisation succeeds."""

        def go(_: Sequence[OutgoingRecord]) -> str:
            self.is_away = True
            return step

        self.script.append(go)

    def time_out(self) -> None:
        """The broker aborts every transaction that was left open."""
        with self.lock:
            for left in self.open.values():
                for each in left:
                    each.end("aborted")
            self.open.clear()

    def open_producer(self, transactional_id: str) -> TopicProducer:
        return ScriptedProducer(self, transactional_id)


class ScriptedProducer(TopicProducer):
    """One producer; dead once it raised."""

    def __init__(self, client: ScriptedClient, transactional_id: str) -> None:
        self.transactional_id = transactional_id
        self._client = client
        self._epoch = -1
        self._is_dead = False

    def initialise(self, timeout_s: float) -> None:
        client = self._client
        step = client.initialisations.popleft() if client.initialisations else None
        if isinstance(step, ClientFault):
            raise step
        if step is not None:
            step()
        deadline = time.monotonic() + timeout_s
        while (client.is_away or client.fake.is_down) and time.monotonic() < deadline:
            time.sleep(0.01)
        client.fake.require_there()
        if client.is_away:
            raise BrokersUnavailable("no answer in time")
        with client.lock:
            self._epoch = client.epochs.get(self.transactional_id, -1) + 1
            client.epochs[self.transactional_id] = self._epoch
            for left in client.open.pop(self.transactional_id, []):
                left.end("aborted")

    def commit(self, records: Sequence[OutgoingRecord], timeout_s: float) -> list[int]:
        assert not self._is_dead, "a dead producer is used"
        assert self._epoch >= 0, "it was never initialised"
        client = self._client
        client.sent.append(list(records))
        step = client.script.popleft() if client.script else "committed"
        if not isinstance(step, str):
            step = step(records) or "committed"
        with client.lock:
            return self._commit(records, step)

    def _commit(self, records: Sequence[OutgoingRecord], step: str) -> list[int]:
        client, topic = self._client, self._client.fake
        is_fenced = client.epochs[self.transactional_id] != self._epoch
        if is_fenced or step == "fenced":
            raise self._dead(ProducerFenced("a newer producer has this id"))
        if step == "broken, not sent" or topic.is_down:
            raise self._dead(ProducerBroken("nothing was sent", sent=False))
        written = topic.begin()
        if step == "refused" or any(map(client.refuses, records)):
            for record in records:
                if not client.refuses(record) and step != "refused":
                    written.send(record.partition, record.key, record.value)
            client.open.setdefault(self.transactional_id, []).append(written)
            raise self._dead(RecordsRefused("the broker takes no such records", sent=True))
        offsets = [written.send(record.partition, record.key, record.value) for record in records]
        if step == "broken, open":
            client.open.setdefault(self.transactional_id, []).append(written)
        else:
            written.end("committed")
        if step != "committed":
            raise self._dead(ProducerBroken(step, sent=True))
        return offsets

    def _dead(self, fault: ClientFault) -> ClientFault:
        self._is_dead = True
        return fault

    def abandon(self) -> None:
        self._is_dead = True
