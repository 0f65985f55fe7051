"""`Mirror`: a Kafka topic in a local SQLite file, filled as it is read; reading goes through it.

The file holds what the reader's rule made of each committed record, and how far it came, always
written together: it may be stopped or killed at any point, and several processes may share it.
Nothing is in it that is not in the topic, but for records that were deleted there since.
"""

import os
import threading
import time
from collections.abc import Collection, Iterator, Sequence
from pathlib import Path
from typing import Final
from weakref import WeakSet

from eventlog.cut import Cut
from eventlog.errors import LogUnavailableError
from eventlog.kafka.client import TopicClient
from eventlog.keeping.fork_gate import gate
from eventlog.log import Finding, LogRecord
from eventlog.mirroring.catching_up import CatchUp
from eventlog.mirroring.damage import find_mirror_damage
from eventlog.mirroring.file import MirrorFile
from eventlog.mirroring.reader import MirrorReader
from eventlog.mirroring.schema import MIRROR_FORM
from eventlog.mirroring.sent_scan import SentScan
from eventlog.mirroring.source_watch import FIRST_ANSWER_S
from eventlog.mirroring.turns import CLOSE_S, Turn, handle_closed
from eventlog.session_line import ATTEMPT_MAX
from eventlog.sqlite.connection import create_log
from eventlog.sqlite.errors import errors_of
from eventlog.sqlite.network_mount import refuse_network_mount
from eventlog.sqlite.process import never_finalise

FILE_NAME: Final = "mirror.db"
REFRESH_S: Final = 30.0
"""How long a refresh may take, unless told otherwise."""


class _Own:
    """What a handle has in one process: never used in another."""

    def __init__(self, mirror: "Mirror") -> None:
        path, client = mirror.path, mirror.client
        self.pid = os.getpid()
        self.closed = False
        self.reader = MirrorReader(path)
        self.file = MirrorFile(path)
        self.catch_up = CatchUp(
            client, self.file, self.reader, path, allow_truncated=mirror.allow_truncated
        )
        self.scan = SentScan(client, self.file, self.reader, path)
        self.scanning = Turn()
        self.refreshes = 0

    def close(self) -> None:
        self.closed = self.scan.is_over = True
        self.catch_up.close()
        with self.scanning.taken(CLOSE_S) as is_ours:
            if is_ours:
                self.scan.close()
        self.reader.close()
        self.file.close()


class Mirror:
    """A handle on the mirror of the client's topic in `folder`. Thread-safe; asks nobody to open.

    Reading answers from what is mirrored; `refresh` brings it up to date. After a fork the child's
    first use gives it connections of its own.
    """

    def __init__(
        self, folder: str | os.PathLike[str], client: TopicClient, *, allow_truncated: bool = False
    ) -> None:
        """Opens `mirror.db` in the folder; both are made where missing. The client stays open.

        `allow_truncated`: go on without records that were deleted from the topic before they were
        read; sessions whose head is gone can then not be read. Raises as opening a log does.
        """
        self.folder = Path(os.path.realpath(folder))
        self.path = self.folder / FILE_NAME
        self.client = client
        self.allow_truncated = allow_truncated
        self._lock = threading.Lock()
        with errors_of(self.path):
            self.folder.mkdir(parents=True, exist_ok=True)
            refuse_network_mount(self.folder)
            if not self.path.exists():
                with gate.use():
                    create_log(self.path, MIRROR_FORM)
        self._own = _Own(self)
        _handles.add(self)

    @property
    def reader(self) -> MirrorReader:
        """The mirror read as a log; offsets are local."""
        return self._here().reader

    @property
    def records_read(self) -> int:
        """How many records this handle has fetched and stored."""
        return self._here().catch_up.records_read

    @property
    def refreshes(self) -> int:
        """How often this handle has asked the brokers for the end of partitions."""
        return self._here().refreshes

    @property
    def has_reached_brokers(self) -> bool:
        """Whether any broker ever answered this handle."""
        return self._here().catch_up.watch.has_answered

    def refresh(
        self, partitions: Collection[int] | None = None, *, timeout_s: float | None = None
    ) -> Cut:
        """Read these partitions (None: all) up to the ends they have now; the mirror's cut then.

        Everything that was acknowledged before the call is there after it. Threads that ask at once
        share what is fetched. Raises `LogUnavailableError` naming what is missing at the deadline,
        `TopicChangedError` where the topic is not the one that is mirrored, `UnknownSchemaError` or
        `UnknownKindError` where a newer steplog wrote; what was read until then stays.

        `timeout_s` None: `REFRESH_S`; but 10 s where no broker ever answered this handle.
        """
        own, now = self._here(), time.monotonic()
        own.refreshes += 1
        if timeout_s is None:
            own.catch_up.run(partitions, now + REFRESH_S, now + FIRST_ANSWER_S)
        else:
            own.catch_up.run(partitions, now + timeout_s)
        return self.cut()

    def cut(self) -> Cut:
        """How far each partition is mirrored: past markers and aborted records too."""
        positions = self._here().reader.positions()
        return Cut({part: position.next for part, position in positions.items()})

    def partition_count(self, timeout_s: float = REFRESH_S) -> int:
        """How many partitions the topic has; the brokers are asked if they were not lately."""
        own = self._here()
        source = own.reader.source()
        if source is None:
            with own.catch_up.watch.faults():
                own.catch_up.watch.identify(time.monotonic() + timeout_s)
            source = own.reader.source()
        assert source is not None, "it was begun"
        return source.partition_count

    def require_same_topic(self, timeout_s: float = REFRESH_S) -> None:
        """Ask now whether the topic is the one that is mirrored: one short question.

        Raises `TopicChangedError` where it was made anew, has other partitions or is gone, and
        `LogUnavailableError` where nobody answers. Any thread, beside refreshes too.
        """
        watch = self._here().catch_up.watch
        with watch.faults():
            watch.identify(time.monotonic() + timeout_s)

    def log_starts(
        self, partitions: Collection[int], timeout_s: float = REFRESH_S
    ) -> dict[int, int]:
        """The offset at which each of these partitions begins now; what lay before was deleted.

        Raises `LogUnavailableError`. Any thread.
        """
        return self._here().catch_up.log_starts(partitions, time.monotonic() + timeout_s)

    def place_of(self, local: int) -> tuple[int, int]:
        """The partition and offset in the topic of the accepted event at a local offset."""
        return self._here().reader.place_of(local)

    def placed(self, records: Iterator[LogRecord]) -> Iterator[LogRecord]:
        """Records read at local offsets, each with its partition and its offset there."""
        return self._here().reader.placed(records)

    def session_records(self, session_id: str) -> Iterator[LogRecord]:
        """Every committed record of the session, accepted or not, in the topic's order.

        Raises `SessionNotFoundError`.
        """
        return self._here().reader.session_records(session_id)

    def tail(self, cut: Cut, end: Cut) -> Iterator[LogRecord]:
        """Every committed record that is an event from `cut` to `end`, partition by partition."""
        return self._here().reader.tail_between(cut, end)

    def highest_attempt(
        self, session_id: str, partition: int, *, timeout_s: float = REFRESH_S
    ) -> int:
        """The highest attempt that was ever sent for the session, committed or not; 0 if none.

        One above `ATTEMPT_MAX` can never stand, and does not count: claims stay possible.
        Reads what is new in the partition uncommitted too. Raises `LogUnavailableError`.
        """
        own, deadline = self._here(), time.monotonic() + timeout_s
        above = self._scan(own, session_id, partition, deadline)
        line = own.reader.find_line(session_id)
        refused = () if line is None else own.reader.skipped_events(session_id, line)
        aborted = own.reader.aborted(session_id, partition)
        sent = [each.attempt or 0 for each in (*refused, *aborted)]
        highest = max((each for each in sent if each <= ATTEMPT_MAX), default=0)
        return max(above, highest, 0 if line is None else line.attempt)

    def aborted_claims(
        self, session_id: str, partition: int, after_offset: int, *, timeout_s: float = REFRESH_S
    ) -> int:
        """How many claims of the session after that offset were sent and surely never commit."""
        own = self._here()
        self._scan(own, session_id, partition, time.monotonic() + timeout_s)
        return sum(
            each.kind == "session_resumed" and each.offset > after_offset
            for each in own.reader.aborted(session_id, partition)
        )

    def find_damage(self, session_ids: Sequence[str] | None = None) -> Iterator[Finding]:
        """Re-hash and cross-check what is stored, and judge every record again."""
        return find_mirror_damage(self._here().reader, self.path, session_ids)

    def close(self) -> None:
        """Let go of files and connections. Idempotent."""
        with self._lock:
            own = self._own
            if own.closed or own.pid != os.getpid():
                return
            own.close()

    def __enter__(self) -> "Mirror":
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    def _scan(self, own: _Own, session_id: str, partition: int, deadline: float) -> int:
        with own.scanning.taken(deadline - time.monotonic()) as is_ours:
            if not is_ours:
                raise LogUnavailableError(
                    "another thread is still scanning the topic for attempts", hint="try again"
                )
            try:
                return own.scan.attempts_above(session_id, partition, deadline)
            finally:
                if own.closed:
                    own.scan.close()

    def _here(self) -> _Own:
        """What this process has of the handle; made anew in a child of the process that had it."""
        own = self._own
        if own.pid != os.getpid():
            with self._lock:
                own = self._own
                if own.pid != os.getpid():
                    own = self._own = _Own(self)
        if own.closed:
            raise handle_closed(self.path)
        return own

    def _forget_parent(self) -> None:
        own = self._own
        never_finalise((*own.reader.left_behind(), *own.file.left_behind()))
        own.catch_up.left_behind()
        self._lock = threading.Lock()


_handles: "WeakSet[Mirror]" = WeakSet()


def _forget_parents() -> None:
    for handle in _handles:
        handle._forget_parent()


os.register_at_fork(after_in_child=_forget_parents)
