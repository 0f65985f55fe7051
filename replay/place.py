"""What a workspace's place is: a folder with a local log, or a topic in Kafka and a folder for it.

Everything that a `Workspace` does is the same for both; what differs stands here: where log, blobs
and snapshots lie, what is made when it is missing, and what is missed when it is gone.
"""

import os
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Final, NamedTuple

from eventlog.blob_store import BlobStore, LocalBlobStore
from eventlog.config import (
    WorkspaceConfig,
    create_config,
    make_folder,
    read_config,
    rewrite_log,
    security_in,
    workspace_folder,
)
from eventlog.errors import ConfigError, EventCorruptError, LogUnavailableError, SteplogError
from eventlog.kafka.client import TopicClient
from eventlog.kafka.connection import open_client
from eventlog.kafka.errors import faults_as_ours
from eventlog.kafka.location import (
    KafkaLocation,
    agreed_location,
    is_kafka_url,
    parse_kafka_url,
)
from eventlog.kafka.security import KafkaSecurity
from eventlog.log import EventLog
from eventlog.sqlite_log import SqliteLog
from snapshots.snapshot_store import LocalSnapshotStore, SnapshotStore

LOG_FILE: Final = "log.db"

FIRST_CONTACT_S: Final = 10.0
"""How long the servers may take to say that there is such a topic, the first time."""

BLOBS_HINT: Final = (
    "or name the folder that was recorded with: ?blobs=DIR in the URL, if another machine recorded"
)


class Opening(NamedTuple):
    """How a place is opened. The settings after `place` are for logs in Kafka only.

    `refresh`: reads bring the local mirror up to date first. `allow_truncated`: sessions are read
    although the topic has lost its oldest records.
    """

    place: str
    refresh: bool = True
    allow_truncated: bool = False


class OpenPlace(NamedTuple):
    """An open place: how to open it again, the folder of its local part, and what is kept there."""

    opening: Opening
    folder: Path
    log: EventLog
    blobs: BlobStore
    snapshots: SnapshotStore


class KafkaPlace(NamedTuple):
    """A place in Kafka that is not open: where it lies, and how its servers are reached."""

    location: KafkaLocation
    security: KafkaSecurity


def open_place(opening: Opening, *, create: bool) -> OpenPlace:
    """Open log, blobs and snapshots. See `workspace.open_workspace` for what it raises."""
    if is_kafka_url(opening.place):
        location = parse_kafka_url(opening.place)
        config = read_config(location.folder)
        place = _place_of(location, config)
        if config is not None:
            _keep_stores(place.location, config)
        elif opening.refresh:
            _make_local_part(place)
        return _open_kafka(place, opening)
    folder = workspace_folder(opening.place)
    config = read_config(folder)
    if config is not None:
        recorded = config.location(folder)
        if recorded is not None:
            return _open_kafka(KafkaPlace(recorded, config.security(folder)), opening)
        if not (folder / LOG_FILE).exists():
            raise EventCorruptError(
                f"the workspace {folder} has lost its {LOG_FILE}",
                hint="restore the file from a copy; or remove what is left, and begin anew",
            )
        return _open_folder(folder)
    if not create:
        raise ConfigError(
            f"no workspace at {folder}",
            hint="record or import into it first, or name another: the command takes it from "
            "--workspace, or from STEPLOG_WORKSPACE",
        )
    return _make_folder(folder)


def find_kafka_place(place: str | os.PathLike[str]) -> KafkaPlace | None:
    """Where the log of a place lies in Kafka, None for a local one. Opens and makes nothing.

    Raises `ConfigError`, also where there is neither a workspace nor a URL.
    """
    if is_kafka_url(place):
        location = parse_kafka_url(os.fspath(place))
        return _place_of(location, read_config(location.folder))
    folder = workspace_folder(place)
    config = read_config(folder)
    location_in = None if config is None else config.location(folder)
    if config is None or location_in is None:
        return None
    return KafkaPlace(location_in, config.security(folder))


@contextmanager
def open_topic(place: str | os.PathLike[str]) -> Iterator[TopicClient]:
    """A client for the topic of a workspace in Kafka, without opening the log.

    Raises `ConfigError` where the log is a local one.
    """
    found = find_kafka_place(place)
    if found is None:
        raise ConfigError(
            "this workspace's log is not in Kafka",
            hint="name one that is: --workspace kafka://HOST:PORT/TOPIC",
        )
    with closing(open_client(*found.location[:2], found.security)) as client:
        yield client


def is_meant_for_kafka(place: str | os.PathLike[str]) -> bool:
    """Whether the log of a place is in Kafka, or may be: something is wrong with its settings."""
    try:
        return find_kafka_place(place) is not None
    except SteplogError:
        return True


def bootstrap_of(place: str | os.PathLike[str]) -> str:
    """The servers of a workspace in Kafka as its tools want them, HOST:PORT[,...]; else empty."""
    found = find_kafka_place(place)
    return "" if found is None else ",".join(found.location.bootstrap)


def _place_of(location: KafkaLocation, config: WorkspaceConfig | None) -> KafkaPlace:
    """The place of a URL, as the settings in its folder have it."""
    folder = location.folder
    if config is None:
        return KafkaPlace(location, security_in(folder))
    recorded = config.location(folder)
    if recorded is None:
        raise ConfigError(
            f"{folder} is a workspace with a log of its own, not the local part of one in Kafka",
            hint="name another folder in the URL, or none",
        )
    return KafkaPlace(agreed_location(location, recorded), config.security(folder))


def _open_folder(folder: Path) -> OpenPlace:
    return OpenPlace(
        Opening(str(folder)),
        folder,
        SqliteLog(folder / LOG_FILE),
        LocalBlobStore(folder / "blobs"),
        LocalSnapshotStore(folder / "snapshots"),
    )


def _make_folder(folder: Path) -> OpenPlace:
    make_folder(folder)
    made = _open_folder(folder)
    # Its settings come last: a folder that has them once had a log, and never gets an empty one.
    try:
        create_config(folder)
    except LogUnavailableError:
        made.log.close()
        raise
    return made


def _make_local_part(place: KafkaPlace) -> None:
    """Make this machine's part of a log in Kafka, once it is known that there is such a log.

    Reading may make it: only a copy is in it. But a topic that is mistyped leaves nothing behind.
    """
    location = place.location
    with closing(open_client(*location[:2], place.security)) as client, faults_as_ours():
        client.identity(FIRST_CONTACT_S)
    make_folder(location.folder)
    create_config(location.folder, location)


def _keep_stores(location: KafkaLocation, config: WorkspaceConfig) -> None:
    """Write down the stores that a URL names and `steplog.toml` does not yet."""
    recorded = config.location(location.folder)
    if recorded is None or recorded[3:] == location[3:]:
        return
    has_moved = recorded.blobs != location.blobs
    if has_moved and next(LocalBlobStore(recorded.blobs).list_blobs(), None) is not None:
        raise ConfigError(
            f"{recorded.blobs} holds contents that were recorded before the URL named "
            f"{location.blobs!r}",
            hint="move what is there into the other folder (each file has the name of its digest, "
            "none hides another), then call again",
        )
    stores = recorded._replace(blobs=location.blobs, snapshots=location.snapshots)
    rewrite_log(location.folder, stores)


def _open_kafka(place: KafkaPlace, opening: Opening) -> OpenPlace:
    # Who has no log in Kafka never pays for its parts.
    from eventlog.kafka_log import KafkaLog
    from eventlog.mirror import FILE_NAME as MIRROR_FILE

    location = place.location
    if not opening.refresh and not (location.folder / MIRROR_FILE).exists():
        raise ConfigError(
            f"this machine has no copy of the log of topic {location.topic!r}: {location.folder}",
            hint="leave --no-refresh (refresh=False) out, or make one with `steplog mirror --once`",
        )
    log = KafkaLog(
        location.bootstrap,
        location.topic,
        location.folder,
        security=place.security,
        refreshes=opening.refresh,
        allow_truncated=opening.allow_truncated,
    )
    return OpenPlace(
        opening._replace(place=location.url),
        location.folder,
        log,
        LocalBlobStore(location.blobs, BLOBS_HINT),
        LocalSnapshotStore(location.snapshots),
    )
