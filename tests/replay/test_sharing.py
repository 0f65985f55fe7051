"""One workspace in several processes, children and threads."""

import os
import pickle
import shutil
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from eventlog.errors import (
    ConfigError,
    FencedError,
)
from replay.workspace import Workspace, open_workspace
from tests.support.desk import Told
from tests.support.processes import finish, python_script

Play = Callable[..., Told]
NOBODY = 65534


def in_child(act: Callable[[], object]) -> int:
    """Do something in a forked child; its exit code, 1 for any exception."""
    child = os.fork()
    if child == 0:
        code = 1
        try:
            act()
            code = 0
        finally:
            os._exit(code)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def test_a_pickled_workspace_is_its_place_and_nothing_else(ws: Workspace, play: Play) -> None:
    told = play(calls=3)
    pickled = pickle.dumps(ws)
    assert len(pickled) < 300
    with pickle.loads(pickled) as other:
        assert other.folder == ws.folder
        assert other.log.writer_id != ws.log.writer_id
        assert other.replay("s").state_bytes == told.states[-1]


def test_a_pickled_workspace_whose_folder_is_gone_is_not_made_anew(
    ws: Workspace, play: Play
) -> None:
    """A worker on another machine recorded into an empty one that nobody ever read."""
    play(calls=1)
    pickled = pickle.dumps(ws)
    ws.close()
    shutil.rmtree(ws.folder)
    with pytest.raises(ConfigError, match="no workspace"):
        pickle.loads(pickled)
    assert not ws.folder.exists()


def test_a_workspace_goes_to_a_spawned_process(ws: Workspace, play: Play) -> None:
    told = play(calls=3)
    script = (
        "import pickle, sys\n"
        "ws = pickle.loads(bytes.fromhex(sys.argv[1]))\n"
        "print(ws.replay('s').state_digest.hex())\n"
        "ws.record('t', environment='desk').close()\n"
    )
    printed = finish(python_script(script, pickle.dumps(ws).hex()))
    assert printed.strip() == ws.replay("s").state_digest.hex()
    assert ws.replay("s").state_bytes == told.states[-1]
    assert ws.session("t").status == "closed"


def test_a_forked_child_uses_what_it_inherited(ws: Workspace, play: Play) -> None:
    told = play(calls=3)
    session = ws.record("mine", environment="desk", state={"n": 0})
    parents_writer = ws.log.writer_id

    def use() -> None:
        assert ws.replay("s").state_bytes == told.states[-1]
        assert ws.log.writer_id != parents_writer
        with pytest.raises(FencedError):
            session.record_message("user", "not mine")
        with ws.record("child", environment="desk", state={"n": 1}) as own:
            own.record_message("user", "from the child")
        assert ws.replay("child").state == {"n": 1}
        ws.fork("s", 3, name="branch")
        ws.close()

    assert in_child(use) == 0
    session.record_message("user", "still mine")
    session.close()
    assert sorted(info.session_id for info in ws.sessions()) == ["branch", "child", "mine", "s"]
    assert {report.verdict for report in ws.check()} == {"ok"}


def test_a_child_that_only_leaves_the_block_closes_nothing(ws: Workspace) -> None:
    """What a fork copies of a with-block must not end the parent's session."""
    with ws.record("s", environment="desk") as session:
        child = os.fork()
        if child == 0:
            try:
                session.__exit__(None, None, None)
            finally:
                os._exit(0)
        os.waitpid(child, 0)
        assert ws.session("s").status == "open"
        session.record_message("user", "still open")


def test_a_parent_may_fork_while_it_records(ws: Workspace) -> None:
    """Children forked at any moment can use the workspace, and the parent goes on."""
    stop = threading.Event()

    def record() -> None:
        state = {"n": 0}
        with ws.record("busy", environment="desk", state=lambda: state) as session:
            while not stop.is_set():
                state["n"] += 1
                session.record_tool_return(session.record_tool_call("t", {}), state["n"])

    thread = threading.Thread(target=record)
    thread.start()
    try:
        codes = [
            in_child(lambda number=number: ws.record(f"c{number}", environment="desk").close())  # type: ignore[misc]
            for number in range(5)
        ]
    finally:
        stop.set()
        thread.join()
    assert codes == [0] * 5
    assert {report.verdict for report in ws.check()} == {"ok"}


def test_two_processes_open_one_workspace(tmp_path: Path) -> None:
    script = (
        "import sys, steplog\n"
        "with steplog.open_workspace(sys.argv[1]) as ws:\n"
        "    state = {'n': 0}\n"
        "    sys.stdin.readline()\n"
        "    with ws.record(sys.argv[2], environment='desk', state=lambda: state) as session:\n"
        "        for number in range(20):\n"
        "            with session.call('add', {}) as call:\n"
        "                state['n'] += 1\n"
        "                call.result = state['n']\n"
    )
    folder = tmp_path / "ws"
    processes = [python_script(script, folder, f"s{number}") for number in range(2)]
    for process in processes:
        assert process.stdin is not None
        process.stdin.write("go\n")
        process.stdin.flush()
    for process in processes:
        finish(process)
    with open_workspace(folder) as ws:
        assert [ws.replay(name).state for name in ("s0", "s1")] == [{"n": 20}] * 2
        assert {report.verdict for report in ws.check()} == {"ok"}


def test_what_one_handle_records_another_sees_at_once(ws: Workspace) -> None:
    with open_workspace(ws.folder) as reader:
        session = ws.record("s", environment="desk", state={"n": 0})
        for number in range(1, 4):
            session.record_state("next", {"n": number})
            assert reader.replay("s").state == {"n": number}
            assert reader.session("s").step_count == number + 1


def test_threads_record_into_one_session(ws: Workspace) -> None:
    """States of one thread's event went into the patch of another's."""
    session = ws.record("s", environment="desk", state={"n": -1})

    def work(number: int) -> None:
        for step in range(15):
            session.record_message("user", "x", state={"n": number * 100 + step, "t": "x" * number})
            session.record_verification(1.0, verifier="v", state={"n": number})

    threads = [threading.Thread(target=work, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    session.close()
    assert ws.session("s").step_count == 122
    (report,) = ws.check("s")
    assert report.verdict == "ok", report.details
