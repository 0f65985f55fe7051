"""The rights that `docs/kafka.md` lists are enough; without them answers are errors of ours."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from eventlog.config import CONFIG_FILE
from eventlog.kafka.schema_topic import schema_topic_of
from replay.workspace import open_workspace
from tests.broker.test_client_access import PASSWORD, Listeners, listeners  # noqa: F401
from tests.house.test_kafka_page import cells, names, section
from tests.support.command import Command, record_desk
from tests.support.kafka_workspace import KafkaPlace, kafka_place

USER = "bob"
RIGHTS = [row for row in cells(section("Security")) if len(row) == 3 and row[0] != "who"]
RIGHTS = RIGHTS[[row[0] for row in RIGHTS].index("readers and writers") :]


class Rights:
    """What the user may do with one topic: by the rows of the page."""

    def __init__(self, place: KafkaPlace) -> None:
        self.place = place
        self._granted: list[Any] = []

    def grant(self, *who: str) -> None:
        """Allow what the page lists for these, and nothing else."""
        from kafka.admin import ACL, ACLOperation, ACLPermissionType

        found = [row for row in RIGHTS if any(each in row[0] for each in who)]
        assert len(found) >= len(who)
        for _, operations, resource in found:
            pattern = self._pattern(resource)
            for operation in operations.split(", "):
                may = ACLOperation[
                    "".join("_" + c if c.isupper() else c for c in operation)[1:].upper()
                ]
                self._granted.append(
                    ACL(f"User:{USER}", "*", may, ACLPermissionType.ALLOW, pattern)
                )
        with self.place.broker.admin() as admin:
            admin.create_acls(self._granted)

    def revoke(self) -> None:
        """Take back whatever was granted."""
        from kafka.admin import (
            ACLFilter,
            ACLOperation,
            ACLPermissionType,
            ACLResourcePatternType,
            ResourcePatternFilter,
            ResourceType,
        )

        anything = ResourcePatternFilter(ResourceType.ANY, None, ACLResourcePatternType.ANY)
        of_user = ACLFilter(f"User:{USER}", None, ACLOperation.ANY, ACLPermissionType.ANY, anything)
        with self.place.broker.admin() as admin:
            admin.delete_acls([of_user])

    def _pattern(self, resource: str) -> Any:
        from kafka.admin import ACLResourcePatternType, ResourcePattern, ResourceType

        topic = self.place.topic
        kinds = {
            "Topic `TOPIC`": (ResourceType.TOPIC, topic),
            "Topic `TOPIC.schemas`": (ResourceType.TOPIC, schema_topic_of(topic)),
            "Group, by name": (ResourceType.GROUP, "rewards"),
            "Cluster": (ResourceType.CLUSTER, "kafka-cluster"),
        }
        if resource.startswith("TransactionalId, prefixed"):
            (prefix,) = names(resource)
            prefix = prefix.replace("TOPIC", topic)
            kind = ResourceType.TRANSACTIONAL_ID
            return ResourcePattern(kind, prefix, ACLResourcePatternType.PREFIXED)
        return ResourcePattern(*kinds[resource])


@pytest.fixture
def place(listeners: Listeners, tmp_path: Path) -> Iterator[KafkaPlace]:  # noqa: F811
    """A topic on a broker that asks who one is; made by one who may do everything."""
    with kafka_place(listeners.broker, tmp_path / "blobs") as place:
        yield place


@pytest.fixture
def rights(place: KafkaPlace) -> Iterator[Rights]:
    """The user's rights; none at first."""
    rights = Rights(place)
    yield rights
    rights.revoke()


@pytest.fixture
def folder(place: KafkaPlace, listeners: Listeners, tmp_path: Path) -> Path:  # noqa: F811
    """The user's workspace: the settings in its steplog.toml, the password in a file."""
    folder = tmp_path / "bobs"
    folder.mkdir()
    (folder / "password").write_text(f"{PASSWORD}\n")
    (folder / CONFIG_FILE).write_text(
        f"""format = 1
name = "bobs"
log = "kafka://{listeners.sasl}/{place.topic}?blobs={tmp_path / "blobs"}"

[kafka]
security_protocol = "SASL_PLAINTEXT"
sasl_mechanism = "PLAIN"
sasl_username = "{USER}"
sasl_password_file = "password"
"""
    )
    return folder


@pytest.fixture
def steplog(folder: Path, capsys: pytest.CaptureFixture[str]) -> Command:
    """The command as this user has it."""
    return Command(folder, capsys)


def test_a_writers_rights_are_enough_to_record_and_to_take_over(
    rights: Rights, folder: Path, steplog: Command
) -> None:
    rights.grant("writers", "check", "readers who keep")
    with open_workspace(folder) as ws:
        record_desk(ws)
        ws.record("open", environment="desk")
        cut = ws.log.end_cut()
        ws.log.commit_cut("rewards", cut)
        assert ws.log.committed_cut("rewards") == cut
    assert steplog.row("close", "open")["attempt"] == 2
    assert {row["verdict"] for row in steplog.rows("check")} == {"ok"}


def test_a_readers_rights_are_enough_to_read_and_not_to_write(
    rights: Rights, place: KafkaPlace, folder: Path, steplog: Command, tmp_path: Path
) -> None:
    with open_workspace(place.url(tmp_path / "anns")) as ws:
        record_desk(ws)
    rights.grant("readers and", "check")
    assert steplog.row("replay", "desk/1@2", "--path", "n")["state"] == 1
    assert steplog.row("check")["verdict"] == "ok"
    ran = steplog("fork", "desk/1@2")
    assert ran.code in (1, 2, 7)
    assert "TransactionalId" in ran.err or "Authorization" in ran.err
    assert PASSWORD not in ran.err


def test_doctor_says_which_right_is_missing(rights: Rights, folder: Path, steplog: Command) -> None:
    rights.grant("readers and", "check", "doctor")
    ran = steplog("--json", "doctor")
    found = {row["check"]: row for row in map(json.loads, ran.out.splitlines())}
    assert ran.code == 1
    assert found["transactions"]["verdict"] == "failed"
    assert "TransactionalIds" in found["transactions"]["hint"]
    failed = {name for name, row in found.items() if row["verdict"] == "failed"}
    assert failed == {"transactions"}
    rights.grant("writers")
    found = {row["check"]: row for row in steplog.rows("doctor")}
    assert found["transactions"]["verdict"] == "ok"
    assert "not seen from here" in found["rights"]["found"]


def test_without_any_right_each_answer_is_an_error_of_ours(
    rights: Rights, folder: Path, steplog: Command
) -> None:
    for arguments in (["sessions"], ["doctor"], ["topic", "create"], ["mirror", "--once"]):
        ran = steplog("-v", *arguments)
        assert ran.code in (1, 2), arguments
        assert PASSWORD not in ran.out + ran.err
