"""Differences of two states and of two sessions."""

import random
from collections.abc import Callable
from copy import deepcopy

import pytest

from eventlog.canonical import encode
from eventlog.content import Content, JsonText
from eventlog.event import Annotated, Event
from eventlog.recorder import SessionRecorder
from replay.difference import Change, compare_lines, compare_states
from replay.workspace import Workspace
from tests.support.desk import Told
from tests.support.events import EventChain
from tests.support.scale import scaled

Play = Callable[..., Told]


def changes(before: object, after: object) -> list[tuple[object, ...]]:
    return [tuple(change) for change in compare_states(encode(before), encode(after))]


def test_equal_states_have_no_changes() -> None:
    assert changes({"a": [1, {"b": 2}]}, {"a": [1, {"b": 2}]}) == []


@pytest.mark.parametrize(
    ("before", "after", "expected"),
    [
        ({"a": 1}, {"a": 2}, ("replace", ("a",), 1, 2)),
        ({"a": 1}, {"a": 1, "b": 2}, ("add", ("b",), None, 2)),
        ({"a": 1, "b": 2}, {"a": 1}, ("remove", ("b",), 2, None)),
        ({"a": {"b": [{"c": 1}]}}, {"a": {"b": [{"c": 2}]}}, ("replace", ("a", "b", 0, "c"), 1, 2)),
        ({"a": None, "b": 1}, {"b": 1, "a": None}, ("order", (), None, ["a"])),
        (1, "one", ("replace", (), 1, "one")),
        ({"n": 1}, {"n": True}, ("replace", ("n",), 1, True)),
    ],
)
def test_one_change_is_told_by_place_before_and_after(
    before: object, after: object, expected: tuple[object, ...]
) -> None:
    assert changes(before, after) == [expected]


def test_items_of_a_list_are_cut_at_their_index() -> None:
    found = changes({"queue": ["a", "b", "c", "d"]}, {"queue": ["a", "x", "y", "d"]})
    state = {"queue": ["a", "b", "c", "d"]}
    for op, path, _, after in found:
        assert op in ("cut", "replace")
        assert path[0] == "queue"  # type: ignore[index]
        assert after in (["x", "y"], "x", "y")
    assert changes({"queue": ["a", "b"]}, {"queue": ["a"]}) == [("cut", ("queue", 1), ["b"], [])]
    assert state == {"queue": ["a", "b", "c", "d"]}


def test_a_change_inside_a_registered_type_is_told() -> None:
    """A cut inside a random generator's state ended in a TypeError."""
    before, after = random.Random(1), random.Random(1)
    after.random()
    (change,) = compare_states(encode({"rng": before}), encode({"rng": after}))
    assert change.path[0] == "rng"
    assert change.before != change.after


def test_what_was_before_is_not_what_a_later_change_made_of_it() -> None:
    before = {"a": {"x": 1, "y": [1, 2, 3]}, "b": [{"k": 1}, {"k": 2}], "c": "text" * 9}
    after = {"a": {"x": 2, "y": [3]}, "b": [{"k": 3}], "c": "text" * 9 + "!"}
    kept = deepcopy(before)
    for change in compare_states(encode(before), encode(after)):
        if change.op == "replace" and change.path == ("a", "x"):
            assert change.before == 1
    assert before == kept


# Two sessions.


def record(ws: Workspace, name: str, tell: Callable[[SessionRecorder], None]) -> None:
    with ws.record(name, environment="desk") as session:
        tell(session)


def test_two_sessions_that_did_the_same_are_equal(ws: Workspace, play: Play) -> None:
    """Ids, times, durations and claims are left out."""
    play("a", calls=5)
    play("b", calls=5)
    assert ws.diff("a", "b") == (True, None, None, ())
    ws.resume("a", reopen=True).close()
    difference = ws.diff("a", "b")
    assert (difference.equal, difference.first_step, difference.other_step) == (False, 13, None)


def test_a_branch_differs_from_where_it_goes_its_own_way(ws: Workspace, play: Play) -> None:
    told = play("a", calls=5)
    ws.fork("a", 4, name="b")
    with ws.resume("b", state=lambda: told.desk.state) as session:
        told.desk.state = session.state  # type: ignore[assignment]
        step = session.record_tool_call("other", {"n": 1})
        session.record_tool_return(step, None)
    difference = ws.diff("a", "b")
    assert (difference.equal, difference.first_step, difference.other_step) == (False, 5, 7)
    assert Change("replace", ("body", "tool"), "other", "look") or difference.changes
    paths = {change.path for change in difference.changes}
    assert ("body", "tool") in paths


def test_a_resumed_session_equals_one_that_never_stopped(ws: Workspace, play: Play) -> None:
    whole = play("a", calls=6, seed=3)
    part = Told(type(whole.desk)(3))
    session = ws.record("b", environment="desk", state=lambda: part.desk.state)
    part.play(session, 2)
    with ws.resume("b", state=lambda: part.desk.state) as session:
        part.desk.state = session.state  # type: ignore[assignment]
        for _ in range(4):
            tool, arguments, result = part.desk.act()
            session.record_tool_return(session.record_tool_call(tool, arguments), result)
    assert ws.diff("a", "b").equal


def test_calls_that_complete_in_another_order_do_the_same(ws: Workspace) -> None:
    """Two returns were held against each other by their places, and not by their calls."""

    def told(*order: tuple[int, str]) -> Callable[[SessionRecorder], None]:
        def tell(session: SessionRecorder) -> None:
            calls = [session.record_tool_call("t", {"n": number}) for number in range(2)]
            steps = [session.record_tool_return(calls[call], text) for call, text in order]
            for step in sorted(steps, key=lambda step: order[steps.index(step)]):
                session.record_verification(1.0, verifier="v", about_step=step)

        return tell

    record(ws, "in order", told((0, "one"), (1, "two")))
    record(ws, "crossed", told((1, "two"), (0, "one")))
    record(ws, "other", told((1, "another"), (0, "one")))
    assert ws.diff("in order", "crossed") == (True, None, None, ())
    for name, step, other_step in (("in order", 4, 3), ("crossed", 3, 3)):
        difference = ws.diff(name, "other")
        assert (difference.equal, difference.first_step, difference.other_step) == (
            False,
            step,
            other_step,
        )
        path = ("body", "result", "value")
        assert difference.changes == (Change("replace", path, "two", "another"),)


def test_results_given_to_the_wrong_calls_are_a_difference(ws: Workspace) -> None:
    def tell(first: str, second: str) -> Callable[[SessionRecorder], None]:
        def tell(session: SessionRecorder) -> None:
            one, two = session.record_tool_call("t", {}), session.record_tool_call("t", {})
            session.record_tool_return(two, first)
            session.record_tool_return(one, second)

        return tell

    record(ws, "a", tell("1", "2"))
    record(ws, "b", tell("2", "1"))
    assert ws.diff("a", "b").first_step == 3


def test_states_are_compared_where_both_came_the_same_way(ws: Workspace) -> None:
    """Between two returns in another order the states differ, and do no harm by it."""

    def play(name: str, order: tuple[int, ...], gained: dict[int, int]) -> None:
        state = {"sum": 0}
        with ws.record(name, environment="desk", state=lambda: state) as session:
            calls = [session.record_tool_call("gain", {"n": number}) for number in range(3)]
            for number in order:
                state["sum"] += gained[number]
                session.record_tool_return(calls[number], "done")
            session.record_message("user", "and then?")

    gained = {0: 1, 1: 2, 2: 3}
    play("a", (0, 1, 2), gained)
    play("b", (2, 0, 1), gained)
    play("c", (2, 0, 1), {**gained, 2: 4})
    assert ws.diff("a", "b").equal
    difference = ws.diff("a", "c")
    assert (difference.first_step, difference.other_step) == (6, 6)
    assert difference.changes == (Change("replace", ("state", "sum"), 6, 7),)
    assert ws.diff("b", "c").first_step == 4, "in the same order each state is compared"


def random_line(rng: random.Random, like: list[tuple[str, int, str]]) -> list[tuple[str, int, str]]:
    """Issued events and returns; the returns at other places, and sometimes something changed."""
    issued = [each for each in like if each[0] != "return"]
    returns = [each for each in like if each[0] == "return"]
    rng.shuffle(returns)
    made: list[tuple[str, int, str]] = []
    called = 0
    for each in [*issued, None]:
        while returns and rng.random() < 0.5 and any(number < called for _, number, _ in returns):
            made.append(next(one for one in returns if one[1] < called))
            returns.remove(made[-1])
        if each is not None:
            made.append(each)
            called += each[0] == "call"
    made += returns
    if rng.random() < 0.6:
        place = rng.randrange(len(made))
        kind, number, text = made[place]
        changed = [(kind, number, text + "!")]
        # A call is never left out: its return would name nothing.
        made[place : place + 1] = changed if kind == "call" else rng.choice(([], changed))
    return made


def played(line: list[tuple[str, int, str]]) -> list[Event]:
    chain = EventChain("s")
    chain.seed()
    steps: list[int] = []
    for kind, number, text in line:
        if kind == "call":
            steps.append(chain.call(tool=text).event.step)
        elif kind == "return":
            chain.returned(steps[number], result=Content.of_text(text))
        else:
            chain.append(Annotated("note", Content.of_text(text)))
    return [encoded.event for encoded in chain.events]


def first_difference(
    one: list[tuple[str, int, str]], other: list[tuple[str, int, str]]
) -> int | str | None:
    """By a plain model: the first step of one, `more` where only the other has more, or None."""

    def by_name(line: list[tuple[str, int, str]]) -> dict[object, tuple[int, str]]:
        found: dict[object, tuple[int, str]] = {}
        issued = 0
        for step, (kind, number, text) in enumerate(line, 1):
            name: object = ("return", number) if kind == "return" else issued
            issued += kind != "return"
            found[name] = (step, kind + text)
        return found

    mine, theirs = by_name(one), by_name(other)
    steps = [step for name, (step, text) in mine.items() if theirs.get(name, (0, ""))[1] != text]
    if steps:
        return min(steps)
    return "more" if theirs.keys() - mine.keys() else None


def test_the_first_differing_step_is_that_of_a_plain_model() -> None:
    rng = random.Random(5)
    seen = set()
    for _ in range(scaled(1_500, 20_000)):
        calls = rng.randrange(1, 5)
        like = [("call", number, f"tool{number}") for number in range(calls)]
        like += [("return", n, f"said{n}") for n in range(calls) if rng.random() < 0.9]
        like += [("note", 0, f"note{number}") for number in range(rng.randrange(3))]
        issued = [each for each in like if each[0] != "return"]
        rng.shuffle(issued)
        numbers = iter(range(calls))
        issued = [(k, next(numbers), t) if k == "call" else (k, n, t) for k, n, t in issued]
        like = issued + [each for each in like if each[0] == "return"]
        one, other = random_line(rng, like), random_line(rng, like)
        expected = first_difference(one, other)
        found = compare_lines(played(one), played(other))
        assert found.equal == (expected is None), (one, other)
        if isinstance(expected, int):
            assert found.first_step == expected, (one, other)
        elif expected == "more":
            assert found.first_step is None, (one, other)
            assert found.other_step is not None
        seen.add(type(expected))
    assert len(seen) == 3


def test_a_judgement_about_another_answered_call_is_a_difference(ws: Workspace) -> None:
    """Steps of calls that were answered long ago were forgotten, so any two of them were equal."""

    def judge(about: int) -> Callable[[SessionRecorder], None]:
        def tell(session: SessionRecorder) -> None:
            for _ in range(2):
                session.record_tool_return(session.record_tool_call("t", {}), "x")
            session.record_verification(1.0, verifier="v", about_step=about)

        return tell

    record(ws, "a", judge(1))
    record(ws, "b", judge(3))
    assert ws.diff("a", "b").changes == (Change("replace", ("body", "about_step"), 1, 3),)


def test_one_that_goes_on_differs_where_the_other_ends(ws: Workspace) -> None:
    record(ws, "a", lambda session: None)
    with pytest.raises(KeyboardInterrupt), ws.record("b", environment="desk"):
        raise KeyboardInterrupt
    difference = ws.diff("a", "b")
    assert (difference.equal, difference.first_step, difference.other_step) == (False, 1, None)
    assert difference.changes[0].op == "remove"
    difference = ws.diff("b", "a")
    assert (difference.first_step, difference.other_step) == (None, 1)
    assert difference.changes[0].op == "add"


def test_texts_are_told_apart_and_large_ones_by_digest(ws: Workspace) -> None:
    for name, text in (("a", "x"), ("b", "y"), ("c", "x" * 20_000), ("d", "x" * 20_001)):
        record(ws, name, lambda session, text=text: session.record_message("user", text))  # type: ignore[misc]
    assert ws.diff("a", "b").changes == (Change("replace", ("body", "content", "value"), "x", "y"),)
    (change,) = ws.diff("c", "d").changes
    assert change.path == ("body", "content", "sha256")


def test_the_same_content_is_equal_wherever_it_is_kept(ws: Workspace) -> None:
    """Whether bytes stand in a blob hangs on what else their event holds."""
    text = "x" * 200_000

    def with_id(session: SessionRecorder) -> None:
        session.record_tool_call("t", text, call_id="i" * 63_000)

    record(ws, "a", lambda session: session.record_tool_call("t", text) and None)
    record(ws, "b", with_id)
    kinds = {
        type(next(event.contents())[1].data) for event in (list(ws.events(n))[1] for n in "ab")
    }
    assert len(kinds) == 2, "one inline, one in a blob"
    assert ws.diff("a", "b").equal


def test_a_state_that_differs_is_shown_by_its_changes(ws: Workspace) -> None:
    for name, number in (("a", 1), ("b", 2)):
        state = {"n": 0, "same": list(range(20))}
        with ws.record(name, environment="desk", state=lambda state=state: state) as session:  # type: ignore[misc]
            step = session.record_tool_call("add", {})
            state["n"] = number
            session.record_tool_return(step, "done")
    difference = ws.diff("a", "b")
    assert (difference.first_step, difference.other_step) == (2, 2)
    assert difference.changes == (Change("replace", ("state", "n"), 1, 2),)


def test_a_state_that_only_one_has_recorded_is_a_difference(ws: Workspace) -> None:
    """Showing what differs in a state that was not recorded ended in an error."""
    for name, after in (("a", {"state": {"n": 1}}), ("b", {})):
        with ws.record(name, environment="desk", state={"n": 0}) as session:
            session.record_tool_return(session.record_tool_call("t", {}), "x", **after)  # type: ignore[arg-type]
    difference = ws.diff("a", "b")
    assert (difference.equal, difference.first_step) == (False, 2)
    (change,) = difference.changes
    assert (change.path, change.after) == (("state_digest",), "unknown")


def test_json_results_differ_by_their_exact_text(ws: Workspace) -> None:
    for name, text in (("a", '{"n":1}'), ("b", '{"n": 1}')):
        record(
            ws,
            name,
            lambda session, text=text: session.record_message("tool", JsonText(text)),  # type: ignore[misc]
        )
    assert not ws.diff("a", "b").equal


def test_two_steps_are_compared_by_state(ws: Workspace, play: Play) -> None:
    told = play("a", calls=5)
    assert ws.diff(("a", 2), ("a", 2)) == (True, None, None, ())
    difference = ws.diff(("a", 0), ("a", 10))
    assert not difference.equal
    assert difference.changes == compare_states(told.states[0], told.states[10])
    assert ws.diff("a", ("a", 0)).changes == compare_states(told.states[-1], told.states[0])


def test_lines_are_compared_without_reading_them_whole() -> None:
    read = []

    def endless(name: str) -> object:
        from tests.support.events import EventChain

        chain = EventChain("s", seed=hash(name) % 7)
        yield chain.seed().event
        for _ in range(1_000_000):
            read.append(name)
            yield chain.call(tool=name).event

    assert compare_lines(endless("a"), endless("b")).first_step == 1  # type: ignore[arg-type]
    assert len(read) == 2
