"""The real process: exit codes, readers that are gone, folders that may only be read, colours."""

import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from subprocess import PIPE

import pytest

from replay.workspace import open_workspace
from tests.support.command import record_desk
from tests.support.sources import ROOT

COMMAND = [sys.executable, "-m", "replay.cli"]


def interruptible() -> None:
    """In the child: a run started in the background ignores SIGINT, and children inherit that."""
    signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture(scope="module")
def workspace(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A workspace with the sessions `desk/1` and `open`."""
    folder = tmp_path_factory.mktemp("processes") / "ws"
    with open_workspace(folder) as ws:
        record_desk(ws)
        session = ws.record("open", environment="desk")
        for number in range(200):
            session.record_message("user", f"message {number} " + "x" * 2_000)
    return folder


@pytest.mark.parametrize(
    ("arguments", "code"),
    [
        (["sessions"], 0),
        (["replay", "desk/1@2"], 0),
        (["diff", "desk/1@0", "desk/1@2"], 1),
        (["sessions", "--since", "never"], 2),
        (["show", "desk/9"], 5),
        (["replay", "desk/1@99"], 5),
        (["replay", "desk/1", "--reducer", "mine"], 6),
        (["close", "desk/1"], 8),
        (["import", "not there"], 1),
        (["nonsense"], 2),
    ],
)
def test_exit_codes(workspace: Path, arguments: list[str], code: int) -> None:
    done = subprocess.run(
        [*COMMAND, "-w", str(workspace), *arguments], cwd=ROOT, capture_output=True, check=False
    )
    assert done.returncode == code, done.stderr.decode()
    assert b"Traceback" not in done.stderr


@pytest.mark.parametrize("verb", [["tail", "-n", "2000"], ["show", "open", "--events"], ["--help"]])
@pytest.mark.parametrize("json_option", [[], ["--json"]])
def test_a_reader_that_is_gone(workspace: Path, verb: list[str], json_option: list[str]) -> None:
    child = subprocess.Popen(
        [*COMMAND, "-w", str(workspace), *json_option, *verb], cwd=ROOT, stdout=PIPE, stderr=PIPE
    )
    assert child.stdout is not None
    assert child.stderr is not None
    child.stdout.readline()
    child.stdout.close()
    said = child.stderr.read()
    child.stderr.close()
    code = child.wait(timeout=60)
    assert b"Traceback" not in said
    assert b"BrokenPipe" not in said
    assert code in (0, 141)  # 0 where all was written before the reader went


def test_an_interrupt_is_130_and_says_nothing(workspace: Path) -> None:
    child = subprocess.Popen(
        [*COMMAND, "-w", str(workspace), "tail", "-n", "1", "-f", "--json"],
        cwd=ROOT,
        stdout=PIPE,
        stderr=PIPE,
        preexec_fn=interruptible,
    )
    assert child.stdout is not None
    assert child.stderr is not None
    row = json.loads(child.stdout.readline())
    assert row["session"] == "open"
    child.send_signal(signal.SIGINT)
    assert child.wait(timeout=60) == 130
    assert b"Traceback" not in child.stderr.read()
    child.stdout.close()
    child.stderr.close()


def test_following_shows_another_processs_events_at_once(tmp_path: Path) -> None:
    with open_workspace(tmp_path) as ws:
        session = ws.record("s", environment="desk")
        child = subprocess.Popen(
            [*COMMAND, "-w", str(tmp_path), "tail", "-f", "--json"],
            cwd=ROOT,
            stdout=PIPE,
            preexec_fn=interruptible,
        )
        assert child.stdout is not None
        assert json.loads(child.stdout.readline())["step"] == 0
        for step in range(1, 4):
            session.record_message("user", "hello")
            assert json.loads(child.stdout.readline())["step"] == step
            time.sleep(0.05)
        child.send_signal(signal.SIGINT)
        assert child.wait(timeout=60) == 130
        child.stdout.close()


def test_the_environment_names_the_workspace(workspace: Path) -> None:
    done = subprocess.run(
        [*COMMAND, "sessions", "--json"],
        cwd=ROOT,
        capture_output=True,
        check=True,
        env={"STEPLOG_WORKSPACE": str(workspace)},
    )
    assert len(done.stdout.splitlines()) == 2


@pytest.fixture
def read_only(workspace: Path) -> Iterator[Path]:
    """A copy that nobody may write, at a place that everybody may reach."""
    with tempfile.TemporaryDirectory() as place:
        subprocess.run(["cp", "-r", str(workspace), f"{place}/ws"], check=True)
        subprocess.run(["chmod", "-R", "a+rX,a-w", place], check=True)
        yield Path(place) / "ws"
        subprocess.run(["chmod", "-R", "u+w", place], check=True)


# Everything is loaded before root is given up: the interpreter may lie where only root can read.
AS_NOBODY = """
import io, os, sys
from contextlib import redirect_stdout
import email.message, email.parser, encodings.idna, importlib.metadata, replay.diagnosis
import eventlog.sqlite.connection
eventlog.sqlite.connection._is_mounted_read_only = lambda folder: True
from replay.cli.main import VERBS, load_verb, run_command
for verb in VERBS:
    load_verb(verb)
    with redirect_stdout(io.StringIO()):
        run_command([verb, "--help"])
if os.getuid() == 0:
    os.setgid(65534)
    os.setuid(65534)
for verb in sys.argv[2:]:
    print("code", run_command(["--json", "-w", sys.argv[1], *verb.split()]), flush=True)
"""


def test_a_file_system_that_is_mounted_read_only_is_read(read_only: Path) -> None:
    verbs = ["sessions", "show desk/1@2", "calls", "tail", "replay desk/1@2", "diff desk/1 desk/1"]
    verbs += ["check", "snapshot list"]
    done = subprocess.run(
        [sys.executable, "-c", AS_NOBODY, str(read_only), *verbs],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    codes = [line for line in done.stdout.splitlines() if line.startswith("code ")]
    assert codes == ["code 0"] * len(verbs), done.stderr


def test_writing_there_is_a_clear_error(read_only: Path) -> None:
    verbs = ["fork desk/1@2", "close open", "snapshot take desk/1@2"]
    done = subprocess.run(
        [sys.executable, "-c", AS_NOBODY, str(read_only), *verbs],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    codes = [line for line in done.stdout.splitlines() if line.startswith("code ")]
    assert codes == ["code 7"] * len(verbs), done.stderr
    assert done.stderr.count("error:") == len(verbs)
    assert str(read_only) in done.stderr


def on_a_terminal(arguments: list[str], **environment: str) -> str:
    """What the command shows where stdout and stderr are one terminal."""
    import pty

    pid, terminal = pty.fork()
    if pid == 0:
        os.chdir(ROOT)
        os.execve(sys.executable, [*COMMAND, *arguments], {"TERM": "xterm", **environment})
    shown = b""
    while True:
        try:
            data = os.read(terminal, 65536)
        except OSError:  # how Linux says that the other side is closed
            break
        if not data:
            break
        shown += data
    os.close(terminal)
    assert os.waitpid(pid, 0)[1] == 0
    return shown.decode()


def test_a_terminal_gets_tables_and_no_color_is_honoured(workspace: Path) -> None:
    coloured = on_a_terminal(["-w", str(workspace), "sessions"], COLUMNS="200")
    plain = on_a_terminal(["-w", str(workspace), "sessions"], COLUMNS="200", NO_COLOR="1")
    for shown in (coloured, plain):
        assert "desk/1" in shown
        assert "\t" not in shown
    assert "\x1b[3" not in plain


def test_long_work_shows_its_progress_on_a_terminal_only(workspace: Path) -> None:
    shown = on_a_terminal(["-w", str(workspace), "check"], COLUMNS="200")
    assert "checking" in shown
    assert "checking" not in on_a_terminal(["-w", str(workspace), "check", "-q"], COLUMNS="200")


def test_json_on_a_terminal_is_one_object_a_line(workspace: Path) -> None:
    shown = on_a_terminal(["-w", str(workspace), "check", "--json"], COLUMNS="40")
    assert [json.loads(line)["verdict"] for line in shown.split("\r\n")[:-1]] == ["ok", "ok"]


def test_data_stays_on_stdout_while_progress_is_drawn(workspace: Path) -> None:
    """A bar that took stdout over would send `steplog check --json | jq` nothing."""
    script = (
        "from replay.cli import streams; streams._Unfailing.isatty = lambda _: True\n"
        "from replay.cli.main import run_command\n"
        f"raise SystemExit(run_command(['-w', {str(workspace)!r}, '--json', 'check']))"
    )
    done = subprocess.run(
        [sys.executable, "-c", script],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
        env={"TERM": "xterm", "FORCE_COLOR": "1"},
    )
    assert [json.loads(line)["verdict"] for line in done.stdout.splitlines()] == ["ok", "ok"]
    assert "checking" in done.stderr


OUTPUTS = [
    ["--help"],
    ["--version"],
    ["show", "--help"],
    ["sessions"],
    ["sessions", "--json"],
    ["show", "open", "--events"],
    ["show", "desk/1@1", "--content", "arguments"],
    ["calls"],
    ["tail"],
    ["replay", "desk/1"],
    ["diff", "desk/1@1", "desk/1@9"],
    ["check"],
    ["snapshot", "list"],
    ["doctor"],
]


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="no /dev/full")
@pytest.mark.parametrize("verb", OUTPUTS, ids=" ".join)
def test_a_full_disk_under_stdout_is_told_and_no_traceback(
    workspace: Path, verb: list[str]
) -> None:
    with open("/dev/full", "wb") as full:
        done = subprocess.run(
            [*COMMAND, "-w", str(workspace), *verb],
            cwd=ROOT,
            stdout=full,
            stderr=PIPE,
            check=False,
        )
    assert b"Traceback" not in done.stderr
    told = b"error: cannot write to stdout: No space left on device\n"
    assert (done.returncode, done.stderr[-len(told) :]) == (7, told)


@pytest.mark.parametrize("verb", OUTPUTS, ids=" ".join)
def test_a_closed_stdout_is_no_success_and_no_traceback(workspace: Path, verb: list[str]) -> None:
    command = [*COMMAND, "-w", str(workspace), *verb]
    done = subprocess.run(
        ["sh", "-c", 'exec "$@" >&-', "sh", *command], cwd=ROOT, stderr=PIPE, check=False
    )
    assert (done.returncode, done.stderr) == (1, b"error: stdout is closed\n")


@pytest.mark.parametrize("where", ["2>/dev/full", "2>&-"])
def test_what_cannot_be_said_on_stderr_changes_no_answer(workspace: Path, where: str) -> None:
    for verb, code in ((["show", "desk/1"], 0), (["show", "nobody"], 5)):
        command = [*COMMAND, "-w", str(workspace), *verb]
        done = subprocess.run(
            ["sh", "-c", f'exec "$@" {where}', "sh", *command], cwd=ROOT, stdout=PIPE, check=False
        )
        assert (done.returncode, bool(done.stdout)) == (code, code == 0)


def test_a_working_folder_that_is_gone_is_a_wrong_workspace(tmp_path: Path) -> None:
    command = [*COMMAND, "sessions"]
    done = subprocess.run(
        ["sh", "-c", 'cd "$0" && rmdir "$0" && exec "$@"', str(tmp_path), *command],
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        check=False,
    )
    assert b"Traceback" not in done.stderr
    assert (done.returncode, done.stdout) == (2, b"")
