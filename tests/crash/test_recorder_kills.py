"""A recording process killed at any moment: what it was told is kept is kept, and it goes on.

Children record, resume or close until they are killed (SIGKILL), by the parent at a random moment
or by themselves at a chosen point of a commit, a blob or a snapshot. What they were told stands in
a pipe that outlives them. After each kill the workspace is opened again and compared.
"""

import json
import os
import random
import select
import signal
import time
from pathlib import Path
from typing import NamedTuple

import pytest

from eventlog.canonical import digest
from replay.workspace import Workspace, open_workspace
from tests.support.desk import Desk
from tests.support.killed_recorder import SEED, SESSION, play, take_up
from tests.support.processes import python_script
from tests.support.scale import scaled

ROUNDS = range(scaled(1, 8))
"""Each in a workspace of its own, so that what is folded again after each kill stays short."""
KILLS = 25
RESUME_KILLS = 8
CLOSE_KILLS = 8
LIFE_S = (0.0, 0.25)
"""How long a child goes on after it was first told something, before its parent kills it."""
POINTS = ("time", "time", "commit", "committed", "blob", "snapshot")
ARMED_MAX = {"commit": 40, "committed": 40, "blob": 4, "snapshot": 5}
"""A child kills itself at the latest when it comes to its point for so many times."""

CHILD = "from tests.support.killed_recorder import main; main()"


class Kept(NamedTuple):
    """What a child was told is kept: a step, and the digests of its event and of its state."""

    session: str
    step: int
    event_digest: bytes
    state_digest: bytes | None


def run_and_kill(folder: Path, job: str, seed: int, rng: random.Random) -> list[Kept]:
    """Run a child until it is killed; all that it was told."""
    point = POINTS[seed % len(POINTS)]
    if point != "time":
        point = f"{point}:{rng.randrange(1, ARMED_MAX[point] + 1)}"
    process = python_script(CHILD, folder, job, str(seed), point)
    assert process.stdout is not None
    pipe = process.stdout.fileno()
    told = b""
    kill_at: float | None = None
    deadline = time.monotonic() + 300
    while process.poll() is None:
        if select.select([pipe], [], [], 0.02)[0]:
            told += os.read(pipe, 65_536)
        if point == "time" and told and kill_at is None:
            kill_at = time.monotonic() + rng.uniform(*LIFE_S)
        if time.monotonic() >= (deadline if kill_at is None else kill_at):
            process.send_signal(signal.SIGKILL)
            process.wait()
    while part := os.read(pipe, 65_536):
        told += part
    _, errors = process.communicate()
    assert process.returncode == -signal.SIGKILL, errors
    assert time.monotonic() < deadline, f"{job}, seed {seed}: never came to {point}"
    return [
        Kept(session, step, bytes.fromhex(event), state and bytes.fromhex(state))
        for session, step, event, state in map(json.loads, told.splitlines())
    ]


def compare(ws: Workspace, kept: list[Kept], rng: random.Random, states: int) -> None:
    """Each event stands at its step, once; some of the states are as they were told."""
    by_session: dict[str, list[Kept]] = {}
    for one in kept:
        by_session.setdefault(one.session, []).append(one)
    for session, told in by_session.items():
        digests = [record.digest for record in ws.log.read_session(session)]
        assert len(set(digests)) == len(digests)
        assert [digests[one.step] for one in told] == [one.event_digest for one in told]
        with_state = [one for one in told if one.state_digest is not None]
        picked = {with_state[-1], *rng.sample(with_state, min(states, len(with_state)))}
        for one in picked:
            for use_snapshots in (True, False):
                replayed = ws.replay(session, one.step, use_snapshots=use_snapshots)
                assert replayed.state_digest == one.state_digest, (session, one.step)
        assert [report.verdict for report in ws.check(session)] == ["ok"]


@pytest.mark.parametrize("number", ROUNDS)
def test_every_acknowledged_step_survives_and_the_session_goes_on(
    tmp_path: Path, number: int
) -> None:
    folder = tmp_path / "ws"
    rng = random.Random(510 + number)
    every: list[Kept] = []
    for kill in range(KILLS):
        kept = run_and_kill(folder, "record", number * KILLS + kill, rng)
        every += kept
        with open_workspace(folder) as ws:
            compare(ws, kept, rng, states=2)
    with open_workspace(folder) as ws:
        compare(ws, every, rng, states=20)
        assert {report.verdict for report in ws.check()} == {"ok"}
        desk = Desk(SEED)
        session = take_up(ws, desk)
        play(session, desk, 10)
        session.close()
        calls = sum(row.return_step is not None for row in ws.calls(SESSION))
        final = ws.replay(SESSION)
        assert [report.verdict for report in ws.check(SESSION)] == ["ok"]
    untouched = Desk(SEED)
    for _ in range(calls):
        untouched.act()
    assert final.state_digest == digest(untouched.state), "as if it had never stopped"
    print(f"{KILLS} kills: {len(every)} acknowledged steps, {calls} calls, 0 lost")


@pytest.mark.parametrize("number", ROUNDS)
def test_kills_while_a_session_is_taken_over(tmp_path: Path, number: int) -> None:
    folder = tmp_path / "ws"
    rng = random.Random(520 + number)
    desk = Desk(SEED)
    with open_workspace(folder) as ws:
        session = take_up(ws, desk)
        play(session, desk, 6)
        before = session.step
    every: list[Kept] = []
    for kill in range(RESUME_KILLS):
        every += run_and_kill(folder, "resume", kill % 4, rng)
        with open_workspace(folder) as ws:
            compare(ws, every, rng, states=2)
            assert ws.replay(SESSION).state_digest == digest(desk.state)
            kinds = {event.kind for event in ws.events(SESSION, before + 1)}
            assert kinds <= {"session_resumed", "session_released"}
    with open_workspace(folder) as ws:
        session = take_up(ws, desk)
        play(session, desk, 2)
        session.close()
        assert [report.verdict for report in ws.check(SESSION)] == ["ok"]
    print(f"{RESUME_KILLS} kills: {len(every)} claims acknowledged, 0 lost")


@pytest.mark.parametrize("number", ROUNDS)
def test_kills_while_sessions_are_closed(tmp_path: Path, number: int) -> None:
    folder = tmp_path / "ws"
    rng = random.Random(530 + number)
    every: list[Kept] = []
    for kill in range(CLOSE_KILLS):
        kept = run_and_kill(folder, "close", kill % 4, rng)
        every += kept
        with open_workspace(folder) as ws:
            compare(ws, kept, rng, states=1)
            told_last = {one.session: one for one in kept}
            for info in ws.sessions():
                last = told_last.get(info.session_id)
                assert info.status in ("open", "closed")
                if last is not None and info.status == "open":
                    assert last.step >= info.head.step - 1, "at most one call was under way"
                if info.status == "open":
                    ws.resume(info.session_id).close("after a crash")
            assert {report.verdict for report in ws.check()} == {"ok"}
    with open_workspace(folder) as ws:
        compare(ws, every, rng, states=1)
        assert {info.status for info in ws.sessions()} == {"closed"}
    print(f"{CLOSE_KILLS} kills: {len(every)} steps acknowledged, 0 lost")
