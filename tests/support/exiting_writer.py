"""A process that submits events to a log in Kafka and ends without closing it.

    python -c "from tests.support.exiting_writer import main; main()" '{options}'

Each acknowledgement is a line of JSON on its standard output, written when it is given. The handle
and the futures are local: nothing of the caller's holds them when the process ends.
"""

import json
import os
import sys
import time
from concurrent.futures import Future
from functools import partial

from eventlog.codec import EncodedEvent
from eventlog.ids import mint_session_id
from eventlog.kafka_log import KafkaLog
from eventlog.log import Receipt
from tests.support.events import EventChain
from tests.support.recorded import append_at_last


def main() -> None:
    """Submit, and end in the way that the options say."""
    options = json.loads(sys.argv[1])
    submit(options)
    match options["end"]:
        case "exit":
            sys.exit(3)
        case "raise":
            raise ValueError("of the caller's")
        case "now":
            os._exit(5)


def submit(options: dict[str, object]) -> None:
    """Submit `events` of each of `sessions` sessions; wait for `heard` of the first answers."""
    log = KafkaLog(
        [str(options["bootstrap"])],
        str(options["topic"]),
        str(options["folder"]),
        append_deadline_s=float(str(options["deadline_s"])),
    )
    answers: list[Future[Receipt]] = []
    chains = [EventChain(mint_session_id(), seed=n) for n in range(int(str(options["sessions"])))]
    for number in range(int(str(options["events"]))):
        for chain in chains:
            event = chain.call() if number else chain.seed(writer=log.writer_id)
            if number == 0 and options["waits"]:
                # The brokers may not be ready yet; from then on the deadline is what is tested.
                append_at_last(log, [event])
            answer = log.submit_events(
                chain.session_id, [event], expected_step=event.event.step - 1
            )
            if options["tells"]:
                answer.add_done_callback(partial(tell, chain.session_id, event))
            answers.append(answer)
        if number == 0 and options["waits"]:
            for answer in answers:
                answer.result()
        if number == 0 and options["freeze"]:
            tell_line({"ready": [chain.session_id for chain in chains]})
            sys.stdin.readline()
    for answer in answers[: int(str(options["heard"]))]:
        answer.exception()
    time.sleep(float(str(options["sleep_s"])))


def tell(session_id: str, event: EncodedEvent, answer: Future[Receipt]) -> None:
    """Say that the event was acknowledged, if it was."""
    if answer.exception() is None:
        tell_line({"written": [session_id, event.event.step, event.digest.hex()]})


def tell_line(facts: dict[str, object]) -> None:
    os.write(1, json.dumps(facts).encode() + b"\n")
