"""`CatchUp`: reads a topic into its mirror, up to an end asked for after the question was put.

Everything that was acknowledged before is read then, whatever other transactions are open: the end
is the high watermark, and only what is committed is read. What comes is checked against the topic's
identity after it was fetched, and before any of it is stored: a topic that was deleted and made
again would be read on silently.

Any number of threads may want something; whoever's turn it is fetches for all of them, so that none
waits for what holds another one back.
"""

import time
from collections.abc import Collection, Mapping
from hashlib import sha256
from pathlib import Path
from typing import Final

from eventlog.errors import (
    LogUnavailableError,
    SchemaError,
    SteplogError,
    TopicChangedError,
)
from eventlog.kafka.client import TopicClient, TopicReader, TopicRecord
from eventlog.kafka.client_errors import BrokersUnavailable, OffsetOutOfRange, RecordsCorrupt
from eventlog.mirroring.file import MirrorFile
from eventlog.mirroring.ingest import Fetched
from eventlog.mirroring.reader import MirrorReader
from eventlog.mirroring.source_watch import LEAST_S, RETRY_S, SourceWatch, ask
from eventlog.mirroring.store import MovedError
from eventlog.mirroring.topic_check import (
    another_record,
    corrupt_fetch,
    require_ends_reached,
    require_partitions,
    truncated,
)
from eventlog.mirroring.turns import CLOSE_S, FetchTurns

BATCH_RECORDS: Final = 4_096
"""So many records, or about so many bytes, are stored in one transaction, if they are there."""
BATCH_BYTES: Final = 8 * 1024 * 1024
FETCH_S: Final = 0.1
"""How long a fetch waits for something to come; who comes meanwhile waits for the next one."""
_MORE_S: Final = 0.02
_LOOK_S: Final = 0.01
_CORRUPT_TRIES: Final = 3

Behind = Mapping[int, tuple[int, int]]
"""Partitions that are not at their ends: each with its position and its end."""


class CatchUp:
    """Reads one topic into one mirror. Thread-safe; raises errors of ours only."""

    def __init__(
        self,
        client: TopicClient,
        file: MirrorFile,
        reader: MirrorReader,
        path: Path,
        *,
        allow_truncated: bool,
    ) -> None:
        self.records_read = 0
        """How many records this handle has fetched and stored."""
        self._client = client
        self._file = file
        self._reader = reader
        self._folder = path.parent
        self._allow_truncated = allow_truncated
        self._turns = FetchTurns(path)
        self.watch = SourceWatch(client, file, reader, path.parent)
        # What follows is used by the thread whose turn it is.
        self._topic = client.open_reader(committed=True)
        self._proven: set[int] = set()
        """Partitions whose last mirrored record was compared with the topic's by this handle."""
        self._overlap: dict[int, tuple[int, bytes]] = {}
        """Of the others: the last record, which is read once more."""
        self._stopped: dict[int, SteplogError] = {}
        """Partitions that are not read on, and why."""
        self._fault: BrokersUnavailable | None = None
        self._corrupt_tries = 0

    def run(
        self, partitions: Collection[int] | None, deadline: float, first_by: float | None = None
    ) -> None:
        """Read these partitions (None: all) to the ends that they have now.

        Where no broker ever answered this handle, none is waited for after `first_by`.

        Raises `LogUnavailableError` at the deadline (what was read stays), `TopicChangedError`, and
        `SchemaError` where an event of a newer steplog is in the way.
        """
        with self.watch.faults():
            source = self.watch.current(deadline, first_by)
            parts = range(source.partition_count) if partitions is None else sorted(partitions)
            require_partitions(parts, source.partition_count, source.topic)
            ends = self._ends_now(parts, deadline)
            if not self._missing(ends):
                return
            with self._turns.wanting(parts):
                self._read_to(ends, deadline)

    def log_starts(self, partitions: Collection[int], deadline: float) -> dict[int, int]:
        """The offsets at which these partitions begin now."""
        with self.watch.faults():
            return ask(lambda left_s: self._topic.log_starts(partitions, left_s), deadline)

    def close(self) -> None:
        """Let go of connections and of the lock file; who still uses them does, when it ends."""
        self._turns.close()
        with self._turns.thread_turn(CLOSE_S) as is_ours:
            if is_ours:
                self._topic.close()

    def left_behind(self) -> None:
        """In a forked child."""
        self._turns.left_behind()

    def _ends_now(self, parts: Collection[int], deadline: float) -> dict[int, int]:
        """The ends of partitions. Raises `TopicChangedError` where one lies before what was read.

        Only what was read before the question is held against its answer: others on this file read
        on meanwhile, past ends that are older than their own.
        """
        self._turns.require_open()
        positions = self._reader.positions()
        ends = ask(lambda left_s: self._topic.high_watermarks(parts, left_s), deadline)
        if any(end < positions[part].next for part, end in ends.items()):
            self.watch.identify(deadline)
            require_ends_reached(self._client.topic, positions, ends, self._folder)
        return ends

    def _missing(self, ends: Mapping[int, int]) -> dict[int, tuple[int, int]]:
        """Partitions that are not at their ends, or not proven yet."""
        positions = self._reader.positions()
        return {
            part: (positions[part].next, end)
            for part, end in ends.items()
            if positions[part].next < end or part not in self._proven
        }

    def _read_to(self, ends: Mapping[int, int], deadline: float) -> None:
        tries = 0
        while behind := self._missing(ends):
            left_s = deadline - time.monotonic()
            # Who has no time left still gets what is there at once.
            if tries and left_s <= 0:
                raise _late(self._client.topic, behind, self._fault)
            with self._turns.thread_turn(min(left_s, FETCH_S * 2)) as is_ours:
                if is_ours:
                    if not tries:
                        self._try_again(ends)
                    if self._is_over(ends):
                        return
                    self._step_unless_closed(ends, deadline)
            tries += 1

    def _step_unless_closed(self, ends: Mapping[int, int], deadline: float) -> None:
        try:
            self._step(ends, deadline)
        finally:
            if self._turns.is_closed:
                self._topic.close()

    def _try_again(self, parts: Collection[int]) -> None:
        """What stopped these partitions before may be gone."""
        for part in parts:
            self._stopped.pop(part, None)
        self._fault, self._corrupt_tries = None, 0

    def _is_over(self, ends: Mapping[int, int]) -> bool:
        """Whether nothing is left to be read. Raises what stopped one of these partitions.

        An event of a newer steplog stops its own partition only: the others are read first.
        """
        stopped = {part: self._stopped[part] for part in ends if part in self._stopped}
        left = self._missing(ends).keys() - stopped.keys()
        for error in stopped.values():
            if not left or not isinstance(error, SchemaError):
                raise error
        return not left

    def _step(self, ends: Mapping[int, int], deadline: float) -> None:
        """Fetch once, for all who want something, and store what came."""
        wanted = self._turns.wanted() - self._stopped.keys()
        self._prove(wanted, deadline)
        if not self._turns.is_ours(self._reader.positions):
            time.sleep(_LOOK_S)
            return
        self._seek(wanted)
        try:
            fetched = self._checked(_fetch(self._topic, ends, deadline), deadline)
        except BrokersUnavailable as fault:
            self._fault = fault
            self.watch.doubt()
            time.sleep(RETRY_S)
        except RecordsCorrupt as damage:
            self._corrupt_tries += 1
            self._topic.seek({})
            if self._corrupt_tries >= _CORRUPT_TRIES:
                raise corrupt_fetch(self._client.topic, str(damage)) from damage
        except OffsetOutOfRange as out:
            self._look_again(out, deadline)
        else:
            self._fault = None
            self._store(fetched, deadline)

    def _prove(self, parts: Collection[int], deadline: float) -> None:
        """For partitions that this handle reads for the first time: do they go on from here?"""
        new = [part for part in parts if part not in self._proven and part not in self._overlap]
        if not new:
            return
        starts = ask(lambda left_s: self._topic.log_starts(new, left_s), deadline)
        for part, start in starts.items():
            if not self._begins_in_time(part, start, deadline):
                continue
            last = self._reader.last_record(part)
            if last is not None and last[0] >= start:
                self._overlap[part] = last
            else:
                self._proven.add(part)

    def _begins_in_time(self, part: int, start: int, deadline: float) -> bool:
        """Whether nothing of the partition was deleted before it was read; else it is stopped."""
        position = self._reader.positions()[part]
        if start <= position.next:
            return True
        if not self._allow_truncated:
            self._stopped[part] = truncated(self._client.topic, position, start)
            return False
        with self._file.transaction(deadline) as (store, _):
            if start > store.positions[part].next:
                store.pass_over(part, start)
        return True

    def _seek(self, wanted: Collection[int]) -> None:
        """Go on from where the mirror is; partitions that are read already stay with the others."""
        positions = self._reader.positions()
        at = self._topic.positions()
        parts = {*at, *wanted} - self._stopped.keys()
        places = {
            part: self._overlap[part][0] if part in self._overlap else positions[part].next
            for part in parts
        }
        if places != at:
            self._topic.seek(places)

    def _checked(self, fetched: Fetched, deadline: float) -> Fetched:
        """What the mirror may go on from; a partition whose last record is another is stopped."""
        if fetched.ends != fetched.starts:
            self.watch.identify(deadline)
        if not self._overlap:
            return fetched
        digests = _digests(fetched, {part: last for part, (last, _) in self._overlap.items()})
        wrong: set[int] = set()
        for part, (offset, digest) in list(self._overlap.items()):
            if fetched.ends.get(part, 0) <= offset:
                continue
            del self._overlap[part]
            found = digests.get((part, offset))
            if found == digest:
                self._proven.add(part)
            else:
                wrong.add(part)
                self._stopped[part] = another_record(
                    self._client.topic, part, offset, digest, found, self._folder
                )
        return _without(fetched, wrong) if wrong else fetched

    def _store(self, fetched: Fetched, deadline: float) -> None:
        if fetched.ends == fetched.starts:
            return
        try:
            with self._file.transaction(max(deadline, time.monotonic() + 1.0)) as (store, ingest):
                # Not the record that was fetched once more, to see that it is what it was.
                at = {part: store.positions[part].next for part in fetched.starts}
                new = sum(each.offset >= at[each.partition] for each in fetched.records)
                stopped = ingest.take(fetched)
        except MovedError:
            return  # Another mirror on this file read on: it is looked where it is now.
        self.records_read += new
        self._stopped.update(stopped)
        self._turns.note_own(self._reader.positions)

    def _look_again(self, out: OffsetOutOfRange, deadline: float) -> None:
        """The position is outside of the log: the topic was made anew, or its beginning deleted."""
        self.watch.identify(deadline)
        part = out.partition
        self._overlap.pop(part, None)
        self._proven.discard(part)
        self._topic.seek({})
        if self._begins_in_time(part, out.start, deadline):
            try:
                self._ends_now([part], deadline)
            except TopicChangedError as error:
                self._stopped[part] = error


def _fetch(topic: TopicReader, ends: Mapping[int, int], deadline: float) -> Fetched:
    """What has come: a batch if it is there, less at the ends or where nothing more comes."""
    starts = topic.positions()
    records: list[TopicRecord] = []
    size, wait_s = 0, FETCH_S
    while True:
        left_s = max(LEAST_S, deadline - time.monotonic())
        came = topic.fetch(min(wait_s, left_s))
        records += came
        size += sum(len(each.value or b"") for each in came)
        at = topic.positions()
        is_full = len(records) >= BATCH_RECORDS or size >= BATCH_BYTES
        is_there = all(at.get(part, end) >= end for part, end in ends.items())
        if is_full or is_there or not came:
            return Fetched(records, starts, at)
        wait_s = _MORE_S


def _digests(fetched: Fetched, lasts: Mapping[int, int]) -> dict[tuple[int, int], bytes]:
    """The digests of the records up to these partitions' offsets, by partition and offset."""
    return {
        (each.partition, each.offset): sha256(each.value or b"").digest()
        for each in fetched.records
        if each.offset <= lasts.get(each.partition, -1)
    }


def _without(fetched: Fetched, parts: Collection[int]) -> Fetched:
    return Fetched(
        [each for each in fetched.records if each.partition not in parts],
        {part: at for part, at in fetched.starts.items() if part not in parts},
        {part: at for part, at in fetched.ends.items() if part not in parts},
    )


def _late(topic: str, behind: Behind, fault: BrokersUnavailable | None) -> LogUnavailableError:
    part, (at, end) = min(behind.items())
    more = f", and {len(behind) - 1} other partitions are behind" if len(behind) > 1 else ""
    why = f" ({fault.message})" if fault is not None else ""
    return LogUnavailableError(
        f"partition {part} of topic {topic!r} is read up to offset {at} of {end} at the "
        f"deadline{more}{why}",
        hint="try again; a long topic is mirrored beforehand by `steplog mirror`, and an open "
        "transaction holds back what comes after it until it ends",
    )
