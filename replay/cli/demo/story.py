"""The demo's story, told while it happens: record, kill, resume, replay, fork, damage."""

import os
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final, NamedTuple

from eventlog.errors import IntegrityError
from eventlog.json_form import dumps
from replay.cli.demo.clerk import serve
from replay.cli.demo.desk import Desk
from replay.workspace import Workspace, open_workspace

Say = Callable[[str], None]

SEEDS: Final = (3, 4, 5)
KILLED_SEED: Final = 7
CALLS_BEFORE_KILL: Final = 9
CHILD_LINES_MAX: Final = 1_000


class Ending(NamedTuple):
    """What the story leaves behind: its sessions, and the verdict on the damaged copy."""

    sessions: list[str]
    resumed: str
    branch: str
    found: str

    def things_to_try(self) -> Iterator[str]:
        """Command lines, without the workspace, that show more of it."""
        yield "sessions"
        yield f"show {self.resumed}"
        yield f"show {self.resumed}@12"
        yield f"calls {self.resumed} --tool refund"
        yield f"replay {self.resumed} --step 12 --path orders"
        yield f"diff {self.resumed} {self.branch}"
        yield "check"


def tell(folder: Path, say: Say) -> Ending:
    """Run the whole story in a new workspace at `folder`. Raises what steplog raises."""
    with open_workspace(folder) as ws:
        record_sessions(ws, say)
    resumed = kill_and_resume(folder, say)
    with open_workspace(folder) as ws:
        replay_and_compare(ws, resumed, say)
        branch = fork_and_part(ws, resumed, say)
        sessions = [info.session_id for info in ws.sessions()]
    return Ending(sessions, resumed, branch, damage_a_copy(folder, resumed, say))


def record_sessions(ws: Workspace, say: Say) -> None:
    """Record one session per seed in this process."""
    say("1. A help desk with four tools is recorded, one session per seed.")
    for seed in SEEDS:
        desk = Desk(seed)
        name = f"desk/seed-{seed}"
        with ws.record(name, environment="desk", state=_reader(desk), seed=seed) as session:
            serve(session, desk, seed, careful=seed % 2 == 1)
        info = ws.session(name)
        say(f"   {name}: {info.step_count} events, {info.status}, reward {info.reward}")


def kill_and_resume(folder: Path, say: Say) -> str:
    """Kill a recording process with SIGKILL, resume its session here, and prove nothing is lost."""
    name = f"desk/seed-{KILLED_SEED}"
    say("\n2. Another process records; it is killed with SIGKILL in the middle.")
    acknowledged = _record_and_kill(folder, name)
    say(f"   killed after step {acknowledged} was acknowledged")
    with open_workspace(folder) as ws:
        desk = Desk(KILLED_SEED)
        session = ws.resume(name, state=_reader(desk))
        state = session.state
        assert isinstance(state, dict)
        desk.state = state
        say(f"   resumed after step {session.step - 1}: every acknowledged event is there")
        for call in session.open_calls:
            say(f"   open call at step {call.step}: {call.tool} - recorded as interrupted, redone")
        done = sum(1 for row in ws.calls(name) if row.return_step is not None)
        session.interrupt_open_calls()
        with session:
            serve(session, desk, KILLED_SEED, skip=done)
        twin = Desk(KILLED_SEED)
        with ws.record(
            f"{name}-uninterrupted", environment="desk", state=_reader(twin), seed=KILLED_SEED
        ) as other:
            serve(other, twin, KILLED_SEED)
        ours, theirs = ws.replay(name), ws.replay(f"{name}-uninterrupted")
        same = "the same" if ours.state_digest == theirs.state_digest else "NOT the same"
        say(f"   finished; its last state is {same} as that of a run never stopped")
    return name


def replay_and_compare(ws: Workspace, name: str, say: Say) -> None:
    """Show the state after a step, and what the next calls changed."""
    say("\n3. Any step comes back, in any process: no environment code is run.")
    step = 12
    replayed = ws.replay(name, step)
    say(f"   after step {step} ({replayed.kind}): state {replayed.state_digest.hex()[:16]}..")
    state = replayed.opaque_state
    assert isinstance(state, dict)
    say(
        f"   cash {state['cash']}, notes {dumps(state['notes'])}, vouchers "
        f"{dumps(state['vouchers'])}"
    )
    later = min(step + 6, ws.session(name).step_count - 1)
    say(f"   changes from step {step} to step {later}:")
    for change in ws.diff((name, step), (name, later)).changes:
        if change.path[:1] != ("rng",):
            path = "/".join(str(part) for part in change.path)
            say(f"     {change.op} {path}: {dumps(change.before)} -> {dumps(change.after)}")


def fork_and_part(ws: Workspace, name: str, say: Say) -> str:
    """Fork at a step, act differently there, and show where the two part."""
    say("\n4. A fork shares the past and costs one event.")
    branch = ws.fork(name, 12, name="desk/what-if")
    with ws.resume(branch) as session:
        desk = Desk(KILLED_SEED)
        state = session.state
        assert isinstance(state, dict)
        desk.state = state
        step = session.record_tool_call("voucher", {"order": "A1"})
        session.record_tool_return(step, desk.use("voucher", {"order": "A1"}), state=desk.state)
        reward, components = desk.verify()
        session.record_verification(reward, verifier="desk-rules", components=components)
    difference = ws.diff(name, branch)
    say(f"   {branch} parts from {name} at step {difference.first_step}")
    return branch


def damage_a_copy(folder: Path, name: str, say: Say) -> str:
    """Flip one bit of an event in a copy of the workspace; the verdict that `check` gives."""
    say("\n5. One bit is flipped in a copy of the workspace.")
    with tempfile.TemporaryDirectory(prefix="steplog-demo-") as place:
        copy = Path(place) / "damaged"
        shutil.copytree(folder, copy)
        _flip_a_bit(copy / "log.db", _events_of(folder, name))
        with open_workspace(copy) as ws:
            bad = [report for report in ws.check() if report.verdict != "ok"]
            for report in bad:
                say(f"   {report.session}: {report.verdict}, first at step {report.first_bad}")
    if not bad:
        raise IntegrityError("the flipped bit was not found", hint="please report this")
    return bad[0].verdict


def _events_of(folder: Path, name: str) -> list[bytes]:
    with open_workspace(folder) as ws:
        return [record.data for record in ws.log.read_session(name)]


def _flip_a_bit(file: Path, events: list[bytes]) -> None:
    data = bytearray(file.read_bytes())
    # A short event stands in one piece in the file; one that stands there once is the row itself.
    event = next(event for event in events if data.count(event) == 1)
    data[data.find(event) + len(event) // 2] ^= 0x01
    file.write_bytes(data)


def _record_and_kill(folder: Path, name: str) -> int:
    child = subprocess.Popen(
        [sys.executable, "-m", "replay.cli.demo.clerk", str(folder), name, str(KILLED_SEED)],
        stdout=subprocess.PIPE,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(path for path in sys.path if path)},
        text=True,
    )
    assert child.stdout is not None
    acknowledged = -1
    try:
        for number, line in enumerate(child.stdout):
            acknowledged = int(line)
            if number + 1 >= CALLS_BEFORE_KILL or number >= CHILD_LINES_MAX:
                break
    finally:
        child.send_signal(signal.SIGKILL)
        child.wait()
        child.stdout.close()
    return acknowledged


def _reader(desk: Desk) -> Callable[[], object]:
    return lambda: desk.state
