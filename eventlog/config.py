"""`WorkspaceConfig`: what `steplog.toml` at the top of a workspace says.

    format = 1
    name = "runs"
    log = "kafka://HOST:PORT/TOPIC"     where the log is not `log.db` beside it

    [kafka]                             how its servers are reached, see `kafka.security`
    security_protocol = "SASL_SSL"

Unknown keys and wrong types are refused, so that a typing error never silently changes where
events go. The file holds no secrets, and no error repeats what stands in it.
"""

import os
import re
import tomllib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final
from urllib.parse import unquote

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from eventlog.durable_file import sync_folder, write_whole
from eventlog.errors import ConfigError, LogUnavailableError
from eventlog.kafka.location import KafkaLocation, is_kafka_url, parse_kafka_url
from eventlog.kafka.security import KafkaSecurity, find_security, require_table
from eventlog.untrusted_file import UnfitFile, read_whole

CONFIG_FILE: Final = "steplog.toml"
CONFIG_BYTES_MAX: Final = 64 * 1024
WORKSPACE_FORMAT: Final = 1
_PLACE_HINT: Final = "give a folder, file:///a/folder, or kafka://HOST:PORT/TOPIC"


class WorkspaceConfig(BaseModel):
    """The settings of one workspace. `format` is the version of the folder's layout.

    `log` is a Kafka URL, None for the local `log.db`; `kafka` the table of that name.
    """

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True, hide_input_in_errors=True)

    format: int = Field(ge=1)
    name: str = Field(min_length=1, max_length=255, pattern=r"^[^\x00-\x1f\"\\]+$")
    log: str | None = None
    kafka: dict[str, str | bool] = Field(default_factory=dict)

    def location(self, folder: Path) -> KafkaLocation | None:
        """Where the log lies of the workspace in `folder`; None for the local one."""
        return None if self.log is None else parse_kafka_url(self.log, home=folder)

    def security(self, folder: Path) -> KafkaSecurity:
        """How the log's servers are reached, the environment's variables included."""
        return find_security(self.kafka, folder)


def workspace_folder(place: str | os.PathLike[str]) -> Path:
    """The folder of a workspace given as a path or a `file://` URL; `ConfigError` for others.

    A path may begin with `~`; a URL is percent-decoded and names no other host.
    """
    text = os.fspath(place)
    scheme, separator, rest = text.partition("://")
    if separator and scheme != "file":
        raise ConfigError(f"unknown workspace scheme{_told(scheme)}", hint=_PLACE_HINT)
    path = _path_of_url(rest) if separator else text
    try:
        if "\0" in os.fsdecode(os.fsencode(path)):
            raise ConfigError(f"{text!r} holds a zero character", hint=_PLACE_HINT)
        return (Path(path) if separator else Path(path).expanduser()).absolute()
    except (RuntimeError, OSError, UnicodeEncodeError) as error:
        # No such user or home; a working folder that is gone; no name in the file system's code.
        raise ConfigError(f"{text!r} names no folder: {error}", hint=_PLACE_HINT) from error


def _told(scheme: str) -> str:
    # Only what can be a scheme: anything else may be a password that went astray.
    return f" {scheme!r}" if re.fullmatch(r"[A-Za-z][A-Za-z0-9+.-]{0,15}", scheme) else ""


def _path_of_url(rest: str) -> str:
    host, slash, path = rest.partition("/")
    if host not in ("", "localhost") or not slash:
        raise ConfigError(
            f"the URL 'file://{rest}' names the host {host!r}, not a folder here", hint=_PLACE_HINT
        )
    return unquote(slash + path, errors="surrogateescape")


def read_config(folder: Path) -> WorkspaceConfig | None:
    """The workspace's settings; None where there is no `steplog.toml`.

    Raises `ConfigError`; `LogUnavailableError` where there is no permission to read it.
    """
    path = folder / CONFIG_FILE
    try:
        text = read_whole(path, bytes_max=CONFIG_BYTES_MAX).decode("utf-8")
    except FileNotFoundError:
        return None
    except NotADirectoryError as error:
        raise ConfigError(
            f"{folder} is not a folder",
            hint=f"give the folder of the workspace, not a file in it: {_folder_above(folder)}",
        ) from error
    except PermissionError as error:
        raise LogUnavailableError(
            f"cannot read {path}: {error.strerror}", hint="mend the owner and mode of this file"
        ) from error
    except (OSError, UnfitFile, UnicodeDecodeError) as error:
        raise ConfigError(f"cannot read {path}: {error}", hint="make it readable UTF-8") from error
    try:
        settings = tomllib.loads(text)
        _require_readable(path, settings)
        return WorkspaceConfig.model_validate(settings)
    except tomllib.TOMLDecodeError as error:
        raise ConfigError(f"{path} is not TOML: {error}", hint="mend or restore it") from error
    except ValidationError as error:
        first = error.errors()[0]
        place = ".".join(str(part) for part in first["loc"])
        raise ConfigError(f"{path}: {place}: {first['msg']}", hint="mend this setting") from error


def security_in(folder: Path) -> KafkaSecurity:
    """How servers are reached from `folder`: its `steplog.toml`, if there is one, and variables."""
    config = read_config(folder)
    return find_security({}, folder) if config is None else config.security(folder)


def _require_readable(path: Path, settings: dict[str, Any]) -> None:
    """Refuse by name what only another build can open: before unknown keys, which it may have."""
    found = settings.get("format")
    if type(found) is int and found > WORKSPACE_FORMAT:
        raise ConfigError(
            f"{path}: workspace format {found} is newer than this build's {WORKSPACE_FORMAT}",
            hint="open it with a newer steplog",
        )
    table = settings.get("kafka", {})
    if type(table) is dict:
        require_table(table, str(path))
    log = settings.get("log")
    if log is None:
        if table:
            raise ConfigError(
                f"{path}: [kafka] stands there without a log in Kafka",
                hint='name it: log = "kafka://HOST:PORT/TOPIC"; a local log needs no [kafka]',
            )
    elif type(log) is not str or not is_kafka_url(log):
        scheme, separator, _ = str(log).partition("://")
        raise ConfigError(
            f"{path}: log: this build opens no log{_told(scheme) if separator else ''} there",
            hint='write log = "kafka://HOST:PORT/TOPIC"; a local log is log.db, and needs no `log`',
        )
    else:
        _require_location(path, log)


def _require_location(path: Path, log: str) -> None:
    try:
        parse_kafka_url(log, home=path.parent)
    except ConfigError as error:
        message, hint = f"{path}: log: {error.message}", error.hint
    else:
        return
    raise ConfigError(message, hint=hint)


def _folder_above(place: Path) -> Path:
    """The nearest folder that holds `place`."""
    return next((above for above in place.parents if above.is_dir()), place.parent)


def make_folder(folder: Path) -> None:
    """Make the folder of a workspace where it is missing. Raises `LogUnavailableError`."""
    with _unavailable(folder):
        folder.mkdir(parents=True, exist_ok=True)


def create_config(folder: Path, location: KafkaLocation | None = None) -> WorkspaceConfig:
    """Write the settings of a new workspace and return them. Raises `LogUnavailableError`."""
    name = "".join(c for c in folder.resolve().name if c.isprintable() and c not in '"\\')
    log = None if location is None else location.url_in_folder
    config = WorkspaceConfig(format=WORKSPACE_FORMAT, name=name[:255] or "workspace", log=log)
    text = f'format = {config.format}\nname = "{config.name}"\n'
    if log is not None:
        text += f'log = "{log}"\n'
    with _unavailable(folder):
        write_whole(folder / CONFIG_FILE, text.encode("utf-8"))
        sync_folder(folder)
    return config


def rewrite_log(folder: Path, location: KafkaLocation) -> None:
    """Write where the log lies into the settings that are there; all else stays as it stands.

    Raises `ConfigError` where the file is written in a way that only its owner should change.
    """
    path, url = folder / CONFIG_FILE, location.url_in_folder
    with _unavailable(folder):
        text = read_whole(path, bytes_max=CONFIG_BYTES_MAX).decode("utf-8")
        wanted = {**tomllib.loads(text), "log": url}
        text = re.sub(r"(?m)^log\s*=.*$", f'log = "{url}"', text, count=1)
        if not _says(text, wanted):
            raise ConfigError(
                f"{path} does not name the folders that the Kafka URL does, and cannot be changed",
                hint=f'write log = "{url}" into it',
            )
        write_whole(path, text.encode("utf-8"))
        sync_folder(folder)


def _says(text: str, wanted: dict[str, Any]) -> bool:
    try:
        return tomllib.loads(text) == wanted
    except tomllib.TOMLDecodeError:
        return False


@contextmanager
def _unavailable(folder: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise LogUnavailableError(
            f"cannot make the workspace {folder}: {os.strerror(error.errno or 0)}",
            hint="choose a folder you can write to with --workspace",
        ) from error
