"""`OpenSession`, its writer and its state: refused, failed and interrupted appends, and the end."""

import random
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future
from itertools import pairwise

import pytest

from eventlog.blob_store import MemoryBlobStore
from eventlog.canonical import decode, digest, encode
from eventlog.codec import EncodedEvent, decode_event
from eventlog.content import Content
from eventlog.errors import (
    AppendUncertainError,
    EventTooLargeError,
    FencedError,
    LogUnavailableError,
    NotRestorableError,
    RecorderEndedError,
    StepConflictError,
    SteplogError,
    ValueNotEncodableError,
)
from eventlog.event import LineHead, SessionSeeded, StateChange, StateUnknown, ToolCalled
from eventlog.log import Receipt
from eventlog.memory_log import MemoryLog
from eventlog.merkle_root import MerkleRoot
from eventlog.not_given import NOT_GIVEN
from eventlog.recorder import SessionRecorder
from eventlog.recording import session_writer
from eventlog.recording.session_writer import LinePosition, SessionWriter
from eventlog.recording.state_capture import (
    SHARED_CHECK_BYTES_MAX,
    SHARED_CHECK_VALUES_MAX,
    Recorded,
    StateCapture,
)
from eventlog.state_patch import apply


class FaultyLog(MemoryLog):
    """A log in memory whose next append fails, before or after it has the events."""

    def __init__(self) -> None:
        super().__init__()
        self.refuse: BaseException | None = None
        self.answer: BaseException | None = None
        self.interrupt_after: BaseException | None = None

    def submit_events(
        self,
        session_id: str,
        events: Sequence[EncodedEvent],
        *,
        expected_step: int,
        head: LineHead | None = None,
    ) -> "Future[Receipt]":
        """Fail as told, once."""
        if self.refuse is not None:
            refuse, self.refuse = self.refuse, None
            raise refuse
        if self.answer is not None:
            failed: Future[Receipt] = Future()
            failed.set_exception(self.answer)
            self.answer = None
            return failed
        done = super().submit_events(session_id, events, expected_step=expected_step)
        if self.interrupt_after is not None:
            interrupt, self.interrupt_after = self.interrupt_after, None
            raise interrupt
        return done


@pytest.fixture
def log() -> Iterator[FaultyLog]:
    with FaultyLog() as log:
        yield log


Begin = Callable[..., SessionRecorder]


@pytest.fixture
def begin(log: FaultyLog) -> Begin:
    def begin(state: object = NOT_GIVEN, **options: object) -> SessionRecorder:
        seeded = SessionSeeded(environment="test", reducer="captured")
        blobs = MemoryBlobStore()
        return SessionRecorder.begin(log, blobs, "s", seeded, state=state, **options)  # type: ignore[arg-type]

    return begin


def fold(log: MemoryLog) -> object:
    """The state that the recorded patches give, each digest compared."""
    state: object = None
    for record in log.read_session("s"):
        event = decode_event(record.data)
        if isinstance(event.body, SessionSeeded):
            assert event.body.initial_state is not None
            assert isinstance(event.body.initial_state.data, bytes)
            state = decode(event.body.initial_state.data, opaque=True)
        if isinstance(event.state_change, StateChange):
            assert isinstance(event.state_change.patch.data, bytes)
            state = apply(decode(event.state_change.patch.data, opaque=True), state)
            assert digest(state) == event.state_change.digest
    return state


# Refused before the log has it.


@pytest.mark.parametrize(
    "error", [LogUnavailableError("full", hint=""), KeyboardInterrupt(), RuntimeError("bug")]
)
def test_what_the_log_never_took_is_forgotten_whole(
    log: FaultyLog, begin: Begin, error: BaseException
) -> None:
    """The state had moved on without its event, and every later patch was wrong."""
    session = begin({"n": 0})
    call = session.record_tool_call("t", {})
    log.refuse = error
    with pytest.raises(type(error)):
        session.record_tool_return(call, "x", state={"n": 1})
    assert session.state == {"n": 0}
    assert [each.step for each in session.open_calls] == [call]
    if isinstance(error, SteplogError):
        session.record_tool_return(call, "x", state={"n": 2})
        assert fold(log) == {"n": 2}
    else:
        # Whether the log has it nobody knows: this recorder is of no more use.
        with pytest.raises(RecorderEndedError, match="interrupted half-way"):
            session.record_tool_return(call, "x", state={"n": 2})
        assert log.session_info("s").head.step == call


def test_an_interrupt_just_after_the_log_has_the_event(log: FaultyLog, begin: Begin) -> None:
    session = begin({"n": 0})
    log.interrupt_after = KeyboardInterrupt()
    with pytest.raises(KeyboardInterrupt):
        session.record_state("next", {"n": 1})
    with pytest.raises(RecorderEndedError, match="resume"):
        session.record_state("next", {"n": 2})
    with pytest.raises(RecorderEndedError):
        session.close()
    assert fold(log) == {"n": 1}


def test_a_call_that_was_refused_is_not_open(log: FaultyLog, begin: Begin) -> None:
    session = begin()
    log.refuse = LogUnavailableError("full", hint="")
    with pytest.raises(LogUnavailableError):
        session.record_tool_call("t", {}, idempotency_key="k")
    assert session.open_calls == ()
    assert session.record_tool_call("t", {}, idempotency_key="k") == 1


def test_an_event_too_large_leaves_everything_as_it_was(log: FaultyLog, begin: Begin) -> None:
    session = begin({"n": 0})
    call = session.record_tool_call("t", {})
    with pytest.raises(EventTooLargeError):
        session.record_tool_return(call, "x", state={"n": 1}, error_type="e" * 70_000)
    with pytest.raises(ValueNotEncodableError):
        session.record_tool_return(call, object(), state={"n": 1})
    session.record_tool_return(call, "x", state={"n": 2})
    assert fold(log) == {"n": 2}


# Failed after it was submitted.


@pytest.mark.parametrize(
    ("error", "later"),
    [
        (AppendUncertainError("commit failed", hint=""), RecorderEndedError),
        (FencedError("taken over", hint=""), FencedError),
        (LogUnavailableError("disk full", hint=""), RecorderEndedError),
    ],
)
def test_after_a_failed_append_a_recorder_is_of_no_more_use(
    log: FaultyLog, begin: Begin, error: SteplogError, later: type[SteplogError]
) -> None:
    """Every later call said again "retryable, then try again", long after the log was back."""
    session = begin({"n": 0})
    log.answer = error
    with pytest.raises(type(error)):
        session.record_state("next", {"n": 1})
    for act in (
        lambda: session.record_message("user", "x"),
        lambda: session.record_tool_call("t", {}),
        lambda: session.close(),
        lambda: session.release(),
        lambda: session.flush(),
    ):
        with pytest.raises(later, match=r"(at|after) step 0") as caught:
            act()
        assert error.message in caught.value.message
        assert not caught.value.retryable
    assert log.session_info("s").step_count == 1
    assert (session.step, session.event_digest) == (0, log.session_info("s").head.digest)


def test_the_first_error_tells_what_was_recorded_and_how_to_go_on(
    log: FaultyLog, begin: Begin
) -> None:
    """It said "then try again", which can only fail; nothing said that `resume` goes on."""
    session = begin()
    shared = LogUnavailableError("disk full", hint="free some space, then try again")
    log.answer = shared
    with pytest.raises(LogUnavailableError) as caught:
        session.annotate("note", 1)
    assert caught.value.hint == (
        "free some space; nothing after step 0 was recorded; the session stays open, and "
        "`ws.resume('s')` goes on with it"
    )
    assert shared.hint.endswith("then try again"), "the log gives one error to many"
    with pytest.raises(RecorderEndedError) as ended:
        session.close()
    assert ended.value.message == ("this recorder ended at step 0: LogUnavailableError: disk full")
    assert "`ws.resume('s')`" in ended.value.hint


def test_what_may_be_written_is_not_said_to_be_lost(log: FaultyLog, begin: Begin) -> None:
    session = begin()
    log.answer = AppendUncertainError("no answer", hint="call reconcile")
    with pytest.raises(AppendUncertainError, match="finds out about the rest") as caught:
        session.close()
    assert "open" not in caught.value.hint


def test_a_session_that_never_began_is_not_to_be_resumed(log: FaultyLog, begin: Begin) -> None:
    log.answer = LogUnavailableError("disk full", hint="free some space, then try again")
    with pytest.raises(LogUnavailableError, match="then try again"):
        begin()


def test_a_close_that_stands_is_not_undone_by_what_fails_after_it(
    log: FaultyLog, begin: Begin
) -> None:
    session = begin()
    with session:
        session.close()
        log.answer = LogUnavailableError("disk full", hint="")
        with pytest.raises(LogUnavailableError, match="is closed"):
            session.annotate("late", 1)
        assert session.closed


@pytest.mark.parametrize("swallowed", [False, True])
def test_the_end_of_a_recorder_is_told_once(log: FaultyLog, begin: Begin, swallowed: bool) -> None:
    """The note repeated the whole error on the error itself."""

    def fail(session: SessionRecorder) -> None:
        log.answer = LogUnavailableError("disk full", hint="")
        try:
            session.annotate("note", 1)
        except LogUnavailableError:
            if not swallowed:
                raise
        raise ZeroDivisionError

    kind = ZeroDivisionError if swallowed else LogUnavailableError
    with pytest.raises(kind) as caught, begin() as session:
        fail(session)
    notes = getattr(caught.value, "__notes__", [])
    told = "\n".join([str(caught.value), *notes])
    assert (told.count("disk full"), told.count("`ws.resume('s')`")) == (1, 1)
    assert "stays open" in told


@pytest.mark.parametrize("swallowed", [False, True])
def test_a_fenced_recorder_does_not_say_that_its_session_stays_open(
    log: FaultyLog, begin: Begin, swallowed: bool
) -> None:
    """The new owner had closed it long before."""

    def fail(session: SessionRecorder) -> None:
        session.record_tool_call("t", {})
        session.flush()
        owner = log.open_again()
        head = log.session_info("s").head
        owner.take_over(["s"], stands_on={"s": head.digest}, reason="test")
        session.record_message("user", "too late")

    raised = pytest.raises(ZeroDivisionError if swallowed else FencedError)
    with raised as caught, begin() as session:
        try:
            fail(session)
        except FencedError as error:
            if not swallowed:
                raise
            raise ZeroDivisionError from error
    (note,) = caught.value.__notes__
    assert note == (
        "steplog: this recorder of 's' was fenced; what it had acknowledged, up to step 1, is in "
        "the log"
    )


def test_a_call_that_failed_shows_at_its_return(log: FaultyLog, begin: Begin) -> None:
    session = begin()
    log.answer = LogUnavailableError("disk full", hint="")
    call = session.record_tool_call("t", {})
    with pytest.raises(LogUnavailableError):
        session.record_tool_return(call, "x")


def test_a_call_declared_external_is_durable_before_the_tool_runs(
    log: FaultyLog, begin: Begin
) -> None:
    session = begin()
    log.answer = LogUnavailableError("disk full", hint="")
    with pytest.raises(LogUnavailableError):
        session.record_tool_call("pay", {}, effects="external")


def test_the_users_exception_goes_on_with_a_note(log: FaultyLog, begin: Begin) -> None:
    def fail(session: SessionRecorder) -> None:
        log.refuse = LogUnavailableError("disk full", hint="")
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError) as caught, begin() as session:
        fail(session)
    (note,) = caught.value.__notes__
    assert "'s' stays open: LogUnavailableError: disk full" in note
    assert log.session_info("s").status == "open"


def test_a_block_that_ends_well_on_a_failed_log_does_not_end_well(
    log: FaultyLog, begin: Begin
) -> None:
    session = begin()
    log.answer = LogUnavailableError("disk full", hint="")
    with pytest.raises(LogUnavailableError), session:
        session.record_tool_call("t", {})


def test_what_waits_is_answered_in_bounded_numbers(
    log: FaultyLog, begin: Begin, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Calls that nobody waits for piled up their futures for as long as the session ran."""
    monkeypatch.setattr(session_writer, "SUBMITTED_MAX", 8)
    session = begin()
    for _ in range(50):
        session.record_tool_call("t", {})
        assert len(session._writer._submitted) <= 8
    session.flush()
    log.answer = LogUnavailableError("disk full", hint="")
    for _ in range(8):
        session.record_tool_call("t", {})
    with pytest.raises(LogUnavailableError):
        session.record_tool_call("t", {})


def test_an_event_recorded_before_under_its_id_is_no_success(log: FaultyLog) -> None:
    """The log answers such an append with the first receipt; taken for its own, a step was lost."""
    blobs = MemoryBlobStore()
    writer = SessionWriter(log, blobs, LinePosition.before_seed("s"))
    writer.submit(SessionSeeded("desk", writer=log.writer_id), actor="system")
    body = ToolCalled("t", Content.of_value({}), idempotency_key="k")
    writer.submit(body, actor="agent", key="k")
    writer.await_durable()
    writer.submit(body, actor="agent", key="k")
    with pytest.raises(StepConflictError, match="step 1 already"):
        writer.await_durable()


# The end.


def test_a_closed_session_takes_what_may_follow_and_refuses_the_rest_unharmed(
    log: FaultyLog, begin: Begin
) -> None:
    """A refused event after the close also cost the late reward."""
    session = begin({"n": 0})
    call = session.record_tool_call("t", {})
    session.close()
    assert session.closed
    for act in (
        lambda: session.record_message("user", "x"),
        lambda: session.record_tool_return(call, "x"),
        lambda: session.record_state("x", {"n": 1}),
        lambda: session.record_tool_call("t", {}),
        lambda: session.close(),
    ):
        with pytest.raises(StepConflictError, match="closed"):
            act()
    assert session.record_verification(1.0, verifier="late") == 3
    assert session.annotate("note", {"by": "operator"}) == 4
    assert log.session_info("s").reward == 1.0
    assert session.state == {"n": 0}


def test_a_close_that_failed_is_no_close(log: FaultyLog, begin: Begin) -> None:
    session = begin()
    log.answer = LogUnavailableError("disk full", hint="")
    with pytest.raises(LogUnavailableError):
        session.close()
    assert not session.closed
    log.refuse = LogUnavailableError("disk full", hint="")


def test_a_close_refused_before_the_log_has_it_can_be_tried_again(
    log: FaultyLog, begin: Begin
) -> None:
    session = begin()
    log.refuse = LogUnavailableError("busy", hint="")
    with pytest.raises(LogUnavailableError):
        session.close()
    assert not session.closed
    session.close()
    assert log.session_info("s").status == "closed"


# What an observer is told.


def test_an_observer_is_told_of_durable_events_and_the_state_after_them(begin: Begin) -> None:
    told: list[Recorded] = []
    session = begin({"n": 0}, observe=told.append)
    call = session.record_tool_call("t", {})
    session.record_tool_return(call, "x", state={"n": 1})
    session.record_tool_return(session.record_tool_call("t", {}), "x")
    session.close()
    assert [one.head.step for one in told] == [0, 2, 4, 5]
    assert [one.state_bytes for one in told] == [encode({"n": 0}), encode({"n": 1}), None, None]
    assert [one.at_end for one in told] == [False, False, False, True]


def test_a_release_is_told_as_an_end(begin: Begin) -> None:
    told: list[Recorded] = []
    session = begin({"n": 0}, observe=told.append)
    session.release("w2")
    assert [(one.head.step, one.at_end) for one in told] == [(0, False), (0, True)]


# The state.


def test_a_change_counts_only_when_it_is_adopted() -> None:
    capture, content = StateCapture.of_first({"n": 0})
    assert content.data == encode({"n": 0})
    first = capture.change_to({"n": 1})
    assert capture.base == encode({"n": 0})
    assert capture.change_to({"n": 1}).change == first.change
    capture.adopt(first)
    assert capture.base == encode({"n": 1})
    assert capture.change_to({"n": 1}).change is None


def test_after_an_unknown_state_an_equal_one_is_told_as_no_drift() -> None:
    capture, _ = StateCapture.of_first({"n": 0})
    unknown = capture.forget("not said")
    assert unknown.change == StateUnknown("not said")
    capture.adopt(unknown)
    assert not capture.known
    same = capture.change_to({"n": 0})
    assert isinstance(same.change, StateChange)
    assert same.change.patch.data == encode([])
    assert same.change.digest == digest({"n": 0})
    capture.adopt(same)
    assert capture.known


def test_a_generator_reached_twice_is_refused_at_any_size() -> None:
    """Beyond 64 KiB nothing was looked for, and a restored state drew other numbers."""
    rng = random.Random(1)
    padding = "x" * (SHARED_CHECK_BYTES_MAX + 1)
    capture, _ = StateCapture.of_first({"pad": padding})
    capture.change_to({"pad": padding, "a": rng, "b": random.Random(1)})
    with pytest.raises(ValueNotEncodableError, match=r"twice, at \$\.a and at \$\.b"):
        capture.change_to({"pad": padding, "a": rng, "b": rng})
    values = [0] * SHARED_CHECK_VALUES_MAX
    with pytest.raises(ValueNotEncodableError):
        capture.change_to({"pad": padding, "v": values, "a": [rng], "b": [rng]})


def test_an_object_reached_twice_in_a_large_state_was_never_found_after_the_first() -> None:
    """Bytes said little: a state of long texts has few objects, and is walked whole."""
    texts = ["x" * 1000] * 1000
    capture, _ = StateCapture.of_first({"texts": texts})
    shared: list[int] = []
    with pytest.raises(ValueNotEncodableError, match=r"twice, at \$\.a\[0\] and at \$\.b"):
        capture.change_to({"texts": texts, "a": [shared], "b": shared})
    many: list[object] = [[number] for number in range(SHARED_CHECK_VALUES_MAX)]
    with pytest.raises(ValueNotEncodableError):
        capture.change_to({"many": many, "a": shared, "b": shared})
    # The limit that `record` tells of: far from the root nothing is looked for any more.
    far = {"many": [*many, shared], "texts": texts, "a": [[shared]]}
    capture.change_to(far)
    with pytest.raises(ValueNotEncodableError):
        StateCapture.of_first(far)


def test_a_position_goes_on_counting(log: FaultyLog) -> None:
    """A writer that begins in the middle of a line closes with count and root over all of it."""
    blobs = MemoryBlobStore()
    first = SessionWriter(log, blobs, LinePosition.before_seed("s"))
    first.submit(SessionSeeded("desk", writer=log.writer_id), actor="system")
    first.submit(ToolCalled("t", Content.of_value({})), actor="agent")
    first.await_durable()
    records = list(log.read_session("s"))
    root = MerkleRoot(record.data for record in records)
    second = SessionWriter(log, blobs, LinePosition(first.head, root, 2))
    second.submit_close("done", None)
    second.await_durable()
    records = list(log.read_session("s"))
    for before, after in pairwise(records):
        assert after.prefix.parent == before.digest
    assert second.head == LineHead("s", 2, 1, records[-1].digest)


def test_a_state_nobody_said_names_what_to_do(begin: Begin) -> None:
    session = begin({"n": 0})
    session.record_state("changed by hand")
    with pytest.raises(NotRestorableError) as caught:
        _ = session.state
    assert "state=" in caught.value.hint
