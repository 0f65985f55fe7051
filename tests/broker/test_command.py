"""The command on a workspace in Kafka: every verb, and what only such a workspace has."""

import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from eventlog.kafka.connection import open_client
from eventlog.kafka.schema_topic import schema_records, schema_topic_of
from tests.replay.cli.test_docs import SECTIONS, table
from tests.support.brokers import KafkaAddress
from tests.support.command import Command, record_desk
from tests.support.data import data_path
from tests.support.kafka_workspace import PARTITIONS, KafkaPlace, kafka_place
from tests.support.sources import ROOT

SECRET = "hunter2-not-to-be-told"


@pytest.fixture
def place(kafka_broker: KafkaAddress, tmp_path: Path) -> Iterator[KafkaPlace]:
    """A name for a topic of the test's own."""
    with kafka_place(kafka_broker, tmp_path / "blobs", make=False) as place:
        yield place


@pytest.fixture
def steplog(place: KafkaPlace, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Command:
    """The command on a workspace whose topic is not there yet."""
    return Command(place.url(tmp_path / "here"), capsys)


def doctor_row(steplog: Command, check: str) -> Any:
    """What `doctor` says of one check."""
    (row,) = [row for row in steplog("--json", "doctor").rows if row["check"] == check]
    return row


@pytest.fixture
def desk(steplog: Command, place: KafkaPlace) -> Command:
    """The command on a workspace with the session `desk/1`."""
    place.make()
    with steplog.open() as ws:
        record_desk(ws)
    return steplog


def keys_of(verb: str) -> list[str]:
    """The keys that the page lists for a verb."""
    return [cell.strip("`") for cell in table(SECTIONS[verb], "key")]


def test_a_topic_is_made_once_and_the_page_lists_its_keys(
    steplog: Command, place: KafkaPlace, tmp_path: Path
) -> None:
    row = steplog.row("topic", "create", "--partitions", 3, "--set", "flush.messages=1")
    assert list(row) == keys_of("topic")
    assert (row["topic"], row["created"], row["partitions"]) == (place.topic, True, 3)
    again = steplog("--json", "topic", "create")
    assert (again.code, again.row["created"], again.row["schemas"]) == (0, False, 0)
    assert not (tmp_path / "here").exists(), "a topic is made without a copy of it"


def test_what_is_asked_of_a_topic_that_is_there_and_is_not_so_is_named(
    steplog: Command, place: KafkaPlace
) -> None:
    place.make()
    same = steplog("topic", "create", "--partitions", PARTITIONS, "--set", "retention.ms=-1")
    assert (same.code, "already there" in same.out) == (0, True)
    ran = steplog("topic", "create", "--partitions", 9, "--set", "flush.messages=1")
    assert ran.code == 1
    assert f"partitions: {PARTITIONS}; wanted: 9" in ran.err
    assert "make another topic" in ran.err
    assert "flush.messages: 9223372036854775807; wanted: 1" in ran.err
    change = f"--bootstrap-server {place.broker.bootstrap} --entity-type topics"
    assert change in ran.err
    assert f"--entity-name {place.topic} --alter --add-config flush.messages=1" in ran.err
    assert steplog("topic", "create").code == 0, "nothing was asked"


def test_a_topic_that_forgets_is_told_with_the_fix(steplog: Command, place: KafkaPlace) -> None:
    client = open_client(place.broker.bootstrap.split(","), place.topic)
    client.create_topic(place.topic, 1, 1, {"retention.ms": "1000000"})
    client.close()
    ran = steplog("topic", "create")
    assert ran.code == 1
    assert "error: retention.ms: 1000000" in ran.err
    assert "--add-config retention.ms=-1" in ran.err
    assert f"--bootstrap-server {place.broker.bootstrap} " in ran.err
    found = {row["check"]: row for row in steplog("--json", "doctor").rows}
    assert found["retention.ms"]["verdict"] == "failed"
    assert f"--bootstrap-server {place.broker.bootstrap} " in found["retention.ms"]["hint"]
    assert found["partitions"]["verdict"] == "warning"
    assert steplog("doctor").code == 1


@pytest.mark.parametrize("arguments", [["topic", "create"], ["mirror"]])
def test_a_local_workspace_has_neither(
    steplog: Command, tmp_path: Path, arguments: list[str]
) -> None:
    local = steplog.at(tmp_path / "local")
    local.open().close()
    ran = local(*arguments)
    assert ran.code == 2
    assert "kafka://" in ran.err


def test_doctor_on_a_topic_as_it_should_be(desk: Command) -> None:
    rows = {row["check"]: row for row in desk.rows("doctor")}
    assert {name for name, row in rows.items() if row["verdict"] == "failed"} == set()
    wanted = {"kafka-python", "crc32c", "security", "retention.ms", "schemas", "workspace"}
    assert wanted <= set(rows)


def test_doctor_says_how_far_the_copy_is(desk: Command, place: KafkaPlace, tmp_path: Path) -> None:
    assert len(desk.rows("sessions")) == 1
    assert doctor_row(desk, "mirror")["found"].endswith("mirror.db, 12 events, up to date")
    other = desk.at(place.url(tmp_path / "other"))
    assert "none yet" in doctor_row(other, "mirror")["found"]
    assert not (tmp_path / "other").exists(), "looking leaves nothing behind"
    with other.open() as ws, ws.record("later", environment="desk"):
        pass
    found = doctor_row(desk, "mirror")
    assert found["verdict"] == "ok"
    assert re.search(r"12 events, [1-9][0-9]* offsets behind", found["found"])


def test_doctor_on_the_copy_of_a_topic_that_was_made_again(
    desk: Command, place: KafkaPlace, tmp_path: Path
) -> None:
    assert len(desk.rows("sessions")) == 1
    client = open_client(place.broker.bootstrap.split(","), place.topic)
    client.delete_topic(place.topic)
    client.close()
    place.make()
    assert desk("sessions").code == 4
    assert desk("doctor").code == 1
    found = doctor_row(desk, "mirror")
    assert found["verdict"] == "failed"
    assert "was deleted and made again" in found["found"]
    assert f"remove {tmp_path / 'here' / 'mirror.db'}" in found["hint"]
    (tmp_path / "here" / "mirror.db").unlink()
    assert desk.rows("sessions") == []
    assert doctor_row(desk, "mirror")["verdict"] == "ok"


def test_doctor_without_a_topic_and_without_servers(steplog: Command, tmp_path: Path) -> None:
    rows = {row["check"]: row for row in steplog("--json", "doctor").rows}
    assert rows["topic"]["verdict"] == "failed"
    assert "steplog topic create" in rows["topic"]["hint"]
    assert not (tmp_path / "here").exists(), "looking leaves nothing behind"


def test_every_verb_that_reads(desk: Command) -> None:
    assert [row["session"] for row in desk.rows("sessions")] == ["desk/1"]
    assert len(desk.rows("show", "desk/1")) == 12
    assert [row["status"] for row in desk.rows("calls")] == ["ok", "error", "ok", "open"]
    assert desk.row("replay", "desk/1@2", "--path", "n")["state"] == 1
    assert desk.row("check")["verdict"] == "ok"
    assert desk("diff", "desk/1@0", "desk/1@2").code == 1
    rows = desk.rows("tail", "-n", 3)
    assert [row["step"] for row in rows] == [9, 10, 11]
    assert rows == desk.rows("show", "desk/1")[-3:]


def test_every_verb_that_writes(desk: Command) -> None:
    branch = desk.row("fork", "desk/1@2", "--name", "desk/1/B")
    assert branch["parent_step"] == 2
    with desk.open() as ws:
        ws.record("open", environment="desk")
    assert desk.row("close", "open")["attempt"] == 2
    assert desk.row("snapshot", "take", "desk/1@2")["step"] == 2
    assert {row["session"] for row in desk.rows("snapshot", "list")} >= {"desk/1"}
    assert {row["verdict"] for row in desk.rows("check")} == {"ok"}
    assert len(desk.rows("sessions")) == 3


def test_an_import_is_the_same_events_as_in_a_folder(
    steplog: Command, place: KafkaPlace, tmp_path: Path
) -> None:
    place.make()
    traces = [
        data_path("traces", "nemo_gym", "blackjack.rollouts.jsonl"),
        data_path("traces", "nemo_gym", "aviary.rollouts.jsonl"),
    ]
    local = steplog.at(tmp_path / "local")
    for trace in traces:
        assert steplog("import", trace).code == local("import", trace).code
    assert len(local.rows("sessions")) > 4
    for row in local.rows("sessions"):
        name = row["session"]
        assert steplog.row("sessions", "--prefix", name) == row
        digests = [
            [(event["step"], event["event_digest"]) for event in one.rows("show", name)]
            for one in (local, steplog)
        ]
        assert digests[0] == digests[1]
        states = [one.row("replay", name)["state_digest"] for one in (local, steplog)]
        assert states[0] == states[1]
    assert {row["verdict"] for row in steplog.rows("check")} == {"ok"}
    assert steplog("import", traces[0]).code == 0, "again: nothing is added"


def test_a_mirror_of_another_machine(desk: Command, place: KafkaPlace, tmp_path: Path) -> None:
    other = desk.at(place.url(tmp_path / "other"))
    none = other("--no-refresh", "sessions")
    assert (none.code, none.out) == (2, "")
    assert "has no copy of the log" in none.err
    assert "steplog mirror --once" in none.err
    assert not (tmp_path / "other").exists()
    row = other("--json", "mirror", "--once").row
    assert list(row) == keys_of("mirror")
    assert row["records"] == 12
    assert row["end"]
    assert [each["session"] for each in other.rows("-q", "--no-refresh", "sessions")] == ["desk/1"]
    told = other("--no-refresh", "show", "desk/1").err
    assert re.search(r"copy: 12 events, up to 20[0-9-]+ [0-9:]+; not brought up to date", told)
    assert other("--json", "mirror", "--once").row["records"] == 0


def test_a_copy_that_was_never_filled_is_told_of(
    steplog: Command, place: KafkaPlace, tmp_path: Path
) -> None:
    place.make()
    steplog.open().close()
    ran = steplog("--no-refresh", "sessions")
    assert (ran.code, ran.out) == (0, "")
    assert "warning: this machine's copy was never filled" in ran.err
    assert steplog("-q", "--no-refresh", "sessions").err == ""


@pytest.mark.parametrize("arguments", [["sessions"], ["--no-refresh", "sessions"], ["check"]])
def test_a_topic_that_is_mistyped_leaves_no_folder(
    steplog: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, arguments: list[str]
) -> None:
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "data"))
    for place in (steplog.workspace, str(steplog.workspace).partition("?")[0]):
        assert steplog.at(place)(*arguments).code == 2
    assert list(tmp_path.iterdir()) == []


def test_a_variable_that_is_mistyped_is_named(
    steplog: Command, place: KafkaPlace, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("STEPLOG_KAFKA_SASL_USER", SECRET)
    for arguments in (["topic", "create", "--partitions", 1], ["sessions"]):
        ran = steplog(*arguments)
        assert ran.code == 0
        assert "warning: the variable STEPLOG_KAFKA_SASL_USER is no setting" in ran.err
        assert "did you mean STEPLOG_KAFKA_SASL_USERNAME?" in ran.err
        assert SECRET not in ran.err
    found = doctor_row(steplog, "variables")
    assert found["verdict"] == "warning"
    assert "STEPLOG_KAFKA_SASL_USER is" in found["found"]
    assert steplog.at(tmp_path / "local")("sessions").err.count("STEPLOG_KAFKA") == 0


def test_blobs_that_no_other_machine_reaches_are_told_of(
    desk: Command, place: KafkaPlace, tmp_path: Path
) -> None:
    assert doctor_row(desk, "blobs")["verdict"] == "ok"
    forgot = desk.at(place.url(tmp_path / "other").partition("&blobs")[0])
    ran = forgot("check")
    assert ran.code == 4
    assert "?blobs=DIR in the URL" in ran.err
    found = doctor_row(forgot, "blobs")
    assert found["verdict"] == "warning"
    assert "?blobs=DIR" in found["hint"]
    named = desk.at(place.url(tmp_path / "other"))
    assert named.row("check")["verdict"] == "ok", "the right URL is taken, and kept"
    assert forgot.row("check")["verdict"] == "ok"
    assert doctor_row(forgot, "blobs")["verdict"] == "ok"


@pytest.mark.parametrize(("number", "code"), [(signal.SIGTERM, 0), (signal.SIGINT, 130)])
def test_a_mirror_follows_until_it_is_told_to_stop(
    desk: Command, place: KafkaPlace, tmp_path: Path, number: int, code: int
) -> None:
    other = desk.at(place.url(tmp_path / "other"))
    arguments = [sys.executable, "-m", "replay.cli", "-w", str(other.workspace), "--json", "mirror"]
    with subprocess.Popen(
        arguments, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as service:
        try:
            wait_for(lambda: len(other("--no-refresh", "--json", "sessions").rows) == 1)
            with desk.open() as ws, ws.record("later", environment="desk"):
                pass
            wait_for(lambda: len(other("--no-refresh", "--json", "sessions").rows) == 2)
            service.send_signal(number)
            out, err = service.communicate(timeout=60)
        finally:
            service.kill()
    assert service.returncode == code, err
    assert '"records":14' in out
    assert "up to date" in err


def wait_for(holds: "object") -> None:
    """Until it holds; for two minutes at most."""
    deadline = time.monotonic() + 120
    while not holds():  # type: ignore[operator]
        assert time.monotonic() < deadline
        time.sleep(0.1)


def test_check_holds_the_schema_topic_against_ours(desk: Command, place: KafkaPlace) -> None:
    client = open_client(place.broker.bootstrap.split(","), place.topic)
    (key,) = schema_records()
    client.publish(schema_topic_of(place.topic), [(key, b'"string"')])
    client.close()
    ran = desk("--json", "check")
    assert ran.code == 4
    assert [row["session"] for row in ran.rows] == ["(log)", "desk/1"]
    assert "is not the shipped schema" in ran.err
    assert [row["verdict"] for row in desk("--json", "--no-refresh", "check").rows] == ["ok"]


@pytest.mark.parametrize("verbose", [[], ["-v"]])
def test_no_answer_and_no_error_holds_a_secret(
    steplog: Command,
    place: KafkaPlace,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    verbose: list[str],
) -> None:
    monkeypatch.setenv("STEPLOG_KAFKA_SECURITY_PROTOCOL", "SASL_PLAINTEXT")
    monkeypatch.setenv("STEPLOG_KAFKA_SASL_MECHANISM", "PLAIN")
    monkeypatch.setenv("STEPLOG_KAFKA_SASL_USERNAME", "me")
    monkeypatch.setenv("STEPLOG_KAFKA_SASL_PASSWORD", SECRET)
    for arguments in (["sessions"], ["topic", "create"], ["doctor"], ["mirror", "--once"]):
        for options in ([], ["--json"]):
            ran = steplog(*verbose, *options, *arguments)
            assert ran.code in (1, 2, 7), arguments
            assert SECRET not in ran.out + ran.err
    monkeypatch.delenv("STEPLOG_KAFKA_SASL_PASSWORD")
    bad = f"kafka://me:{SECRET}@{place.broker.bootstrap}/{place.topic}"
    for arguments in (["sessions"], ["topic", "create"], ["doctor"], ["show", "x"]):
        ran = steplog.at(bad)(*verbose, *arguments)
        assert ran.code in (1, 2)
        assert SECRET not in ran.out + ran.err
    for file in (path for path in tmp_path.rglob("*") if path.is_file()):
        assert SECRET.encode() not in file.read_bytes()
    assert SECRET not in os.environ.values()


def test_a_topic_that_lost_its_oldest_records_is_read_only_when_allowed(
    desk: Command, place: KafkaPlace, tmp_path: Path
) -> None:
    from kafka import TopicPartition

    assert len(desk.rows("sessions")) == 1
    with place.broker.admin() as admin:
        places = [TopicPartition(place.topic, partition) for partition in range(PARTITIONS)]
        admin.delete_records(dict.fromkeys(places, -1))
    with desk.open() as ws, ws.record("after", environment="desk"):
        pass
    assert len(desk.rows("sessions")) == 2, "this machine has them still"
    other = desk.at(place.url(tmp_path / "other"))
    refused = other("sessions")
    assert refused.code == 4
    assert "--allow-truncated" in refused.err
    assert [row["session"] for row in other.rows("--allow-truncated", "sessions")] == ["after"]
    assert other("doctor").code == 1
