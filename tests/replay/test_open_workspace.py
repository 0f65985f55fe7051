"""Opening a workspace: made when asked for, never by accident, and never over lost data."""

import logging
import pickle
from pathlib import Path

import pytest

from eventlog.config import create_config
from eventlog.content import BlobRef
from eventlog.errors import (
    BlobCorruptError,
    ConfigError,
    EventCorruptError,
    LogUnavailableError,
    SteplogError,
)
from eventlog.kafka.location import parse_kafka_url
from replay import place as place_module
from replay.place import find_kafka_place
from replay.workspace import open_workspace

SECRET = "hunter2-not-to-be-told"


def make(folder: Path) -> Path:
    """The folder, made."""
    folder.mkdir()
    return folder


def record_one(folder: Path) -> None:
    """A workspace at `folder` with one session."""
    with open_workspace(folder) as ws, ws.record("s", environment="desk", state={"n": 1}):
        pass


def test_reading_makes_nothing(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="no workspace") as raised:
        open_workspace(tmp_path / "typo", create=False)
    assert "--workspace" in raised.value.hint
    assert "STEPLOG_WORKSPACE" in raised.value.hint
    assert not (tmp_path / "typo").exists()


def test_a_missing_folder_is_made_with_all_above_it(tmp_path: Path) -> None:
    record_one(tmp_path / "a" / "b")
    with open_workspace(f"file://{tmp_path}/a/b", create=False) as ws:
        assert [info.session for info in ws.sessions()] == ["s"]


@pytest.mark.parametrize("create", [True, False])
def test_a_lost_log_is_damage_and_never_an_empty_workspace(tmp_path: Path, create: bool) -> None:
    record_one(tmp_path)
    (tmp_path / "log.db").unlink()
    with pytest.raises(EventCorruptError, match=r"lost its log\.db"):
        open_workspace(tmp_path, create=create)
    assert not (tmp_path / "log.db").exists()


def test_a_making_that_was_cut_short_is_done_again(tmp_path: Path) -> None:
    record_one(tmp_path)
    (tmp_path / "steplog.toml").unlink()  # The settings are what is written last.
    with open_workspace(tmp_path) as ws:
        assert ws.session("s").status == "closed"


def test_a_file_of_a_workspace_is_answered_with_its_folder(tmp_path: Path) -> None:
    record_one(tmp_path)
    with pytest.raises(ConfigError, match="is not a folder") as raised:
        open_workspace(tmp_path / "log.db")
    assert raised.value.hint == f"give the folder of the workspace, not a file in it: {tmp_path}"


def test_a_file_in_the_way_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(SteplogError, match="file") as raised:
        open_workspace(tmp_path / "file" / "ws")
    assert isinstance(raised.value, LogUnavailableError | ConfigError)


@pytest.mark.parametrize("by_file", [False, True])
def test_a_password_for_kafka_is_nowhere_to_be_seen(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, by_file: bool
) -> None:
    folder = tmp_path / "here"
    monkeypatch.setenv("STEPLOG_KAFKA_SECURITY_PROTOCOL", "SASL_PLAINTEXT")
    monkeypatch.setenv("STEPLOG_KAFKA_SASL_MECHANISM", "PLAIN")
    monkeypatch.setenv("STEPLOG_KAFKA_SASL_USERNAME", "me")
    if by_file:
        (tmp_path / "password").write_text(SECRET)
        monkeypatch.setenv("STEPLOG_KAFKA_SASL_PASSWORD_FILE", str(tmp_path / "password"))
    else:
        monkeypatch.setenv("STEPLOG_KAFKA_SASL_PASSWORD", SECRET)
    caplog.set_level(logging.DEBUG)
    caplog.set_level(logging.DEBUG, logger="kafka")  # as a user may who looks for a fault
    url = f"kafka://127.0.0.1:1/t?folder={folder}"
    found = find_kafka_place(url)
    assert found is not None
    assert found.security.sasl_password == SECRET
    create_config(make(folder), found.location)
    with open_workspace(url) as ws:
        told = [repr(ws), str(ws), repr(ws.log), repr(found), str(found), str(found.location)]
        with pytest.raises(SteplogError) as caught:
            ws.log.mirror.refresh(timeout_s=0.5)  # type: ignore[attr-defined]
        error: BaseException | None = caught.value
        while error is not None:
            told.append(f"{error!r} {error} {vars(error)}")
            error = error.__cause__ or error.__context__
        pickled = [pickle.dumps(ws), pickle.dumps(ws.log), pickle.dumps(caught.value)]
        with pytest.raises(TypeError, match="is not pickled"):
            pickle.dumps(found)
        with pickle.loads(pickled[0]) as again, pickle.loads(pickled[1]) as log:
            assert again.log.security == log.security == found.security
    assert caplog.text, "the client library's own log is looked at too"
    assert SECRET not in caplog.text + " ".join(told)
    assert not any(SECRET.encode() in data for data in pickled)
    files = [path for path in folder.rglob("*") if path.is_file()]
    assert files
    assert not any(SECRET.encode() in path.read_bytes() for path in files)


def test_a_folder_says_where_its_log_is(tmp_path: Path) -> None:
    (tmp_path / "steplog.toml").write_text(
        'format = 1\nname = "w"\nlog = "kafka://b:9092/runs?blobs=/shared"\n'
    )
    found = find_kafka_place(tmp_path)
    assert found is not None
    assert (found.location.topic, found.location.folder) == ("runs", tmp_path)
    with open_workspace(tmp_path, create=False) as ws:
        assert repr(ws) == f"Workspace('kafka://b:9092/runs?folder={tmp_path}&blobs=/shared')"
    assert find_kafka_place(tmp_path / "none") is None


def test_a_mirror_that_is_gone_is_no_loss(tmp_path: Path) -> None:
    url = f"kafka://127.0.0.1:1/t?folder={tmp_path / 'here'}"
    create_config(make(tmp_path / "here"), parse_kafka_url(url))
    for _ in range(2):
        open_workspace(url).close()
        with open_workspace(url, refresh=False) as ws:
            assert list(ws.sessions()) == []
        (tmp_path / "here" / "mirror.db").unlink()


@pytest.mark.parametrize("refresh", [True, False])
def test_a_log_that_was_never_reached_leaves_no_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, refresh: bool
) -> None:
    monkeypatch.setattr(place_module, "FIRST_CONTACT_S", 0.5)
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path))
    wanted = LogUnavailableError if refresh else ConfigError
    with pytest.raises(wanted, match="127" if refresh else "has no copy of the log"):
        open_workspace("kafka://127.0.0.1:1/typo", refresh=refresh)
    assert list(tmp_path.iterdir()) == []


def test_stores_that_only_the_url_names_are_written_down(tmp_path: Path) -> None:
    toml, url = tmp_path / "steplog.toml", f"kafka://b:1/t?folder={tmp_path}"
    toml.write_text(
        "# ours\nformat = 1\nname = 'w'\nlog = 'kafka://b:1/t'  # the log\n\n[kafka]\n"
        'security_protocol = "PLAINTEXT"\n'
    )
    open_workspace(url).close()
    assert "'kafka://b:1/t'" in toml.read_text(), "a URL that names none changes nothing"
    open_workspace(f"{url}&blobs={tmp_path}/shared").close()
    changed = toml.read_text()
    assert f'log = "kafka://b:1/t?blobs={tmp_path}/shared"\n' in changed
    assert changed.startswith("# ours\nformat = 1\nname = 'w'\nlog = ")
    assert changed.endswith('[kafka]\nsecurity_protocol = "PLAINTEXT"\n')
    with open_workspace(tmp_path) as ws:
        assert ws.blobs.folder == tmp_path / "shared"  # type: ignore[attr-defined]
    with pytest.raises(ConfigError, match="other blobs") as refused:
        open_workspace(f"{url}&blobs=/elsewhere")
    assert f"edit `log` in {toml}" in refused.value.hint
    open_workspace(f"{url}&snapshots={tmp_path}/s").close()
    assert f"blobs={tmp_path}/shared&snapshots={tmp_path}/s" in toml.read_text()


def test_settings_that_are_written_oddly_are_left_to_their_owner(tmp_path: Path) -> None:
    toml = tmp_path / "steplog.toml"
    toml.write_text('format = 1\nname = "w"\n"log" = "kafka://b:1/t"\n')
    before = toml.read_text()
    with pytest.raises(ConfigError, match="cannot be changed") as refused:
        open_workspace(f"kafka://b:1/t?folder={tmp_path}&blobs=/shared")
    assert 'write log = "kafka://b:1/t?blobs=/shared"' in refused.value.hint
    assert toml.read_text() == before


def test_contents_that_would_be_left_behind_are_told_of(tmp_path: Path) -> None:
    url = f"kafka://b:1/t?folder={tmp_path}"
    create_config(tmp_path, parse_kafka_url(url))
    with open_workspace(url) as ws:
        ws.blobs.put_blob(b"large")
    with pytest.raises(ConfigError, match="recorded before the URL named") as refused:
        open_workspace(f"{url}&blobs={tmp_path}/shared")
    assert "move what is there" in refused.value.hint
    (tmp_path / "blobs").rename(tmp_path / "shared")
    open_workspace(f"{url}&blobs={tmp_path}/shared").close()


def test_a_content_that_is_missing_may_lie_in_another_machines_folder(tmp_path: Path) -> None:
    url = f"kafka://b:1/t?folder={tmp_path}"
    create_config(tmp_path, parse_kafka_url(url))
    with open_workspace(url) as ws:
        for blobs in (ws.blobs, pickle.loads(pickle.dumps(ws.blobs))):
            with pytest.raises(BlobCorruptError) as missing:
                blobs.get_blob(BlobRef(bytes(32), 5))
            assert "restore the file from a copy" in missing.value.hint
            assert "?blobs=DIR in the URL" in missing.value.hint
    with open_workspace(tmp_path / "local") as ws, pytest.raises(BlobCorruptError) as missing:
        ws.blobs.get_blob(BlobRef(bytes(32), 5))
    assert "URL" not in missing.value.hint


@pytest.mark.parametrize(
    "place", ["kafka://b/t", "kafka:/b:1/t", "kafka://u:p@b:1/t", Path("kafka://b:1/t")]
)
def test_a_url_that_is_none_makes_no_folder(
    place: str | Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path))
    with pytest.raises(ConfigError, match="Kafka URL"):
        open_workspace(place)
    assert list(tmp_path.iterdir()) == []
