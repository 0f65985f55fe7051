"""The SQLite keeper on real files: what it makes, what it refuses to open, how it shares."""

import os
import pickle
import sqlite3
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from eventlog.errors import (
    ConfigError,
    EventCorruptError,
    IncompatibleSchemaError,
    LogError,
    LogUnavailableError,
    SteplogError,
)
from eventlog.sqlite import network_mount
from eventlog.sqlite.log_end import LogEnd, write_log_end
from eventlog.sqlite.schema import APPLICATION_ID, FORMAT, PAGE_BYTES
from eventlog.sqlite_log import SqliteLog
from tests.support.recorded import append_all, data_of, seeded_chain


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "log.db"


def test_the_file_is_what_the_design_says(path: Path) -> None:
    with SqliteLog(path) as log:
        seeded_chain(log, "s")
    db = sqlite3.connect(path)
    pragmas = ("page_size", "journal_mode", "user_version", "application_id")
    found = [db.execute(f"PRAGMA {pragma}").fetchone()[0] for pragma in pragmas]
    db.close()
    assert found == [PAGE_BYTES, "wal", FORMAT, APPLICATION_ID]


def test_a_close_leaves_the_file_alone_and_whole(path: Path) -> None:
    log = SqliteLog(path)
    chain = seeded_chain(log, "s")
    log.close()
    assert sorted(os.listdir(path.parent)) == ["log.db", "log.db.lock"]
    with SqliteLog(path) as again:
        assert data_of(again.read_session("s")) == [encoded.data for encoded in chain.events]


def test_opening_makes_the_file_and_nothing_half_made(path: Path) -> None:
    SqliteLog(path).close()
    assert sorted(os.listdir(path.parent)) == ["log.db", "log.db.lock"]


@pytest.mark.parametrize("what", ["cut to nothing", "gone"])
def test_a_log_that_is_gone_is_not_begun_anew(path: Path, what: str) -> None:
    with SqliteLog(path) as log:
        seeded_chain(log, "s")
    path.unlink()
    if what == "cut to nothing":
        path.touch()
    for _ in range(2):
        with pytest.raises(EventCorruptError, match=str(path)) as caught:
            SqliteLog(path)
        assert "log.db.lock" in caught.value.hint


def test_an_empty_file_that_was_never_a_log_is_refused_too(path: Path) -> None:
    path.touch()
    with pytest.raises(EventCorruptError, match="empty"):
        SqliteLog(path)


def test_a_log_is_also_opened_through_a_link_and_a_strange_name(tmp_path: Path) -> None:
    folder = tmp_path / "a ?#%20 é'b"
    folder.mkdir()
    (tmp_path / "link").symlink_to(folder)
    with SqliteLog(folder / "lög ?.db") as log, SqliteLog(tmp_path / "link" / "lög ?.db") as twin:
        chain = seeded_chain(log, "s")
        assert twin.path == log.path
        assert twin.session_info("s").head == chain.head
        assert twin.writer_id != log.writer_id


@pytest.mark.parametrize("kind", ["missing folder", "a folder", "below a file"])
def test_a_place_that_cannot_hold_a_log_is_named(tmp_path: Path, kind: str) -> None:
    path = tmp_path / "log.db"
    if kind == "missing folder":
        path = tmp_path / "none" / "log.db"
    elif kind == "a folder":
        path.mkdir()
    else:
        (tmp_path / "file").write_text("")
        path = tmp_path / "file" / "log.db"
    with pytest.raises(LogUnavailableError, match=str(path)) as caught:
        SqliteLog(path)
    assert caught.value.hint
    assert not (tmp_path / "none").exists()


@pytest.mark.parametrize("content", [b"not a database", b"x" * 100_000, b"SQLite format 3\x00"])
def test_a_file_that_is_no_database_is_refused_and_left_alone(path: Path, content: bytes) -> None:
    path.write_bytes(content)
    with pytest.raises((EventCorruptError, ConfigError), match=str(path)):
        SqliteLog(path)
    assert path.read_bytes() == content


def test_another_programs_database_is_refused_and_left_alone(path: Path) -> None:
    db = sqlite3.connect(path)
    db.execute("CREATE TABLE notes(text)")
    db.execute("INSERT INTO notes VALUES('mine')")
    db.commit()
    db.close()
    before = path.read_bytes()
    with pytest.raises(ConfigError, match="not a log of ours"):
        SqliteLog(path)
    assert path.read_bytes() == before


def test_a_newer_format_is_refused_by_name(path: Path) -> None:
    SqliteLog(path).close()
    db = sqlite3.connect(path, isolation_level=None)
    write_log_end(db, LogEnd(FORMAT + 1, 0, 0, 0))
    db.execute(f"PRAGMA user_version={FORMAT + 1}")
    db.close()
    with pytest.raises(IncompatibleSchemaError, match=f"format {FORMAT + 1}"):
        SqliteLog(path)


def test_a_newer_format_in_one_place_only_is_damage(path: Path) -> None:
    SqliteLog(path).close()
    db = sqlite3.connect(path, isolation_level=None)
    db.execute(f"PRAGMA user_version={FORMAT + 1}")
    db.close()
    with pytest.raises(EventCorruptError, match="damaged"):
        SqliteLog(path)


def test_an_altered_table_is_damage(path: Path) -> None:
    SqliteLog(path).close()
    db = sqlite3.connect(path, isolation_level=None)
    db.execute("DROP INDEX events_by_place")
    db.close()
    with pytest.raises(EventCorruptError, match="events_by_place"):
        SqliteLog(path)


def test_users_may_add_tables_and_views_of_their_own(path: Path) -> None:
    with SqliteLog(path) as log:
        seeded_chain(log, "s")
    db = sqlite3.connect(path, isolation_level=None)
    db.execute("CREATE VIEW mine AS SELECT session FROM head")
    db.close()
    with SqliteLog(path) as log:
        assert [info.session_id for info in log.list_sessions()] == ["s"]


def test_a_network_file_system_is_refused_with_the_fix(
    path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    mounts = tmp_path / "mounts"
    mounts.write_text(f"/dev/vda / ext4 rw 0 0\nserver:/export {path.parent} nfs4 rw 0 0\n")
    monkeypatch.setattr(network_mount, "_MOUNTS", mounts)
    with pytest.raises(ConfigError, match="nfs4") as caught:
        SqliteLog(path)
    assert str(path.parent) in caught.value.message
    assert "local disk" in caught.value.hint
    assert not path.exists()


def test_pickling_carries_only_the_path(path: Path) -> None:
    with SqliteLog(path) as log:
        chain = seeded_chain(log, "s")
        pickled = pickle.dumps(log)
        assert len(pickled) < 300
        with pickle.loads(pickled) as twin:
            assert twin.writer_id != log.writer_id
            assert twin.session_info("s").head == chain.head


def test_a_closed_handle_refuses_everything_and_others_go_on(path: Path) -> None:
    first, second = SqliteLog(path), SqliteLog(path)
    chain = seeded_chain(second, "s")
    first.close()
    for use in (
        lambda: first.writer_id,
        first.end_cut,
        lambda: first.read_session("s"),
        lambda: first.take_over(["s"], stands_on={"s": chain.head.digest}, reason="x"),
    ):
        with pytest.raises(LogError, match="closed"):
            use()
    append_all(second, [chain.call()])
    second.close()


def test_exit_without_a_close_keeps_what_was_submitted(path: Path) -> None:
    code = """
import sys
import tempfile
from eventlog.sqlite_log import SqliteLog
from tests.support.recorded import seeded_chain
log = SqliteLog(sys.argv[1])
chain = seeded_chain(log, "s")
for _ in range(50):
    event = chain.call()
    log.submit_events("s", [event], expected_step=event.event.step - 1)
"""
    subprocess.run([sys.executable, "-c", code, path], check=True, env=_environment(), timeout=60)
    with SqliteLog(path) as log:
        assert log.session_info("s").step_count == 55
    assert sorted(os.listdir(path.parent)) == ["log.db", "log.db.lock"]


AS_NOBODY = """
import os, sys
from eventlog.errors import SteplogError
from eventlog.sqlite_log import SqliteLog
from tests.support.recorded import seeded_chain
os.setgroups([]); os.setgid(65534); os.setuid(65534)
try:
    log = SqliteLog(sys.argv[1])
    print("steps", len(list(log.read_session("s"))), len(list(log.list_sessions())))
    seeded_chain(log, "new")
except SteplogError as error:
    print(type(error).__name__, error.message, "|", error.hint)
"""


WATCHING_AS_NOBODY = """
import os, sys
from eventlog.sqlite_log import SqliteLog
os.setgroups([]); os.setgid(65534); os.setuid(65534)
log = SqliteLog(sys.argv[1])
while True:
    print("steps", len(list(log.read_session("s"))), flush=True)
    if not sys.stdin.readline():
        break
"""

MOUNTED_READ_ONLY = """
from eventlog.sqlite import connection
connection._is_mounted_read_only = lambda folder: True
"""


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root to become another user")
class TestReadOnly:
    """As another user, for whom file or folder are read-only."""

    def _run(self, path: Path, code: str = AS_NOBODY) -> str:
        done = subprocess.run(
            [sys.executable, "-c", code, path],
            check=True,
            env=_environment(),
            capture_output=True,
            text=True,
            timeout=60,
        )
        return done.stdout

    @pytest.fixture
    def shared(self) -> Iterator[Path]:
        # Not below pytest's own folder, where no other user may go.
        with tempfile.TemporaryDirectory() as folder:
            Path(folder).chmod(0o755)
            yield Path(folder)

    def test_no_log_can_be_made_there(self, shared: Path) -> None:
        out = self._run(shared / "log.db")
        assert out.startswith("LogUnavailableError")
        assert str(shared / "log.db") in out
        assert "permission" in out
        assert os.listdir(shared) == []

    def test_a_log_whose_owner_may_write_at_any_time_is_not_read_as_if_it_stood_still(
        self, shared: Path
    ) -> None:
        with SqliteLog(shared / "log.db") as log:
            seeded_chain(log, "s")
        out = self._run(shared / "log.db")
        assert out.startswith("LogUnavailableError")
        assert f"may not write to its folder {shared}," in out
        assert "group write permission" in out

    def test_a_log_in_use_is_read_as_it_is_now(self, shared: Path) -> None:
        with SqliteLog(shared / "log.db") as log:
            chain = seeded_chain(log, "s")
            child = subprocess.Popen(
                [sys.executable, "-c", WATCHING_AS_NOBODY, log.path],
                env=_environment(),
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                text=True,
            )
            assert child.stdin is not None
            assert child.stdout is not None
            for steps in range(5, 9):
                assert child.stdout.readline() == f"steps {steps}\n"
                append_all(log, [chain.call()])
                print(file=child.stdin, flush=True)
            child.communicate()
        assert child.returncode == 0

    def test_on_a_read_only_file_system_a_whole_log_is_read(self, shared: Path) -> None:
        with SqliteLog(shared / "log.db") as log:
            seeded_chain(log, "s")
        before = (shared / "log.db").read_bytes()
        out = self._run(shared / "log.db", MOUNTED_READ_ONLY + AS_NOBODY).splitlines()
        assert out[0] == "steps 5 1"
        assert out[1].startswith("LogUnavailableError")
        assert str(shared / "log.db") in out[1]
        assert (shared / "log.db").read_bytes() == before

    def test_on_a_read_only_file_system_each_question_looks_at_the_file_anew(
        self, shared: Path
    ) -> None:
        """Others may have mounted it where they can write."""
        with SqliteLog(shared / "log.db") as log:
            chain = seeded_chain(log, "s")
        code = MOUNTED_READ_ONLY + WATCHING_AS_NOBODY
        child = subprocess.Popen(
            [sys.executable, "-c", code, shared / "log.db"],
            env=_environment(),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        assert child.stdin is not None
        assert child.stdout is not None
        assert child.stdout.readline() == "steps 5\n"
        with SqliteLog(shared / "log.db") as log:
            head = log.session_info("s").head
            log.take_over(["s"], stands_on={"s": head.digest}, reason="more")
        print(file=child.stdin, flush=True)
        assert child.stdout.readline() == "steps 6\n"
        child.communicate()
        assert len(chain.events) == 5


def _environment() -> dict[str, str]:
    root = Path(__file__).resolve().parents[2]
    return {**os.environ, "PYTHONPATH": str(root), "PYTHONDONTWRITEBYTECODE": "1"}


def test_a_log_cut_anywhere_is_read_right_or_refused_by_an_error_of_ours(path: Path) -> None:
    with SqliteLog(path) as log:
        chain = seeded_chain(log, "s", calls=20)
    whole = path.read_bytes()
    for size in [*range(0, 200, 7), *range(0, len(whole), 8_192)]:
        path.write_bytes(whole[:size])
        try:
            with SqliteLog(path) as log:
                found = data_of(log.read_session("s"))
        except SteplogError as error:
            assert error.exit_code in (2, 4)  # noqa: PT017 - both outcomes are right
        else:
            assert found == [encoded.data for encoded in chain.events]
