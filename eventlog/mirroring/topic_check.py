"""Whether the topic is still the one that is mirrored: its id, its partitions, their beginnings.

A topic that was deleted and made again has the same name, and its offsets count from 0 once more:
who only reads on would mix two logs. So whatever is not as it was stops the mirror, with both
values named.
"""

from collections.abc import Collection, Mapping
from pathlib import Path

from eventlog.errors import ConfigError, EventCorruptError, TopicChangedError
from eventlog.kafka.client import TopicIdentity
from eventlog.mirroring.rows import Position, Source


def require_same_topic(source: Source, topic: str, found: TopicIdentity, folder: Path) -> None:
    """Raise where the mirror's source is not the topic that is there now.

    `ConfigError` for another topic's mirror, `TopicChangedError` for another id or partition count.
    """
    if source.topic != topic:
        raise ConfigError(
            f"{folder} holds the mirror of topic {source.topic!r}, not of {topic!r}",
            hint="name another folder for the mirror, or remove its mirror.db",
        )
    if source.topic_id != found.topic_id:
        raise TopicChangedError(
            f"topic {topic!r} was deleted and made again: mirrored is the one with id "
            f"{source.topic_id}, there is the one with id {found.topic_id}",
            hint=f"remove {folder / 'mirror.db'} to mirror the new one; the old log is only there",
        )
    if source.partition_count != found.partition_count:
        raise TopicChangedError(
            f"topic {topic!r} had {source.partition_count} partitions when it was first mirrored, "
            f"and has {found.partition_count} now: sessions' later events go elsewhere",
            hint="a log's partitions are fixed for its life: copy it into a new topic to have more",
        )


def require_ends_reached(
    topic: str, positions: Mapping[int, Position], ends: Mapping[int, int], folder: Path
) -> None:
    """Raise `TopicChangedError` where a partition ends before what was read of it."""
    for part, end in ends.items():
        if end < positions[part].next:
            raise TopicChangedError(
                f"partition {part} of topic {topic!r} ends at offset {end}, but was mirrored up to "
                f"{positions[part].next}: records that were acknowledged are gone",
                hint="see what happened to the brokers' data; the mirror still has the records; "
                f"remove {folder / 'mirror.db'} to mirror what is left",
            )


def truncated(topic: str, position: Position, start: int) -> TopicChangedError:
    """The error for a partition that begins after what was read of it."""
    return TopicChangedError(
        f"partition {position.part} of topic {topic!r} begins at offset {start}, but is mirrored "
        f"only up to {position.next}: the records between were deleted before they were read",
        hint="set retention.ms=-1 for the topic (`steplog doctor`); to read what is left, give "
        "--allow-truncated",
    )


def another_record(
    topic: str, part: int, offset: int, digest: bytes, found: bytes | None, folder: Path
) -> TopicChangedError:
    """The error where the record last mirrored is not what it was any more."""
    there = "is not there any more" if found is None else f"has digest {found.hex()}"
    return TopicChangedError(
        f"the record at offset {offset} of partition {part} of topic {topic!r} was mirrored "
        f"with digest {digest.hex()}, and now {there}",
        hint="see what happened to the brokers' data; remove "
        f"{folder / 'mirror.db'} to mirror the topic again",
    )


def require_partitions(partitions: Collection[int], partition_count: int, topic: str) -> None:
    """Raise `ConfigError` for a partition that the topic does not have."""
    strange = sorted(part for part in partitions if not 0 <= part < partition_count)
    if strange:
        raise ConfigError(
            f"topic {topic!r} has partitions 0 to {partition_count - 1}, not {strange}",
            hint="name partitions that it has",
        )


def corrupt_fetch(topic: str, problem: str) -> EventCorruptError:
    """The error for records that arrived damaged, again and again."""
    return EventCorruptError(
        f"topic {topic!r}: {problem}", hint="check the brokers' disks, and read from a replica"
    )
