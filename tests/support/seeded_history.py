"""A history of several writing processes on one topic, made from a seed, with faults in it.

The seed decides what is done, to whom, and when to wait; the processes and the brokers decide how
it falls out. So a seed that failed may pass when it is run again, and is then worth many tries.
"""

import random
import time
from collections import Counter
from collections.abc import Callable
from typing import NamedTuple

from tests.support.brokers import Broker
from tests.support.log_workers import Report, Worker, Workers

TRANSACTION_TIMEOUT_S = 1.0
"""After which brokers abort a transaction that was left open; a real one waits longer."""

DEADLINES_S = (2.0, 4.0, 8.0, 8.0)
"""Of the workers' appends: some pass while a process is stopped."""

WORKERS = 4
FROZEN_MAX = 2
SESSIONS_MAX = 14
COMMANDS_WAITING_MAX = 3
FREE_MIN = 2
FREE_S_MAX = 3.0
"""An act waits so long for so many workers that have little to do."""


class Thaw(NamedTuple):
    """When a stopped process goes on: at a time, and once a command of another one is done."""

    worker: Worker
    at: float
    other: Worker | None
    command: int


class Course:
    """The workers of a history and what they are at: who is free, frozen, or to be replaced."""

    def __init__(self, workers: Workers, seed: int, broker: Broker | None = None) -> None:
        self.rng = random.Random(seed)
        self.workers = workers
        self.broker = broker
        self.faults: Counter[str] = Counter()
        self.acts: list[str] = []
        self.sessions: list[str] = []
        self.owners: dict[str, Worker] = {}
        """Who was last told that it owns a session, as far as is known."""
        self.thaws: list[Thaw] = []
        self.broker_thaws_at = 0.0
        self.began_at = time.monotonic()
        workers.on_report = self._note
        self.live = [self._start() for _ in range(WORKERS)]

    def describe(self) -> str:
        """The acts with their times, and where the workers are."""
        return "\n".join([*self.acts, self.workers.describe()])

    def _busy(self, worker: Worker) -> None:
        """Give it something to be doing when it is hit."""
        own = [each for each, owner in self.owners.items() if owner is worker]
        if own:
            sessions = self.rng.sample(own, min(len(own), 3))
            self._order(worker, "append", sessions=sessions, batches=[1, 1, 2, 1, 1])
            self._go_on(self.rng.uniform(0, 0.02))

    def _see_to_thaw(self, worker: Worker) -> None:
        """When it goes on: soon, after its transactions timed out, or after another's claim."""
        now = time.monotonic()
        others = self._free_workers()
        own = [each for each, owner in self.owners.items() if owner is worker]
        choice = self.rng.random()
        if choice < 0.5 and others and own:
            other = self.rng.choice(others)
            self.faults["zombie"] += 1
            command = self._order(other, "claim", sessions=own[:4])
            self._order(other, "append", sessions=own[:4], batches=[1, 1])
            self.thaws.append(Thaw(worker, now + 0.05, other, command))
        elif choice < 0.65:
            self.faults["stopped past the transaction's time"] += 1
            self.thaws.append(Thaw(worker, now + TRANSACTION_TIMEOUT_S + 1.2, None, 0))
        else:
            self.thaws.append(Thaw(worker, now + self.rng.uniform(0.02, 0.6), None, 0))
        self._note_act(f"{worker.name} is stopped: {self.thaws[-1][1:]}")

    def _note(self, worker: Worker, report: Report) -> None:
        """A worker told something: who owns what, and whether it is about to stop or to end."""
        facts = report.facts
        if report.name == "written" and facts["digests"]:
            self.owners[facts["session"]] = worker
            if facts["session"] not in self.sessions:
                self.sessions.append(facts["session"])
        elif report.name == "claimed":
            self.owners.update(dict.fromkeys(facts["attempts"], worker))
        elif report.name == "done" and "released" in facts:
            self.owners.pop(facts["released"], None)
        elif report.name == "hit":
            self.faults[f"{facts['how']} when {facts['moment']}"] += 1
            if facts["how"] == "stop":
                worker.await_stop()
                self._see_to_thaw(worker)

    def _go_on(self, for_s: float) -> None:
        """Take reports in for so long, and continue whoever's time has come."""
        until = time.monotonic() + for_s
        while True:
            self.workers.pump(min(0.01, max(0.0, until - time.monotonic())))
            self._continue()
            if time.monotonic() >= until:
                return

    def _await_free_workers(self) -> None:
        until = time.monotonic() + FREE_S_MAX
        while len(self._free_workers()) < FREE_MIN and time.monotonic() < until:
            self._go_on(0.01)

    def _continue(self) -> None:
        now = time.monotonic()
        if self.broker is not None and 0 < self.broker_thaws_at <= now:
            self.broker.thaw()
            self.broker_thaws_at = 0.0
        for thaw in list(self.thaws):
            waits = thaw.other is not None and thaw.command in thaw.other.commands
            if now >= thaw.at and not (waits and now < thaw.at + 5):
                self.thaws.remove(thaw)
                self._note_act(f"{thaw.worker.name} goes on")
                thaw.worker.thaw()
        for worker in self.live:
            if worker.has_ended:
                self._replace(worker)

    def _calm_down(self) -> None:
        """No more faults: everybody goes on, and answers what it was told to do."""
        self._note_act("no more faults")
        self.workers.await_until(self._is_calm)

    def _is_calm(self) -> bool:
        self._continue()
        return not self.thaws and not any(worker.commands for worker in self.live)

    def _start(self) -> Worker:
        options = {
            "deadline_s": self.rng.choice(DEADLINES_S),
            "transaction_timeout_ms": int(TRANSACTION_TIMEOUT_S * 1_000),
        }
        return self.workers.start(**options)

    def _replace(self, worker: Worker) -> None:
        self._note_act(f"{worker.name} has ended")
        self.thaws = [each for each in self.thaws if each.worker is not worker]
        self.live[self.live.index(worker)] = self._start()

    def _order(self, worker: Worker, do: str, **arguments: object) -> int:
        self._note_act(f"{worker.name}: {do} {arguments}")
        return worker.order(do, **arguments)

    def _note_act(self, what: str) -> None:
        self.acts.append(f"{time.monotonic() - self.began_at:8.3f} {what}")

    def _free_workers(self) -> list[Worker]:
        return [
            each
            for each in self.live
            if not each.is_frozen
            and not each.has_ended
            and len(each.commands) < COMMANDS_WAITING_MAX
        ]

    def _free_worker(self) -> Worker | None:
        free = self._free_workers()
        return self.rng.choice(free) if free else None

    def _session(self) -> str | None:
        return self.rng.choice(self.sessions) if self.sessions else None

    def _owned(self) -> str | None:
        """A session whose owner is there and not stopped."""
        free = self._free_workers()
        found = [each for each, owner in self.owners.items() if owner in free]
        return self.rng.choice(found) if found else None


class History(Course):
    """One history. `faults` counts what was done to whom, `acts` is the list of all, for failures.

    `broker`: a broker of this history's own, which is frozen now and then too.
    """

    def run(self, acts: int, faults: int) -> None:
        """So many random acts, and more until so many faults; then one worker claims everything."""
        self.workers.await_until(lambda: all(each.writers for each in self.live))
        for _ in range(2 * WORKERS):
            self._begin_session()
        self.workers.await_until(self._is_calm)
        while acts > 0 or self.faults.total() < faults:
            acts -= 1
            self._go_on(self.rng.choice((0.0, 0.0, 0.01, 0.03, 0.1)))
            self._await_free_workers()
            self._act()
        self._calm_down()
        self._claim_everything()

    def _act(self) -> None:
        acts: list[tuple[int, Callable[[], None]]] = [
            (4, self._begin_session),
            (30, self._append),
            (6, self._release),
            (5, self._claim),
            (5, self._claim_from_the_healthy),
            (4, self._rival_claims),
            (3, self._rewind),
            (4, self._resume),
            (2, self._close_session),
            (2, self._close_handle),
            (6, self._freeze),
            (3, self._kill),
            (10, self._arm),
            (3 if self.broker is not None else 0, self._freeze_broker),
        ]
        weights, choices = zip(*acts, strict=True)
        self.rng.choices(choices, weights)[0]()

    def _begin_session(self) -> None:
        worker = self._free_worker()
        if worker is None or len(self.sessions) >= SESSIONS_MAX:
            return
        kind = self.rng.choice(("minted", "minted", "given", "unowned", "branch"))
        if kind == "minted":
            self._order(worker, "seed", kind=kind)
            return
        session = f"{kind}-{len(self.sessions)}"
        parent = self.rng.choice(self.sessions) if self.sessions else ""
        if kind == "branch" and not parent:
            return
        self.sessions.append(session)
        free = self._free_workers()
        for each in self.rng.sample(free, min(len(free), self.rng.choice((1, 1, 2)))):
            self._order(each, "seed", kind=kind, session=session, parent=parent)

    def _append(self) -> None:
        worker = self._free_worker()
        if worker is None or not self.sessions:
            return
        own = [each for each, owner in self.owners.items() if owner is worker]
        among = own if own and self.rng.random() < 0.9 else self.sessions
        sessions = self.rng.sample(among, min(len(among), self.rng.choice((1, 1, 2, 5))))
        batches = [self.rng.choice((1, 1, 2, 7)) for _ in range(self.rng.choice((1, 3, 8)))]
        self._order(worker, "append", sessions=sessions, batches=batches)

    def _release(self) -> None:
        session = self._owned()
        if session is not None:
            self._order(self.owners[session], "release", session=session)

    def _claim(self) -> None:
        worker = self._free_worker()
        if worker is not None and self.sessions:
            sessions = self.rng.sample(self.sessions, min(len(self.sessions), 2))
            self._order(worker, "claim", sessions=sessions, careful=self.rng.random() < 0.9)

    def _claim_from_the_healthy(self) -> None:
        session = self._owned()
        others = [each for each in self._free_workers() if each is not self.owners.get(session)]
        if session is not None and others:
            self.faults["claim on a healthy writer"] += 1
            self._order(self.owners[session], "append", sessions=[session], batches=[1] * 12)
            self._order(self.rng.choice(others), "claim", sessions=[session])

    def _rival_claims(self) -> None:
        rivals = self._free_workers()
        session = self._session()
        if session is None or len(rivals) < 2:
            return
        self.faults["two claimants at once"] += 1
        if session in self.owners and self.rng.random() < 0.6:
            self._order(self.owners[session], "release", session=session)
        for each in rivals:
            self._order(each, "claim", sessions=[session])
            self._order(each, "append", sessions=[session], batches=[1, 2])

    def _rewind(self) -> None:
        worker, session = self._free_worker(), self._session()
        if worker is not None and session is not None:
            careful = self.rng.random() < 0.5
            self._order(worker, "claim", sessions=[session], rewind=True, careful=careful)

    def _resume(self) -> None:
        worker, session = self._free_worker(), self._session()
        if worker is not None and session is not None:
            self._order(worker, "resume", session=session, count=self.rng.randrange(3))

    def _close_session(self) -> None:
        session = self._owned()
        if session is not None:
            self._order(self.owners[session], "close", session=session)

    def _close_handle(self) -> None:
        worker = self._free_worker()
        if worker is not None:
            self.faults["handle closed without waiting"] += 1
            sessions = [each for each, owner in self.owners.items() if owner is worker][:3]
            self._order(worker, "close_handle", sessions=sessions, count=5)

    def _freeze(self) -> None:
        worker = self._free_worker()
        if worker is None or len(self.thaws) >= FROZEN_MAX:
            return
        self.faults["stopped at any moment"] += 1
        self._busy(worker)
        worker.freeze()
        self._see_to_thaw(worker)

    def _kill(self) -> None:
        worker = self._free_worker()
        if worker is None:
            return
        self._busy(worker)
        self._go_on(self.rng.uniform(0, 0.05))
        if worker not in self.live:
            return  # It was armed, and has killed itself meanwhile.
        self.faults["killed at any moment"] += 1
        self._note_act(f"kill {worker.name}")
        self.workers.kill(worker)
        self._replace(worker)

    def _arm(self) -> None:
        worker = self._free_worker()
        if worker is None:
            return
        moment = self.rng.choice(("sent", "sent", "committed"))
        how = self.rng.choice(("stop", "stop", "kill"))
        claims_only = self.rng.random() < 0.4
        self._order(worker, "arm", moment=moment, how=how, claims_only=claims_only)
        session = self._session()
        if claims_only and session is not None:
            self._order(worker, "claim", sessions=[session])
        else:
            self._busy(worker)

    def _freeze_broker(self) -> None:
        assert self.broker is not None
        if not self.broker_thaws_at:
            self.faults["broker stopped"] += 1
            self._note_act("freeze the broker")
            self.broker.freeze()
            self.broker_thaws_at = time.monotonic() + self.rng.choice((0.2, 0.8, 2.5))

    def _claim_everything(self) -> None:
        """One worker takes all sessions over and goes on with them: nothing was left stuck."""
        worker = self._start()
        self.live.append(worker)
        for session in self.sessions:
            self._order(worker, "claim", sessions=[session])
            self._order(worker, "append", sessions=[session], batches=[1, 1])
        self.workers.await_until(self._is_calm)
