"""`CatchUp`: reads a topic into its mirror, up to an end asked for after the question was put.

Everything that was acknowledged before is read then, whatever other transactions are open: the end
is the high watermark, and only what is committed is read. What comes is checked against the topic's
identity after it was fetched, and before any of it is stored: a topic that was deleted and made
again would be read on silently.
"""

import time
from collections.abc import Collection, Mapping
from hashlib import sha256
from pathlib import Path
from typing import Final

from eventlog.errors import LogUnavailableError, SchemaError
from eventlog.kafka.client import TopicClient, TopicRecord
from eventlog.kafka.client_errors import (
    BrokersUnavailable,
    OffsetOutOfRange,
    RecordsCorrupt,
)
from eventlog.mirroring.file import MirrorFile
from eventlog.mirroring.ingest import Fetched
from eventlog.mirroring.reader import MirrorReader
from eventlog.mirroring.source_watch import LEAST_S, RETRY_S, SourceWatch, ask
from eventlog.mirroring.store import MovedError
from eventlog.mirroring.topic_check import (
    corrupt_fetch,
    require_ends_reached,
    require_last_record,
    require_partitions,
    truncated,
)
from eventlog.mirroring.turns import FetchTurn, Wanted

BATCH_RECORDS: Final = 4_096
"""So many records, or about so many bytes, are stored in one transaction, if they are there."""
BATCH_BYTES: Final = 8 * 1024 * 1024
FETCH_S: Final = 0.5
_MORE_S: Final = 0.02
_CORRUPT_TRIES: Final = 3


class CatchUp:
    """Reads one topic into one mirror; used by one thread at a time. Raises errors of ours only."""

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
        self._turn = FetchTurn(path)
        self._topic = client.open_reader(committed=True)
        self._watch = SourceWatch(client, file, reader, path.parent)
        self._proven: set[int] = set()
        """Partitions whose last mirrored record was compared with the topic's by this handle."""
        self._overlap: dict[int, tuple[int, bytes]] = {}
        """Of the others: the last record, which is read once more."""

    def identify(self, deadline: float) -> None:
        """Hold what is mirrored against the topic now; the first time, write down what it is."""
        with self._watch.faults():
            self._watch.identify(deadline)

    def run(self, wanted: Wanted, deadline: float) -> None:
        """Read these partitions (None: all) to the ends that they have now.

        Raises `LogUnavailableError` at the deadline (what was read stays), `TopicChangedError`, and
        `SchemaError` where an event of a newer steplog is in the way.
        """
        with self._watch.faults():
            source = self._watch.current(deadline)
            parts = range(source.partition_count) if wanted is None else sorted(wanted)
            require_partitions(parts, source.partition_count, source.topic)
            ends = ask(lambda left_s: self._topic.high_watermarks(parts, left_s), deadline)
            self._require_ends(ends, deadline)
            self._prove(parts, deadline)
            if not self._missing(ends):
                return
            with self._turn.taken(
                self._reader.positions, lambda: not self._missing(ends), deadline
            ) as is_ours:
                if is_ours:
                    self._read_to(ends, deadline)

    def close(self) -> None:
        """Let go of connections and of the lock file."""
        self._topic.close()
        self._turn.close()

    def left_behind(self) -> None:
        """In a forked child."""
        self._turn.close()

    def _require_ends(self, ends: Mapping[int, int], deadline: float) -> None:
        positions = self._reader.positions()
        if any(end < positions[part].next for part, end in ends.items()):
            self._watch.identify(deadline)
            require_ends_reached(self._client.topic, positions, ends, self._folder)

    def _prove(self, parts: Collection[int], deadline: float) -> None:
        """For partitions that this handle reads for the first time: do they go on from here?"""
        new = [part for part in parts if part not in self._proven and part not in self._overlap]
        if not new:
            return
        starts = ask(lambda left_s: self._topic.log_starts(new, left_s), deadline)
        self._require_starts(starts, deadline)
        for part in new:
            last = self._reader.last_record(part)
            if last is not None and last[0] >= starts[part]:
                self._overlap[part] = last
            else:
                self._proven.add(part)

    def _require_starts(self, starts: Mapping[int, int], deadline: float) -> None:
        positions = self._reader.positions()
        late = {part: at for part, at in starts.items() if at > positions[part].next}
        if not late:
            return
        if not self._allow_truncated:
            part = min(late)
            raise truncated(self._client.topic, positions[part], late[part])
        with self._file.transaction(deadline) as (store, _):
            for part, start in late.items():
                if start > store.positions[part].next:
                    store.pass_over(part, start)

    def _missing(self, ends: Mapping[int, int]) -> dict[int, tuple[int, int]]:
        """Partitions that are not at their ends, or not proven: each with its position and end."""
        positions = self._reader.positions()
        return {
            part: (positions[part].next, end)
            for part, end in ends.items()
            if positions[part].next < end or part in self._overlap
        }

    def _read_to(self, ends: Mapping[int, int], deadline: float) -> None:
        stopped: dict[int, SchemaError] = {}
        fault: Exception | None = None
        corrupt = tries = 0
        while behind := {
            part: at for part, at in self._missing(ends).items() if part not in stopped
        }:
            # Who has no time left still gets what is there at once.
            if tries and time.monotonic() >= deadline:
                raise self._late(behind, fault)
            tries += 1
            self._seek(behind, stopped)
            try:
                fetched = self._fetch(ends, deadline)
                self._check_fetched(fetched, deadline)
            except BrokersUnavailable as unavailable:
                fault = unavailable
                self._watch.doubt()
                time.sleep(RETRY_S)
                continue
            except RecordsCorrupt as damage:
                corrupt += 1
                if corrupt >= _CORRUPT_TRIES:
                    raise corrupt_fetch(self._client.topic, str(damage)) from damage
                self._topic.seek({})
                continue
            except OffsetOutOfRange as out:
                self._look_again(out, ends, deadline)
                continue
            stopped.update(self._store(fetched, deadline))
        for part, error in stopped.items():
            if part in ends:
                raise error

    def _seek(self, behind: Mapping[int, tuple[int, int]], stopped: Collection[int]) -> None:
        """Go on from where the mirror is; partitions that are read already stay with the others."""
        positions = self._reader.positions()
        at = self._topic.positions()
        wanted = {
            part: positions[part].next
            for part in {*at, *behind}
            if part not in stopped and part not in self._overlap
        }
        wanted.update({part: offset for part, (offset, _) in self._overlap.items()})
        if wanted != at:
            self._topic.seek(wanted)

    def _fetch(self, ends: Mapping[int, int], deadline: float) -> Fetched:
        topic = self._topic
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

    def _check_fetched(self, fetched: Fetched, deadline: float) -> None:
        """Is it what the mirror goes on from? Raises before any of it is stored."""
        if fetched.ends != fetched.starts:
            self._watch.identify(deadline)
        if not self._overlap:
            return
        digests = {
            (each.partition, each.offset): sha256(each.value or b"").digest()
            for each in fetched.records
            if each.partition in self._overlap and each.offset <= self._overlap[each.partition][0]
        }
        for part, (offset, digest) in list(self._overlap.items()):
            if fetched.ends.get(part, 0) > offset:
                found = digests.get((part, offset))
                require_last_record(self._client.topic, part, offset, digest, found, self._folder)
                del self._overlap[part]
                self._proven.add(part)

    def _store(self, fetched: Fetched, deadline: float) -> dict[int, SchemaError]:
        if fetched.ends == fetched.starts:
            return {}
        try:
            with self._file.transaction(max(deadline, time.monotonic() + 1.0)) as (store, ingest):
                # Not the record that was fetched once more, to see that it is what it was.
                at = {part: store.positions[part].next for part in fetched.starts}
                new = sum(each.offset >= at[each.partition] for each in fetched.records)
                stopped = ingest.take(fetched)
        except MovedError:
            return {}
        self.records_read += new
        return stopped

    def _look_again(self, out: OffsetOutOfRange, ends: Mapping[int, int], deadline: float) -> None:
        """The position is outside of the log: the topic was made anew, or its beginning deleted."""
        self._watch.identify(deadline)
        part = out.partition
        self._overlap.pop(part, None)
        self._topic.seek({})
        if part not in ends:
            return  # It is only read along with others; whoever wants it will find out.
        self._require_starts({part: out.start}, deadline)
        self._require_ends({part: out.end}, deadline)

    def _late(
        self, behind: Mapping[int, tuple[int, int]], fault: Exception | None
    ) -> LogUnavailableError:
        part, (at, end) = min(behind.items())
        more = f", and {len(behind) - 1} other partitions are behind" if len(behind) > 1 else ""
        why = f" ({fault})" if fault is not None else ""
        return LogUnavailableError(
            f"partition {part} of topic {self._client.topic!r} is read up to offset {at} of {end} "
            f"at the deadline{more}{why}",
            hint="try again; a long topic is mirrored beforehand by `steplog mirror`, and an open "
            "transaction holds back what comes after it until it ends",
        )
