"""SWE-agent trajectories: one JSON document per file, `*.traj`.

With a `trajectory`, each of its steps is the model's message, the action as a call of the tool
`action` (the trace does not name tools, and none is guessed), the observation as its return, and
the agent's state as an annotation `agent_state`; the messages before the first answer come from
`history`, which also stands whole in an annotation. A file that has only `history` is read as a
chat, with its tool calls. `info.submission` is the annotation `submission`; what no event holds
stands as exact JSON in `info` and `record`. No environment state is recorded: coverage `none`.
"""

from typing import Final

from eventlog.content import Content
from eventlog.errors import ImportFormatError
from eventlog.event import SessionSeeded
from eventlog.importers.chat import add_chat_message
from eventlog.importers.json_spans import JsonNode, array_text, parse_json
from eventlog.importers.session_draft import (
    DraftBuilder,
    SessionDraft,
    arguments_of,
    name_of,
    text_or_json,
)

FORMAT: Final = "swe-agent"
ACTION: Final = "action"

_US_PER_S: Final = 1_000_000
_DURATION_S_MAX: Final = 10**9


def is_swe_agent(record: JsonNode) -> bool:
    """Whether the record looks like a trajectory of SWE-agent."""
    return record.is_object and any(
        isinstance(record.value_of(name), list) for name in ("trajectory", "history")
    )


def parse_swe_agent(record: JsonNode) -> SessionDraft:
    """The session of one document. Raises `ImportFormatError` where it is none."""
    steps = record.find_items("trajectory")
    history = record.find_items("history")
    if not steps and not history:
        raise record.wrong("an object with a `trajectory` or a `history`")
    builder = DraftBuilder(
        SessionSeeded(
            environment=record.find_str("environment") or FORMAT,
            task_id=_instance_id(record),
            reducer="transcript",
            state_coverage="none",
        )
    )
    instead: dict[str, str] = {}
    taken = ["history", "info"]
    if steps:
        _add_opening(builder, history)
        instead["trajectory"] = array_text([_add_step(builder, step) for step in steps])
        if history:
            builder.annotate("history", Content.of_json_text(record.need("history").text))
    else:
        taken = ["info"]
        instead["history"] = array_text([add_chat_message(builder, each) for each in history])
    info = record.find_given("info")
    if info is not None:
        _add_info(builder, info)
    builder.annotate_rest("record", record.rest(*taken, **instead))
    return builder.finish()


def _add_opening(builder: DraftBuilder, history: list[JsonNode]) -> None:
    """The messages before the model's first answer: the trajectory begins with that."""
    for message in history:
        if message.value_of("role") in ("assistant", "tool"):
            return
        builder.add_message(message.need("role").as_str(), text_or_json(message.need("content")))


def _add_step(builder: DraftBuilder, step: JsonNode) -> str:
    """One step of the trajectory; returns the exact JSON of what no event holds of it."""
    response = step.find_given("response")
    if response is not None:
        builder.add_message("assistant", text_or_json(response))
    observation = step.find_given("observation")
    action = step.find_given("action")
    about = None
    if action is not None and action.value != "":
        about = builder.add_call(ACTION, text_or_json(action), call_id=None)
        if observation is not None:
            about = builder.add_result(
                None, text_or_json(observation), source=step, duration_us=_duration_us(step)
            )
    elif observation is not None and observation.value != "":
        about = builder.annotate("observation", text_or_json(observation))
    state = step.find_given("state")
    if state is not None:
        builder.annotate("agent_state", arguments_of(state), about_step=about)
    taken = ["response", "action", "observation", "state"]
    thought = step.find("thought")
    if response is not None and thought is not None and thought.text == response.text:
        taken.append("thought")
    return step.rest(*taken)


def _add_info(builder: DraftBuilder, info: JsonNode) -> None:
    if not info.is_object:
        builder.annotate("info", Content.of_json_text(info.text))
        return
    submission = info.find_given("submission")
    if submission is not None:
        builder.annotate("submission", text_or_json(submission))
    builder.annotate_rest("info", info.rest(*(("submission",) if submission is not None else ())))


def _instance_id(record: JsonNode) -> str:
    """The task's id where the record itself holds one; the file's name is no part of a session."""
    found = name_of(record.find("instance_id"))
    config = record.find_given("replay_config")
    if found or config is None:
        return found
    if isinstance(config.value, str):  # newer versions keep it as a text of its own
        config = _parsed_text(config.value)
    if config is None or not config.is_object:
        return ""
    problem = config.find_given("problem_statement")
    return name_of(problem.find("id")) if problem is not None and problem.is_object else ""


def _parsed_text(text: str) -> JsonNode | None:
    try:
        return parse_json(text.encode("utf-8", "surrogatepass"))
    except ImportFormatError:
        return None


def _duration_us(step: JsonNode) -> int:
    value = step.value_of("execution_time")
    if isinstance(value, bool) or not isinstance(value, int | float):
        return 0
    return round(value * _US_PER_S) if 0 <= value < _DURATION_S_MAX else 0
