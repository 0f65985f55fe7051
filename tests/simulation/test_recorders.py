"""Recorders at work: random histories of recording, crashes, resumes, rewinds, forks and closes.

Several handles on one log record, lose their recorders without a close, take sessions over from
each other, rewind, branch, release and close. A plain model says what must stand; recorders that
lost their claim must be refused. A seed that failed is kept in `SEEDS`.
"""

import random
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path

import pytest

from eventlog.blob_store import MemoryBlobStore
from eventlog.call_view import pair_calls
from eventlog.canonical import decode, digest_of, encode
from eventlog.codec import decode_event
from eventlog.errors import FencedError, NotRestorableError, StepConflictError
from eventlog.event import SessionSeeded
from eventlog.log import EventLog
from eventlog.not_given import NOT_GIVEN
from eventlog.recorder import SessionRecorder
from eventlog.recording.state_capture import Recorded
from replay.branch import fork_session
from replay.integrity import Kept, check_sessions
from replay.reducer import ReducerRegistry
from replay.replayer import Replayer
from replay.resumption import resume_session
from snapshots.snapshot import Snapshot
from tests.support.keepers import LOCAL_KEEPERS, Keeper
from tests.support.memory_snapshots import MemorySnapshotStore
from tests.support.recorder_model import UNKNOWN, LiveState, SessionModel
from tests.support.scale import scaled

SEEDS: tuple[int, ...] = ()
"""Seeds beyond the first `RUNS` that once failed."""
RUNS = {"memory": scaled(200, 5_000), "sqlite": scaled(10, 200)}
ACTS = 60


class Recording:
    """A recorder in use: its session, its environment, and whether it reads the state itself."""

    def __init__(self, name: str, recorder: SessionRecorder, live: LiveState, reads: bool) -> None:
        self.name = name
        self.recorder = recorder
        self.live = live
        self.reads = reads


class Simulation:
    """One history on one log, and the model beside it."""

    def __init__(self, keeper: Keeper, seed: int) -> None:
        self.rng = random.Random(seed)
        self.logs = [keeper.log, keeper.another_handle(), keeper.another_handle()]
        self.blobs = MemoryBlobStore()
        self.snapshots = MemorySnapshotStore()
        self.model: dict[str, SessionModel] = {}
        self.used: dict[str, Recording] = {}
        self.lost: list[Recording] = []
        self.count = 0
        self.begin()

    def replayer(self, log: EventLog) -> Replayer:
        return Replayer(log, self.blobs, self.snapshots, ReducerRegistry())

    def act(self) -> None:
        """One random act on one random session."""
        self.count += 1
        acts: list[tuple[int, Callable[[], None]]] = [
            (2, self.begin),
            (24, self.call),
            (24, self.answer),
            (10, self.say),
            (6, self.judge),
            (5, self.crash),
            (8, self.resume),
            (3, self.rewind),
            (3, self.fork),
            (2, self.release),
            (2, self.close),
            (6, self.use_a_lost_one),
        ]
        self.rng.choices([act for _, act in acts], [weight for weight, _ in acts])[0]()

    # Whom to act on.

    def in_use(self) -> Recording | None:
        usable = [one for one in self.used.values() if self.model[one.name].status == "open"]
        return self.rng.choice(usable) if usable else None

    def observe(self, recorded: Recorded) -> None:
        """Now and then the state is kept as a snapshot."""
        state, head = recorded.state_bytes, recorded.head
        if state is not None and self.rng.random() < 0.15:
            snapshot = Snapshot(
                head.session_id, head.step, head.digest, digest_of(state), "captured", "1", state
            )
            self.snapshots.put_snapshot(snapshot)

    def state_after(self, one: Recording, given: bool, pure: bool = False) -> bytes | None:
        """What the model says of the state after a step at which it may have changed."""
        model = self.model[one.name]
        if model.state is None:
            return None
        if given or (one.reads and not pure):
            return one.live.encoded()
        return model.state if pure else UNKNOWN

    # Acts.

    def begin(self) -> None:
        name = f"s{len(self.model)}"
        live = LiveState()
        reads = self.rng.random() < 0.5
        with_state = reads or self.rng.random() < 0.7
        seeded = SessionSeeded("desk", reducer="captured" if with_state else "transcript")
        state: object = NOT_GIVEN
        if with_state:
            state = (lambda: live.value) if reads else live.value
        log = self.rng.choice(self.logs)
        recorder = SessionRecorder.begin(
            log, self.blobs, name, seeded, state=state, observe=self.observe
        )
        self.model[name] = SessionModel()
        self.model[name].add("session_seeded", live.encoded() if with_state else None)
        self.used[name] = Recording(name, recorder, live, reads)

    def call(self) -> None:
        if (one := self.in_use()) is None:
            return
        model = self.model[one.name]
        effects = self.rng.choice(("pure", "unknown", "external"))
        step = one.recorder.record_tool_call("tool", {"n": self.count}, effects=effects)  # type: ignore[arg-type]
        assert step == len(model.line)
        model.add("tool_called", model.state)

    def answer(self) -> None:
        if (one := self.in_use()) is None:
            return
        model = self.model[one.name]
        calls = one.recorder.open_calls
        assert [call.step for call in calls] == model.open_calls
        if not calls:
            return
        call = self.rng.choice(calls)
        given = model.state is not None and self.rng.random() < 0.5
        one.live.change(self.rng.randrange(100))
        pure = call.effects == "pure" and not given
        if pure:
            one.live.value = self.live_of(model, one.live.value)
        reward = self.rng.choice((None, None, 0.5, -1.0, 0.1))
        step = one.recorder.record_tool_return(
            call.step,
            f"result {self.count}",
            state=one.live.value if given else NOT_GIVEN,
            reward=reward,
        )
        assert step == len(model.line)
        state = self.state_after(one, given, pure)
        model.add("tool_returned", state, called_step=call.step, reward=reward)

    def live_of(self, model: SessionModel, otherwise: dict[str, object]) -> dict[str, object]:
        """A pure tool leaves the state as it was recorded."""
        if model.state in (None, UNKNOWN):
            return otherwise
        state = decode(model.state)  # type: ignore[arg-type]
        assert isinstance(state, dict)
        return state

    def say(self) -> None:
        if (one := self.in_use()) is None:
            return
        model = self.model[one.name]
        if model.state is not None and self.rng.random() < 0.4:
            one.live.change(self.rng.randrange(100))
            given = self.rng.random() < 0.7
            one.recorder.record_state("moved", one.live.value if given else NOT_GIVEN)
            model.add("state_changed", self.state_after(one, given))
        elif self.rng.random() < 0.1:
            one.recorder.record_message("user", "x" * 270_000)
            model.add("message_added", model.state)
        else:
            one.recorder.annotate("note", {"n": self.count})
            model.add("annotated", model.state)

    def judge(self) -> None:
        usable = [one for one in self.used.values() if self.model[one.name].status != "released"]
        if not usable:
            return
        one = self.rng.choice(usable)
        model = self.model[one.name]
        earlier = [step for step, each in enumerate(model.line) if each.kind == "verified"]
        supersedes = self.rng.choice([None, *earlier])
        about = self.rng.choice((None, None, 0))
        reward = self.rng.choice((None, 1.0, 0.25))
        one.recorder.record_verification(
            reward, verifier="rules", about_step=about, supersedes_step=supersedes
        )
        model.add("verified", model.state, reward=reward, about_step=about, supersedes=supersedes)

    def settle(self) -> None:
        """Wait for calls that were submitted: only then is it certain that they are there."""
        for one in self.used.values():
            one.recorder.flush()

    def crash(self) -> None:
        """The recorder is gone; nothing says so."""
        if self.used:
            one = self.used.pop(self.rng.choice(list(self.used)))
            one.recorder.flush()
            self.lost.append(one)

    def resume(self, at_step: int | None = None) -> None:
        self.settle()
        name = self.rng.choice(list(self.model))
        model = self.model[name]
        if at_step is not None:
            at_step = self.rng.randrange(model.first_own, len(model.line))
        reopen = self.rng.random() < 0.5
        log = self.rng.choice(self.logs)
        live = LiveState()
        reads = self.rng.random() < 0.6
        try:
            recorder = resume_session(
                log,
                self.blobs,
                self.replayer(log),
                name,
                state=(lambda: live.value) if reads else NOT_GIVEN,
                at_step=at_step,
                reopen=reopen,
                observer_for=lambda info, step: self.observe,
            )
        except StepConflictError:
            assert model.status == "closed"
            assert not reopen
            return
        assert model.status != "closed" or reopen
        if (before := self.used.pop(name, None)) is not None:
            self.lost.append(before)
        model.rewind(len(model.line) - 1 if at_step is None else at_step)
        if model.state == UNKNOWN:
            with pytest.raises(NotRestorableError):
                _ = recorder.state
        else:
            assert model.state == (None if recorder.state is None else encode(recorder.state))
        live.value = self.live_of(model, live.value)
        self.used[name] = Recording(name, recorder, live, reads)

    def rewind(self) -> None:
        self.resume(at_step=0)

    def fork(self) -> None:
        self.settle()
        name = self.rng.choice(list(self.model))
        step = self.rng.randrange(len(self.model[name].line))
        branch = f"s{len(self.model)}"
        fork_session(self.rng.choice(self.logs), name, step, name=branch, clock_us=lambda: 1)
        self.model[branch] = self.model[name].branch(step)

    def release(self) -> None:
        if (one := self.in_use()) is None:
            return
        one.recorder.release()
        model = self.model[one.name]
        model.add("session_released", model.state)
        model.status = "released"
        self.lost.append(self.used.pop(one.name))

    def close(self) -> None:
        if (one := self.in_use()) is None:
            return
        one.recorder.close()
        model = self.model[one.name]
        model.add("session_closed", model.state)
        model.status = "closed"
        with pytest.raises(StepConflictError):
            one.recorder.record_message("user", "too late")

    def use_a_lost_one(self) -> None:
        """A recorder that lost its claim, or was never closed: refused, or still the owner."""
        if not self.lost:
            return
        one = self.rng.choice(self.lost)
        try:
            one.recorder.annotate("late", {"n": self.count})
        except (FencedError, StepConflictError):
            return
        # Nobody has claimed the session since: it was only thought to be gone.
        model = self.model[one.name]
        assert one.name not in self.used
        model.add("annotated", model.state)


# What must stand.


def compare(one: Simulation) -> None:
    """Everything that the model knows of every session."""
    one.settle()
    log = one.rng.choice(one.logs)
    replayer = one.replayer(log)
    for name, model in one.model.items():
        info = log.session_info(name)
        assert (info.step_count, info.status) == (len(model.line), model.status), name
        assert info.reward == model.reward, name
        events = [decode_event(record.data) for record in log.read_session(name)]
        assert [event.kind for event in events] == [each.kind for each in model.line]
        rows = pair_calls(events)
        assert [row.call_step for row in rows if row.return_step is None] == model.open_calls
        for step in {one.rng.randrange(len(model.line)), len(model.line) - 1}:
            compare_state(one, replayer, name, step)


def compare_state(one: Simulation, replayer: Replayer, name: str, step: int) -> None:
    model = one.model[name]
    expected = model.line[step].state
    try:
        replayed = replayer.replay_to(name, step, use_snapshots=one.rng.random() < 0.7)
    except NotRestorableError as error:
        assert expected == UNKNOWN
        assert (error.last_known, error.next_known) == model.known_around(step)  # noqa: PT017
        return
    if expected is None:
        assert replayed.reducer == "transcript"
    else:
        assert replayed.state_bytes == expected, (name, step)


def check(one: Simulation) -> None:
    """The verdict of `check` on all of it."""
    one.settle()
    log = one.logs[0]
    kept = Kept(log, one.blobs, one.snapshots, one.replayer(log))
    for report in check_sessions(kept, None, ()):
        model = one.model[report.session]
        verdict = "incomplete" if model.state == UNKNOWN else "ok"
        assert report.verdict == verdict, report
        assert report.events == len(model.line) - model.first_own
        assert report.superseded == model.superseded


def run(kind: str, folder: Path, seed: int) -> None:
    """One history; an error in it names its seed."""
    with ExitStack() as stack:
        simulation = Simulation(Keeper(LOCAL_KEEPERS[kind](folder), stack), seed)
        try:
            for act in range(ACTS):
                simulation.act()
                if act % 20 == 19:
                    compare(simulation)
            check(simulation)
        except BaseException as error:
            error.add_note(f"{kind}, seed {seed}")
            raise


@pytest.mark.parametrize("kind", sorted(RUNS))
def test_random_histories(tmp_path: Path, kind: str) -> None:
    for seed in (*SEEDS, *range(RUNS[kind])):
        folder = tmp_path / str(seed)
        folder.mkdir()
        run(kind, folder, seed)
