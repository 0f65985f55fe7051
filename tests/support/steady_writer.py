"""A process that appends to a log in Kafka at a steady pace, until its standard input is closed.

Some of its sessions are written to by a thread each, which waits for every answer; others have a
window of appends under way. Every answer is a line of JSON on its standard output, with the time
of it on the monotonic clock (the same for all processes); so is any error, and then the session is
left alone. The other end is `SteadyWriter`.
"""

import ctypes
import json
import os
import signal
import sys
import threading
import time
from collections import deque
from concurrent.futures import Future
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Any

from eventlog.codec import EncodedEvent
from eventlog.content import OCTET_STREAM, Content
from eventlog.errors import SteplogError
from eventlog.kafka_log import KafkaLog
from eventlog.log import Receipt
from tests.support.events import EventChain
from tests.support.log_workers import Report
from tests.support.processes import python_script

PR_SET_PDEATHSIG = 1
EVENT_BYTES = 600
PACE_S = 0.01
WINDOW = 32
SCRIPT = "from tests.support.steady_writer import main; main()"


class _Steady:
    """What runs in the process."""

    def __init__(self, options: dict[str, Any]) -> None:
        self.log = KafkaLog(
            options["bootstrap"].split(","),
            options["topic"],
            options["folder"],
            append_deadline_s=options["deadline_s"],
        )
        self.options = options
        self.telling = threading.Lock()
        self.stopping = threading.Event()

    def run(self) -> None:
        threads = [
            threading.Thread(target=self.write, args=(f"{how}-{number}", window))
            for how, window in (("single", 1), ("pipelined", WINDOW))
            for number in range(self.options[how])
        ]
        for thread in threads:
            thread.start()
        sys.stdin.read()
        self.stopping.set()
        for thread in threads:
            thread.join()
        initialisations = self.log.initialisations
        self.log.close()
        self.tell("ended", initialisations=initialisations)

    def write(self, session: str, window: int) -> None:
        chain = EventChain(session)
        if not self.append(session, [chain.seed(writer=self.log.writer_id)]):
            return
        under_way: deque[Future[Receipt]] = deque()
        while not self.stopping.is_set():
            batch = [self.event(chain) for _ in range(1 + chain.rng.randrange(3))]
            if window == 1:
                if not self.append(session, batch):
                    return
            else:
                under_way.append(self.submit(session, batch))
                if len(under_way) == window and under_way.popleft().exception() is not None:
                    return
            time.sleep(PACE_S)

    def event(self, chain: EventChain) -> EncodedEvent:
        return chain.call(arguments=Content(OCTET_STREAM, chain.rng.randbytes(EVENT_BYTES)))

    def append(self, session: str, batch: list[EncodedEvent]) -> bool:
        try:
            receipt = self.log.append_events(session, batch, expected_step=batch[0].event.step - 1)
        except SteplogError as error:
            self.tell_error(session, error)
            return False
        self.tell_receipt(receipt, batch)
        return True

    def submit(self, session: str, batch: list[EncodedEvent]) -> Future[Receipt]:
        answer = self.log.submit_events(session, batch, expected_step=batch[0].event.step - 1)
        answer.add_done_callback(partial(self.answered, session, batch))
        return answer

    def answered(self, session: str, batch: list[EncodedEvent], answer: Future[Receipt]) -> None:
        error = answer.exception()
        if error is None:
            self.tell_receipt(answer.result(), batch)
        else:
            self.tell_error(session, error)

    def tell_receipt(self, receipt: Receipt, batch: list[EncodedEvent]) -> None:
        digests = [each.digest.hex() for each in batch]
        self.tell("written", session=receipt.session_id, digests=digests, offset=receipt.offset)

    def tell_error(self, session: str, error: BaseException) -> None:
        self.tell("failed", session=session, error=f"{type(error).__name__}: {error}")

    def tell(self, name: str, **facts: Any) -> None:
        line = json.dumps({"report": name, "at": time.monotonic(), **facts}).encode() + b"\n"
        with self.telling:
            os.write(1, line)


def main() -> None:
    """The process; it ends with the one that started it."""
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    _Steady(json.loads(sys.argv[1])).run()


class SteadyWriter:
    """The process, and all that it has told so far. Use in a `with`."""

    def __init__(
        self,
        bootstrap: str,
        topic: str,
        folder: Path,
        *,
        single: int = 3,
        pipelined: int = 2,
        deadline_s: float = 30.0,
    ) -> None:
        self.reports: list[Report] = []
        self.count = single + pipelined
        options = {
            "bootstrap": bootstrap,
            "topic": topic,
            "folder": str(folder),
            "single": single,
            "pipelined": pipelined,
            "deadline_s": deadline_s,
        }
        self.process = python_script(SCRIPT, json.dumps(options))
        self._reading = threading.Thread(target=self._read, daemon=True)
        self._reading.start()

    def __enter__(self) -> "SteadyWriter":
        return self

    def __exit__(self, *exc: object) -> None:
        self.process.kill()
        self._reading.join()
        for pipe in (self.process.stdin, self.process.stdout, self.process.stderr):
            assert pipe is not None
            pipe.close()
        self.process.wait()

    def require_progress(self, times: int = 5, timeout_s: float = 60.0) -> float:
        """Wait until every session was acknowledged so often from now on; when the first was.

        Fails where an append failed, or the process ended.
        """
        begun, since = len(self.reports), time.monotonic()
        first = 0.0
        while True:
            new = self.reports[begun:]
            failed = [report.facts for report in new if report.name == "failed"]
            assert not failed, failed[:3]
            written = [each for each in new if each.name == "written"]
            if written and not first:
                first = time.monotonic()
            counts = [each.facts["session"] for each in written]
            if len(set(counts)) == self.count and all(
                counts.count(each) >= times for each in set(counts)
            ):
                return first - since
            assert self.process.poll() is None, self._errors()
            assert time.monotonic() < since + timeout_s, f"no progress within {timeout_s} s"
            time.sleep(0.05)

    def stop(self) -> dict[str, Any]:
        """Let it append no more, and end; what it told last."""
        assert self.process.stdin is not None
        self.process.stdin.close()
        self._reading.join(60)
        assert self.process.wait(60) == 0, self._errors()
        failed = [each.facts for each in self.reports if each.name == "failed"]
        assert not failed, failed[:3]
        assert self.reports[-1].name == "ended"
        return self.reports[-1].facts

    def longest_gap_s(self, since: float = 0.0) -> float:
        """The longest time between two acknowledgements in a row, from a moment on."""
        times = [each.facts["at"] for each in self.reports if each.name == "written"]
        times = [at for at in times if at >= since]
        gaps: list[float] = [after - before for before, after in pairwise(times)]
        return max(gaps)

    def _read(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            facts = json.loads(line)
            self.reports.append(Report("steady", facts.pop("report"), facts))

    def _errors(self) -> str:
        assert self.process.stderr is not None
        return self.process.stderr.read()
