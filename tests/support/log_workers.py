"""Writing processes under a test's hand: told what to do, stopped, continued, killed.

What each was told by the log is in its `reports`, also after it was killed. The processes
themselves run `tests/support/log_worker.py`.
"""

import json
import os
import selectors
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from itertools import count
from pathlib import Path
from typing import Any, NamedTuple

from tests.support.nursery import nursery

ANSWER_S_MAX = 90.0
"""Every command is answered by then, whatever was done to processes and brokers."""


class Report(NamedTuple):
    """What a worker told: of which worker, in which order, and its fields."""

    worker: str
    name: str
    facts: dict[str, Any]


class Worker:
    """One writing process."""

    def __init__(self, name: str, options: dict[str, Any], errors: Path) -> None:
        self.name = name
        self.reports: list[Report] = []
        self.writers: list[str] = []
        """The writer ids of its handles, the last one's last."""
        self.commands: dict[int, str] = {}
        """Those that are not done yet."""
        self.is_frozen = False
        self.has_ended = False
        """Whether all that it ever told was taken in."""
        self.errors = errors
        theirs_in, self._commands = os.pipe()
        self.pipe, theirs_out = os.pipe()
        theirs_err = os.open(errors, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
        files = (theirs_in, theirs_out, theirs_err)
        self.pid = nursery().fork(json.dumps({**options, "name": name}), files)
        for file in files:
            os.close(file)
        self._told = b""
        self._numbers = count()

    def order(self, do: str, **arguments: Any) -> int:
        """Give a command, without waiting; its number."""
        number = next(self._numbers)
        line = json.dumps({"do": do, "number": number, **arguments}) + "\n"
        try:
            os.write(self._commands, line.encode())
        except BrokenPipeError:
            return number
        self.commands[number] = f"{do} {arguments}"
        return number

    def take_in(self) -> list[Report]:
        """The reports that have come since; what a killed process told last may be torn off."""
        part = os.read(self.pipe, 1 << 20)
        *lines, self._told = (self._told + part).split(b"\n")
        new = []
        for line in lines:
            facts = json.loads(line)
            report = Report(self.name, facts.pop("report"), facts)
            if report.name == "opened":
                self.writers.append(facts["writer"])
            elif report.name == "done":
                self.commands.pop(facts["number"], None)
            new.append(report)
        self.reports += new
        if not part:
            self.has_ended = True
            self.commands.clear()
        return new

    def freeze(self) -> None:
        """SIGSTOP; returns when it stands still."""
        os.kill(self.pid, signal.SIGSTOP)
        self.await_stop()

    def await_stop(self, timeout_s: float = 30) -> None:
        """Wait until it stands still, stopped by whomever."""
        deadline = time.monotonic() + timeout_s
        while _state_of(self.pid) not in "TZX":
            assert time.monotonic() < deadline, f"{self.name} does not stop"
            time.sleep(0.002)
        self.is_frozen = True

    def hit_at(self, number: signal.Signals) -> None:
        """Have it stop or kill itself at its next commit; see `log_worker.HIT_SIGNALS`."""
        os.kill(self.pid, number)

    def thaw(self) -> None:
        """SIGCONT: it goes on as if no time had passed."""
        self.is_frozen = False
        if not self.has_ended:
            with suppress(ProcessLookupError):
                os.kill(self.pid, signal.SIGCONT)

    def kill(self) -> None:
        """SIGKILL. It has ended once all that it told is taken in."""
        self.is_frozen = False
        if not self.has_ended:
            with suppress(ProcessLookupError):  # It may have killed itself a moment ago.
                os.kill(self.pid, signal.SIGKILL)

    def count(self, name: str) -> int:
        """How many reports of this name it made."""
        return sum(report.name == name for report in self.reports)

    def let_go(self) -> None:
        """Close the pipes."""
        os.close(self._commands)
        os.close(self.pipe)


class Workers:
    """All workers of one test on one topic; every report of theirs in the order it came."""

    def __init__(self, bootstrap: str, topic: str, folder: Path, **options: Any) -> None:
        self.options = {
            "bootstrap": bootstrap,
            "topic": topic,
            "folder": str(folder),
            "deadline_s": 30.0,
            **options,
        }
        self.folder = folder
        self.all: list[Worker] = []
        self.reports: list[Report] = []
        self.on_report: Callable[[Worker, Report], None] = lambda worker, report: None
        self._selector = selectors.DefaultSelector()

    def start(self, name: str | None = None, **options: Any) -> Worker:
        """A further worker; it may be given commands at once."""
        name = name or f"w{len(self.all)}"
        worker = Worker(name, {**self.options, **options}, self.folder / f"{name}.err")
        self.all.append(worker)
        self._selector.register(worker.pipe, selectors.EVENT_READ, worker)
        return worker

    def pump(self, timeout_s: float = 0.0) -> None:
        """Take in what workers have told; wait for the first of it for so long."""
        for key, _ in self._selector.select(timeout_s):
            self._read(key.data)

    def await_until(self, is_so: Callable[[], bool], timeout_s: float = ANSWER_S_MAX) -> None:
        """Take reports in until it is so."""
        deadline = time.monotonic() + timeout_s
        while not is_so():
            assert time.monotonic() < deadline, f"not within {timeout_s} s\n{self.describe()}"
            self.pump(0.05)
            assert not any(worker.count("failed") for worker in self.all), self.describe()

    def ask(self, worker: Worker, do: str, **arguments: Any) -> dict[str, Any]:
        """Give a command and wait until it is done; what it came to."""
        number = worker.order(do, **arguments)
        self.await_until(lambda: number not in worker.commands)
        for report in reversed(worker.reports):
            if report.name == "done" and report.facts["number"] == number:
                return report.facts
        raise AssertionError(f"{worker.name} ended in {do}: {self.errors_of(worker)}")

    def kill(self, worker: Worker) -> None:
        """SIGKILL, and take in what it had told."""
        worker.kill()
        while not worker.has_ended:
            self._read(worker)

    def finish(self) -> None:
        """Let every worker go on, do what it was told, close its log and end."""
        for worker in self.all:
            if not worker.has_ended:
                worker.thaw()
                worker.order("quit")
        self.await_until(lambda: all(worker.has_ended for worker in self.all))

    def end(self) -> None:
        """Kill what is still there."""
        for worker in self.all:
            self.kill(worker)
            worker.let_go()
        self._selector.close()

    def _read(self, worker: Worker) -> None:
        for report in worker.take_in():
            self.reports.append(report)
            self.on_report(worker, report)
        if worker.has_ended:
            self._selector.unregister(worker.pipe)

    def errors_of(self, worker: Worker) -> str:
        """What it wrote to its standard error."""
        return worker.errors.read_text(errors="replace")[-3_000:]

    def describe(self) -> str:
        """What each is at, for failures."""
        return "\n".join(
            f"{worker.name} (pid {worker.pid}, "
            f"{'dead' if worker.has_ended else 'alive'}{', frozen' if worker.is_frozen else ''}): "
            f"{list(worker.commands.values())[:3]} {self.errors_of(worker)}"
            for worker in self.all
        )

    def count(self, name: str, **facts: Any) -> int:
        """How many reports of this name have these facts."""
        return sum(
            report.name == name and facts.items() <= report.facts.items() for report in self.reports
        )


@contextmanager
def working(bootstrap: str, topic: str, folder: Path, **options: Any) -> Iterator[Workers]:
    """Workers that are all gone at the end."""
    folder.mkdir(parents=True, exist_ok=True)
    workers = Workers(bootstrap, topic, folder, **options)
    try:
        yield workers
    finally:
        workers.end()


def _state_of(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except FileNotFoundError:
        return "X"
