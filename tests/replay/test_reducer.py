"""Reducers: what each makes of events, and how they are found by name and version."""

import json
import sys
from collections.abc import Iterator

import pytest

from eventlog.call_view import pair_calls
from eventlog.canonical import encode
from eventlog.content import BlobRef, Content
from eventlog.errors import (
    ConfigError,
    EventCorruptError,
    ReducerMissingError,
    ReducerVersionError,
)
from eventlog.event import (
    Annotated,
    Event,
    LineHead,
    MessageAdded,
    SessionClosed,
    SessionForked,
    SessionResumed,
    SessionSeeded,
    StateChange,
    StateUnknown,
    ToolCalled,
    ToolReturned,
    Verified,
)
from replay.reducer import CapturedReducer, ReducerRegistry, TranscriptReducer
from tests.support.events import EventChain


def fetch(content: Content) -> bytes:
    assert isinstance(content.data, bytes), "no test here has blobs to fetch"
    return content.data


def patch(*operations: object) -> StateChange:
    return StateChange(
        Content("application/vnd.steplog.patch", encode(list(operations))), bytes(32)
    )


class Story:
    """A session's events, reduced one by one as they are told."""

    def __init__(self) -> None:
        self.chain = EventChain("s")
        self.reducer = TranscriptReducer()
        self.state = self.reducer.begin(self.chain.seed().event, fetch)

    def tell(self, body: object) -> int:
        event = self.chain.append(body).event  # type: ignore[arg-type]
        self.state = self.reducer.apply_event(self.state, event, fetch)
        return event.step

    def __getitem__(self, key: str) -> list[dict[str, object]]:
        assert isinstance(self.state, dict)
        found: list[dict[str, object]] = self.state[key]
        return found


@pytest.fixture
def story() -> Story:
    return Story()


def test_the_captured_reducer_begins_with_the_recorded_state() -> None:
    chain = EventChain("s")
    seed = chain.seed(initial_state=Content.of_value({"n": 1})).event
    assert CapturedReducer().begin(seed, fetch) == {"n": 1}
    assert CapturedReducer().begin(EventChain("t").seed().event, fetch) is None


def test_the_captured_reducer_applies_changes_and_nothing_else() -> None:
    chain = EventChain("s")
    chain.seed()
    state: object = {"n": 1}
    reducer = CapturedReducer()
    for change, expected in (
        (patch(["set", ["n"], 2]), {"n": 2}),
        (None, {"n": 2}),
        (StateUnknown("not said"), {"n": 2}),
        (patch(["set", [], [1]]), [1]),
    ):
        event = chain.append(Annotated("x", Content.of_value(1)), state_change=change).event
        state = reducer.apply_event(state, event, fetch)
        assert state == expected


def test_a_patch_for_another_state_is_refused() -> None:
    chain = EventChain("s")
    chain.seed()
    event = chain.append(
        Annotated("x", Content.of_value(1)), state_change=patch(["del", ["gone"]])
    ).event
    with pytest.raises(EventCorruptError):
        CapturedReducer().apply_event({"n": 1}, event, fetch)


def test_a_transcript_pairs_results_by_step_in_any_order(story: Story) -> None:
    first = story.tell(ToolCalled("a", Content.of_json_text('{"n": 1}'), call_id="same"))
    second = story.tell(ToolCalled("b", Content.of_json_text("{}"), call_id="same"))
    third = story.tell(ToolCalled("c", Content.of_value((1, 2))))
    answer = story.tell(ToolReturned(second, "ok", Content.of_text("two"), reward=0.5))
    failed = story.tell(ToolReturned(first, "error", None, error_type="ValueError"))
    assert story["calls"] == [
        {
            "call_step": first,
            "return_step": failed,
            "tool": "a",
            "call_id": "same",
            "arguments": {"n": 1},
            "status": "error",
            "result": None,
            "reward": None,
        },
        {
            "call_step": second,
            "return_step": answer,
            "tool": "b",
            "call_id": "same",
            "arguments": {},
            "status": "ok",
            "result": "two",
            "reward": 0.5,
        },
        {
            "call_step": third,
            "return_step": None,
            "tool": "c",
            "call_id": None,
            "arguments": (1, 2),
            "status": "open",
            "result": None,
            "reward": None,
        },
    ]


def test_an_answer_to_no_call_changes_no_line(story: Story) -> None:
    story.tell(ToolCalled("a", Content.of_json_text("{}")))
    before = encode(story.state)
    story.tell(ToolReturned(0, "ok", Content.of_text("to whom?")))
    story.tell(ToolReturned(99, "ok", Content.of_text("to whom?")))
    assert encode(story.state) == before


def test_the_first_answer_to_a_call_stands(story: Story) -> None:
    """A second one replaced it here, and not in the rows of `calls`."""
    call = story.tell(ToolCalled("a", Content.of_json_text("{}")))
    story.tell(ToolReturned(call, "ok", Content.of_text("first"), reward=1.0))
    before = encode(story.state)
    story.tell(ToolReturned(call, "error", Content.of_text("second"), reward=0.0))
    assert encode(story.state) == before
    (row,) = pair_calls(encoded.event for encoded in story.chain.events)
    (line,) = story["calls"]
    assert (row.return_step, row.status, row.reward) == (2, "ok", 1.0)
    assert (line["return_step"], line["status"], line["reward"]) == (2, "ok", 1.0)


def test_messages_rewards_and_the_close_are_kept(story: Story) -> None:
    said = story.tell(MessageAdded("user", Content.of_text("hello")))
    judged = story.tell(Verified("rules", reward=1.0, components={"policy": 0.5}))
    story.tell(SessionClosed("done", 3, bytes(32)))
    assert story.state == {
        "messages": [{"step": said, "role": "user", "content": "hello"}],
        "calls": [],
        "verified": [
            {"step": judged, "verifier": "rules", "reward": 1.0, "components": {"policy": 0.5}}
        ],
        "closed": "done",
    }


@pytest.mark.parametrize(
    "claim", [SessionResumed(1, "late reward", "w"), SessionForked("parent", 1, None)]
)
def test_a_claim_opens_a_closed_transcript_again(story: Story, claim: object) -> None:
    """A branch of a closed session said it was closed."""
    story.tell(SessionClosed("done", 1, bytes(32)))
    story.chain.append(claim)  # type: ignore[arg-type]
    story.state = story.reducer.apply_event(story.state, story.chain.events[-1].event, fetch)
    assert isinstance(story.state, dict)
    assert story.state["closed"] is None


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ('{"a": [1, 1.0, null]}', {"a": [1, 1.0, None]}),
        ("1", 1),
        ('"text"', "text"),
        ("NaN", "NaN"),
        ("{broken", "{broken"),
        ('{"a": 1, "a": 2}', '{"a": 1, "a": 2}'),
        ("[" * 201 + "]" * 201, "[" * 201 + "]" * 201),
    ],
)
def test_json_is_shown_parsed_where_a_value_says_all_of_it(
    story: Story, text: str, shown: object
) -> None:
    """A key that is there twice must not vanish from what is shown."""
    story.tell(ToolCalled("t", Content("application/json", text.encode())))
    assert encode(story["calls"][0]["arguments"]) == encode(shown)


@pytest.fixture
def short_numbers() -> Iterator[None]:
    """A process that reads whole numbers of at most 640 digits."""
    before = sys.get_int_max_str_digits()
    sys.set_int_max_str_digits(640)
    yield
    sys.set_int_max_str_digits(before)


@pytest.mark.usefixtures("short_numbers")
def test_long_numbers_are_the_same_in_every_process(story: Story) -> None:
    """Whether `json` reads a number of 2,000 digits is a setting of the process."""
    with pytest.raises(ValueError, match="digits"):
        json.loads("7" * 2000)
    story.tell(ToolCalled("t", Content("application/json", b"7" * 2000)))
    shown = story["calls"][0]["arguments"]
    assert isinstance(shown, int)
    assert shown == 7 * (10**2000 - 1) // 9


def test_large_contents_stand_by_digest(story: Story) -> None:
    """What a transcript holds follows the dialog, and not where contents happen to be kept."""
    just = Content.of_text("x" * 4096)
    over = Content.of_text("x" * 4097)
    ref = BlobRef(bytes(range(32)), 9)
    for content in (just, over, Content("text/plain", ref)):
        story.tell(MessageAdded("tool", content))
    shown = [line["content"] for line in story["messages"]]
    assert shown[0] == "x" * 4096
    assert isinstance(shown[1], dict)
    assert shown[1]["size"] == 4097
    assert len(shown[1]["blob"]) == 64
    assert shown[2] == {"blob": bytes(range(32)).hex(), "size": 9}


def test_reading_many_returns_of_old_calls_takes_no_walk_for_each() -> None:
    """Each answer looked through all later calls: 100,000 of them took an hour."""
    looked = 0

    class Line(dict[str, object]):
        def __getitem__(self, key: str) -> object:
            nonlocal looked
            looked += key == "call_step"
            return super().__getitem__(key)

    calls = [Line(call_step=step, return_step=None) for step in range(10_000)]
    state = {"messages": [], "calls": calls, "verified": [], "closed": None}
    event = Event.following(
        LineHead("s", 10_000, 1, bytes(32)),
        ToolReturned(3, "ok"),
        event_id=bytes(16),
        time=0,
        actor="tool",
    )
    TranscriptReducer().apply_event(state, event, fetch)
    assert calls[3]["return_step"] == 10_001
    assert looked < 20


class Counter:
    """A reducer of the user's own: how many calls there were."""

    name = "counter"

    def __init__(self, version: str = "1") -> None:
        self.version = version

    def begin(self, seed: Event, fetch: object) -> object:
        """None yet."""
        return {"calls": 0}

    def apply_event(self, state: object, event: Event, fetch: object) -> object:
        """One more for each call."""
        assert isinstance(state, dict)
        return {"calls": state["calls"] + (event.kind == "tool_called")}


def test_reducers_are_found_by_name_and_version() -> None:
    registry = ReducerRegistry()
    assert isinstance(registry.find("captured", "1"), CapturedReducer)
    assert isinstance(registry.find("transcript", None), TranscriptReducer)
    first = Counter()
    registry.register(first)
    assert registry.find("counter", None) is first
    registry.register(Counter("2"))
    assert registry.find("counter", "1") is first
    with pytest.raises(ReducerVersionError, match=r"\['1', '2'\]"):
        registry.find("counter", None)
    with pytest.raises(ReducerVersionError) as caught:
        registry.find("counter", "3", session_id="s")
    assert caught.value.session_id == "s"
    with pytest.raises(ReducerMissingError, match="nobody"):
        registry.find("nobody", "1")


def test_a_name_and_version_is_registered_once() -> None:
    registry = ReducerRegistry()
    counter = Counter()
    registry.register(counter)
    registry.register(counter)
    with pytest.raises(ConfigError, match="another version"):
        registry.register(Counter())


def test_a_seed_without_state_is_an_empty_transcript() -> None:
    seed = EventChain("s").append(SessionSeeded("desk")).event
    assert TranscriptReducer().begin(seed, fetch) == {
        "messages": [],
        "calls": [],
        "verified": [],
        "closed": None,
    }
