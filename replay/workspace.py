"""`Workspace`: log, blobs and snapshots at one place; what a user opens.

It wires parts together and decides nothing of their work: recording is `eventlog.recorder`,
folding `replay.replayer`, forks `replay.branch`, differences `replay.difference`, checks
`replay.integrity`.
"""

import os
from collections.abc import Iterable, Iterator, Mapping
from functools import partial
from typing import Any, Final, Unpack, overload

from eventlog.content import Content, argument_content
from eventlog.event import SessionSeeded
from eventlog.ids import mint_session_id
from eventlog.importers.import_file import ImportOutcome, import_file
from eventlog.log import SessionFilter
from eventlog.not_given import NOT_GIVEN, NotGiven
from eventlog.policy_order import policy_text
from eventlog.recorder import SessionRecorder
from eventlog.recording.session_writer import wall_clock_us
from eventlog.training_facts import require_training
from replay.branch import fork_session
from replay.ended_sessions import Place
from replay.if_exists import IfExists, open_session
from replay.integrity import CheckReport, Expectation, Kept, check_sessions
from replay.late_verification import (
    VerificationFields,
    record_late_verification,
    verification_body,
)
from replay.own_sessions import refuse_own, users_environment
from replay.place import Opening, OpenPlace, open_place
from replay.recorded import Recorded, step_number
from replay.reducer import ReducerRegistry
from replay.replayer import Replayer
from replay.resumption import resume_session
from replay.snapshot_taker import SnapshotTaker, require_policy
from replay.training_claim import claim_training
from replay.voiding import Voided, void_sessions
from snapshots.checkpoint_config import CheckpointConfig
from snapshots.checkpoint_store import CheckpointStore
from snapshots.snapshot_policy import SnapshotPolicy
from snapshots.snapshot_store import SnapshotRef
from snapshots.training_run import TrainingPlace, TrainingRun

DEFAULT_WORKSPACE: Final = "./steplog-data"


def open_workspace(
    place: str | os.PathLike[str] = DEFAULT_WORKSPACE,
    *,
    create: bool = True,
    refresh: bool = True,
    allow_truncated: bool = False,
) -> "Workspace":
    """Open the workspace at a folder, or in Kafka: `kafka://HOST:PORT/TOPIC`.

    A folder is made if missing, unless `create` is false; a topic never is (`steplog topic create`
    makes one), while this machine's part of it is, once the topic was found. Of a workspace in
    Kafka, `refresh=False` reads what this machine has of the log already, without a network;
    `allow_truncated` reads a topic that has lost its oldest records.

    Raises `ConfigError` for a URL of an unknown scheme or form, a folder of a newer format, (with
    `create=False`) a folder that is no workspace, a topic that is not there, and (with
    `refresh=False`) one that this machine has no copy of; `EventCorruptError` where its log is gone
    or damaged; `LogUnavailableError` where it cannot be used.
    """
    opening = Opening(os.fspath(place), refresh, allow_truncated)
    return Workspace(open_place(opening, create=create))


def _reopen_workspace(opening: Opening) -> "Workspace":
    """What a pickled workspace becomes: never an empty one where the folder is gone."""
    return Workspace(open_place(opening, create=False))


class Workspace(Recorded):
    """One place with recorded sessions. Thread-safe; pickling carries only its folder or URL."""

    def __init__(self, place: OpenPlace) -> None:
        """Use `open_workspace`. Opening reads no events."""
        self._opening, self.folder, self.log, self.blobs, self.snapshots = place
        self.reducers = ReducerRegistry()
        self._replayer = Replayer(self.log, self.blobs, self.snapshots, self.reducers)
        self._taker = SnapshotTaker(self.snapshots)

    def record(
        self,
        session: str | None = None,
        *,
        environment: str,
        if_exists: IfExists = "fail",
        reopen: bool = False,
        state: object = NOT_GIVEN,
        seed: int | None = None,
        environment_version: str = "",
        fingerprint: str = "",
        task_id: str = "",
        policy: str | int | None = None,
        training: str | None = None,
        training_step: int | None = None,
        request: object = None,
        tools: object = None,
        sample_id: str | None = None,
        group_id: str | None = None,
        rollout_index: int | None = None,
        split: str | None = None,
        metadata: Mapping[str, str] | None = None,
        parent_session: str | None = None,
        reducer: str | None = None,
        reducer_version: str = "1",
        snapshots: SnapshotPolicy | None = None,
    ) -> SessionRecorder:
        """Begin a session and record it; use as `with ws.record(...) as session:`.

        `session` None mints a UUIDv7. `state` is the first state, or a callable that gives it and
        is asked again at every return of a tool. `if_exists`: `fail` raises
        `SessionExistsError`; `resume` goes on with the session under a new claim (a `state` that is
        no callable is then not used), with a closed one only if `reopen`; `new` begins `session~2`.
        `policy` is the model's version, `training` the training session that this is recorded for.
        `snapshots`: when; every 256 steps and at the end if None.
        """
        session_id = mint_session_id() if session is None else session
        seeded = SessionSeeded(
            environment=users_environment(environment),
            environment_version=environment_version,
            fingerprint=fingerprint,
            task_id=task_id,
            seed=seed,
            request=_optional_content(request),
            tools=_optional_content(tools),
            reducer=reducer or ("transcript" if isinstance(state, NotGiven) else "captured"),
            reducer_version=reducer_version,
            policy=policy_text(policy),
            training_session=training,
            training_step=_training_step(training, training_step),
            parent_session=parent_session,
            sample_id=sample_id,
            group_id=group_id,
            rollout_index=rollout_index,
            split=split,
            metadata=dict(metadata or {}),
        )
        self.reducers.find(seeded.reducer, seeded.reducer_version, session_id=session_id)

        def begin(name: str) -> SessionRecorder:
            observe = self._taker.observer(snapshots, seeded.reducer)
            return SessionRecorder.begin(
                self.log, self.blobs, name, seeded, state=state, observe=observe
            )

        def resume(name: str) -> SessionRecorder:
            again = state if callable(state) else NOT_GIVEN
            return self.resume(name, state=again, reopen=reopen, snapshots=snapshots)

        return open_session(session_id, if_exists, self.log.holds_session, begin, resume)

    def resume(
        self,
        session: str,
        *,
        state: object = NOT_GIVEN,
        at_step: int | None = None,
        reopen: bool = False,
        snapshots: SnapshotPolicy | None = None,
    ) -> SessionRecorder:
        """Claim a session and go on with it after its last step, or after `at_step`.

        The recorder's `.state` is the restored state, `.open_calls` lists calls without a return.
        Give the `state` callable anew. Later steps than `at_step` are superseded, not erased.
        Raises `StepConflictError` for a closed session unless `reopen`.
        """
        require_policy(snapshots)
        refuse_own(self.log.session_info(session))
        return resume_session(
            self.log,
            self.blobs,
            self._replayer,
            session,
            state=state,
            at_step=None if at_step is None else step_number(at_step),
            reopen=reopen,
            observer_for=lambda info, step: self._taker.observer(snapshots, info.reducer, step),
        )

    def record_late_verification(
        self,
        session: str,
        reward: float | None,
        *,
        verifier: str,
        **fields: Unpack[VerificationFields],
    ) -> int:
        """Record a verdict on a session that is closed already; returns the verification's step.

        Takes what `SessionRecorder.record_verification` takes, and holds no recorder: the session
        is claimed, judged and closed again (same reason) in one append. Raises `StepConflictError`
        for a session that is not closed.
        """
        verified = verification_body(reward, verifier, fields)
        refuse_own(self.log.session_info(session))
        return record_late_verification(
            self.log, self.blobs, session, verified, clock_us=wall_clock_us
        )

    def void_sessions(
        self, where: SessionFilter | Iterable[str], *, reason: str, fence: bool = False
    ) -> list[Voided]:
        """Take the sessions that pass, or those of these ids, out of what is trained on.

        Open ones are left, and told, unless `fence` takes them from their writers.
        """
        place = Place(self.log, self.blobs, wall_clock_us)
        return list(void_sessions(place, where, reason=reason, fence=fence))

    def fork(
        self,
        session: str,
        step: int,
        *,
        name: str | None = None,
        changes: Mapping[str, str] | None = None,
    ) -> str:
        """Begin a branch after `step`; returns its id. Go on with `resume(branch)`."""
        return fork_session(
            self.log, session, step_number(step), name=name, changes=changes, clock_us=wall_clock_us
        )

    @overload
    def check(self, session: str, *, expect: tuple[Expectation, ...] = ()) -> list[CheckReport]: ...
    @overload
    def check(
        self, session: None = None, *, expect: tuple[Expectation, ...] = ()
    ) -> Iterator[CheckReport]: ...
    def check(
        self, session: str | None = None, *, expect: tuple[Expectation, ...] = ()
    ) -> list[CheckReport] | Iterator[CheckReport]:
        """Re-hash and re-fold sessions, one report each. See `replay.integrity`.

        A named session is checked at once, and one that is not there raises
        `SessionNotFoundError`. None means all: each is checked as its report is asked for.
        """
        expected = _expectations(expect)
        self._taker.wait()
        kept = Kept(self.log, self.blobs, self.snapshots, self._replayer)
        reports = check_sessions(kept, session, expected)
        return reports if session is None else list(reports)

    def take_snapshot(self, session: str, step: int | None = None) -> SnapshotRef:
        """Store the state after `step` (default: the last) as a snapshot."""
        return self._taker.take(self.replay(session, step))

    def import_file(
        self,
        path: str | os.PathLike[str],
        *,
        format: str = "auto",
        inputs: str | os.PathLike[str] | None = None,
    ) -> list[ImportOutcome]:
        """Import a foreign trace, whole; one outcome per session or bad record.

        `inputs` are the task inputs of rollouts; by default the sibling `*.inputs.jsonl`.
        """
        return list(import_file(path, self.log, self.blobs, format=format, inputs=inputs))

    def training(
        self,
        name: str,
        *,
        config: CheckpointConfig | Mapping[str, Any] | None = None,
        fresh: bool = False,
        checkpoints: str | os.PathLike[str] | None = None,
        metadata: Mapping[str, str] | None = None,
    ) -> TrainingRun:
        """A training whose checkpoints are tied to this log; use as `with ws.training(...) as run`.

        Entering the block claims the training session `name`, or seeds it: a trainer that had it
        before is fenced; a session of this name that is no training's is refused (`ConfigError`).
        Every rank enters it. `config`: settings, or a dict of them. `fresh`: begin anew even if the
        training has sets, which a save refuses otherwise. `checkpoints` is the folder all ranks
        see, by default `checkpoints/` of the workspace's. Needs torch once the block is entered.
        """

        claim = partial(claim_training, self.log, self.blobs, self._replayer, name, metadata)
        folder = self.checkpoints.folder if checkpoints is None else checkpoints
        place = TrainingPlace(self.log, folder, claim)
        return TrainingRun(name, place, _settings(config), fresh=fresh)

    @property
    def checkpoints(self) -> CheckpointStore:
        """The store in `checkpoints/` of the workspace's folder: for `ShardWriter`, and by itself.

        `.tracks()` has those of the trainings and of their policy versions.
        """
        return CheckpointStore(self.folder / "checkpoints")

    def close(self) -> None:
        """Wait for what was recorded and for due snapshots, then let go. Idempotent."""
        self._taker.close()
        self.log.close()

    def __enter__(self) -> "Workspace":
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"Workspace({self._opening.place!r})"

    def __reduce__(self) -> tuple[object, ...]:
        return (_reopen_workspace, (self._opening,))


def _training_step(training: object, step: object) -> int | None:
    """The step of that training. Raises `TypeError`, `ConfigError` where it is none."""
    at_step = None if step is None else step_number(step)
    require_training(training, at_step)
    return at_step


def _settings(config: CheckpointConfig | Mapping[str, Any] | None) -> CheckpointConfig:
    if isinstance(config, CheckpointConfig):
        return config
    return CheckpointConfig() if config is None else CheckpointConfig.from_mapping(config)


def _expectations(expect: Iterable[object]) -> tuple[Expectation, ...]:
    """What is expected, if all of it is. Raises `TypeError` before anything is checked."""
    expected = []
    for one in expect:
        if not isinstance(one, Expectation):
            raise TypeError(f"expect takes Expectations, not {one!r}")
        expected.append(one)
    return tuple(expected)


def _optional_content(value: object) -> Content | None:
    return None if value is None else argument_content(value)
