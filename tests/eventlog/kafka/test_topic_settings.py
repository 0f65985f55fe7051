"""What a topic of events is made with passes its own judgement; Kafka's defaults do not."""

import pytest

from eventlog.codec import EVENT_BYTES_MAX, TEXT_BYTES_MAX
from eventlog.kafka import codecs
from eventlog.kafka.kafka_python_producer import BATCH_BYTES
from eventlog.kafka.topic_settings import (
    BATCH_BYTES_MADE,
    BATCH_BYTES_MIN,
    PARTITIONS_DEFAULT,
    TopicFinding,
    TopicWishes,
    judge_servers,
    judge_topic,
    judge_wishes,
    plan_schema_topic,
    plan_topic,
)

DEFAULTS = {
    "cleanup.policy": "delete",
    "retention.ms": "604800000",
    "retention.bytes": "-1",
    "max.message.bytes": "1048588",
    "message.timestamp.type": "CreateTime",
    "message.timestamp.before.max.ms": "9223372036854775807",
    "message.timestamp.after.max.ms": "3600000",
    "min.insync.replicas": "1",
    "unclean.leader.election.enable": "false",
}
"""What a broker of 4.4 gives a topic that nothing was said of."""

SERVERS = {
    "auto.create.topics.enable": "false",
    "transaction.max.timeout.ms": "900000",
    "offsets.retention.minutes": "10080",
    "transaction.state.log.replication.factor": "3",
}


def verdicts(
    settings: dict[str, str], *, partitions: int = 64, copies: int = 3
) -> dict[str, TopicFinding]:
    """The findings that are not ok, by name."""
    found = judge_topic("t", partitions, copies, settings)
    return {one.name: one for one in found if one.verdict != "ok"}


@pytest.mark.parametrize("brokers", [1, 2, 3, 5, 100])
def test_what_is_made_is_what_is_wanted(brokers: int) -> None:
    plan = plan_topic(brokers)
    assert plan.partition_count == PARTITIONS_DEFAULT
    assert plan.replication_factor == min(3, brokers)
    found = verdicts(dict(plan.settings), copies=plan.replication_factor)
    assert set(found) == ({"copies"} if brokers < 3 else set())
    assert all(one.verdict == "warning" for one in found.values())


def test_a_fix_is_a_command_that_can_be_pasted() -> None:
    (one,) = judge_wishes(
        "t", TopicWishes(settings={"cleanup.policy": "compact,delete"}), plan_topic(1)
    )
    assert (one.found, one.wanted) == ("delete", "compact,delete")
    assert one.fix.endswith("--add-config 'cleanup.policy=[compact,delete]'")
    found = judge_topic("t", 64, 3, {"retention.ms": "1"}, bootstrap="b1:1,b2:2")
    fixes = [one.fix for one in found if one.name == "retention.ms"]
    assert ["--bootstrap-server b1:1,b2:2 " in fix for fix in fixes] == [True]


def test_wishes_that_are_met_or_not() -> None:
    there = plan_topic(3)
    met = TopicWishes(64, 3, {"retention.ms": "-1", "message.timestamp.type": "createtime"})
    assert list(judge_wishes("t", met, there)) == []
    assert list(judge_wishes("t", TopicWishes(), there)) == []
    unmet = TopicWishes(3, 1, {"no.such": "1"})
    found = [(one.name, one.found, one.wanted) for one in judge_wishes("t", unmet, there)]
    assert found == [
        ("partitions", "64", "3"),
        ("copies", "3", "1"),
        ("no.such", "not shown, or no such setting", "1"),
    ]


def test_three_copies_acknowledge_on_two_servers() -> None:
    assert plan_topic(3).settings["min.insync.replicas"] == "2"
    assert plan_topic(2).settings["min.insync.replicas"] == "1"
    assert plan_topic(5, replication_factor=1).settings["min.insync.replicas"] == "1"
    assert plan_schema_topic(3).settings["min.insync.replicas"] == "2"
    assert plan_schema_topic(3).settings["cleanup.policy"] == "compact"


def test_what_is_asked_for_goes_before_ours() -> None:
    plan = plan_topic(3, partitions=7, settings={"retention.ms": "5", "flush.messages": "1"})
    assert plan.partition_count == 7
    assert (plan.settings["retention.ms"], plan.settings["flush.messages"]) == ("5", "1")


def test_a_topic_of_defaults_is_found_out() -> None:
    found = verdicts(DEFAULTS)
    assert {name: one.verdict for name, one in found.items()} == {
        "copies": "failed",
        "retention.ms": "failed",
        "message.timestamp.after.max.ms": "warning",
    }
    command = "--entity-name t --alter --add-config retention.ms=-1"
    assert found["retention.ms"].fix.endswith(command)
    assert found["retention.ms"].found == "604800000"


@pytest.mark.parametrize(
    ("setting", "value", "verdict"),
    [
        ("cleanup.policy", "compact", "failed"),
        ("cleanup.policy", "compact,delete", "failed"),
        ("retention.bytes", "1000000", "failed"),
        ("max.message.bytes", "400000", "failed"),
        ("max.message.bytes", "no number", "failed"),
        ("message.timestamp.type", "LogAppendTime", "warning"),
        ("message.timestamp.before.max.ms", "86400000", "failed"),
        ("unclean.leader.election.enable", "true", "failed"),
    ],
)
def test_each_setting_that_forgets_or_refuses(setting: str, value: str, verdict: str) -> None:
    (one,) = verdicts({**plan_topic(3).settings, setting: value}).values()
    assert (one.name, one.verdict, one.found) == (setting, verdict, value)
    assert one.wanted
    assert one.fix


@pytest.mark.parametrize(
    ("copies", "in_sync", "verdict", "what"),
    [
        (3, "2", "ok", ""),
        (5, "3", "ok", ""),
        (3, "1", "failed", "on one server only"),
        (3, "3", "warning", "stops every append"),
        (3, "4", "failed", "no append can be acknowledged"),
        (2, "1", "warning", "on one server only"),
        (2, "2", "warning", "stops every append"),
        (1, "1", "warning", "loss is the log's loss"),
        (3, "?", "warning", "DescribeConfigs"),
    ],
)
def test_copies_and_how_many_acknowledge(
    copies: int, in_sync: str, verdict: str, what: str
) -> None:
    settings = {**plan_topic(3).settings, "min.insync.replicas": in_sync}
    (one,) = (one for one in judge_topic("t", 64, copies, settings) if one.name == "copies")
    assert one.verdict == verdict
    assert what in one.fix


def test_one_server_that_syncs_each_batch_is_not_told_to() -> None:
    settings = {**plan_topic(1).settings, "flush.messages": "1"}
    assert "flush" not in verdicts(settings, copies=1)["copies"].fix
    assert "flush.messages=1" in verdicts(dict(plan_topic(1).settings), copies=1)["copies"].fix


@pytest.mark.parametrize(("count", "fits"), [(1, False), (2, True), (4096, True), (4097, False)])
def test_the_number_of_partitions(count: int, fits: bool) -> None:
    assert ("partitions" in verdicts(dict(plan_topic(3).settings), partitions=count)) is not fits


def test_what_this_user_may_not_see_is_said_to_be_so() -> None:
    found = verdicts({})
    assert len(found) == 9
    assert {one.verdict for one in found.values()} == {"warning"}
    assert all("DescribeConfigs" in one.fix for one in found.values())


@pytest.mark.parametrize(
    ("setting", "value", "verdict"),
    [
        ("auto.create.topics.enable", "true", "warning"),
        ("transaction.max.timeout.ms", "9999", "failed"),
        ("offsets.retention.minutes", "60", "warning"),
        ("transaction.state.log.replication.factor", "1", "warning"),
    ],
)
def test_the_servers_own_settings(setting: str, value: str, verdict: str) -> None:
    assert all(one.verdict == "ok" for one in judge_servers(SERVERS, 3))
    found = [one for one in judge_servers({**SERVERS, setting: value}, 3) if one.verdict != "ok"]
    assert [(one.name, one.verdict) for one in found] == [(setting, verdict)]


def test_one_server_is_warned_of() -> None:
    found = {one.name: one.verdict for one in judge_servers(SERVERS, 1)}
    assert found["servers"] == "warning"


def test_a_batch_takes_the_largest_event_and_what_a_writer_puts_into_one() -> None:
    # A record in a batch costs up to some 70 bytes and its key, of at most 255.
    per_record = 70 + 255
    assert EVENT_BYTES_MAX + TEXT_BYTES_MAX + per_record < BATCH_BYTES_MIN
    assert BATCH_BYTES < BATCH_BYTES_MIN
    assert BATCH_BYTES_MADE >= BATCH_BYTES_MIN


@pytest.mark.parametrize("codec", ["lz4", "snappy"])
def test_a_topic_whose_records_could_not_be_read_here(
    codec: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = {**plan_topic(3).settings, "compression.type": codec}
    monkeypatch.setattr(codecs, "find_spec", lambda _: None)
    (found,) = verdicts(settings).values()
    assert (found.name, found.verdict, found.found) == ("compression.type", "failed", codec)
    assert codec in found.fix
    assert "compression.type=producer" in found.fix
    monkeypatch.setattr(codecs, "find_spec", lambda name: name)
    assert verdicts(settings) == {}
    assert verdicts({**settings, "compression.type": "producer"}) == {}
