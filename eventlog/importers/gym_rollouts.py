"""NeMo Gym rollouts: one JSON line per finished rollout, as `*.rollouts.jsonl`.

The items of `responses_create_params.input`, then of `response.output`, in their order: messages
and reasoning become `message_added`, `function_call` and `function_call_output` a call and its
return, the reward `verified`. Where `response.output` holds lists that grow (aviary), the last list
is the record. What no event holds is kept as exact JSON in annotations: `request` (the parameters
without input and tools), `response` (the response without what its items became) and `rollout`
(every other top-level field). `RolloutInputs` gives the task inputs of the sibling file, paired by
their user messages alone: a matching input is the seed's request.
"""

from collections.abc import Iterable
from typing import Final

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

PARAMETERS: Final = "responses_create_params"

# In this order the first that a record has names its task. The inputs are not asked: the id must
# not depend on whether they are at hand.
_TASK_FIELDS: Final = ("instance_id", "id", "task_id", "task_idx", "_ng_task_index")
_VERDICT_FIELDS: Final = (
    "reward",
    "reward_components",
    "mask_sample",
    "failure_kind",
    "failure_reason",
)
_TIME_S_MAX: Final = 253_402_300_800  # the year 10000


class RolloutInputs:
    """The task inputs of a rollouts file, found by the texts of their user messages."""

    def __init__(self, inputs: Iterable[JsonNode]) -> None:
        """`inputs`: the records of the file. Raises `ImportFormatError` for one that is none."""
        self._by_messages: dict[tuple[str, ...], list[str]] = {}
        for record in inputs:
            key = _user_messages(record.need(PARAMETERS))
            texts = self._by_messages.setdefault(key, [])
            if record.text not in texts:
                texts.append(record.text)

    def find(self, record: JsonNode) -> str | None:
        """The exact text of the one input with these user messages; None for none or many."""
        parameters = record.find_given(PARAMETERS)
        if parameters is None:
            return None
        key = _user_messages(parameters)
        texts = self._by_messages.get(key, []) if key else []
        return texts[0] if len(texts) == 1 else None


def is_rollout(record: JsonNode) -> bool:
    """Whether the record looks like a finished rollout."""
    return record.is_object and record.find(PARAMETERS) is not None and not is_input(record)


def is_input(record: JsonNode) -> bool:
    """Whether the record looks like a task input: parameters, and no response yet."""
    return (
        record.is_object and record.find(PARAMETERS) is not None and record.find("response") is None
    )


def parse_rollout(record: JsonNode, stem: str, inputs: RolloutInputs | None) -> SessionDraft:
    """The session of one rollout. Raises `ImportFormatError` where the record is none.

    `stem` is the file's name without its endings: it names the verifier where the record does not.
    """
    response = record.need("response")
    parameters = record.find_given(PARAMETERS)
    agent = record.find_given("agent_ref")
    source = (agent.find_str("name") if agent is not None else None) or stem
    policy = response.find_str("model")
    tools = _find_tools(parameters, response)
    matched = inputs.find(record) if inputs is not None else None
    builder = DraftBuilder(
        SessionSeeded(
            environment=source,
            task_id=_task_id(record),
            request=None if matched is None else Content.of_json_text(matched),
            tools=None if tools is None else Content.of_json_text(tools.text),
            reducer="transcript",
            state_coverage="none",
            policy=policy,
            group_id=response.find_str("group_id"),
            rollout_index=index_of(record.find("_ng_rollout_index")),
        )
    )
    if inputs is not None and matched is None:
        builder.warn("no task input has this rollout's user messages: it stands without one")
    if parameters is not None:
        _add_parameters(builder, parameters, tools)
    rests = [add_item(builder, item, policy=policy) for item in _output_items(response, builder)]
    builder.annotate_rest(
        "response", response.rest(*_told(response, tools), output=array_text(rests))
    )
    _add_verdict(builder, record, source)
    builder.annotate_rest("rollout", record.rest(PARAMETERS, "response", "reward"))
    return builder.finish(time=_time_us(response.find("created_at")))


def add_item(builder: DraftBuilder, item: JsonNode, *, policy: str | None) -> str:
    """Add one item of the Responses API; returns the exact JSON of what no event holds of it."""
    kind = item.find_str("type") or ("message" if item.find("role") is not None else None)
    if kind == "message":
        builder.add_message(
            item.need("role").as_str(),
            text_or_json(item.need("content")),
            policy=policy if item.value_of("role") == "assistant" else None,
            finish_reason=item.find_str("status"),
        )
        return item.rest("role", "content")
    if kind == "reasoning":
        builder.add_message("reasoning", Content.of_json_text(item.text), policy=policy)
        return "{}"
    if kind == "function_call":
        builder.add_call(
            item.need("name").as_str(),
            arguments_of(item.need("arguments")),
            call_id=item.find_str("call_id"),
            policy=policy,
        )
        return item.rest("name", "arguments", "call_id")
    if kind == "function_call_output":
        builder.add_result(item.find_str("call_id"), text_or_json(item.need("output")), source=item)
        return item.rest("output", "call_id")
    step = builder.annotate("item", Content.of_json_text(item.text))
    builder.warn(f"step {step}: an item of type {kind!r} is kept as an annotation")
    return "{}"


def _add_verdict(builder: DraftBuilder, record: JsonNode, verifier: str) -> None:
    reward = record.find("reward")
    if reward is None:
        builder.warn("the record has no reward")
        return
    mask = record.find_given("mask_sample")
    if mask is not None and not isinstance(mask.value, bool):
        raise mask.wrong("a boolean or null")
    builder.add_verified(
        Verified(
            verifier,
            reward=reward_of(reward),
            components=_components(builder, record.find_given("reward_components")),
            # Here the numbers stand as they came: 1 is not 1.0.
            output=Content.of_json_text(record.only(*_VERDICT_FIELDS)),
            mask_sample=mask is not None and mask.value is True,
            failure_kind=record.find_str("failure_kind"),
        )
    )


def _components(builder: DraftBuilder, node: JsonNode | None) -> dict[str, float]:
    components: dict[str, float] = {}
    for member in [] if node is None else node.members():
        value = member.node.value
        if isinstance(value, int | float) and not isinstance(value, bool):
            reward = reward_of(member.node)
            assert reward is not None
            components[member.name] = reward
        else:
            builder.warn(f"{member.node.path} is no number: it stands only in the output")
    return components


def _add_parameters(builder: DraftBuilder, parameters: JsonNode, tools: JsonNode | None) -> None:
    """The items of the input (one text is a user message), then what is left of the parameters."""
    given = parameters.find_given("input")
    told = _told(parameters, tools)
    if given is None or isinstance(given.value, str):
        if given is not None:
            builder.add_message("user", Content.of_text(given.as_str()))
        builder.annotate_rest("request", parameters.rest("input", *told))
        return
    rests = [add_item(builder, item, policy=None) for item in given.items()]
    builder.annotate_rest("request", parameters.rest(*told, input=array_text(rests)))


def _told(place: JsonNode, tools: JsonNode | None) -> tuple[str, ...]:
    """`tools`, where they stand here word for word as the seed has them."""
    here = place.find("tools")
    return ("tools",) if tools is not None and here is not None and here.text == tools.text else ()


def _output_items(response: JsonNode, builder: DraftBuilder) -> list[JsonNode]:
    """The items of the output; of lists that grow the last. A list that is no begin is noted."""
    items = response.need("output").items()
    if not items or not all(isinstance(item.value, list) for item in items):
        return items
    lists = [item.items() for item in items]
    texts = [[item.text for item in each] for each in lists]
    for each, node in zip(texts, items, strict=True):
        if each != texts[-1][: len(each)]:
            step = builder.annotate("transition", Content.of_json_text(node.text))
            builder.warn(
                f"step {step}: {node.path} is no begin of the last list, and is kept apart"
            )
    return lists[-1]


def _user_messages(parameters: JsonNode) -> tuple[str, ...]:
    """The contents of the user's messages, each as its text or exact JSON."""
    given = parameters.find_given("input")
    if given is None:
        return ()
    if isinstance(given.value, str):
        return (given.value,)
    contents = []
    for item in given.items():
        if item.is_object and item.value_of("role") == "user":
            content = item.need("content")
            contents.append(content.value if isinstance(content.value, str) else content.text)
    return tuple(contents)


def _find_tools(parameters: JsonNode | None, response: JsonNode) -> JsonNode | None:
    for place in (parameters, response):
        tools = None if place is None else place.find_given("tools")
        if tools is not None and tools.value != []:
            return tools
    return None


def _task_id(record: JsonNode) -> str:
    for name in _TASK_FIELDS:
        found = name_of(record.find(name))
        if found:
            return found
    return ""


def _time_us(node: JsonNode | None) -> int:
    """Seconds since 1970 as microseconds; 0 for what is no time."""
    if node is None or isinstance(node.value, bool) or not isinstance(node.value, int | float):
        return 0
    if not 0 <= node.value < _TIME_S_MAX:  # nor is NaN
        return 0
    return round(node.value * 1_000_000)
