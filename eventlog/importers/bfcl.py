"""BFCL multi-turn sessions: JSON lines of user turns, and of steps with calls, results and states.

Each user turn stands before the first step of its turn; each step is a call and its return. Where
the first step has a state, the session is recorded with it (coverage `full`): a return carries the
new state, as a whole or as a patch, whichever is smaller; a step that repeats the state's hash, or
says `state_unchanged`, leaves it as it is; one that gives neither leaves it unknown until the next.
Where the first step has none (long_context), coverage is `none`, and the last state given is an
annotation `final_state`.

Before the first return the trace gives no dump of the state, only the scenario from which the
environment was set up, `initial_config`. That is the initial state recorded here, under its own
shape; the seed's metadata says so (`initial_state`: `initial_config`), and a warning for which
steps. A trace without it has an unknown state until the first return.
"""

from typing import Final

from eventlog.canonical import digest_of, encode
from eventlog.content import STATE_PATCH, Content, escape_lone_surrogates
from eventlog.event import SessionSeeded, StateChange, StateUnknown
from eventlog.importers.chat import add_chat_message
from eventlog.importers.json_spans import JsonNode, array_text
from eventlog.importers.session_draft import DraftBuilder, SessionDraft, arguments_of, name_of
from eventlog.state_patch import diff

FORMAT: Final = "bfcl"


def is_bfcl(record: JsonNode) -> bool:
    """Whether the record looks like a BFCL multi-turn session."""
    return (
        record.is_object
        and record.find("user_turns") is not None
        and record.find("steps") is not None
    )


def parse_bfcl(record: JsonNode) -> SessionDraft:
    """The session of one record. Raises `ImportFormatError` where the record is none."""
    turns = [turn.items() for turn in record.need("user_turns").items()]
    steps = record.need("steps").items()
    config = record.find_given("initial_config")
    full = bool(steps) and steps[0].find("state") is not None
    track = _StateTrack(config) if full else None
    builder = DraftBuilder(
        _seeded(record, config, full=full),
        StateUnknown("the trace gives no state before its first step")
        if full and config is None
        else None,
    )
    turn_rests: list[str] = []
    returns: list[int] = []
    for step in steps:
        turn = step.value_of("turn")
        last = min(turn, len(turns) - 1) if isinstance(turn, int) else -1
        while len(turn_rests) <= last:
            turn_rests.append(_add_turn(builder, turns[len(turn_rests)]))
        returns.append(_add_step(builder, step, track))
    turn_rests.extend(_add_turn(builder, turn) for turn in turns[len(turn_rests) :])
    if full and config is not None:
        builder.warn(f"steps 0 to {returns[0] - 1}: the state is initial_config, not a dump of it")
    final = None if full else _final_state(steps)
    if final is not None:
        builder.annotate("final_state", Content.of_json_text(final.text))
    builder.annotate_rest("record", _record_rest(record, turn_rests, steps, final, full=full))
    return builder.finish()


def _record_rest(
    record: JsonNode,
    turn_rests: list[str],
    steps: list[JsonNode],
    final: JsonNode | None,
    *,
    full: bool,
) -> str:
    step_rests = []
    for step in steps:
        state = ("state",) if full or step.find("state") is final else ()
        step_rests.append(step.rest("tool", "args", "result", *state))
    instead = {"steps": array_text(step_rests)}
    if any(rest.strip("[{},]") for rest in turn_rests):
        instead["user_turns"] = array_text(turn_rests)
    return record.rest("id", "user_turns", "initial_config", **instead)


def _seeded(record: JsonNode, config: JsonNode | None, *, full: bool) -> SessionSeeded:
    seeded = SessionSeeded(
        environment=FORMAT,
        task_id=name_of(record.find("id")),
        request=None if config is None else Content.of_json_text(config.text),
        reducer="transcript",
        state_coverage="none",
    )
    if not full:
        return seeded
    seeded = seeded._replace(reducer="captured", state_coverage="full")
    if config is None:
        return seeded
    return seeded._replace(
        initial_state=Content.of_value(config.value), metadata={"initial_state": "initial_config"}
    )


def _add_turn(builder: DraftBuilder, turn: list[JsonNode]) -> str:
    """The turn's messages, each a text or a chat message; returns what no event holds of them."""
    rests = []
    for message in turn:
        if isinstance(message.value, str):
            builder.add_message("user", Content.of_text(message.value))
            rests.append("{}")
        else:
            rests.append(add_chat_message(builder, message))
    return array_text(rests)


class _StateTrack:
    """What the trace has said of the state so far, and what each step's return says of it."""

    def __init__(self, config: JsonNode | None) -> None:
        self._last: object = None if config is None else config.value
        self._known = config is not None
        self._hash: object = None

    def change_at(self, step: JsonNode) -> StateChange | StateUnknown | None:
        """The state change that the return of this step carries."""
        state = step.find("state")
        earlier, self._hash = self._hash, step.value_of("state_sha256")
        if state is not None:
            return self._change_to(state.value)
        if isinstance(self._hash, str) and isinstance(earlier, str):
            unchanged = self._hash == earlier
        else:
            unchanged = step.value_of("state_unchanged") is True
        if unchanged or not self._known:
            return None
        self._known = False
        return StateUnknown("the trace gives no state after this step")

    def _change_to(self, after: object) -> StateChange | None:
        encoded = encode(after)
        if self._known and encoded == encode(self._last):
            return None
        patch = encode([["set", [], after]])
        if self._known:
            patch = min(encode(diff(self._last, after)), patch, key=len)
        self._last, self._known = after, True
        return StateChange(Content(STATE_PATCH, patch), digest_of(encoded))


def _add_step(builder: DraftBuilder, step: JsonNode, track: _StateTrack | None) -> int:
    """The step as a call and its return; the return's step."""
    server = step.find_str("server")
    builder.add_call(step.need("tool").as_str(), arguments_of(step.need("args")), call_id=None)
    result = step.need("result")
    return builder.add_result(
        None,
        # A class's own value, not a text from a wire: its exact JSON, a str's quotes too.
        Content.of_json_text(result.text),
        source=step,
        actor=f"tool:{escape_lone_surrogates(server)}" if server else "tool",
        state_change=None if track is None else track.change_at(step),
    )


def _final_state(steps: list[JsonNode]) -> JsonNode | None:
    given = [step.find("state") for step in steps]
    return next((state for state in reversed(given) if state is not None), None)
