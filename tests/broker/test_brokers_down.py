"""Writers while their brokers are frozen, killed, gone, or refuse what is sent.

The broker is this module's own. The figures are printed; what is asserted has slack for a machine
that is busy.
"""

import json
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from contextlib import contextmanager
from pathlib import Path

import pytest

from eventlog.codec import EncodedEvent
from eventlog.content import OCTET_STREAM, Content
from eventlog.errors import (
    AppendUncertainError,
    ConfigError,
    EventTooLargeError,
    LogUnavailableError,
)
from eventlog.ids import mint_session_id
from eventlog.kafka import topic_writer
from eventlog.kafka.connection import open_client
from eventlog.kafka_log import KafkaLog
from eventlog.log import Receipt
from eventlog.mirror import Mirror
from tests.support.brokers import Broker, free_ports, running_broker
from tests.support.command import Command
from tests.support.events import EventChain
from tests.support.processes import finish, python_script
from tests.support.recorded import append_all, append_at_last, data_of, seeded_chain
from tests.support.scale import scaled
from tests.support.topic_clients import read_to_end

pytestmark = [pytest.mark.kafka, pytest.mark.brokers]

DEADLINE_S = 2.0
ANSWERED_WITHIN_S = DEADLINE_S + 1.0
WRITES_AGAIN_WITHIN_S = 5.0
SLACK_S = 10.0
"""A test machine that does much else is given so much more."""

MIB = 1024 * 1024


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    with running_broker(tmp_path_factory.mktemp("broker")) as started:
        yield started


@pytest.fixture
def open_log(broker: Broker, tmp_path: Path) -> Iterator[Callable[..., KafkaLog]]:
    """Opens a log in a topic: `open_log(topic, deadline_s=...)`; closed after the test.

    It has written once: who is given two seconds need not first make the brokers' own topic.
    """
    opened: list[KafkaLog] = []

    def open_one(topic: str, deadline_s: float = DEADLINE_S) -> KafkaLog:
        folder = tmp_path / f"mirror-{len(opened)}"
        opened.append(KafkaLog([broker.bootstrap], topic, folder, append_deadline_s=deadline_s))
        first = EventChain(mint_session_id())
        first.time = time.time_ns() // 1_000  # A topic may take nothing older.
        append_at_last(opened[-1], [first.seed(writer=opened[-1].writer_id)])
        return opened[-1]

    yield open_one
    for log in opened:
        log.close()


@contextmanager
def frozen(broker: Broker) -> Iterator[None]:
    """Within, the broker's connections stay open, and nobody answers."""
    broker.freeze()
    try:
        yield
    finally:
        broker.thaw()


def kilobyte(chain: EventChain) -> EncodedEvent:
    """An event of about 1 KB."""
    return chain.call(arguments=Content(OCTET_STREAM, b"x" * 850))


def submit(log: KafkaLog, *events: EncodedEvent) -> Future[Receipt]:
    first = events[0].event
    return log.submit_events(first.session_id, events, expected_step=first.step - 1)


def seconds_until_it_writes(log: KafkaLog) -> float:
    """How long it takes until an append of a new session succeeds, trying again."""
    began = time.monotonic()
    while True:
        chain = EventChain(mint_session_id())
        try:
            append_all(log, [chain.seed(writer=log.writer_id)])
        except LogUnavailableError:
            assert time.monotonic() - began < 60
        else:
            return time.monotonic() - began


class Persistent(threading.Thread):
    """Writes one session, event after event, whatever it is answered, until it is stopped."""

    def __init__(self, log: KafkaLog, session: str) -> None:
        super().__init__()
        self.log = log
        self.chain = EventChain(session)
        self.acknowledged: list[bytes] = []
        self.answers: Counter[str] = Counter()
        self.slowest_s = 0.0
        self.stopping = threading.Event()

    def run(self) -> None:
        event = self.chain.seed(writer=self.log.writer_id)
        while True:
            is_there = self.try_once(event)
            if is_there:
                self.acknowledged.append(event.data)
                if self.stopping.is_set():
                    return
                event = kilobyte(self.chain)
                time.sleep(0.005)

    def try_once(self, event: EncodedEvent) -> bool:
        began = time.monotonic()
        try:
            append_all(self.log, [event])
        except LogUnavailableError as error:
            return self.note(began, error)
        except AppendUncertainError as error:
            self.note(began, error)
        else:
            return self.note(began, None)
        while True:
            began = time.monotonic()
            try:
                found = self.log.reconcile(self.chain.session_id)
            except LogUnavailableError as error:
                self.note(began, error)
            else:
                self.answers["settled: there" if found else "settled: not there"] += 1
                return found is not None

    def note(self, began: float, error: Exception | None) -> bool:
        self.answers["written" if error is None else type(error).__name__] += 1
        self.slowest_s = max(self.slowest_s, time.monotonic() - began)
        return error is None


def test_frozen_past_the_deadline_each_is_answered_and_all_go_on(
    broker: Broker, open_log: Callable[..., KafkaLog]
) -> None:
    log = open_log(broker.new_topic(2))
    writers = [Persistent(log, f"s{number}") for number in range(6)]
    for writer in writers:
        writer.start()
    for seconds in (1.0, 2 * DEADLINE_S, 3.1 * DEADLINE_S):
        time.sleep(0.7)
        with frozen(broker):
            time.sleep(seconds)
        thawed = time.monotonic()
        waiting = {writer: writer.answers["written"] for writer in writers}
        while waiting:
            waiting = {each: n for each, n in waiting.items() if each.answers["written"] == n}
            assert time.monotonic() - thawed < WRITES_AGAIN_WITHIN_S + SLACK_S, waiting.keys()
            time.sleep(0.01)
        print(f"frozen for {seconds} s: all write again {time.monotonic() - thawed:.2f} s later")
    for writer in writers:
        writer.stopping.set()
    for writer in writers:
        writer.join()
    print(sum((writer.answers for writer in writers), Counter()))
    print(f"slowest answer after {max(writer.slowest_s for writer in writers):.2f} s")
    for writer in writers:
        assert data_of(log.read_session(writer.chain.session_id)) == writer.acknowledged
        assert writer.slowest_s < ANSWERED_WITHIN_S + SLACK_S
        assert writer.answers["LogUnavailableError"] + writer.answers["AppendUncertainError"]


def test_those_that_wait_behind_are_answered_too(
    broker: Broker, open_log: Callable[..., KafkaLog]
) -> None:
    log = open_log(broker.new_topic(2))
    chains = [seeded_chain(log, f"s{number}") for number in range(32)]
    taken_s: list[float] = []

    def note_from(began: float) -> Callable[[object], None]:
        return lambda _: taken_s.append(time.monotonic() - began)

    answers = []
    with frozen(broker):
        for number in range(10_000):
            began = time.monotonic()
            answers.append(submit(log, kilobyte(chains[number % len(chains)])))
            answers[-1].add_done_callback(note_from(began))
        errors = Counter(type(answer.exception()).__name__ for answer in answers)
    again_s = seconds_until_it_writes(log)
    print(f"{errors}: slowest after {max(taken_s):.2f} s; writes again after {again_s:.2f} s")
    assert set(errors) <= {"LogUnavailableError", "AppendUncertainError"}
    assert max(taken_s) < ANSWERED_WITHIN_S + SLACK_S
    assert again_s < WRITES_AGAIN_WITHIN_S + SLACK_S


def test_a_broker_that_is_killed_and_comes_back_costs_nobody_an_error(
    broker: Broker, open_log: Callable[..., KafkaLog]
) -> None:
    log = open_log(broker.new_topic(2), deadline_s=60.0)
    writers = [Persistent(log, f"s{number}") for number in range(4)]
    for writer in writers:
        writer.start()
    for _ in range(scaled(1, 4)):
        time.sleep(1.0)
        broker.kill()
        broker.restart()
    seconds_until_it_writes(log)
    for writer in writers:
        writer.stopping.set()
    for writer in writers:
        writer.join()
        assert data_of(log.read_session(writer.chain.session_id)) == writer.acknowledged
        assert set(writer.answers) <= {"written"}


FLOOD = """
import json, sys, time
from collections import Counter
from pathlib import Path
from eventlog.errors import SteplogError
from eventlog.kafka_log import KafkaLog
from tests.broker.test_brokers_down import kilobyte
from tests.support.events import EventChain
from tests.support.recorded import append_at_last

def status(name):
    line = next(x for x in Path("/proc/self/status").read_text().splitlines() if x.startswith(name))
    return int(line.split()[1]) * 1024

bootstrap, topic, folder, tries = sys.argv[1:]
log = KafkaLog([bootstrap], topic, folder, append_deadline_s=0.5)
chains = [EventChain(f"s{n}") for n in range(16)]
for chain in chains:
    chain.seed(writer=log.writer_id)
append_at_last(log, chains[0].events)
answers = Counter()
print("ready", flush=True)
sys.stdin.readline()
Path("/proc/self/clear_refs").write_text("5")  # From now on the peak counts.
before = status("VmRSS")
began = time.monotonic()

def note(answer):
    answers[type(answer.exception()).__name__] += 1

for number in range(int(tries)):
    chain = chains[number % 16]
    event = kilobyte(chain)
    chain.events.clear()
    try:
        log.submit_events(
            chain.session_id, [event], expected_step=event.event.step - 1
        ).add_done_callback(note)
    except SteplogError as error:
        answers[type(error).__name__] += 1
while answers.total() < int(tries):
    time.sleep(0.01)
took = time.monotonic() - began
print(json.dumps({"answers": answers, "growth": status("VmHWM") - before, "s": took}), flush=True)
sys.stdin.readline()
"""


@pytest.mark.parametrize(
    ("how", "tries"), [("frozen", 100_000), ("killed", scaled(20_000, 100_000))]
)
def test_a_hundred_thousand_tries_with_no_broker_stay_small(
    broker: Broker, tmp_path: Path, how: str, tries: int
) -> None:
    topic = broker.new_topic(3)
    process = python_script(FLOOD, broker.bootstrap, topic, tmp_path / "mirror", str(tries))
    assert process.stdin is not None
    assert process.stdout is not None
    assert process.stdout.readline() == "ready\n"
    getattr(broker, {"frozen": "freeze", "killed": "kill"}[how])()
    try:
        process.stdin.write("go\n")
        process.stdin.flush()
        found = json.loads(process.stdout.readline())
    finally:
        broker.thaw() if how == "frozen" else broker.restart()
    finish(process)
    print(f"{how}: {found['answers']} in {found['s']:.1f} s, {found['growth'] / MIB:.1f} MiB more")
    assert sum(found["answers"].values()) == tries
    assert set(found["answers"]) <= {"LogUnavailableError", "AppendUncertainError"}
    assert found["growth"] <= 64 * MIB


def test_no_broker_was_ever_there(tmp_path: Path) -> None:
    (port,) = free_ports(1)
    with KafkaLog(
        [f"127.0.0.1:{port}"], "nowhere", tmp_path / "m", append_deadline_s=DEADLINE_S
    ) as log:
        chain = EventChain("s")
        seed = chain.seed(writer=log.writer_id)
        calls: list[Callable[[], object]] = [
            lambda: append_all(log, [seed]),
            lambda: submit(log, seed).result(),
            lambda: log.release("s"),
            lambda: log.take_over(["s"], stands_on={"s": seed.digest}, reason="test"),
        ]
        for call in calls:
            began = time.monotonic()
            with pytest.raises(LogUnavailableError, match=str(port)):
                call()
            assert time.monotonic() - began < ANSWERED_WITHIN_S + SLACK_S
        assert log.reconcile("s") is None


@pytest.mark.parametrize("verb", [["sessions"], ["mirror", "--once"]])
def test_the_command_says_that_no_broker_is_there(
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    verb: list[str],
) -> None:
    assert Mirror.refresh.__kwdefaults__ is not None
    monkeypatch.setitem(Mirror.refresh.__kwdefaults__, "timeout_s", 1.0)
    (port,) = free_ports(1)
    steplog = Command(f"kafka://127.0.0.1:{port}/nowhere?folder={tmp_path / 'm'}", capsys)
    ran = steplog(*verb)
    assert ran.code == 7
    assert str(port) in ran.err


def committed_values(broker: Broker, topic: str) -> Counter[bytes]:
    """What a reader of committed records gets of the topic's first partition."""
    client = open_client([broker.bootstrap], topic)
    reader = client.open_reader(committed=True)
    reader.seek({0: 0})
    found = Counter(record.value or b"" for record in read_to_end(reader))
    reader.close()
    client.close()
    return found


def set_topic(broker: Broker, topic: str, name: str, value: str) -> None:
    """Change a setting of the topic while it is written to; returns when the broker has it."""
    from kafka.admin import ConfigResource, ConfigResourceType

    with broker.admin() as admin:
        admin.alter_configs([ConfigResource(ConfigResourceType.TOPIC, topic, {name: value})])
    client = open_client([broker.bootstrap], topic)
    deadline = time.monotonic() + 30
    while client.describe().settings[name] != value:
        assert time.monotonic() < deadline, f"{name} is never {value}"
        time.sleep(0.02)
    client.close()


def together(log: KafkaLog, batches: list[list[EncodedEvent]]) -> list[Future[Receipt]]:
    """Submit so that one transaction takes all: while the writer is busy with something else."""
    begun, go_on = threading.Event(), threading.Event()

    def be_busy(_: object) -> None:
        begun.set()
        go_on.wait(30)

    busy = threading.Thread(target=log.ask, args=(be_busy,))
    busy.start()
    assert begun.wait(30)
    answers = [submit(log, *batch) for batch in batches]
    go_on.set()
    busy.join()
    return answers


def test_a_larger_event_is_refused_while_no_broker_answers(
    broker: Broker, open_log: Callable[..., KafkaLog]
) -> None:
    """So it was refused before any I/O; and the next one is written."""
    log = open_log(broker.new_topic(1, {"max.message.bytes": "20000"}))
    chain = seeded_chain(log, "s")
    head, initialisations = chain.head, log.initialisations
    large = chain.call(arguments=Content(OCTET_STREAM, b"x" * 30_000))
    with frozen(broker):
        began = time.monotonic()
        with pytest.raises(EventTooLargeError, match="the topic takes at most"):
            append_all(log, [large])
        assert time.monotonic() - began < DEADLINE_S
    chain.head = head
    append_at_last(log, [chain.call()])
    assert log.initialisations == initialisations


def test_a_topic_that_takes_less_and_then_more(
    broker: Broker, open_log: Callable[..., KafkaLog], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(topic_writer, "LIMITS_HOLD_S", 0.0)
    topic = broker.new_topic(1)
    log = open_log(topic, deadline_s=20.0)
    chain, beside = seeded_chain(log, "s"), seeded_chain(log, "beside")
    head = chain.head
    large = chain.call(arguments=Content(OCTET_STREAM, b"x" * 30_000))
    set_topic(broker, topic, "max.message.bytes", "20000")
    answers = together(log, [[beside.call()], [large], [beside.returned()]])
    with pytest.raises(EventTooLargeError, match="the topic takes at most 19488"):
        answers[1].result(30)
    assert [answers[0].result(30).last_step, answers[2].result(30).last_step] == [5, 6]
    chain.head = head
    append_all(log, [chain.call()])
    set_topic(broker, topic, "max.message.bytes", "1000000")
    append_all(log, [chain.call(arguments=Content(OCTET_STREAM, b"x" * 30_000))])
    assert max(committed_values(broker, topic).values()) == 1


def test_a_record_whose_time_is_refused_takes_no_other_down(
    broker: Broker, open_log: Callable[..., KafkaLog]
) -> None:
    """The topic takes no record that is older than an hour."""
    topic = broker.new_topic(1, {"message.timestamp.before.max.ms": "3600000"})
    log = open_log(topic, deadline_s=20.0)
    chains = [EventChain(f"s{number}") for number in range(4)]
    for chain in chains:
        chain.time = time.time_ns() // 1_000
        append_all(log, [chain.seed(writer=log.writer_id)])
    chains[2].time -= 2 * 3600 * 1_000_000
    batches = [[chain.call(), chain.returned()] for chain in chains]
    answers = together(log, batches)
    for number, answer in enumerate(answers):
        if number == 2:
            with pytest.raises(ConfigError, match="InvalidTimestamp"):
                answer.result(30)
        else:
            assert answer.result(30).event_digest == chains[number].head.digest
    found = committed_values(broker, topic)
    for number, batch in enumerate(batches):
        assert [found[each.data] for each in batch] == ([0, 0] if number == 2 else [1, 1])
    append_all(log, [chains[0].call()])
