"""The SQLite keeper in several processes: forks, spawns, rivals, fairness."""

import json
import multiprocessing
from pathlib import Path

import pytest

from eventlog.cut import Cut
from eventlog.log import EventLog
from eventlog.sqlite_log import SqliteLog
from tests.support.processes import finish, python_script
from tests.support.recorded import data_of, seeded_chain
from tests.support.scale import scaled

QUIET = """
import warnings
warnings.simplefilter("ignore", DeprecationWarning)  # Forking with threads is what is tested.
"""

FORKED = (
    QUIET
    + """
import gc, os, sys, threading
from eventlog.errors import FencedError
from eventlog.sqlite_log import SqliteLog
from tests.support.events import EventChain
from tests.support.recorded import append_all, data_of, seeded_chain

log = SqliteLog(sys.argv[1])
mine = seeded_chain(log, "parent")
list(log.read_session("parent"))
stop = threading.Event()
background = seeded_chain(log, "background")

def keep_writing():
    while not stop.is_set():
        append_all(log, [background.call()])

writer = threading.Thread(target=keep_writing)
writer.start()
children = []
for number in range(6):
    pid = os.fork()
    if pid == 0:
        try:
            assert log._own.writer.committer._db is None
            assert not log._own.reader._idle
            assert log.writer_id != mine.events[0].event.body.writer
            theirs = seeded_chain(log, f"child {number}")
            assert len(list(log.read_session("parent"))) >= 5
            rival = EventChain("parent", seed=number + 1)
            rival.head = mine.head
            try:
                append_all(log, [rival.call()])
            except FencedError:
                pass
            else:
                raise AssertionError("a child wrote under its parent's claim")
            gc.collect()
            append_all(log, [theirs.call()])
            log.close()
        except BaseException:
            import traceback
            traceback.print_exc()
            os._exit(1)
        # The even ones end as programs do, with their destructors; the odd ones as a fork server.
        if number % 2:
            os._exit(0)
        sys.exit(0)
    children.append(pid)
    append_all(log, [mine.call()])
codes = [os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) for pid in children]
stop.set()
writer.join()
assert codes == [0] * 6, codes
append_all(log, [mine.call(), mine.returned()])
assert data_of(log.read_session("parent")) == [each.data for each in mine.events]
assert data_of(log.read_session("background")) == [each.data for each in background.events]
assert [log.session_info(f"child {number}").step_count for number in range(6)] == [6] * 6
assert list(log.find_damage()) == []
log.close()
"""
)


def test_a_forked_child_uses_nothing_of_its_parents(tmp_path: Path) -> None:
    out = finish(python_script(FORKED, tmp_path / "log.db"))
    assert out == ""
    with SqliteLog(tmp_path / "log.db") as log:
        assert list(log.find_damage()) == []


def test_a_parents_file_stays_whole_when_children_are_left_without_a_word(tmp_path: Path) -> None:
    code = (
        QUIET
        + """
import os, sys
from eventlog.sqlite_log import SqliteLog
from tests.support.recorded import append_all, data_of, seeded_chain
log = SqliteLog(sys.argv[1])
chain = seeded_chain(log, "s")
for _ in range(10):
    pid = os.fork()
    if pid == 0:
        sys.exit(0)
    os.waitpid(pid, 0)
    append_all(log, [chain.call()])
    assert data_of(log.read_session("s")) == [each.data for each in chain.events]
log.close()
"""
    )
    finish(python_script(code, tmp_path / "log.db"))


def test_a_child_forked_in_the_middle_of_a_use_says_so_and_touches_nothing(tmp_path: Path) -> None:
    code = (
        QUIET
        + """
import os, sys, threading
from eventlog.keeping import fork_gate
from eventlog.errors import LogUnavailableError
from eventlog.sqlite_log import SqliteLog
from tests.support.recorded import append_all, data_of, seeded_chain
log = SqliteLog(sys.argv[1])
chain = seeded_chain(log, "s")
fork_gate.WAIT_S = 0.1
inside, leave = threading.Event(), threading.Event()

def use():
    with log._own.reader.connection():
        inside.set()
        leave.wait()

user = threading.Thread(target=use)
user.start()
inside.wait()
pid = os.fork()
if pid == 0:
    for use in (lambda: list(log.read_session("s")), lambda: SqliteLog(sys.argv[1])):
        try:
            use()
        except LogUnavailableError as error:
            assert "spawn" in error.hint, error
        else:
            os._exit(1)
    sys.exit(0)
assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
leave.set()
user.join()
append_all(log, [chain.call()])
assert data_of(log.read_session("s")) == [each.data for each in chain.events]
log.close()
"""
    )
    finish(python_script(code, tmp_path / "log.db"))


def _steps_seen(log: EventLog, session_id: str) -> tuple[int, str]:
    """In a worker process: what it reads, and the writer id it has."""
    return log.session_info(session_id).step_count, log.writer_id


@pytest.mark.parametrize("method", ["spawn", "forkserver"])
def test_a_handle_sent_to_another_process_opens_itself_there(tmp_path: Path, method: str) -> None:
    with SqliteLog(tmp_path / "log.db") as log:
        seeded_chain(log, "s")
        with multiprocessing.get_context(method).Pool(2) as pool:
            found = pool.starmap(_steps_seen, [(log, "s")] * 4)
        assert {steps for steps, _ in found} == {5}
        assert log.writer_id not in {writer for _, writer in found}


RIVAL = """
import json, sys
from eventlog.errors import FencedError, StepConflictError
from eventlog.event import LineHead
from eventlog.sqlite_log import SqliteLog
from tests.support.events import EventChain
from tests.support.recorded import append_all
path, name, rounds = sys.argv[1], sys.argv[2], int(sys.argv[3])
log = SqliteLog(path)
won, refused = [], {}
for number in range(rounds):
    info = log.session_info("s")
    if info.writer != log.writer_id:
        log.take_over(["s"], stands_on={"s": info.head.digest}, reason=name)
    chain = EventChain("s", seed=1_000 * ord(name) + number)
    chain.head = log.session_info("s").head
    batch = [chain.call(), chain.returned()]
    try:
        receipt = append_all(log, batch)
        won.append([batch[0].digest.hex(), batch[1].digest.hex(), receipt.offset])
    except (FencedError, StepConflictError) as error:
        refused[type(error).__name__] = refused.get(type(error).__name__, 0) + 1
log.close()
print(json.dumps({"won": won, "refused": refused}))
"""


def test_rivals_for_one_session_each_append_is_whole_or_refused(tmp_path: Path) -> None:
    with SqliteLog(tmp_path / "log.db") as log:
        seeded_chain(log, "s")
        rivals = [
            python_script(RIVAL, tmp_path / "log.db", name, str(scaled(40, 200)))
            for name in ("a", "b", "c")
        ]
        outcomes = [json.loads(finish(rival)) for rival in rivals]
        kept = {record.digest.hex(): record for record in log.tail_events(Cut.empty())}
        offsets = set()
        for outcome in outcomes:
            for first, last, offset in outcome["won"]:
                # Superseded by a later take-over perhaps, but kept, as one batch.
                assert kept[last].offset == offset == kept[first].offset + 1
                assert offset not in offsets
                offsets.add(offset)
        assert len(offsets) > 0
        assert list(log.find_damage()) == []
        steps = [record.prefix.step for record in log.read_session("s")]
        assert steps == list(range(len(steps)))


CROWD = """
import json, sys, threading, time
from eventlog.sqlite_log import SqliteLog
from tests.support.recorded import append_all, seeded_chain
path, name, appends = sys.argv[1], sys.argv[2], int(sys.argv[3])
log = SqliteLog(path)
sys.stdin.readline()
waits, heads = [], {}

def record(session):
    chain = seeded_chain(log, session)
    for _ in range(appends):
        begun = time.perf_counter()
        append_all(log, [chain.call()])
        waits.append(time.perf_counter() - begun)
    heads[session] = chain.head.digest.hex()

threads = [threading.Thread(target=record, args=(f"{name}/{n}",)) for n in range(8)]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()
log.close()
print(json.dumps({"heads": heads, "worst_s": max(waits), "waits": len(waits)}))
"""


def test_eight_processes_with_eight_sessions_each_at_once(tmp_path: Path) -> None:
    appends = scaled(10, 60)
    SqliteLog(tmp_path / "log.db").close()
    crowd = [
        python_script(CROWD, tmp_path / "log.db", f"p{number}", str(appends)) for number in range(8)
    ]
    for process in crowd:
        assert process.stdin is not None
        process.stdin.write("go\n")
        process.stdin.flush()
    outcomes = [json.loads(finish(process)) for process in crowd]
    with SqliteLog(tmp_path / "log.db") as log:
        heads = {name: head for outcome in outcomes for name, head in outcome["heads"].items()}
        assert len(heads) == 64
        for name, head in heads.items():
            info = log.session_info(name)
            assert (info.step_count, info.head.digest.hex()) == (5 + appends, head)
        assert len(data_of(log.tail_events(Cut.empty()))) == 64 * (5 + appends)
        assert list(log.find_damage()) == []
    # Printed, not asserted: a wait says more about the machine than about the log.
    print(f"8 processes x 8 sessions: worst wait {max(o['worst_s'] for o in outcomes):.3f} s")
