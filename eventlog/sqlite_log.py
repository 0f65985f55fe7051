"""`SqliteLog`: the event log in one SQLite file, for one machine and any number of processes.

Appends go to the process's one writer thread (`keeping.log_writer`), reads through connections of
their own (`sqlite.reader`). What is durable survives the process and the operating system. Handles
are cheap; after a fork the child's first use gives it a writer id and connections of its own, and
pickling carries only the path.
"""

import os
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from pathlib import Path
from typing import TypeVar
from weakref import WeakSet

from eventlog.codec import EncodedEvent
from eventlog.cut import Cut
from eventlog.errors import LogError
from eventlog.event import LineHead, Restore
from eventlog.ids import mint_event_id, mint_writer_id
from eventlog.keeping.append_rule import Append, require_whole_batch
from eventlog.keeping.awaited import Awaited, Promised
from eventlog.keeping.claims import Claimant, Takeover
from eventlog.keeping.fork_gate import gate
from eventlog.keeping.kept_records import read_kept
from eventlog.keeping.kept_rows import PARTITION, require_group_name
from eventlog.keeping.line_plan import plan_line
from eventlog.keeping.line_reading import read_plan
from eventlog.keeping.line_writing import append_events, release, take_over
from eventlog.keeping.log_writer import COMMIT_DEADLINE_S
from eventlog.keeping.requests import Answer, Request
from eventlog.log import EventLog, Finding, LogRecord, Receipt, SessionFilter, SessionInfo
from eventlog.sqlite.connection import create_log
from eventlog.sqlite.damage import find_log_damage
from eventlog.sqlite.errors import errors_of
from eventlog.sqlite.network_mount import refuse_network_mount
from eventlog.sqlite.process import give_back_writer, never_finalise, share_writer
from eventlog.sqlite.reader import SqliteReader
from eventlog.sqlite.store import SqliteStore

T = TypeVar("T")


def wall_clock_us() -> int:
    """Microseconds since 1970 UTC."""
    return time.time_ns() // 1_000


class _Own:
    """What a handle has in one process: never used in another."""

    def __init__(self, path: Path, commit_deadline_s: float) -> None:
        self.pid = os.getpid()
        self.writer_id = mint_writer_id()
        self.reader = SqliteReader(path)
        self.writer = share_writer(path, commit_deadline_s)
        self.closed = False


class SqliteLog(EventLog):
    """A handle on the log at `path`; the file is made where missing, its folder is not.

    Raises `ConfigError` (network file system, another program's database),
    `IncompatibleSchemaError` (a newer format), `EventCorruptError` (damaged) and
    `LogUnavailableError` (cannot be read or made), each naming the path.
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        *,
        clock: Callable[[], int] = wall_clock_us,
        commit_deadline_s: float = COMMIT_DEADLINE_S,
    ) -> None:
        """`clock` gives microseconds since 1970 UTC, for the events the log makes itself.

        A commit that takes longer than `commit_deadline_s` is answered `AppendUncertainError`; of
        several handles in a process, the shortest counts.
        """
        self._path = Path(os.path.realpath(path))
        self._clock = clock
        self._commit_deadline_s = commit_deadline_s
        self._lock = threading.Lock()
        with errors_of(self._path):
            refuse_network_mount(self._path.parent)
            if not self._path.exists():
                with gate.use():
                    create_log(self._path)
        self._own = _Own(self._path, commit_deadline_s)
        _handles.add(self)

    @property
    def path(self) -> Path:
        """Where the log lies, links resolved."""
        return self._path

    @property
    def writer_id(self) -> str:
        """The id under which this handle claims sessions."""
        return self._here().writer_id

    def submit_events(
        self,
        session_id: str,
        events: Sequence[EncodedEvent],
        *,
        expected_step: int,
        head: LineHead | None = None,
    ) -> Future[Receipt]:
        """Queue an atomic append; the future ends when it is durable, or refused."""
        answer: Promised[Receipt] = Promised()
        self._submit_append(session_id, events, expected_step, head, answer)
        return answer

    def append_events(
        self,
        session_id: str,
        events: Sequence[EncodedEvent],
        *,
        expected_step: int,
        head: LineHead | None = None,
    ) -> Receipt:
        """Append all of `events` or none; return only when they are durable."""
        answer: Awaited[Receipt] = Awaited()
        self._submit_append(session_id, events, expected_step, head, answer)
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
        """Claim sessions for this handle, all in one commit."""
        wanted = tuple(session_ids)
        wish = Takeover(wanted, dict(stands_on), reason, dict(heads or {}), restore)
        claimant = self._claimant()
        return self._ask(lambda store: take_over(store, wish, claimant), wanted)

    def release(self, session_id: str, to_writer: str | None = None) -> Receipt:
        """Give this handle's claim up."""
        claimant = self._claimant()
        return self._ask(
            lambda store: release(store, session_id, to_writer, claimant), (session_id,)
        )

    def settle(self) -> None:
        """Wait for everything submitted through this handle so far."""
        self._ask(lambda _: None)

    def reconcile(self, session_id: str) -> Receipt | None:
        """Resolve an uncertain append; the session takes appends again afterwards."""
        committer = self._here().writer.committer
        return self._ask(
            lambda store: committer.reconcile(store, session_id), (session_id,), reconciles=True
        )

    def read_session(
        self,
        session_id: str,
        start_step: int = 0,
        end_step: int | None = None,
        *,
        through: bytes | None = None,
    ) -> Iterator[LogRecord]:
        """The standing line's records, or those of the chain that ends in `through`."""
        reader = self._here().reader
        return read_plan(reader, plan_line(reader, session_id, through), start_step, end_step)

    def read_records(self, session_id: str) -> Iterator[LogRecord]:
        """Every record kept for the session's own line, in log order."""
        reader = self._here().reader
        return read_kept(reader, reader.require_session(session_id))

    def tail_events(self, cut: Cut) -> Iterator[LogRecord]:
        """Every record from `cut` to the present end."""
        return self._here().reader.tail(cut.end(PARTITION))

    def end_cut(self) -> Cut:
        """The cut that covers every event acknowledged so far."""
        return Cut({PARTITION: self._here().reader.log_end().events})

    def commit_cut(self, group: str, cut: Cut) -> None:
        """Remember how far `group` has come."""
        require_group_name(group)
        self._ask(lambda store: store.put_cut(group, cut))

    def committed_cut(self, group: str) -> Cut:
        """The last cut committed by `group`."""
        return self._here().reader.cut_of(group)

    def list_sessions(self, where: SessionFilter | None = None) -> Iterator[SessionInfo]:
        """Sessions that pass the filter, in the order they began."""
        return self._here().reader.list_sessions(where)

    def session_info(self, session_id: str) -> SessionInfo:
        """One session, its head held against the event it names."""
        return self._here().reader.session_info(session_id)

    def session_ids(self) -> Iterator[str]:
        """The ids in all head rows that are sound."""
        return self._here().reader.session_ids()

    def find_damage(self, session_ids: Sequence[str] | None = None) -> Iterator[Finding]:
        """Re-hash and cross-check what is stored."""
        return find_log_damage(self._here().reader, self._path, session_ids)

    def close(self) -> None:
        """Wait for what was submitted, then let go. Idempotent; other handles stay open."""
        with self._lock:
            own = self._own
            if own.closed or own.pid != os.getpid():
                return
            own.closed = True
        own.reader.close()
        give_back_writer(self._path)

    def __reduce__(self) -> tuple[object, ...]:
        return (SqliteLog, (str(self._path),))

    def _claimant(self) -> Claimant:
        return Claimant(self._here().writer_id, self._clock, mint_event_id)

    def _submit_append(
        self,
        session_id: str,
        events: Sequence[EncodedEvent],
        expected_step: int,
        head: LineHead | None,
        answer: Answer,
    ) -> None:
        own = self._here()
        append = Append(session_id, tuple(events), expected_step, own.writer_id, head)
        require_whole_batch(append)
        own.writer.submit(
            Request(
                lambda store: append_events(store, append),
                answer,
                (session_id,),
                append.size_bytes,
            )
        )

    def _ask(
        self,
        run: Callable[[SqliteStore], T],
        session_ids: tuple[str, ...] = (),
        *,
        reconciles: bool = False,
    ) -> T:
        answer: Awaited[T] = Awaited()
        self._here().writer.submit(Request(run, answer, session_ids, 0, reconciles))
        return answer.result()

    def _here(self) -> _Own:
        """What this process has of the handle; made anew in a child of the process that had it."""
        own = self._own
        if own.pid != os.getpid():
            with self._lock:
                own = self._own
                if own.pid != os.getpid():
                    own = self._own = _Own(self._path, self._commit_deadline_s)
        if own.closed:
            raise LogError(f"this handle on {self._path} is closed", hint="open the log again")
        return own

    def _forget_parent(self) -> None:
        never_finalise(self._own.reader.left_behind())
        self._lock = threading.Lock()


_handles: "WeakSet[SqliteLog]" = WeakSet()


def _forget_parents() -> None:
    for handle in _handles:
        handle._forget_parent()


os.register_at_fork(after_in_child=_forget_parents)
