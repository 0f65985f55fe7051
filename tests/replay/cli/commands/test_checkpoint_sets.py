"""`steplog checkpoint check` of sets: the log they belong to is asked too."""

import re
import shlex
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from eventlog.cut import Cut
from eventlog.errors import LogUnavailableError, StepGapError
from eventlog.log import LogRecord
from eventlog.merkle_root import MerkleRoot
from eventlog.sqlite_log import SqliteLog
from snapshots import checkpoint_retention
from snapshots.checkpoints.set_entry import SessionPosition, SetEntry
from snapshots.sets.restoring import require_same_log
from tests.support.command import Command, record_desk
from tests.support.kept_sets import TRAINING, keep_set, store_of
from tests.support.own_sessions import training_session


@pytest.fixture
def run(steplog: Command) -> Command:
    """A workspace with a training and two sessions, one of them open."""
    with steplog.open() as ws:
        training_session(ws, TRAINING)
        record_desk(ws)
        with ws.record("open", environment="desk") as session:
            session.record_message("user", "hello")
        ws.record("live", environment="desk").record_message("user", "hello")
    return steplog


def test_a_set_that_the_log_has_committed_is_sound(run: Command) -> None:
    with run.open() as ws:
        kept = keep_set(ws)
        ws.record("later", environment="desk")
    assert "live" in kept.entry.sessions
    rows = [row for row in run.rows("checkpoint", "list") if row["id"] == "set1"]
    (row,) = rows
    assert (row["kind"], row["training"]) == ("set", TRAINING)
    assert row["sessions"] == len(kept.entry.sessions)
    cells = next(line for line in run("checkpoint", "list").lines if "set1" in line)
    assert (cells[3], cells[-1]) == ("set of run-1", str(row["sessions"]))
    for flags in ([], ["--log"]):
        ran = run("checkpoint", "check", "set1", *flags, "--json")
        assert (ran.code, ran.row["verdict"]) == (0, "ok"), ran.err


def test_a_set_that_is_not_committed_is_incomplete(run: Command) -> None:
    with run.open() as ws:
        keep_set(ws, commits=None)
    ran = run("checkpoint", "check", "set1")
    assert ran.code == 6
    assert "set set1 is not committed: session 'checkpoint/set1' of the log does not say so" in (
        ran.err
    )


def test_a_log_that_has_committed_something_else(run: Command) -> None:
    with run.open() as ws:
        keep_set(ws, commits="0" * 64)
        keep_set(ws, "set2", training="another")
    ran = run("checkpoint", "check", "set1")
    assert (ran.code, f"the log has committed the manifest {'0' * 64}" in ran.err) == (4, True)
    ran = run("checkpoint", "check", "set2")
    assert (ran.code, "committed it for another training or step" in ran.err) == (4, True)


def moved(name: str, step: int, digest: bytes | None = None) -> Callable[[SetEntry], SetEntry]:
    def change(entry: SetEntry) -> SetEntry:
        old = entry.sessions["live"]
        new = SessionPosition(step, old.event_digest if digest is None else digest)
        return entry._replace(sessions={**entry.sessions, name: new})

    return change


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (moved("live", 1, b"\0" * 32), "session 'live' at step 1"),
        (moved("live", 0), "session 'live' at step 0"),
        (moved("live", 9), "session 'live' at step 9"),
        (moved("gone", 1), "session 'gone' at step 1"),
        (moved("open", 1), "session 'open' at step 1"),
        (lambda entry: entry._replace(event_digest=b"\1" * 32), "session 'run-1' at step 0"),
    ],
)
def test_a_session_that_stands_elsewhere(
    run: Command, change: Callable[[SetEntry], SetEntry], said: str
) -> None:
    with run.open() as ws:
        keep_set(ws, change=change)
    ran = run("checkpoint", "check", "set1", "--json")
    assert (ran.code, ran.row["verdict"]) == (4, "damaged")
    assert f"set set1 and the log disagree: {said}" in ran.err


def test_all_sessions_that_stand_elsewhere_are_named(run: Command) -> None:
    with run.open() as ws:
        keep_set(ws, change=lambda entry: moved("gone", 1)(moved("live", 9)(entry)))
    problems = run("checkpoint", "check", "set1", "--json").row["problems"]
    found = [one["problem"].partition("disagree: ")[2].partition(":")[0] for one in problems]
    assert found == ["session 'gone' at step 1", "session 'live' at step 9"]


@pytest.mark.parametrize("session", ["checkpoint/set1", TRAINING, "live"])
def test_a_log_that_is_unavailable_says_nothing_of_a_set(
    run: Command, monkeypatch: pytest.MonkeyPatch, session: str
) -> None:
    real = SqliteLog.read_session

    def away(log: SqliteLog, session_id: str, *more: Any, **named: Any) -> Iterator[LogRecord]:
        if session_id == session:
            raise LogUnavailableError("no answer in time", hint="try again")
        return real(log, session_id, *more, **named)

    with run.open() as ws:
        kept = keep_set(ws)
        monkeypatch.setattr(SqliteLog, "read_session", away)
        if session == "live":
            with pytest.raises(LogUnavailableError):
                require_same_log(ws.log, "set1", kept.entry)
    ran = run("checkpoint", "check", "set1")
    assert (ran.code, "no answer in time" in ran.err) == (LogUnavailableError.exit_code, True)
    assert "disagree" not in ran.err


def test_a_log_that_is_damaged_where_the_set_was_committed(
    run: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = SqliteLog.read_session

    def damaged(log: SqliteLog, session_id: str, *more: Any, **named: Any) -> Iterator[LogRecord]:
        if session_id == "checkpoint/set1":
            raise StepGapError("a row is missing", hint="check", session_id=session_id)
        return real(log, session_id, *more, **named)

    with run.open() as ws:
        keep_set(ws)
    monkeypatch.setattr(SqliteLog, "read_session", damaged)
    ran = run("checkpoint", "check", "set1")
    said = "the log cannot be read (session 'checkpoint/set1'): a row is missing"
    assert (ran.code, said in ran.err) == (4, True), ran.err


def test_a_log_with_other_records_below_the_cut(run: Command) -> None:
    def another(entry: SetEntry) -> SetEntry:
        trees = {number: MerkleRoot([b"x"] * tree.count) for number, tree in entry.log.items()}
        return entry._replace(log=trees)

    def longer(entry: SetEntry) -> SetEntry:
        cut = Cut({number: entry.cut.end(number) + 900 for number in entry.cut.partitions()})
        trees = {
            number: MerkleRoot([b"x"] * (tree.count + 900)) for number, tree in entry.log.items()
        }
        return entry._replace(cut=cut, log=trees)

    with run.open() as ws:
        keep_set(ws, change=another)
        keep_set(ws, "set2", change=longer)
    assert run("checkpoint", "check", "set1").code == 0, "without --log the log is not read whole"
    ran = run("checkpoint", "check", "set1", "--log")
    assert (ran.code, "partition 0 has other records below the cut" in ran.err) == (4, True)
    ran = run("checkpoint", "check", "set2", "--log")
    assert (ran.code, "records below the cut, not " in ran.err) == (4, True)


def test_a_log_that_is_another_ones(run: Command, tmp_path: Path) -> None:
    with run.open() as ws:
        keep_set(ws)
    other = run.at(tmp_path / "other")
    other.open().close()
    (tmp_path / "other" / "checkpoints").symlink_to(Path(run.workspace) / "checkpoints")
    ran = other("checkpoint", "check", "set1", "--log", "--json")
    assert ran.code == 4
    assert len(ran.row["problems"]) > 2
    alone = run("checkpoint", "check", "set1", "--folder", tmp_path / "other" / "checkpoints")
    assert alone.code == 0, "a folder by itself has no log to be compared with"


def test_a_committed_set_whose_manifest_is_gone_is_not_taken_for_a_killed_save(
    run: Command,
) -> None:
    """`check` said that it was never committed, and `gc` took its objects and what was left."""
    with run.open() as ws:
        kept, store = keep_set(ws), store_of(ws)
    folder = store.set_folder(kept.ref)
    data = (folder / "manifest.json").read_bytes()
    (folder / "manifest.json").unlink()
    before = sorted(store.folder.rglob("*"))
    ran = run("checkpoint", "check")
    assert ran.code == 6
    assert "set set1 is committed in the log, and its manifest.json is gone" in ran.err
    ran = run("checkpoint", "check", "set1")
    assert (ran.code, "the file was taken away" in ran.err) == (6, True)
    for more in ([], ["--dry-run"]):
        ran = run("checkpoint", "gc", "--grace", "0s", *more)
        assert ran.code == 6
        assert f"the log has set {store.track}/{folder.name} for committed" in ran.err
        way_out = re.search("`steplog (checkpoint set-aside .*)`", ran.err)
        assert way_out is not None
    assert sorted(store.folder.rglob("*")) == before
    ran = run(*shlex.split(way_out[1]))
    assert ran.code == 0, ran.err
    assert (store.track_folder / "aside" / folder.name / "manifest.sha256").is_file()
    assert run("checkpoint", "gc", "--grace", "0s").code == 0
    (store.track_folder / "aside" / folder.name).rename(folder)
    (folder / "manifest.json").write_bytes(data)
    assert run("checkpoint", "check", "set1").code == 0


def test_what_retention_was_killed_in_is_not_taken_for_a_damaged_set(run: Command) -> None:
    """It took the manifest first: the log has such a set for committed."""
    with run.open() as ws:
        keep_set(ws)
        other, store = keep_set(ws, "set2"), store_of(ws)

        def killed(path: Path) -> None:
            (path / "manifest.json").unlink()
            raise KeyboardInterrupt

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr("shutil.rmtree", killed)
            with pytest.raises(KeyboardInterrupt):
                checkpoint_retention._remove_set(store.set_folder(other.ref))
    assert run("checkpoint", "list").err == ""
    ran = run("checkpoint", "gc", "--grace", "0s", "--json")
    assert (ran.code, len(ran.row["unfinished"])) == (0, 1)
    assert run("checkpoint", "check", "set1").code == 0
    assert [path.name for path in (store.track_folder / "sets").glob(".*")] == []
