"""`<topic>.schemas`: the schemas of the events, in Kafka, for tools that have not got steplog.

A compacted topic of one partition. Each record's key is a schema's fingerprint, the 8 bytes that
stand at place 2 of every event; its value is the schema's canonical form, JSON in UTF-8, whose
SHA-256 is published. We never read events with it: what is stored brings no schema of its own.
"""

from collections.abc import Iterator, Mapping
from hashlib import sha256
from typing import Final

from eventlog.avro.event_form import EVENT_SCHEMAS
from eventlog.avro.schema_form import fingerprint_of
from eventlog.kafka.client import TopicClient
from eventlog.kafka.client_errors import TopicMissing
from eventlog.kafka.errors import faults_as_ours
from eventlog.kafka.topic_settings import TopicFinding
from eventlog.log import Finding

SCHEMA_TEXT_BYTES_MAX: Final = 512 * 1024
"""A longer text is no schema of ours; it is not parsed."""

_NAME: Final = "schemas"


def schema_topic_of(topic: str) -> str:
    """The name of the schema topic that stands beside a topic of events."""
    return f"{topic}.schemas"


def schema_records() -> dict[bytes, bytes]:
    """What the schema topic of this build holds: canonical form by fingerprint."""
    return {
        schema.fingerprint: schema.canonical_text.encode("utf-8")
        for schema in EVENT_SCHEMAS.schemas
    }


def publish_schemas(client: TopicClient, topic: str) -> int:
    """Write the schemas that the schema topic lacks; how many. Those that differ are left alone.

    Raises `ClientFault`s.
    """
    kept = client.read_all(schema_topic_of(topic))
    missing = [(key, text) for key, text in schema_records().items() if kept.get(key) is None]
    if missing:
        client.publish(schema_topic_of(topic), missing)
    return len(missing)


def examine_schemas(client: TopicClient, topic: str) -> TopicFinding:
    """Whether the schema topic says what this build's events are. Raises `ClientFault`s."""
    name = schema_topic_of(topic)
    fix = "`steplog topic create` writes what is missing"
    try:
        kept = client.read_all(name)
    except TopicMissing:
        return TopicFinding(_NAME, "warning", f"no topic {name!r}", "the shipped schemas", fix)
    problems = list(_problems(kept))
    if problems:
        return TopicFinding(
            _NAME,
            "failed",
            f"{name!r}: {'; '.join(problems)}",
            "the shipped schemas",
            "other tools read wrong: find out who wrote there, and delete the topic; " + fix,
        )
    missing = sum(kept.get(key) is None for key in schema_records())
    if missing:
        return TopicFinding(
            _NAME, "warning", f"{name!r} lacks {missing}", "the shipped schemas", fix
        )
    others = len(kept) - len(schema_records())
    more = f", and {others} of other versions" if others else ""
    return TopicFinding(_NAME, "ok", f"{name!r} has the shipped ones{more}")


def find_schema_damage(client: TopicClient, topic: str) -> list[Finding]:
    """What `check` says of the schema topic: texts that are not what they are kept under.

    A topic that is not there, or lacks some, is for `doctor` to say: no event depends on it. Raises
    `LogUnavailableError`, `ConfigError` where the servers refuse this user.
    """
    with faults_as_ours():
        try:
            kept = client.read_all(schema_topic_of(topic))
        except TopicMissing:
            return []
    place = f"the schema topic {schema_topic_of(topic)!r}"
    return [
        Finding(None, None, None, "IncompatibleSchemaError", f"{place}: {problem}")
        for problem in _problems(kept)
    ]


def _problems(kept: Mapping[bytes, bytes | None]) -> Iterator[str]:
    """Texts that differ from the shipped ones, or do not have the fingerprint of their key."""
    shipped = schema_records()
    for key, text in sorted(kept.items()):
        if text is None or text == shipped.get(key):
            continue
        if key in shipped:
            found = sha256(text).hexdigest()
            wanted = sha256(shipped[key]).hexdigest()
            yield f"{key.hex()} is not the shipped schema: its SHA-256 is {found}, not {wanted}"
        elif not _has_fingerprint(text, key):
            yield f"{key[:32].hex()} is the key of a text that has another fingerprint"


def _has_fingerprint(text: bytes, fingerprint: bytes) -> bool:
    if len(text) > SCHEMA_TEXT_BYTES_MAX:
        return False
    try:
        return fingerprint_of(text.decode("utf-8")) == fingerprint
    except UnicodeDecodeError:
        return False
