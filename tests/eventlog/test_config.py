"""`steplog.toml` and the places of workspaces: refused by name, and only by errors of ours."""

import errno
import os
from pathlib import Path

import pytest

from eventlog.config import (
    CONFIG_FILE,
    WorkspaceConfig,
    create_config,
    read_config,
    workspace_folder,
)
from eventlog.errors import ConfigError, LogUnavailableError


def read(folder: Path, text: str) -> WorkspaceConfig | None:
    """The settings that `text` gives."""
    (folder / "steplog.toml").write_text(text, "utf-8")
    return read_config(folder)


def test_what_was_created_is_read(tmp_path: Path) -> None:
    assert read_config(tmp_path) is None
    assert create_config(tmp_path) == read_config(tmp_path)


@pytest.mark.parametrize("more", ["", 'store = "s3://bucket"\n', "name = 7\n", 'log = "x://y"\n'])
def test_a_newer_format_is_refused_by_name_whatever_else_it_says(tmp_path: Path, more: str) -> None:
    with pytest.raises(ConfigError, match="format 2 is newer than this build's 1") as caught:
        read(tmp_path, f"format = 2\n{more}")
    assert "newer steplog" in caught.value.hint
    assert str(tmp_path) in caught.value.message


def test_a_log_of_an_unknown_scheme_is_refused_by_name(tmp_path: Path) -> None:
    text = 'format = 1\nname = "w"\nlog = "pulsar://user:hunter2@broker/topic"\n'
    with pytest.raises(ConfigError, match="this build opens no log 'pulsar' there") as caught:
        read(tmp_path, text)
    assert "hunter2" not in str(caught.value)


def test_a_log_in_kafka_and_how_it_is_reached(tmp_path: Path) -> None:
    text = 'format = 1\nname = "w"\nlog = "kafka://b:9092/events"\n[kafka]\n'
    config = read(tmp_path, text + 'security_protocol = "SSL"\nssl_check_hostname = false\n')
    assert config is not None
    location = config.location(tmp_path)
    assert location is not None
    assert (location.bootstrap, location.topic) == (("b:9092",), "events")
    assert (location.folder, location.blobs) == (tmp_path, str(tmp_path / "blobs"))
    security = config.security(tmp_path)
    assert (security.security_protocol, security.ssl_check_hostname) == ("SSL", False)


@pytest.mark.parametrize(
    ("more", "what"),
    [
        ("log = 7", "opens no log"),
        ('log = "/a/folder"', "opens no log"),
        ('log = "kafka://broker/events"', "server 1 of the Kafka URL is not HOST:PORT"),
        ('log = "kafka://b:1/t?folder=/elsewhere"', "another folder"),
        ('[kafka]\nsecurity_protocol = "SSL"', "without a log in Kafka"),
        ('log = "kafka://b:1/t"\nkafka = 7', "kafka"),
        ('log = "kafka://b:1/t"\n[kafka]\nsecurity = "SSL"', "kafka.security is no setting"),
        ('log = "kafka://b:1/t"\n[kafka]\nssl_cafile = 7', "kafka.ssl_cafile is no text"),
        ('log = "kafka://b:1/t"\n[kafka]\nssl_check_hostname = "no"', "no true or false"),
        ('log = "kafka://b:1/t"\n[kafka]\nsasl_password = "x"', "does not stand in a file"),
    ],
)
def test_what_is_wrong_about_a_log_in_kafka_is_named(tmp_path: Path, more: str, what: str) -> None:
    with pytest.raises(ConfigError, match=what) as caught:
        read(tmp_path, f'format = 1\nname = "w"\n{more}\n')
    assert "steplog.toml" in caught.value.message
    assert caught.value.hint


@pytest.mark.parametrize(
    ("text", "what"),
    [
        ('name = "w"\n', "format"),
        ('format = "2"\nname = "w"\n', "format"),
        ('format = 0\nname = "w"\n', "format"),
        ('format = true\nname = "w"\n', "format"),
        ('format = 1\nname = ""\n', "name"),
        ('format = 1\nname = "w"\nnmae = "v"\n', "nmae"),
        ("format = \n", "not TOML"),
    ],
)
def test_what_is_wrong_in_the_settings_is_named(tmp_path: Path, text: str, what: str) -> None:
    with pytest.raises(ConfigError, match=what):
        read(tmp_path, text)


@pytest.mark.parametrize(
    ("place", "folder"),
    [
        ("/a/b", "/a/b"),
        ("/a%20b", "/a%20b"),
        ("file:///a/b", "/a/b"),
        ("file://localhost/a", "/a"),
        ("file:///a%20b/%C3%A9", "/a b/é"),
        ("file:///a b", "/a b"),
        ("file:///~/x", "/~/x"),
        ("file:///%FF", os.fsdecode(b"/\xff")),
    ],
)
def test_places_and_their_folders(place: str, folder: str) -> None:
    assert workspace_folder(place) == Path(folder)


def test_a_relative_place_is_made_absolute() -> None:
    assert workspace_folder("a/b") == Path.cwd() / "a" / "b"
    assert workspace_folder("~/x") == Path.home() / "x"


@pytest.mark.parametrize(
    ("place", "what"),
    [
        ("~nosuchuser/x", "nosuchuser"),
        ("a\0b", "zero character"),
        ("file:///a%00b", "zero character"),
        ("a\ud800b", "names no folder"),
        ("file://host/x", "host 'host'"),
        ("file://relative", "host 'relative'"),
        ("file://", "not a folder"),
        ("s3://bucket/x", "scheme 's3'"),
    ],
)
def test_a_place_that_is_none_is_a_config_error(place: str, what: str) -> None:
    with pytest.raises(ConfigError, match=what):
        workspace_folder(place)


def test_a_working_folder_that_is_gone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    gone = tmp_path / "gone"
    gone.mkdir()
    monkeypatch.chdir(gone)
    gone.rmdir()
    with pytest.raises(ConfigError, match="names no folder"):
        workspace_folder("x")


def test_a_config_larger_than_memory_is_refused_before_it_is_read(tmp_path: Path) -> None:
    (tmp_path / CONFIG_FILE).touch()
    os.truncate(tmp_path / CONFIG_FILE, 60 << 30)
    with pytest.raises(ConfigError, match="at most 65536 are read"):
        read_config(tmp_path)


def test_a_pipe_in_place_of_the_config_is_not_waited_for(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / CONFIG_FILE)
    with pytest.raises(ConfigError, match="it is not a file"):
        read_config(tmp_path)


def test_a_config_one_may_not_read_is_an_unavailable_workspace(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    create_config(tmp_path)

    def refuse(path: object, flags: int) -> int:
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), path)

    monkeypatch.setattr(os, "open", refuse)
    with pytest.raises(LogUnavailableError, match="Permission denied"):
        read_config(tmp_path)
