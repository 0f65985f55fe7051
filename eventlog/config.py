"""`WorkspaceConfig`: what `steplog.toml` at the top of a workspace says.

Unknown keys and wrong types are refused, so that a typing error never silently changes where
events go. The file holds no secrets.
"""

import os
import tomllib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from eventlog.durable_file import sync_folder, write_whole
from eventlog.errors import ConfigError, LogUnavailableError

CONFIG_FILE: Final = "steplog.toml"
WORKSPACE_FORMAT: Final = 1


class WorkspaceConfig(BaseModel):
    """The settings of one workspace. `format` is the version of the folder's layout."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)

    format: int = Field(ge=1)
    name: str = Field(min_length=1, max_length=255, pattern=r"^[^\x00-\x1f\"\\]+$")


def workspace_folder(place: str | os.PathLike[str]) -> Path:
    """The folder of a workspace given as a path or a `file://` URL; `ConfigError` for others."""
    text = os.fspath(place)
    scheme, separator, rest = text.partition("://")
    if separator and scheme != "file":
        raise ConfigError(
            f"unknown workspace scheme {scheme!r}", hint="give a folder, or file:///a/folder"
        )
    return Path(rest if separator else text).expanduser().absolute()


def read_config(folder: Path) -> WorkspaceConfig | None:
    """The workspace's settings; None where there is no `steplog.toml`. Raises `ConfigError`."""
    path = folder / CONFIG_FILE
    try:
        text = path.read_text("utf-8")
    except FileNotFoundError:
        return None
    except NotADirectoryError as error:
        raise ConfigError(f"{folder} is not a folder", hint="name a folder") from error
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"cannot read {path}: {error}", hint="make it readable UTF-8") from error
    try:
        config = WorkspaceConfig.model_validate(tomllib.loads(text))
    except tomllib.TOMLDecodeError as error:
        raise ConfigError(f"{path} is not TOML: {error}", hint="mend or restore it") from error
    except ValidationError as error:
        first = error.errors()[0]
        place = ".".join(str(part) for part in first["loc"])
        raise ConfigError(f"{path}: {place}: {first['msg']}", hint="mend this setting") from error
    if config.format > WORKSPACE_FORMAT:
        raise ConfigError(
            f"{path}: workspace format {config.format} is newer than this build's "
            f"{WORKSPACE_FORMAT}",
            hint="open it with a newer steplog",
        )
    return config


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
