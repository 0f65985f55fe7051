"""`KafkaLog`: the event log in one topic of Apache Kafka, for any number of machines.

Appends go through this handle's one writer thread and its own transactional producer
(`kafka.committer`); claims fence their owner (`kafka.claiming`); everything is read through the
local mirror (`mirror`), which is brought up to date first. What is acknowledged is committed by
the brokers, as durable as the topic's replication makes it.
"""

import atexit
import logging
import os
import threading
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from concurrent.futures import Future
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any, Final, TypeVar
from weakref import WeakSet

from eventlog.codec import EncodedEvent
from eventlog.config import security_in
from eventlog.cut import Cut
from eventlog.errors import LogError, SteplogError
from eventlog.event import LineHead, Restore, SessionResumed
from eventlog.ids import mint_event_id, mint_writer_id
from eventlog.kafka.claiming import Claiming
from eventlog.kafka.client import TopicClient
from eventlog.kafka.committer import KafkaCommitter
from eventlog.kafka.connection import open_client
from eventlog.kafka.errors import faults_as_ours
from eventlog.kafka.mirrored_lines import MirroredLines
from eventlog.kafka.mirrored_reading import MirroredReading
from eventlog.kafka.partitioning import partition_of
from eventlog.kafka.security import KafkaSecurity
from eventlog.kafka.topic_writer import TopicWriter, require_session_name
from eventlog.kafka.uncertain import Wished
from eventlog.keeping.append_rule import Append, require_whole_batch
from eventlog.keeping.awaited import Awaited, Promised
from eventlog.keeping.claims import Claimant, Takeover
from eventlog.keeping.log_writer import LogWriter
from eventlog.keeping.requests import Answer, Request
from eventlog.log import Receipt
from eventlog.mirror import Mirror
from eventlog.recording.session_writer import wall_clock_us

T = TypeVar("T")

APPEND_DEADLINE_S: Final = 30.0
"""An append has its answer by then: longer than brokers take to elect a new leader."""

_BACKSTOP_S: Final = 0.5
"""So much later the writer's watch answers, should the client library not have come back."""

_logger = logging.getLogger("steplog.log")


class _Own:
    """What a handle has in one process: never used in another."""

    def __init__(self, log: "KafkaLog") -> None:
        self.pid = os.getpid()
        self.closed = False
        self.is_let_go = False
        self.writer_id = mint_writer_id()
        self.claimant = Claimant(self.writer_id, log.clock_us, mint_event_id)
        self.client = open_client(log.bootstrap, log.topic, log.security, client=log.client_library)
        self.mirror = Mirror(log.folder, self.client, allow_truncated=log.allow_truncated)
        self.topic = TopicWriter(self.client, self.mirror, self.writer_id, log.place)
        self.committer = KafkaCommitter(
            self.topic,
            MirroredLines(self.mirror),
            self.claimant,
            deadline_s=log.append_deadline_s,
        )
        self.writer = LogWriter(
            self.committer,
            log.append_deadline_s + _BACKSTOP_S,
            wait_deadline_s=log.append_deadline_s,
        )
        self.claiming = Claiming(
            self.client,
            self.mirror,
            self.claimant,
            log.ask,
            self,
            deadline_s=log.append_deadline_s,
        )

    def submit(self, request: Request) -> None:
        """Queue a request. It is served even if the handle is dropped and the process ends."""
        _open_ones.add(self)
        self.writer.submit(request)

    def forget_lines(self, session_ids: Collection[str]) -> None:
        """Whatever is submitted from now on finds these lines forgotten. Does not wait for it."""
        names = tuple(session_ids)
        forget = Request(lambda committer: committer.forget_lines(names), Awaited())
        # A line that is not forgotten costs a question more: its attempt is over.
        with suppress(LogError):
            self.submit(forget)

    def block_sessions(self, wished: Mapping[str, Wished]) -> None:
        """Until they are reconciled; also where the writer's thread is held up by the brokers."""
        self.committer.block_sessions(wished)
        self.forget_lines(wished)

    def close(self) -> None:
        """Serve what was submitted, then let go of everything. Goes on where it was interrupted."""
        self.writer.stop()
        self.mirror.close()
        self.client.close()
        _open_ones.discard(self)
        self.is_let_go = True


class KafkaLog(MirroredReading):
    """A handle on the log in `topic`; its mirror is kept in `folder`. Opening asks no broker.

    Every method that must know the log's end raises `LogUnavailableError` where the brokers do not
    answer in time, and `ConfigError` where they refuse, or have no such topic.
    """

    def __init__(
        self,
        bootstrap: Sequence[str],
        topic: str,
        folder: str | os.PathLike[str],
        *,
        security: KafkaSecurity | None = None,
        client: str = "kafka-python",
        clock: Callable[[], int] = wall_clock_us,
        append_deadline_s: float = APPEND_DEADLINE_S,
        refreshes: bool = True,
        allow_truncated: bool = False,
    ) -> None:
        """`bootstrap` are `host:port`. `clock` gives microseconds since 1970 UTC.

        `refreshes` False: reads show what the mirror holds already. `allow_truncated`: sessions are
        read although the topic has lost its oldest records.
        """
        self.bootstrap = tuple(bootstrap)
        self.topic = topic
        self.folder = Path(os.path.realpath(folder))
        self.security = security
        self.client_library = client
        self.clock_us = clock
        self.append_deadline_s = append_deadline_s
        self.refreshes = refreshes
        self.allow_truncated = allow_truncated
        self._lock = threading.Lock()
        self._own = _Own(self)
        _handles.add(self)

    @property
    def place(self) -> str:
        """Where the log is, for messages."""
        return f"kafka://{','.join(self.bootstrap)}/{self.topic}"

    @property
    def writer_id(self) -> str:
        """The id under which this handle claims sessions."""
        return self._here().writer_id

    @property
    def mirror(self) -> Mirror:
        """The local copy that is read."""
        return self._here().mirror

    @property
    def client(self) -> TopicClient:
        """What asks the brokers."""
        return self._here().client

    @property
    def initialisations(self) -> int:
        """How often this handle's producer was initialised: once, unless it was fenced or lost."""
        return self._here().topic.initialisations

    def submit_events(
        self,
        session_id: str,
        events: Sequence[EncodedEvent],
        *,
        expected_step: int,
        head: LineHead | None = None,
    ) -> Future[Receipt]:
        """Queue an atomic append; a claim is made before this returns."""
        answer: Promised[Receipt] = Promised()
        own = self._here()
        append = _append_of(own, session_id, events, expected_step, head)
        if isinstance(append.events[0].event.body, SessionResumed):
            try:
                answer.set_result(own.claiming.append_claim(append))
            except SteplogError as error:
                answer.set_exception(error)
        else:
            self._submit(own, append, answer)
        return answer

    def append_events(
        self,
        session_id: str,
        events: Sequence[EncodedEvent],
        *,
        expected_step: int,
        head: LineHead | None = None,
    ) -> Receipt:
        """Append all of `events` or none; return only when they are committed."""
        own = self._here()
        append = _append_of(own, session_id, events, expected_step, head)
        if isinstance(append.events[0].event.body, SessionResumed):
            return own.claiming.append_claim(append)
        answer: Awaited[Receipt] = Awaited()
        self._submit(own, append, answer)
        return answer.result()

    def take_over(
        self,
        session_ids: Sequence[str],
        *,
        stands_on: Mapping[str, bytes],
        reason: str,
        heads: Mapping[str, LineHead] | None = None,
        restore: Restore | None = None,
    ) -> dict[str, int]:
        """Claim sessions for this handle. See `kafka.claiming` for how, and what it costs whom."""
        wish = Takeover(tuple(session_ids), dict(stands_on), reason, dict(heads or {}), restore)
        return self._here().claiming.take_over(wish)

    def next_attempt(self, session_id: str) -> int:
        """The attempt that a claim made now must have: above every one that was ever sent."""
        self._refresh_for([session_id])
        self.mirror.reader.require_session(session_id)
        return self._here().claiming.next_attempt(session_id)

    def release(self, session_id: str, to_writer: str | None = None) -> Receipt:
        """Give this handle's claim up: whoever comes claims the session without fencing anyone."""
        receipt: Receipt = self.ask(
            lambda committer: committer.release(session_id, to_writer), (session_id,)
        )
        return receipt

    def settle(self) -> None:
        """Wait for everything submitted through this handle so far."""
        self.ask(lambda _: None)

    def reconcile(self, session_id: str) -> Receipt | None:
        """Resolve an uncertain append; the session takes appends again afterwards."""
        receipt: Receipt | None = self.ask(
            lambda committer: committer.reconcile(session_id), (session_id,), reconciles=True
        )
        return receipt

    def refresh(self) -> Cut:
        """Read everything acknowledged so far into the mirror; the cut it holds then."""
        with faults_as_ours():
            return self._here().mirror.refresh()

    def close(self) -> None:
        """Wait for what was submitted, then let go. Idempotent."""
        with self._lock:
            own = self._own
            if own.is_let_go or own.pid != os.getpid():
                return
            own.closed = True
        own.close()

    def ask(
        self,
        run: Callable[[KafkaCommitter], Any],
        session_ids: tuple[str, ...] = (),
        *,
        reconciles: bool = False,
    ) -> Any:
        """Run something in the writer's thread, after all that was submitted before it."""
        answer: Awaited[Any] = Awaited()
        deadline = time.monotonic() + self.append_deadline_s
        self._here().submit(Request(run, answer, session_ids, 0, reconciles, deadline))
        return answer.result()

    def __reduce__(self) -> tuple[object, ...]:
        # Without the security: it may hold a password, and is found anew where this is opened.
        how = {
            "client": self.client_library,
            "append_deadline_s": self.append_deadline_s,
            "refreshes": self.refreshes,
            "allow_truncated": self.allow_truncated,
        }
        return (_open_again, (self.bootstrap, self.topic, str(self.folder), how))

    def _submit(self, own: _Own, append: Append, answer: Answer) -> None:
        size = append.size_bytes
        own.submit(
            Request(
                partial(_stage, append),
                answer,
                (append.session_id,),
                size,
                False,
                time.monotonic() + self.append_deadline_s,
                append.held_bytes(size),
            )
        )

    def _refresh_for(self, session_ids: Collection[str]) -> None:
        mirror = self._here().mirror
        for session_id in session_ids:
            require_session_name(session_id)
        with faults_as_ours():
            count = mirror.partition_count()
            mirror.refresh({partition_of(session_id, count) for session_id in session_ids})

    def _here(self) -> _Own:
        """What this process has of the handle; made anew in a child of the process that had it."""
        own = self._own
        if own.pid != os.getpid():
            with self._lock:
                own = self._own
                if own.pid != os.getpid():
                    own = self._own = _Own(self)
        if own.closed:
            raise LogError(f"this handle on {self.place} is closed", hint="open the log again")
        return own

    def _forget_parent(self) -> None:
        self._lock = threading.Lock()


def _stage(append: Append, committer: KafkaCommitter) -> Any:
    return committer.stage(append)


def _append_of(
    own: _Own,
    session_id: str,
    events: Sequence[EncodedEvent],
    expected_step: int,
    head: LineHead | None,
) -> Append:
    append = Append(session_id, tuple(events), expected_step, own.writer_id, head)
    require_whole_batch(append)
    return append


def _open_again(
    bootstrap: tuple[str, ...], topic: str, folder: str, how: dict[str, Any]
) -> KafkaLog:
    return KafkaLog(bootstrap, topic, folder, security=security_in(Path(folder)), **how)


_handles: "WeakSet[KafkaLog]" = WeakSet()
_open_ones: set[_Own] = set()
"""Also those whose handle is forgotten already: what was submitted to it is still to be written."""


def _forget_parents() -> None:
    for handle in _handles:
        handle._forget_parent()


def _stop_all() -> None:
    """At exit: what was submitted is written, or reported to whoever still waits; else told."""
    for own in list(_open_ones):
        if own.pid == os.getpid():
            own.writer.stop()
            own.writer.report_unheard()


os.register_at_fork(after_in_child=_forget_parents)
atexit.register(_stop_all)
