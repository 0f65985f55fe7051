"""The schema topic: what other tools find there, and what is said when it is not ours."""

from collections.abc import Iterable, Mapping
from hashlib import sha256
from typing import Any

import pytest

from eventlog.avro.event_form import EVENT_SCHEMA
from eventlog.avro.schema_form import fingerprint_of
from eventlog.kafka.client_errors import TopicMissing
from eventlog.kafka.schema_topic import (
    SCHEMA_TEXT_BYTES_MAX,
    examine_schemas,
    find_schema_damage,
    publish_schemas,
    schema_records,
)

KEY = EVENT_SCHEMA.fingerprint
OTHER = '"string"'


class SchemaTopic:
    """Stands in for a client: one compacted topic, or none."""

    def __init__(self, kept: Mapping[bytes, bytes | None] | None) -> None:
        self.kept = None if kept is None else dict(kept)
        self.published: list[tuple[bytes, bytes | None]] = []

    def read_all(self, topic: str, timeout_s: float = 0) -> dict[bytes, bytes | None]:
        assert topic == "t.schemas"
        if self.kept is None:
            raise TopicMissing(f"no topic {topic}")
        return dict(self.kept)

    def publish(self, topic: str, records: Iterable[tuple[bytes, bytes | None]]) -> None:
        assert self.kept is not None
        self.published += records
        self.kept.update(self.published)


def examined(kept: Mapping[bytes, bytes | None] | None) -> tuple[str, int]:
    """The verdict, and how many findings `check` makes of it."""
    client: Any = SchemaTopic(kept)
    return examine_schemas(client, "t").verdict, len(list(find_schema_damage(client, "t")))


def test_an_event_names_the_key_of_its_schema() -> None:
    (text,) = schema_records().values()
    assert schema_records() == {KEY: text}
    assert sha256(text).digest() == EVENT_SCHEMA.sha256
    assert fingerprint_of(text.decode()) == KEY


def test_what_is_missing_is_published_and_nothing_twice() -> None:
    client: Any = SchemaTopic({})
    assert publish_schemas(client, "t") == 1
    assert client.kept == schema_records()
    assert publish_schemas(client, "t") == 0
    assert len(client.published) == 1


def test_a_deleted_schema_is_published_again() -> None:
    client: Any = SchemaTopic({KEY: None})
    assert publish_schemas(client, "t") == 1
    assert client.kept == schema_records()


def test_one_that_differs_is_left_for_people_to_see() -> None:
    client: Any = SchemaTopic({KEY: b"{}"})
    assert publish_schemas(client, "t") == 0
    assert client.kept == {KEY: b"{}"}


@pytest.mark.parametrize(
    ("kept", "verdict", "damage"),
    [
        (schema_records(), "ok", 0),
        ({**schema_records(), fingerprint_of(OTHER): OTHER.encode()}, "ok", 0),
        ({**schema_records(), b"gone": None}, "ok", 0),
        (None, "warning", 0),
        ({}, "warning", 0),
        ({KEY: None}, "warning", 0),
        ({KEY: schema_records()[KEY] + b" "}, "failed", 1),
        ({**schema_records(), b"x" * 8: OTHER.encode()}, "failed", 1),
        ({**schema_records(), b"x" * 8: b"\xff"}, "failed", 1),
        ({**schema_records(), b"x" * 8: b" " * (SCHEMA_TEXT_BYTES_MAX + 1)}, "failed", 1),
    ],
)
def test_what_may_stand_there(
    kept: Mapping[bytes, bytes | None] | None, verdict: str, damage: int
) -> None:
    assert examined(kept) == (verdict, damage)


def test_damage_names_both_digests() -> None:
    client: Any = SchemaTopic({KEY: b"{}"})
    (one,) = find_schema_damage(client, "t")
    assert one.error == "IncompatibleSchemaError"
    assert sha256(b"{}").hexdigest() in one.detail
    assert EVENT_SCHEMA.sha256.hex() in one.detail
    assert one.session_id is None
