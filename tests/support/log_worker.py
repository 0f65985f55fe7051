"""A process that writes to a log in Kafka as it is told, and tells what it was answered.

Commands come as lines of JSON on its standard input and are done one after the other; reports go
out as lines of JSON. A report is written before anything else is done, so what was acknowledged
outlives the process. The other end is `tests/support/log_workers.py`.
"""

import importlib
import json
import os
import random
import signal
import sys
import threading
import time
import traceback
from collections.abc import Sequence
from concurrent.futures import Future
from functools import partial
from typing import Any

from eventlog.codec import EncodedEvent
from eventlog.content import OCTET_STREAM, Content
from eventlog.errors import AppendUncertainError, LogError, SteplogError
from eventlog.event import NO_PARENT, SessionClosed
from eventlog.ids import mint_session_id
from eventlog.kafka import kafka_python_producer
from eventlog.kafka_log import KafkaLog
from eventlog.log import Receipt
from tests.support import broken_rules, nursery
from tests.support.commit_moments import Arming
from tests.support.events import EventChain

HIT_SIGNALS = {signal.SIGUSR1: "sent", signal.SIGUSR2: "committed"}
"""A worker that is busy is armed by a signal: it takes the next commit's hit."""

LOOP_PAUSE_S = 0.003
SIZES = (10, 10, 10, 200, 900, 900, 6_000, 40_000)
"""Bytes of an event's arguments, to choose from."""


class LineWriting:
    """What a worker writes with: its handle, its lines, and what it tells of answers."""

    def __init__(self, options: dict[str, Any]) -> None:
        self.options = options
        self.rng = random.Random(options["name"])
        self.telling = threading.Lock()
        self.arming = Arming(self.tell)
        self.handles = 0
        self.log = self.open_log()
        self.lines: dict[str, EventChain] = {}
        self.unsure: dict[str, list[EncodedEvent]] = {}
        """Of sessions with an append of unknown outcome: what was appended in vain since then."""

    def open_log(self) -> KafkaLog:
        options = self.options
        self.handles += 1
        log = KafkaLog(
            options["bootstrap"].split(","),
            options["topic"],
            f"{options['folder']}/{options['name']}",
            append_deadline_s=options["deadline_s"],
        )
        self.tell("opened", writer=log.writer_id)
        return log

    def tell(self, report: str, **facts: Any) -> None:
        """One line, written at once: never half of one but where the process is killed in it."""
        line = json.dumps({"report": report, **facts}).encode() + b"\n"
        with self.telling:
            os.write(1, line)

    def _owner_or_none(self) -> str | None:
        return self.log.writer_id if self.rng.random() < 0.5 else None

    def _event(self, chain: EventChain) -> EncodedEvent:
        size = self.options.get("event_bytes") or self.rng.choice(SIZES)
        return chain.call(arguments=Content(OCTET_STREAM, self.rng.randbytes(size)))

    def _line(self, session: str) -> EventChain:
        """The session's line as this worker thinks it goes on; where it forgot, as the log says."""
        chain = self.lines.get(session)
        if chain is None:
            chain = self.lines[session] = EventChain(session, self.rng.randrange(10**9))
            chain.head = self.log.session_info(session).head
        return chain

    def _earlier(self, session: str) -> bytes:
        info = self.log.session_info(session)
        records = list(self.log.read_session(session))
        own = [record for record in records if record.prefix.session_id == session]
        return self.rng.choice(own[-12:]).digest if own else info.head.digest

    def _write(
        self, session: str, batches: Sequence[Sequence[EncodedEvent]], head: Any = None
    ) -> bool:
        return self._await(session, self._submit(session, batches, head))

    def _submit(
        self, session: str, batches: Sequence[Sequence[EncodedEvent]], head: Any = None
    ) -> list[Future[Receipt]]:
        answers: list[Future[Receipt]] = []
        for batch in batches:
            events = list(batch)
            try:
                answer = self.log.submit_events(
                    session, events, expected_step=events[0].event.step - 1, head=head
                )
            except SteplogError as error:
                answer = Future()
                answer.set_exception(error)
            answer.add_done_callback(partial(self._answered, session, events))
            answers.append(answer)
        return answers

    def _answered(
        self, session: str, events: Sequence[EncodedEvent], answer: Future[Receipt]
    ) -> None:
        """In the writer's thread, before the next answer is given."""
        digests = [each.digest.hex() for each in events]
        error = answer.exception()
        if error is None:
            self._tell_receipt(answer.result(), digests)
        elif isinstance(error, AppendUncertainError):
            self.unsure.setdefault(session, []).extend(events)
            self.tell("unsure", session=session, digests=digests, message=str(error))
        else:
            assert isinstance(error, LogError), error
            self.tell(
                "refused",
                session=session,
                digests=digests,
                error=type(error).__name__,
                message=str(error),
            )

    def _await(self, session: str, answers: Sequence[Future[Receipt]]) -> bool:
        """Whether all were written; else the line is to be read anew."""
        written = [answer.exception() is None for answer in answers]
        if not all(written):
            self.lines.pop(session, None)
        return all(written)

    def _tell_receipt(self, receipt: Receipt, digests: list[str]) -> None:
        self.tell(
            "written",
            session=receipt.session_id,
            digests=digests,
            step=receipt.last_step,
            attempt=receipt.attempt,
            offset=receipt.offset,
        )

    def _settle(self, session: str) -> bool:
        """Reconcile an append of unknown outcome, if there is one; whether there was."""
        if session not in self.unsure:
            return False
        receipt = self.log.reconcile(session)
        events = self.unsure.pop(session)
        self.lines.pop(session, None)
        found = None if receipt is None else receipt.event_digest.hex()
        self.tell(
            "settled",
            session=session,
            found=found,
            digests=[each.digest.hex() for each in events],
        )
        return True


class LogWorker(LineWriting):
    """One log handle at a time, and the sessions that it has written to."""

    def serve(self) -> None:
        """Do what is told until nothing more can come."""
        for line in sys.stdin:
            command = json.loads(line)
            name, number = command.pop("do"), command.pop("number")
            try:
                found = getattr(self, f"do_{name}")(**command)
            except SteplogError as error:
                self.tell("done", number=number, error=type(error).__name__, message=str(error))
            else:
                self.tell("done", number=number, **(found or {}))
            if name == "quit":
                return

    def do_seed(self, kind: str, session: str = "", parent: str = "") -> dict[str, Any]:
        """Begin a session: `minted` or `given` (its id), `unowned`, or a `branch` of a parent."""
        session = session or mint_session_id()
        chain = EventChain(session, self.rng.randrange(10**9))
        if kind == "branch":
            chain.forked(self.log.session_info(parent).head, writer=self._owner_or_none())
        else:
            chain.seed(writer=None if kind == "unowned" else self.log.writer_id)
        self.lines.pop(session, None)
        written = self._write(session, [[chain.events[0]]])
        if written and kind != "unowned":
            self.lines[session] = chain
        return {"session": session, "written": written}

    def do_append(self, sessions: list[str], batches: list[int]) -> dict[str, Any]:
        """Submit batches of so many events to each session, all at once; wait for the answers."""
        waiting = []
        for session in sessions:
            self._settle(session)
            chain = self._line(session)
            made = [[self._event(chain) for _ in range(count)] for count in batches]
            waiting.append((session, self._submit(session, made)))
        return {"written": [self._await(session, answers) for session, answers in waiting]}

    def do_loop(self, sessions: list[str], batch: int) -> dict[str, Any]:
        """Append to the sessions in turn, pipelined, until no append to any of them is answered."""
        going, rounds = list(sessions), 0
        while going:
            waiting = []
            for session in going:
                chain = self._line(session)
                made = [self._event(chain) for _ in range(batch)]
                waiting.append((session, self._submit(session, [made])))
            going = [session for session, answers in waiting if self._await(session, answers)]
            rounds += 1
            time.sleep(LOOP_PAUSE_S)
        return {"rounds": rounds}

    def do_release(self, session: str) -> dict[str, Any]:
        self._settle(session)
        try:
            receipt = self.log.release(session)
        except AppendUncertainError:
            self.unsure.setdefault(session, [])
            raise
        finally:
            self.lines.pop(session, None)
        self._tell_receipt(receipt, [receipt.event_digest.hex()])
        return {"released": session}

    def do_close(self, session: str) -> dict[str, Any]:
        self._settle(session)
        chain = self._line(session)
        end = chain.append(SessionClosed("done", 0, NO_PARENT))
        return {"written": self._write(session, [[end]])}

    def do_claim(
        self, sessions: list[str], rewind: bool = False, careful: bool = True
    ) -> dict[str, Any]:
        """Take the sessions over, as they stand, or from an earlier step on (`rewind`).

        Who is not `careful` sets aside what an owner has written since: that is a rewind too.
        """
        infos = {}
        for session in sessions:
            self._settle(session)
            infos[session] = self.log.session_info(session)
            self.lines.pop(session, None)
        heads = {session: info.head for session, info in infos.items()}
        stands_on = {session: head.digest for session, head in heads.items()}
        if rewind:
            stands_on = {session: self._earlier(session) for session in sessions}
        try:
            attempts = self.log.take_over(
                sessions,
                stands_on=stands_on,
                reason="claim" if careful and not rewind else "rewind",
                heads=heads if careful else None,
            )
        except AppendUncertainError:
            for session in sessions:
                self.unsure.setdefault(session, [])
            raise
        self.tell("claimed", writer=self.log.writer_id, attempts=attempts)
        return {"attempts": attempts}

    def do_resume(self, session: str, count: int) -> dict[str, Any]:
        """Claim by an append of one's own: the claim, and `count` events, as one batch."""
        self._settle(session)
        info = self.log.session_info(session)
        chain = EventChain(session, self.rng.randrange(10**9))
        chain.head = info.head
        claim = chain.resumed(
            attempt=self.log.next_attempt(session), reason="claim", writer=self.log.writer_id
        )
        batch = [claim, *(self._event(chain) for _ in range(count))]
        self.lines.pop(session, None)
        written = self._write(session, [batch], head=info.head)
        if written:
            self.lines[session] = chain
        return {"written": written}

    def do_reconcile(self, session: str) -> dict[str, Any]:
        return {"settled": self._settle(session)}

    def do_close_handle(self, sessions: list[str], count: int) -> dict[str, Any]:
        """Submit events and close the handle without waiting for them; open another one."""
        waiting = []
        for session in sessions:
            chain = self._line(session)
            made = [[self._event(chain)] for _ in range(count)]
            waiting.append((session, self._submit(session, made)))
        self.log.close()
        written = [self._await(session, answers) for session, answers in waiting]
        self.lines.clear()
        self.unsure.clear()
        self.log = self.open_log()
        return {"written": written}

    def do_arm(self, moment: str, how: str, claims_only: bool = False) -> None:
        self.arming.arm(moment, how, claims_only=claims_only)

    def do_count(self) -> dict[str, Any]:
        """How often the handle's producer was initialised."""
        return {"initialisations": self.log.initialisations}

    def do_quit(self) -> None:
        self.log.close()


def run(argument: str) -> None:
    """A worker's process, from its options; it tells what it failed of."""
    options = json.loads(argument)
    if options.get("transaction_timeout_ms"):
        kafka_python_producer.TRANSACTION_TIMEOUT_MS = options["transaction_timeout_ms"]  # type: ignore[misc]
    broken_rules.break_rule(options.get("broken", ""))
    worker = LogWorker(options)
    for number, moment in HIT_SIGNALS.items():
        signal.signal(
            number, lambda *_, moment=moment: worker.arming.arm(moment, options.get("hit", "stop"))
        )
    try:
        worker.serve()
    except BaseException:
        worker.tell("failed", traceback=traceback.format_exc())
        raise


def serve_nursery() -> None:
    """The process that all workers of a test process are forked from."""
    importlib.import_module("kafka")
    nursery.serve(run)
