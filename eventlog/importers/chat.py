"""Chat transcripts: JSON lines whose `traj` (tau-bench) or `messages` is a list of chat messages.

Each message becomes what its role says: `tool` a return, an assistant's `tool_calls` calls after
its text (a null content beside calls is no message), all others messages. The reward becomes
`verified`, `info` an annotation of exact JSON, and what no event holds one annotation `record`.
"""

from typing import Final, NamedTuple

from eventlog.content import Content
from eventlog.event import SessionSeeded, Verified
from eventlog.importers.json_spans import JsonNode, array_text
from eventlog.importers.session_draft import (
    DraftBuilder,
    SessionDraft,
    arguments_of,
    index_of,
    name_of,
    reward_of,
    text_or_json,
)

FORMAT: Final = "chat"
_DIALOG_FIELDS: Final = ("traj", "messages")
_NOTHING: Final = "{}"


def is_chat(record: JsonNode) -> bool:
    """Whether the record looks like a chat transcript."""
    return record.is_object and _find_dialog(record) is not None


def parse_chat(record: JsonNode) -> SessionDraft:
    """The session of one transcript. Raises `ImportFormatError` where the record is none."""
    dialog = _find_dialog(record)
    if dialog is None:
        raise record.wrong("an object with a list `traj` or `messages`")
    tools = record.find_given("tools")
    task, trial = name_of(record.find("task_id")), index_of(record.find("trial"))
    builder = DraftBuilder(
        SessionSeeded(
            environment=FORMAT,
            task_id=task,
            tools=None if tools is None else Content.of_json_text(tools.text),
            reducer="transcript",
            state_coverage="none",
            rollout_index=trial,
        )
    )
    rests = [add_chat_message(builder, message) for message in dialog.node.items()]
    reward = record.find("reward")
    if reward is not None:
        # The double may round; the exact text says how it came: 1 is not 1.0.
        output = Content.of_json_text(reward.text)
        builder.add_verified(Verified(FORMAT, reward=reward_of(reward), output=output))
    info = record.find("info")
    if info is not None:
        builder.annotate("info", Content.of_json_text(info.text))
    taken = ["reward", "info"]
    taken += ["tools"] if tools is not None else []
    taken += ["task_id"] if task else []
    taken += ["trial"] if trial is not None else []
    if any(rest != _NOTHING for rest in rests):
        left = record.rest(*taken, **{dialog.name: array_text(rests)})
    else:
        left = record.rest(*taken, dialog.name)
    builder.annotate_rest("record", left)
    return builder.finish()


def add_chat_message(builder: DraftBuilder, message: JsonNode) -> str:
    """Add what one chat message says; returns the exact JSON of what no event holds of it."""
    role = message.need("role").as_str()
    if role == "tool":
        return _add_tool_message(builder, message)
    content = message.find("content")
    calls = message.find_items("tool_calls")
    if content is not None and not content.is_null:
        builder.add_message(role, text_or_json(content))
    elif not calls:
        builder.add_message(role, Content.of_json_text("null"))
    call_rests = [_add_call(builder, call) for call in calls]
    if any(rest != _NOTHING for rest in call_rests):
        return message.rest("role", "content", tool_calls=array_text(call_rests))
    return message.rest("role", "content", "tool_calls")


def _add_call(builder: DraftBuilder, call: JsonNode) -> str:
    """A call as OpenAI has it, `{"id", "type", "function": {"name", "arguments"}}`, or flat."""
    function = call.find_given("function")
    place = call if function is None else function
    builder.add_call(
        place.need("name").as_str(),
        arguments_of(place.need("arguments")),
        call_id=call.find_str("id"),
    )
    kind = ("type",) if call.value_of("type") == "function" else ()
    if function is None:
        return call.rest("name", "arguments", "id", *kind)
    inner = function.rest("name", "arguments")
    if inner == _NOTHING:
        return call.rest("id", "function", *kind)
    return call.rest("id", *kind, function=inner)


def _add_tool_message(builder: DraftBuilder, message: JsonNode) -> str:
    result = text_or_json(message.need("content"))
    several = message.find_given("tool_call_ids")  # SWE-agent answers a list of calls at once
    if several is None:
        ids = [message.find_str("tool_call_id")]
    else:
        ids = [each.as_str() for each in several.items()] or [None]
    if len(ids) > 1:
        builder.warn(f"{message.path} is one result for {len(ids)} calls: each is given it")
    name = message.find_str("name")
    same_name = True
    for call_id in ids:
        step = builder.add_result(call_id, result, source=message)
        tool = builder.tool_of(step)
        if name is not None and tool is not None and tool != name:
            builder.warn(f"step {step}: the result is named {name!r}, its call {tool!r}")
        same_name &= name is not None and tool == name
    taken = ["role", "content", "tool_call_id", "tool_call_ids"]
    return message.rest(*taken, "name") if same_name else message.rest(*taken)


class _Dialog(NamedTuple):
    name: str
    node: JsonNode


def _find_dialog(record: JsonNode) -> _Dialog | None:
    for name in _DIALOG_FIELDS:
        found = record.find(name)
        if found is not None and isinstance(found.value, list):
            return _Dialog(name, found)
    return None
