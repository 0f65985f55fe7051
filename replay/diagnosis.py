"""`diagnose`: what `steplog doctor` looks at, each with what was found and what to do.

It loads nothing before it has said whether that is there: a broken installation is what it is for.
It writes one small file into the workspace's folder, to try it, and takes it away again.
"""

import os
import platform
import shutil
import sqlite3
import sys
import time
from collections.abc import Iterator, Sequence
from importlib.metadata import PackageNotFoundError, packages_distributions, version
from pathlib import Path
from typing import Final, Literal, NamedTuple

from eventlog.durable_file import hint_of, sync_folder, write_whole
from eventlog.errors import SteplogError
from eventlog.kafka.location import KafkaLocation
from eventlog.kafka.security import unknown_variables
from eventlog.sqlite.network_mount import refuse_network_mount
from eventlog.version import VERSION

PYTHON_VERSIONS: Final = ((3, 11), (3, 14))
"""Half-open, as in the project's metadata."""

REQUIRED: Final = (
    "crc32c",  # kafka-python works without it, at a tenth of the speed.
    "fastavro",
    "kafka-python",
    "ormsgpack",
    "pydantic",
    "rich",
    "typer",
    "zstandard",
)
OPTIONAL: Final = {"numpy": "arrays stay opaque"}

OUR_PACKAGES: Final = ("eventlog", "replay", "snapshots", "steplog")

FREE_BYTES_MIN: Final = 256 * 1024 * 1024
"""Less than this is worth a warning: a log that grows by 1 KB an event fills it in a night."""

Verdict = Literal["ok", "warning", "failed"]


class Diagnosis(NamedTuple):
    """One thing that was looked at. `hint` is empty where nothing is to be done."""

    check: str
    verdict: Verdict
    found: str
    hint: str = ""


def diagnose(place: str, import_path: Sequence[str | Path]) -> Iterator[Diagnosis]:
    """Look at the installation, then at the workspace at `place`.

    `import_path`: the folders where a user's modules may hide ours, the working folder first.
    """
    yield _python()
    yield _sqlite()
    yield _steplog()
    yield from (_library(name) for name in (*REQUIRED, *OPTIONAL))
    yield from _owners()
    yield from _shadows(import_path)
    yield from _workspace(place)


def _python() -> Diagnosis:
    found = f"{platform.python_version()} ({sys.executable}), {platform.platform()}"
    first, end = PYTHON_VERSIONS
    if first <= sys.version_info[:2] < end:
        return Diagnosis("python", "ok", found)
    return Diagnosis("python", "failed", found, "use Python 3.11, 3.12 or 3.13")


def _sqlite() -> Diagnosis:
    found = f"{sqlite3.sqlite_version}, thread safety {sqlite3.threadsafety}"
    if sqlite3.threadsafety == 3:
        return Diagnosis("sqlite", "ok", found)
    return Diagnosis(
        "sqlite", "warning", found, "use a Python whose SQLite is built serialized (threadsafe=1)"
    )


def _steplog() -> Diagnosis:
    home = Path(__file__).resolve().parent.parent
    try:
        installed = version("steplog")
    except PackageNotFoundError:
        return Diagnosis("steplog", "ok", f"{VERSION} at {home}, not installed (a checkout)")
    if installed == VERSION:
        return Diagnosis("steplog", "ok", f"{VERSION} at {home}")
    return Diagnosis(
        "steplog",
        "warning",
        f"{VERSION} at {home}, but {installed} is what is installed",
        "two copies are on the path: uninstall one",
    )


def _library(name: str) -> Diagnosis:
    try:
        return Diagnosis(name, "ok", version(name))
    except PackageNotFoundError:
        if name in OPTIONAL:
            return Diagnosis(name, "ok", f"not installed (optional: {OPTIONAL[name]})")
        return Diagnosis(name, "failed", "not installed", f"pip install {name}")


def _owners() -> Iterator[Diagnosis]:
    owners = packages_distributions()
    for package in OUR_PACKAGES:
        others = sorted(set(owners.get(package, ())) - {"steplog"})
        if others:
            yield Diagnosis(
                package,
                "failed",
                f"also installed by {', '.join(others)}, which overwrites our files or we theirs",
                "keep them in separate environments, then reinstall steplog",
            )


def _shadows(import_path: Sequence[str | Path]) -> Iterator[Diagnosis]:
    home = Path(__file__).resolve().parent.parent
    folders = {Path(folder).resolve(): None for folder in import_path}
    for folder in folders:
        for package in OUR_PACKAGES:
            for file in (folder / f"{package}.py", folder / package / "__init__.py"):
                if file.is_file() and file.parent != home / package:
                    yield Diagnosis(
                        package,
                        "warning",
                        f"{file} has the name of our package",
                        "rename it, or start with `python -P`: Python may import it in place of "
                        "ours",
                    )


def _workspace(place: str) -> Iterator[Diagnosis]:
    try:
        folder = _find_folder(place)
        yield from _folder(folder)
        yield from _log_in_kafka(place)
        if os.path.exists(folder):
            yield _open_workspace(place, folder)
        else:
            yield Diagnosis("workspace", "ok", f"none at {folder}; recording or importing makes it")
    except ImportError as error:
        yield Diagnosis("workspace", "failed", f"cannot be opened: {error}", "reinstall steplog")
    except SteplogError as error:
        yield Diagnosis("workspace", "failed", error.message, error.hint)


# These load what they need here: without those libraries the rest can still be said.


def _find_folder(place: str) -> Path:
    """The folder of what this machine has of the workspace."""
    from eventlog.config import workspace_folder
    from eventlog.kafka.location import is_kafka_url, parse_kafka_url

    return parse_kafka_url(place).folder if is_kafka_url(place) else workspace_folder(place)


def _log_in_kafka(place: str) -> Iterator[Diagnosis]:
    from eventlog.kafka.topic import examine_security, examine_topic
    from eventlog.mirroring.examination import examine_mirror
    from replay.place import find_kafka_place, is_meant_for_kafka, open_topic

    if is_meant_for_kafka(place):
        for name, hint in unknown_variables(os.environ).items():
            yield Diagnosis("variables", "warning", f"{name} is no setting", hint)
    kafka = find_kafka_place(place)
    if kafka is None:
        return
    findings = [examine_security(kafka.location.bootstrap, kafka.security)]
    problem: SteplogError | None = None
    with open_topic(place) as client:
        try:
            findings += examine_topic(client, bootstrap=",".join(kafka.location.bootstrap))
            if not any(one.name == "topic" and one.verdict == "failed" for one in findings):
                findings.append(examine_mirror(client, kafka.location.folder))
        except SteplogError as error:  # What was found before is told all the same.
            problem = error
    for one in findings:
        wanted = f"; wanted: {one.wanted}" if one.wanted else ""
        yield Diagnosis(one.name, one.verdict, one.found + wanted, one.fix)
    yield _blobs(kafka.location)
    if problem is not None:
        yield Diagnosis("brokers", "failed", problem.message, problem.hint)


def _blobs(location: KafkaLocation) -> Diagnosis:
    if location.has_own_blobs:
        return Diagnosis(
            "blobs",
            "warning",
            f"{location.blobs}: of this machine alone, so that contents of over 256 KiB that it "
            "records cannot be read on another, nor theirs here",
            "where the topic is shared, name one folder that all machines reach: ?blobs=DIR in "
            "the URL",
        )
    if os.path.isdir(location.blobs):
        return Diagnosis("blobs", "ok", location.blobs)
    return Diagnosis(
        "blobs", "warning", f"{location.blobs} is not there", "mount it, or make it if it is new"
    )


def _open_workspace(place: str, folder: Path) -> Diagnosis:
    from replay.workspace import open_workspace

    open_workspace(place, create=False).close()
    return Diagnosis("workspace", "ok", f"{folder}")


def _folder(folder: Path) -> Iterator[Diagnosis]:
    standing = next(place for place in (folder, *folder.parents) if os.path.exists(place))
    free = shutil.disk_usage(standing).free
    found = f"{free / 1e9:.1f} GB free at {standing}"
    if free >= FREE_BYTES_MIN:
        yield Diagnosis("space", "ok", found)
    else:
        yield Diagnosis("space", "warning", found, "free some space, or choose another folder")
    yield _file_system(folder)
    yield _write_test(standing)


def _file_system(folder: Path) -> Diagnosis:
    try:
        refuse_network_mount(folder)
    except SteplogError as error:
        return Diagnosis("file system", "failed", error.message, error.hint)
    return Diagnosis("file system", "ok", "local, as far as this machine says")


def _write_test(folder: Path) -> Diagnosis:
    probe = folder / ".steplog-doctor"
    start = time.perf_counter()
    try:
        write_whole(probe, b"written by steplog doctor; may be deleted\n")
        sync_folder(folder)
        taken_ms = (time.perf_counter() - start) * 1e3
        probe.unlink()
    except OSError as error:
        return Diagnosis("write", "failed", f"{folder}: {error.strerror}", hint_of(error))
    return Diagnosis("write", "ok", f"a durable file in {taken_ms:.1f} ms")
