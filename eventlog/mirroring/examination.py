"""What this machine's copy of a topic is worth: how much is in it, and whether it is still of it.

Looks only: nothing is read into the mirror, and none is made.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Final, NamedTuple

from eventlog.errors import SteplogError
from eventlog.kafka.client import TopicClient, TopicIdentity
from eventlog.kafka.errors import faults_as_ours
from eventlog.kafka.topic_settings import TopicFinding
from eventlog.mirror import FILE_NAME
from eventlog.mirroring.reader import MirrorReader
from eventlog.mirroring.rows import Position, Source
from eventlog.mirroring.topic_check import require_ends_reached, require_same_topic, truncated

ANSWER_S: Final = 10.0


class CopyState(NamedTuple):
    """What a mirror holds: events of the log, and the time of the newest in microseconds.

    `filled` False: nothing was ever read into it, or the topic was empty when it was.
    """

    filled: bool
    events: int
    newest_us: int | None


def copy_state(reader: MirrorReader) -> CopyState:
    """What the mirror holds now. Asks nobody."""
    positions = reader.positions()
    return CopyState(
        any(position.next for position in positions.values()),
        sum(position.accepted for position in positions.values()),
        reader.newest_time(),
    )


def examine_mirror(client: TopicClient, folder: Path) -> TopicFinding:
    """Hold the mirror in `folder` against the topic that is there now, which it must be of."""
    path = folder / FILE_NAME
    if not path.exists():
        return TopicFinding("mirror", "ok", f"none yet in {folder}: the first read makes it")
    try:
        reader = MirrorReader(path)
        try:
            source, positions = reader.source(), reader.positions()
        finally:
            reader.close()
        if source is None:
            return TopicFinding("mirror", "ok", f"{path}, nothing in it yet")
        with faults_as_ours():
            return _compare(client, folder, source, positions)
    except SteplogError as error:
        return TopicFinding("mirror", "failed", error.message, "", error.hint)


def _compare(
    client: TopicClient, folder: Path, source: Source, positions: Mapping[int, Position]
) -> TopicFinding:
    """Raises errors of ours where the mirror is not of this topic, and a `ClientFault`."""
    found = client.describe(ANSWER_S)
    identity = TopicIdentity(found.topic_id, found.partition_count)
    require_same_topic(source, client.topic, identity, folder)
    topic = client.open_reader(committed=True)
    try:
        starts = topic.log_starts(range(source.partition_count), ANSWER_S)
        ends = topic.high_watermarks(range(source.partition_count), ANSWER_S)
    finally:
        topic.close()
    require_ends_reached(client.topic, positions, ends, folder)
    for part, start in starts.items():
        if start > positions[part].next:
            raise truncated(client.topic, positions[part], start)
    behind = sum(end - positions[part].next for part, end in ends.items())
    events = sum(position.accepted for position in positions.values())
    how_far = f"{behind} offsets behind, which the next read brings" if behind else "up to date"
    return TopicFinding("mirror", "ok", f"{folder / FILE_NAME}, {events} events, {how_far}")
