"""A recorded workspace, what is true of it, and whether a damaged copy ever says otherwise."""

import random
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from eventlog.canonical import encode
from eventlog.cut import Cut
from eventlog.errors import SteplogError
from replay.integrity import Expectation
from replay.workspace import Workspace, open_workspace
from snapshots.snapshot_policy import EveryN
from tests.support.desk import Desk, Told

LARGE = 300_000


class Truth(NamedTuple):
    """What a whole workspace says: states by session and step, every record, and receipts."""

    states: dict[str, list[bytes]]
    records: list[bytes]
    receipts: tuple[Expectation, ...]


def record_history(ws: Workspace) -> dict[str, list[bytes]]:
    """Sessions as they come: long, rewound, branched, open, with large contents; their states."""
    told: dict[str, Told] = {}
    for number, name in enumerate(("plain", "rewound", "parent")):
        desk = Desk(number)
        told[name] = Told(desk)
        options = {"environment": "desk", "state": lambda desk=desk: desk.state}
        with ws.record(name, snapshots=EveryN(12), **options) as session:  # type: ignore[arg-type]
            told[name].play(session, 20)
        told[name].note(session)
    _rewind(ws, told["rewound"])
    told["branch"] = _branch(ws, told["parent"])
    states = {name: one.states for name, one in told.items()}
    states |= {"large": _large(ws), "growing": _begin_growing(ws)}
    with ws.record("transcript", environment="desk") as session:
        for number in range(15):
            session.record_message("user", f"message {number}")
    states["transcript"] = [
        ws.replay("transcript", step, use_snapshots=False).state_bytes for step in range(17)
    ]
    return states


def _rewind(ws: Workspace, told: Told) -> None:
    state = {"another": "way"}
    with ws.resume("rewound", at_step=13, state=lambda: state, reopen=True) as session:
        del told.states[14:]
        told.states.append(told.states[-1])
        for number in range(30):
            state["step"] = str(number)
            session.record_state("on")
            told.states.append(encode(state))
    told.states.append(told.states[-1])


def _branch(ws: Workspace, parent: Told) -> Told:
    ws.fork("parent", 17, name="branch")
    own = Told(Desk(9))
    own.states = parent.states[:18]
    with ws.resume("branch", state=lambda: own.desk.state, snapshots=EveryN(8)) as session:
        own.desk.state = session.state  # type: ignore[assignment]
        own.play(session, 10)
    own.note(session)
    return own


def _large(ws: Workspace) -> list[bytes]:
    """A state that begins in a blob, changes by a patch in a blob, and results in blobs."""
    noise = random.Random(5).randbytes(LARGE)
    state: dict[str, object] = {"noise": noise}
    with ws.record("large", environment="desk", state=lambda: state) as session:
        states = [encode(state)]
        for number in range(4):
            state["noise" if number == 1 else "n"] = noise[::-1] if number == 1 else number
            session.record_state("next")
            states.append(encode(state))
        session.record_message("tool", noise)
        ws.take_snapshot("large", 3)
    return [*states, states[-1], states[-1]]


def _begin_growing(ws: Workspace) -> list[bytes]:
    told = Told(Desk(7))
    session = ws.record("growing", environment="desk", state=lambda: told.desk.state)
    told.play(session, 6)
    return told.states


def grow(ws: Workspace, states: list[bytes]) -> list[bytes]:
    """Go on with the open session, commit by commit; all its states."""
    told = Told(Desk(7))
    told.states = [*states, states[-1]]
    session = ws.resume("growing", state=lambda: told.desk.state)
    told.desk.state = session.state  # type: ignore[assignment]
    told.play(session, 12)
    return told.states


def truth_of(ws: Workspace, states: dict[str, list[bytes]]) -> Truth:
    """All of it, as the whole workspace says it now."""
    receipts = tuple(
        Expectation(info.session_id, info.head.step, info.head.digest) for info in ws.sessions()
    )
    return Truth(states, [record.data for record in ws.log.tail_events(Cut.empty())], receipts)


class Judged(NamedTuple):
    """What a damaged copy did: answers that were right, refusals by name, wrong ones, the check."""

    right: int
    refused: dict[str, int]
    wrong: list[str]
    reported: bool


def judge(folder: Path, truth: Truth, rng: random.Random, *, lost_newest: bool = False) -> Judged:
    """Replay random steps of the copy and check it; `lost_newest`: commits may be gone whole."""
    refused: dict[str, int] = {}
    wrong: list[str] = []
    right = 0
    may_refuse = {4, 5} if lost_newest else {4}

    def refuse(what: str, error: SteplogError) -> None:
        name = type(error).__name__
        refused[name] = refused.get(name, 0) + 1
        if error.exit_code not in may_refuse:
            wrong.append(f"{what}: {name}: {error}")

    try:
        ws = open_workspace(folder, create=False)
    except SteplogError as error:
        refuse("opening", error)
        return Judged(0, refused, wrong, True)
    with ws:
        for session, step in _questions(truth, rng):
            try:
                found = ws.replay(session, step, use_snapshots=rng.random() < 0.7).state_bytes
            except SteplogError as error:
                refuse(f"{session}@{step}", error)
                continue
            if found == truth.states[session][step]:
                right += 1
            else:
                wrong.append(f"{session}@{step} has another state")
        reports = list(ws.check(expect=truth.receipts))
        reported = any(report.verdict not in ("ok", "incomplete") for report in reports)
        if refused and not reported:
            wrong.append(f"the check found nothing, but {refused} were met")
        if not reported:
            wrong += _differences(ws, truth)
    return Judged(right, refused, wrong, reported)


def _questions(truth: Truth, rng: random.Random) -> Iterator[tuple[str, int]]:
    for session, states in truth.states.items():
        yield session, rng.randrange(len(states))
        yield session, len(states) - 1


def _differences(ws: Workspace, truth: Truth) -> Iterator[str]:
    """Nothing was reported: then every stored byte that is ever read must be what it was."""
    if [record.data for record in ws.log.tail_events(Cut.empty())] != truth.records:
        yield "nothing was reported, but records differ"
    for session, states in truth.states.items():
        for step, state in enumerate(states):
            if ws.replay(session, step).state_bytes != state:
                yield f"nothing was reported, but {session}@{step} has another state"


def copy_workspace(source: Path, target: Path) -> Path:
    """The files of a workspace as they are; what was at `target` is gone."""
    shutil.rmtree(target, ignore_errors=True)
    shutil.copytree(source, target, ignore=shutil.ignore_patterns("*-shm"))
    return target
