"""The reader's rule: golden stories, and random histories against a second reading of the rule."""

import random
from collections import Counter
from pathlib import Path

import pytest

from eventlog.errors import EventCorruptError, LinkBrokenError, StepGapError
from eventlog.event import Body, MessageAdded, SessionResumed, ToolCalled
from eventlog.line_state import (
    KnownEvent,
    LinePrefix,
    LineState,
    Verdict,
    VerdictKind,
    needs_body,
)
from eventlog.session_line import SKIPPED_KEPT_MAX, SessionLine, nothing_known
from eventlog.standing_line import StandingChain
from tests.support.line_histories import TEXT, random_history
from tests.support.line_model import LineModel
from tests.support.line_records import (
    LineKeeper,
    Record,
    claim_record,
    fork_record,
    record_of,
    seed_record,
)
from tests.support.line_stories import Story
from tests.support.scale import scaled

HISTORIES = scaled(2_000, 40_000)
STORIES = sorted((Path(__file__).parents[1] / "golden" / "session_line").glob("*.txt"))


class SlowLine(SessionLine):
    """The rule without its fast path."""

    __slots__ = ()

    def accept(
        self,
        record: LinePrefix,
        digest: bytes,
        body: Body | None = None,
        *,
        offset: int | None = None,
    ) -> Verdict:
        self._ready = False
        return super().accept(record, digest, body, offset=offset)


class SlowKeeper(LineKeeper):
    def _line_from(self, state: LineState) -> SessionLine:
        return SlowLine(self.session_id, self._known, state)


def said(verdict: Verdict) -> tuple[str, int, str | None]:
    return str(verdict.kind), verdict.rule, None if verdict.error is None else verdict.error.name


def histories(count: int) -> list[list[Record]]:
    return [random_history(random.Random(seed)) for seed in range(count)]


@pytest.mark.parametrize("path", STORIES, ids=lambda path: path.stem)
def test_story(path: Path) -> None:
    text = path.read_text(encoding="utf-8")
    assert Story(text).told() == text


def test_there_are_stories() -> None:
    assert len(STORIES) >= 15


def test_every_verdict_and_the_standing_line_are_those_of_the_model() -> None:
    seen: Counter[tuple[str, int, str | None]] = Counter()
    for seed in range(HISTORIES):
        model, keeper = LineModel("s"), LineKeeper()
        for i, record in enumerate(random_history(random.Random(seed))):
            ours = said(keeper.accept(record))
            assert ours == model.judge(record)[1:], f"seed {seed}, record {i}: {record}"
            seen[ours] += 1
        assert keeper.standing() == model.standing(), f"seed {seed}"
        check_state(keeper, model)
    assert {rule for _, rule, _ in seen} == set(range(8)), "the histories must reach every rule"
    assert seen["accepted", 3, None] > HISTORIES


def follow_all(line: list[Record]) -> None:
    chain = StandingChain()
    for record in line:
        chain.follow(record, record.digest)


def check_state(keeper: LineKeeper, model: LineModel) -> None:
    """What the state says must follow from the model's list of all records."""
    state = keeper.line.state
    line = model.standing()
    verdicts = Counter(judged.verdict for judged in model.history)
    assert state.begun == bool(line)
    assert (None if state.error is None else state.error.name) == model.error()
    bad = [
        judged.record.step
        for judged in model.history
        if judged.verdict == "conflict" or (judged.verdict == "stopped" and judged.rule != 5)
    ]
    assert state.first_bad == (bad[0] if bad else None)
    assert state.counts.duplicates == verdicts["duplicate"]
    assert state.counts.lost_claims == verdicts["lost_claim"]
    assert state.counts.conflicts == verdicts["conflict"]
    assert state.counts.stopped == verdicts["stopped"]
    if line:
        left = [event for event in model.accepted().values() if event not in line]
        assert state.accepted == verdicts["accepted"]
        assert state.superseded == len(left) + verdicts["superseded"]
        assert state.first_step == line[0].step
        assert (state.next_step, state.head) == (line[-1].step + 1, line[-1].digest)
        assert state.released == model.released()
        assert (state.lost is not None) == model.has("session_lost")
        assert (state.closed is not None) == model.has("session_closed")
        assert state.attempt == line[-1].attempt


def test_a_standing_line_is_one_chain_whatever_happened() -> None:
    for history in histories(scaled(500, 5_000)):
        keeper = LineKeeper()
        for record in history:
            keeper.accept(record)
        line = keeper.standing()
        for start in range(len(line)):
            follow_all(line[start:])
        assert [record.step for record in line] == list(
            range(line[0].step, line[0].step + len(line)) if line else []
        )


@pytest.mark.parametrize("stores_skipped", [False, True])
def test_a_stored_state_goes_on_as_the_line_itself(stores_skipped: bool) -> None:
    for seed, history in enumerate(histories(scaled(1_000, 20_000))):
        rng = random.Random(seed)
        often = rng.choice((0.05, 0.3, 1.0))
        steady = LineKeeper(stores_skipped=stores_skipped)
        restarted = LineKeeper(stores_skipped=stores_skipped)
        for i, record in enumerate(history):
            if rng.random() < often:
                restarted.restart()
            assert restarted.accept(record) == steady.accept(record), f"seed {seed}, record {i}"
            assert restarted.line.state == steady.line.state


def test_a_keeper_that_stores_verdicts_agrees_with_the_lines_own_memory() -> None:
    for seed, history in enumerate(histories(scaled(1_000, 20_000))):
        own, stored = LineKeeper(), LineKeeper(stores_skipped=True)
        for record in history:
            assert own.accept(record) == stored.accept(record), f"seed {seed}"
        assert stored.line.state == own.line.state._replace(skipped=())


def test_the_fast_path_says_what_the_slow_one_says() -> None:
    for seed, history in enumerate(histories(scaled(1_000, 20_000))):
        fast, slow = LineKeeper(), SlowKeeper()
        for i, record in enumerate(history):
            assert fast.accept(record) == slow.accept(record), f"seed {seed}, record {i}"
        assert fast.line.state == slow.line.state
        assert fast.known_asked <= slow.known_asked


def test_ordinary_events_in_order_ask_for_nothing() -> None:
    keeper = LineKeeper()
    last = seed_record()
    keeper.accept(last)
    for step in range(1, 100):
        last = record_of(ToolCalled("t", TEXT), step=step, attempt=1, parent=last.digest)
        assert keeper.accept(last).kind is VerdictKind.ACCEPTED
    assert keeper.known_asked == 0


def test_a_record_is_judged_once_wherever_a_consumer_begins_again() -> None:
    for seed, history in enumerate(histories(scaled(300, 3_000))):
        rng = random.Random(seed)
        once, again = LineKeeper(), LineKeeper()
        offsets = sorted(rng.sample(range(10 * len(history)), len(history)))
        log = list(zip(offsets, history, strict=True))
        verdicts = [once.accept(record, offset) for offset, record in log]
        read = 0
        while read < len(log):
            start = rng.randrange(read + 1)
            end = rng.randrange(read, len(log)) + 1
            again.restart()
            for i in range(start, end):
                verdict = again.accept(log[i][1], log[i][0])
                expected = Verdict(VerdictKind.JUDGED, 0) if i < read else verdicts[i]
                assert verdict == expected
            read = max(read, end)
        assert again.line.state == once.line.state
        assert again.line.state.position == offsets[-1] + 1


def test_an_altered_standing_line_never_passes_as_a_chain() -> None:
    for seed, history in enumerate(histories(scaled(500, 5_000))):
        rng = random.Random(seed)
        keeper = LineKeeper()
        for record in history:
            keeper.accept(record)
        line = keeper.standing()
        if len(line) < 3:
            continue
        i = rng.randrange(1, len(line) - 1)
        altered = list(line)
        match rng.randrange(4):
            case 0:
                del altered[i]
            case 1:
                altered[i] = record_of(
                    altered[i].body,
                    step=altered[i].step,
                    attempt=altered[i].attempt,
                    parent=altered[i].parent,
                    nonce=-1,
                )
            case 2:
                altered[i], altered[i + 1] = altered[i + 1], altered[i]
            case _:
                altered.insert(i, rng.choice(line))
        with pytest.raises((LinkBrokenError, StepGapError)) as caught:
            follow_all(altered)
        assert caught.value.session_id == "s"
        assert caught.value.step is not None


def test_a_claim_asks_for_its_parent_only_when_it_is_not_the_head() -> None:
    seed = seed_record()
    line = SessionLine("s", nothing_known)
    line.accept(seed, seed.digest)
    claim = claim_record(seed, 2)
    verdict = line.accept(claim, claim.digest)
    assert verdict.claim is not None
    assert verdict.claim == (2, 1, 1)


def test_a_branch_is_not_rewound_even_where_known_answers_for_the_parent_session() -> None:
    fork = fork_record(2, b"p" * 32, writer="w1")
    line = SessionLine("s", lambda digest: KnownEvent(2, 1) if digest == b"p" * 32 else None)
    line.accept(fork, fork.digest)
    body = SessionResumed(2, "test", "w2")
    claim = record_of(body, step=3, attempt=2, parent=b"p" * 32)
    verdict = line.accept(claim, claim.digest)
    assert said(verdict) == ("stopped", 3, "LinkBrokenError")


def test_the_memory_of_skipped_records_is_bounded_and_the_oldest_goes() -> None:
    keeper = LineKeeper()
    seed = seed_record()
    keeper.accept(seed)
    keeper.accept(record_of(ToolCalled("t", TEXT), step=1, attempt=1, parent=seed.digest))
    skipped = [
        record_of(MessageAdded("user", TEXT), step=1, attempt=1, parent=seed.digest, nonce=i)
        for i in range(1, SKIPPED_KEPT_MAX + 2)
    ]
    for record in skipped:
        assert keeper.accept(record).kind is VerdictKind.CONFLICT
    kept = keeper.line.state.skipped
    assert len(kept) == SKIPPED_KEPT_MAX
    assert kept[0][0] == skipped[1].digest
    on_kept = record_of(ToolCalled("t", TEXT), step=2, attempt=1, parent=skipped[1].digest)
    assert said(keeper.accept(on_kept)) == ("conflict", 4, None)
    forgotten = record_of(ToolCalled("t", TEXT), step=2, attempt=1, parent=skipped[0].digest)
    assert keeper.accept(forgotten).kind is VerdictKind.STOPPED


def test_a_long_chain_on_one_conflict_is_followed_past_the_bound() -> None:
    keeper = LineKeeper()
    last = seed_record()
    keeper.accept(last)
    keeper.accept(record_of(ToolCalled("t", TEXT), step=1, attempt=1, parent=last.digest))
    for step in range(1, SKIPPED_KEPT_MAX * 2):
        last = record_of(MessageAdded("a", TEXT), step=step, attempt=1, parent=last.digest)
        assert keeper.accept(last).kind is VerdictKind.CONFLICT


def test_kinds_that_need_a_body_are_refused_without_it() -> None:
    class Prefix:
        session_id, step, attempt, kind, parent = "s", 0, 1, "session_seeded", bytes(32)

    assert needs_body("session_seeded")
    assert not needs_body("tool_called")
    with pytest.raises(TypeError, match="session_seeded"):
        SessionLine("s", nothing_known).accept(Prefix(), b"d" * 32)


def test_a_line_error_is_raised_as_what_it_names() -> None:
    line = SessionLine("s", nothing_known)
    record = record_of(ToolCalled("t", TEXT), step=7, attempt=1, parent=b"x" * 32)
    error = line.accept(record, record.digest).error
    assert error is not None
    raised = error.as_error("s")
    assert isinstance(raised, StepGapError)
    assert (raised.session_id, raised.step) == ("s", 7)


@pytest.mark.parametrize(
    "value",
    [
        [],
        [1, 2],
        None,
        ["x"] * len(LineState()),
        [0] * len(LineState()),
        [*LineState().to_value(), 0],
        [*LineState().to_value()[:-1], [[b"digest", "no verdict"]]],
        [*LineState().to_value()[:-1], [b"digest"]],
    ],
)
def test_a_stored_state_that_is_none_is_refused(value: object) -> None:
    with pytest.raises(EventCorruptError, match="line state"):
        LineState.from_value(value)  # type: ignore[arg-type]
