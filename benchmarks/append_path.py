"""CPU of the append path: from a caller's values to checked, chained, encoded events in batches.

Ours makes each event's body (canonical arguments, result and patch), the event, its Avro bytes with
every type checked, and the SHA-256 that the next event stands on. The peer, eventsourcing, makes an
aggregate's events and their JSON; it checks no types and keeps no digest. Storing is not in these
figures, but for the peer's second one.
"""

import random
import tempfile
from collections.abc import Callable
from typing import Any, Final

from benchmarks.harness import NOT_INSTALLED, Row, measure_cpu, peer_installed, report
from eventlog.avro.event_datum import datum_of_event
from eventlog.avro.event_form import EVENT_SCHEMA
from eventlog.canonical import encode
from eventlog.codec import EncodedEvent, decode_event, decode_prefix, fit_event
from eventlog.content import STATE_PATCH, BlobRef, Content, argument_content, result_content
from eventlog.event import Body, Event, LineHead, StateChange, ToolCalled, ToolReturned
from eventlog.ids import mint_event_id
from eventlog.schema import HEADER_BYTES

BATCH: Final = 1_000
BATCHES: Final = 10
EVENTS: Final = BATCH * BATCHES
BAR_PER_S: Final = 45_000
PREFIX_BAR_US: Final = 4.0
DECODE_BAR_US: Final = 12.0
ENCODE_BAR_US: Final = 10.0
TIME: Final = 1_700_000_000_000_000
STATE_DIGEST: Final = bytes(32)
WORDS: Final = [f"word{index:x}" for index in range(1_000)]

Step = tuple[dict[str, object], dict[str, object], list[object]]


def steps() -> list[Step]:
    """Arguments, result and patch of each call: about 1 KB of values for one event."""
    rng = random.Random(7)

    def text(words: int) -> str:
        return " ".join(rng.choice(WORDS) for _ in range(words))

    return [
        (
            {"command": text(95), "timeout": 30, "flags": {"quiet": True, "level": rng.random()}},
            {"output": text(70), "exit_code": 0, "elapsed": rng.random()},
            [["set", ["files", f"f{index % 64}"], text(15)], ["set", ["count"], index]],
        )
        for index in range(EVENTS // 2)
    ]


def batch_of(work: list[Step], number: int) -> list[Step]:
    """The steps of one batch of events: each gives two."""
    return work[number * BATCH // 2 : (number + 1) * BATCH // 2]


def refuse_blob(data: bytes) -> BlobRef:
    """No event here is large enough to need one."""
    raise AssertionError(f"{len(data)} bytes do not need a blob")


def encode_batches(work: list[Step]) -> list[EncodedEvent]:
    """The events of one session, made batch by batch as a recorder hands them to a log."""
    head = LineHead.before_seed("task-17/seed-3")
    encoded: list[EncodedEvent] = []

    def add(head: LineHead, body: Body, actor: str, change: StateChange | None) -> LineHead:
        event = Event.following(
            head, body, event_id=mint_event_id(), time=TIME, actor=actor, state_change=change
        )
        encoded.append(fit_event(event, refuse_blob))
        return LineHead(event.session_id, event.step, event.attempt, encoded[-1].digest)

    for number in range(BATCHES):
        for arguments, result, patch in batch_of(work, number):
            called = ToolCalled("shell", argument_content(arguments), "c1", effects="external")
            head = add(head, called, "agent", None)
            returned = ToolReturned(head.step, "ok", result_content(result), None, 1_234, 0.5)
            change = StateChange(Content(STATE_PATCH, encode(patch)), STATE_DIGEST)
            head = add(head, returned, "tool:shell", change)
    return encoded


def peer_figures(work: list[Step]) -> tuple[str, str]:
    """Events per CPU second of eventsourcing: events and JSON; and with its SQLite store."""
    if not peer_installed("eventsourcing"):
        return NOT_INSTALLED, NOT_INSTALLED
    from eventsourcing.application import Application
    from eventsourcing.domain import Aggregate

    class Session(Aggregate):
        class Called(Aggregate.Event):
            tool: str
            call_id: str
            arguments: object
            effects: str

        class Returned(Aggregate.Event):
            called_step: int
            status: str
            result: object
            reward: float
            patch: object
            state_digest: str

    def take_steps(keep: Callable[[Any], object]) -> None:
        session: Any = Session()
        for number in range(BATCHES):
            for arguments, result, patch in batch_of(work, number):
                session.trigger_event(
                    Session.Called,
                    tool="shell",
                    call_id="c1",
                    arguments=arguments,
                    effects="external",
                )
                session.trigger_event(
                    Session.Returned,
                    called_step=session.version,
                    status="ok",
                    result=result,
                    reward=0.5,
                    patch=patch,
                    state_digest="00" * 32,
                )
            keep(session)

    with tempfile.TemporaryDirectory() as folder:
        store = {"PERSISTENCE_MODULE": "eventsourcing.sqlite", "SQLITE_DBNAME": f"{folder}/log.db"}
        app: Any = Application(env=store)

        def encode_only(session: Any) -> None:
            for each in session.collect_events():
                app.mapper.to_stored_event(each)

        encode_s = measure_cpu(lambda: take_steps(encode_only), repeat=3).best_cpu_s
        save_s = measure_cpu(lambda: take_steps(app.save), repeat=3).best_cpu_s
        app.close()
    return f"{EVENTS / encode_s:,.0f}/s", f"{EVENTS / save_s:,.0f}/s"


def codec_row(
    what: str, bar_us: float, peer: Callable[[], object], ours: Callable[[], object]
) -> Row:
    """One direction of the codec, in CPU microseconds an event, beside fastavro alone."""
    peer_us, ours_us = (measure_cpu(each).best_cpu_s / EVENTS * 1e6 for each in (peer, ours))
    return Row(
        what,
        f"<= {bar_us:.0f} us",
        f"fastavro {peer_us:.1f} us",
        f"{ours_us:.1f} us",
        ours_us <= bar_us,
    )


def codec_rows(encoded: list[EncodedEvent]) -> list[Row]:
    """Encoding and decoding by themselves. fastavro gets dicts and gives dicts, unchecked."""
    events = [each.event for each in encoded]
    datums = [datum_of_event(event, EVENT_SCHEMA) for event in events]
    records = [each.data for each in encoded]
    cut = EVENT_SCHEMA.cut_after("state_change")
    return [
        codec_row(
            "  of it: check, encode, digest",
            ENCODE_BAR_US,
            lambda: [EVENT_SCHEMA.write_datum(datum) for datum in datums],
            lambda: [fit_event(event, refuse_blob) for event in events],
        ),
        codec_row(
            "decode an event",
            DECODE_BAR_US,
            lambda: [EVENT_SCHEMA.read_datum(data, HEADER_BYTES) for data in records],
            lambda: [decode_event(data) for data in records],
        ),
        codec_row(
            "decode what a fold needs of it",
            PREFIX_BAR_US,
            lambda: [cut.read_datum(data, HEADER_BYTES) for data in records],
            lambda: [decode_prefix(data) for data in records],
        ),
    ]


def main() -> None:
    """Measure and print."""
    work = steps()
    encoded = encode_batches(work)
    size = sum(len(each.data) for each in encoded) / EVENTS
    rate = EVENTS / measure_cpu(lambda: encode_batches(work)).best_cpu_s
    peer_encode, peer_save = peer_figures(work)
    whole = Row(
        f"append path, CPU, batches of {BATCH:,}, {size:,.0f} B an event",
        f">= {BAR_PER_S:,}/s",
        f"{peer_encode} (unchecked, no digest); stored too {peer_save}",
        f"{rate:,.0f}/s",
        rate >= BAR_PER_S,
    )
    report([whole, *codec_rows(encoded)])


if __name__ == "__main__":
    main()
