"""`WorkspaceConfig`: what `steplog.toml` at the top of a workspace says.

Unknown keys and wrong types are refused, so that a typing error never silently changes where
events go. The file holds no secrets.
"""

import os
import tomllib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final
from urllib.parse import unquote

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from eventlog.durable_file import sync_folder, write_whole
from eventlog.errors import ConfigError, LogUnavailableError
from eventlog.untrusted_file import UnfitFile, read_whole

CONFIG_FILE: Final = "steplog.toml"
CONFIG_BYTES_MAX: Final = 64 * 1024
WORKSPACE_FORMAT: Final = 1
_PLACE_HINT: Final = "give a folder, or file:///a/folder"


class WorkspaceConfig(BaseModel):
    """The settings of one workspace. `format` is the version of the folder's layout."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)

    format: int = Field(ge=1)
    name: str = Field(min_length=1, max_length=255, pattern=r"^[^\x00-\x1f\"\\]+$")


def workspace_folder(place: str | os.PathLike[str]) -> Path:
    """The folder of a workspace given as a path or a `file://` URL; `ConfigError` for others.

    A path may begin with `~`; a URL is percent-decoded and names no other host.
    """
    text = os.fspath(place)
    scheme, separator, rest = text.partition("://")
    if separator and scheme != "file":
        raise ConfigError(f"unknown workspace scheme {scheme!r}", hint=_PLACE_HINT)
    path = _path_of_url(rest) if separator else text
    try:
        if "\0" in os.fsdecode(os.fsencode(path)):
            raise ConfigError(f"{text!r} holds a zero character", hint=_PLACE_HINT)
        return (Path(path) if separator else Path(path).expanduser()).absolute()
    except (RuntimeError, OSError, UnicodeEncodeError) as error:
        # No such user or home; a working folder that is gone; no name in the file system's code.
        raise ConfigError(f"{text!r} names no folder: {error}", hint=_PLACE_HINT) from error


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


def _require_readable(path: Path, settings: dict[str, Any]) -> None:
    """Refuse by name what only another build can open: before unknown keys, which it may have."""
    found = settings.get("format")
    if type(found) is int and found > WORKSPACE_FORMAT:
        raise ConfigError(
            f"{path}: workspace format {found} is newer than this build's {WORKSPACE_FORMAT}",
            hint="open it with a newer steplog",
        )
    if "log" in settings:
        raise ConfigError(
            f"{path}: log = {settings['log']!r}: this build opens local logs only",
            hint="open it with a build for that log; a local log is log.db, and needs no `log`",
        )


def _folder_above(place: Path) -> Path:
    """The nearest folder that holds `place`."""
    return next((above for above in place.parents if above.is_dir()), place.parent)


def make_folder(folder: Path) -> None:
    """Make the folder of a workspace where it is missing. Raises `LogUnavailableError`."""
    with _unavailable(folder):
        folder.mkdir(parents=True, exist_ok=True)


def create_config(folder: Path) -> WorkspaceConfig:
    """Write the settings of a new workspace and return them. Raises `LogUnavailableError`."""
    name = "".join(c for c in folder.resolve().name if c.isprintable() and c not in '"\\')
    config = WorkspaceConfig(format=WORKSPACE_FORMAT, name=name[:255] or "workspace")
    text = f'format = {config.format}\nname = "{config.name}"\n'
    with _unavailable(folder):
        write_whole(folder / CONFIG_FILE, text.encode("utf-8"))
        sync_folder(folder)
    return config


@contextmanager
def _unavailable(folder: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise LogUnavailableError(
            f"cannot make the workspace {folder}: {os.strerror(error.errno or 0)}",
            hint="choose a folder you can write to with --workspace",
        ) from error
