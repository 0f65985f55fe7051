"""`SessionSummary`: what a session's standing events come to, kept as they come.

A keeper holds one for each session, so that listing sessions reads no events: it gives each
accepted event to `accept` and stores the value. What the line decides (status, writer, error) is
not here but in `LineState`; `describe_session` puts both together.

After a rewind the keeper builds it again from the standing line with `SessionSummary.of_line`; a
branch's summary goes on from that of its parent at the fork step, because all views of a branch
include its prefix. Pure.
"""

from collections.abc import Iterable, Sequence
from types import NoneType
from typing import Any, Final, NamedTuple

from eventlog.canonical import encode
from eventlog.errors import EventCorruptError
from eventlog.event import (
    Annotated,
    Event,
    MessageAdded,
    SessionForked,
    SessionSeeded,
    ToolCalled,
    ToolReturned,
    Verified,
)
from eventlog.line_state import LineState
from eventlog.log import SessionInfo
from eventlog.stored_fields import FieldTypes, require_types
from eventlog.training_facts import SESSION_VOIDED, TrainingFacts

JUDGEMENTS_KEPT_MAX: Final = 256
"""Rewards by verifiers that still count, kept in case later ones are superseded: about 5 KiB.

A session with more lets the oldest go. If one is then superseded, what comes up in its place is not
known here, and the summary must be built again from the line (`must_rebuild`).
"""


class Judgement(NamedTuple):
    """A verifier's reward that counts for the session while nothing supersedes it."""

    step: int
    reward: float


class SeedFacts(NamedTuple):
    """What the seed says of a session that a listing shows."""

    environment: str = ""
    task_id: str = ""
    sample_id: str | None = None
    group_id: str | None = None
    policy: str | None = None
    reducer: str = ""
    reducer_version: str = ""
    state_coverage: str = ""


class SessionSummary(NamedTuple):
    """The running summary of a standing line. Times in microseconds UTC.

    `last_step` is -1 before the first event. `rewarded` counts the step rewards that are not null,
    `reward_sum` is their sum in step order. `judgements` are the last rewards by verifiers that
    count, in step order; `judgements_let_go` how many older ones were not kept. `errors` counts the
    returns that are not ok. `open_calls` are the steps of calls without a return, ascending.
    `seeded` is False where a branch's prefix was not read. `training` is None in what an older
    steplog stored: then it is not known, here and in all that goes on from here.

    A summary hangs on its line alone, not on how it came about: accepted event by event, stored and
    gone on from, or built by `of_line`, it is the same, unless `must_rebuild` says that it is none.
    """

    last_step: int = -1
    seed: SeedFacts = SeedFacts()
    seeded: bool = False
    first_time: int = 0
    last_time: int = 0
    calls: int = 0
    returns: int = 0
    errors: int = 0
    verifications: int = 0
    messages: int = 0
    rewarded: int = 0
    reward_sum: float = 0.0
    judgements: tuple[Judgement, ...] = ()
    judgements_let_go: int = 0
    open_calls: tuple[int, ...] = ()
    must_rebuild: bool = False
    training: TrainingFacts | None = TrainingFacts()

    @property
    def is_whole(self) -> bool:
        """Whether it tells all: otherwise it is made anew from the line before it is stored."""
        return not self.must_rebuild and self.training is not None

    @property
    def step_count(self) -> int:
        """Steps of the line, a branch's prefix included."""
        return self.last_step + 1

    @property
    def reward(self) -> float | None:
        """The last reward by a verifier that counts, else the sum of the step rewards, else None.

        A verifier's reward counts if it is not null, not about one step, not masked, and no later
        standing verification supersedes it. Raises `ValueError` while `must_rebuild`.
        """
        self._require_whole()
        if self.judgements:
            return self.judgements[-1].reward
        return self.reward_sum if self.rewarded else None

    @property
    def reward_from(self) -> str | None:
        """Where the reward is from: `verified`, `steps`, or None where there is none.

        Raises `ValueError` while `must_rebuild`.
        """
        self._require_whole()
        if self.judgements:
            return "verified"
        return "steps" if self.rewarded else None

    def _require_whole(self) -> None:
        if self.must_rebuild:
            raise ValueError("rewards were superseded that are not kept: rebuild with `of_line`")

    def accept(self, event: Event) -> "SessionSummary":
        """The summary after the line's next event. The caller gives the standing events in order.

        A return that only repeats another (`duplicate_of`) was recorded and not applied: its reward
        is not counted again.
        """
        body = event.body
        if not isinstance(body, Verified):
            return self._after(event)
        superseded, kept, let_go = body.supersedes_step, self.judgements, self.judgements_let_go
        must_rebuild = self.must_rebuild
        if superseded is not None:
            standing = tuple(judgement for judgement in kept if judgement.step != superseded)
            if let_go and (len(standing) < len(kept) or superseded < kept[0].step):
                must_rebuild = True
            kept = standing
        judgement = _judgement_of(event.step, body)
        if judgement is not None:
            kept = (*kept, judgement)
        return self._after(event)._with_judgements(kept, let_go, must_rebuild)

    @classmethod
    def of_line(
        cls, events: Iterable[Event], start: "SessionSummary | None" = None
    ) -> "SessionSummary":
        """The summary of a whole standing line, or of one that goes on from `start`.

        From the seed on it never comes out as `must_rebuild`: nothing is let go before the end. It
        holds 16 bytes for each reward by a verifier while it reads.
        """
        summary = cls() if start is None else start
        let_go, must_rebuild = summary.judgements_let_go, summary.must_rebuild
        standing = {judgement.step: judgement for judgement in summary.judgements}
        oldest = next(iter(standing), 0)
        for event in events:
            body = event.body
            summary = summary._after(event)
            if not isinstance(body, Verified):
                continue
            if body.supersedes_step is not None:
                found = standing.pop(body.supersedes_step, None)
                if let_go and (found is not None or body.supersedes_step < oldest):
                    must_rebuild = True
            judgement = _judgement_of(event.step, body)
            if judgement is not None:
                standing[event.step] = judgement
        return summary._with_judgements(tuple(standing.values()), let_go, must_rebuild)

    def _after(self, event: Event) -> "SessionSummary":
        """All but the rewards by verifiers."""
        (
            last_step,
            seed,
            seeded,
            first_time,
            _,
            calls,
            returns,
            errors,
            verifications,
            messages,
            rewarded,
            reward_sum,
            judgements,
            let_go,
            open_calls,
            must_rebuild,
            training,
        ) = self
        body = event.body
        if isinstance(body, ToolCalled):
            calls += 1
            open_calls = (*open_calls, event.step)
            if body.policy is not None and training is not None:
                training = training.naming(body.policy)
        elif isinstance(body, ToolReturned):
            returns += 1
            if body.status != "ok":
                errors += 1
            if body.reward is not None and body.duplicate_of is None:
                rewarded += 1
                reward_sum += body.reward
            if body.called_step in open_calls:
                open_calls = tuple(step for step in open_calls if step != body.called_step)
        elif isinstance(body, Verified):
            verifications += 1
        elif isinstance(body, MessageAdded):
            messages += 1
            if body.policy_last is not None or body.policy_first is not None:
                training = training and training.naming(body.policy_first).naming(body.policy_last)
        elif isinstance(body, SessionSeeded):
            seed, seeded, training = _facts_of(body), True, TrainingFacts.of_seed(body)
        elif isinstance(body, SessionForked):
            training = training and training.branching(body.changes)
        elif isinstance(body, Annotated) and body.name == SESSION_VOIDED:
            training = training and training.voiding(event.step)
        return SessionSummary(
            event.step,
            seed,
            seeded,
            first_time if last_step >= 0 else event.time,
            event.time,
            calls,
            returns,
            errors,
            verifications,
            messages,
            rewarded,
            reward_sum,
            judgements,
            let_go,
            open_calls,
            must_rebuild,
            training,
        )

    def _with_judgements(
        self, standing: tuple[Judgement, ...], let_go: int, must_rebuild: bool
    ) -> "SessionSummary":
        over = max(0, len(standing) - JUDGEMENTS_KEPT_MAX)
        return self._replace(
            judgements=standing[over:],
            judgements_let_go=let_go + over,
            must_rebuild=must_rebuild,
        )

    def to_value(self) -> list[object]:
        """A flat list of plain values for storage; a reward may be NaN. See `from_value`."""
        flat: list[object] = list(self)
        flat[_SEED] = list(self.seed)
        flat[_JUDGEMENTS] = [list(judgement) for judgement in self.judgements]
        flat[_OPEN_CALLS] = list(self.open_calls)
        if self.training is None:
            return flat[:_TRAINING]
        flat[_TRAINING] = self.training.to_value()
        return flat

    def agrees_with(self, whole: "SessionSummary") -> bool:
        """Whether it says what `whole`, made anew from the line, does, as far as it was kept."""
        if self.training is None:
            whole = whole._replace(training=None)
        # Rewards may be NaN, and 0.0 is not -0.0.
        return encode(self.to_value()) == encode(whole.to_value())

    @classmethod
    def from_value(cls, value: Sequence[Any]) -> "SessionSummary":
        """The summary that `to_value` gave. Raises `EventCorruptError` where it is not one."""
        try:
            training = training_of(value)
            flat = cls(*require_types(value[:_TRAINING], _STORED_TYPES))
            return flat._replace(
                training=training,
                seed=SeedFacts(*require_types(flat.seed, _SEED_TYPES)),
                judgements=tuple(
                    Judgement(*require_types(judgement, (int, float)))
                    for judgement in flat.judgements
                ),
                open_calls=tuple(require_types(flat.open_calls, (int,) * len(flat.open_calls))),
            )
        except (TypeError, ValueError) as error:
            raise EventCorruptError(
                f"a stored session summary is not one: {error}",
                hint="run `steplog check`; it can be made again from the session's events",
            ) from error


_LIST: Final = (list, tuple)
_TEXT_OR_NONE: Final = (str, NoneType)
_SEED_TYPES: Final = (str, str, _TEXT_OR_NONE, _TEXT_OR_NONE, _TEXT_OR_NONE, str, str, str)
_STORED_TYPES: Final[tuple[FieldTypes, ...]] = (
    int,
    _LIST,
    bool,
    *((int,) * 8),
    float,
    _LIST,
    int,
    _LIST,
    bool,
)
_SEED: Final = SessionSummary._fields.index("seed")
_JUDGEMENTS: Final = SessionSummary._fields.index("judgements")
_OPEN_CALLS: Final = SessionSummary._fields.index("open_calls")
_TRAINING: Final = SessionSummary._fields.index("training")


def training_of(value: Sequence[Any]) -> TrainingFacts | None:
    """Of a summary's value only this; None where an older steplog stored it.

    Raises `TypeError` or `ValueError` where it is none.
    """
    if len(value) == _TRAINING:
        return None
    if len(value) != _TRAINING + 1:
        raise ValueError(f"{_TRAINING + 1} values expected, got {len(value)}")
    return TrainingFacts.from_value(value[_TRAINING])


def _judgement_of(step: int, body: Verified) -> Judgement | None:
    """The verification's reward, if it counts for the session."""
    if body.reward is None or body.about_step is not None or body.mask_sample:
        return None
    return Judgement(step, float(body.reward))


def _facts_of(seed: SessionSeeded) -> SeedFacts:
    return SeedFacts(
        environment=seed.environment,
        task_id=seed.task_id,
        sample_id=seed.sample_id,
        group_id=seed.group_id,
        policy=seed.policy,
        reducer=seed.reducer,
        reducer_version=seed.reducer_version,
        state_coverage=seed.state_coverage,
    )


def describe_session(session_id: str, line: LineState, summary: SessionSummary) -> SessionInfo:
    """What a log knows of a session: the line's word on its status, the summary's on the rest.

    Raises `ValueError` while `summary.must_rebuild`.
    """
    seed = summary.seed
    training = facts_to_show(summary.training, seed.policy)
    return SessionInfo(
        session_id=session_id,
        environment=seed.environment,
        task_id=seed.task_id,
        sample_id=seed.sample_id,
        group_id=seed.group_id,
        policy=seed.policy,
        reducer=seed.reducer,
        reducer_version=seed.reducer_version,
        state_coverage=seed.state_coverage,
        step_count=line.next_step,
        attempt=line.attempt,
        status=line.status,
        writer=line.writer,
        reward=summary.reward,
        reward_from=summary.reward_from,
        first_time=summary.first_time,
        last_time=summary.last_time,
        head=line.line_head(session_id),
        parent_session=line.parent_session,
        parent_step=line.parent_step,
        error=None if line.error is None else str(line.error),
        training_session=training.training_session,
        training_step=training.training_step,
        policies=training.policies,
        policies_more=training.policies_more,
        voided=training.voided,
    )


def facts_to_show(facts: TrainingFacts | None, policy: str | None) -> TrainingFacts:
    """What a listing shows: of what is not known the seed's `policy`, and that there may be more.

    See `SessionInfo.training_known`.
    """
    if facts is not None:
        return facts
    return TrainingFacts(policies=() if policy is None else (policy,), policies_more=True)
