"""`docs/kafka.md` says what the code does: settings, variables, rights and figures."""

import re
from pathlib import Path

from eventlog.kafka.location import QUERY_KEYS
from eventlog.kafka.schema_topic import schema_topic_of
from eventlog.kafka.security import MECHANISMS, PROTOCOLS, TABLE_KEYS, VARIABLE_PREFIX
from eventlog.kafka.topic import transactional_prefix
from eventlog.kafka.topic_settings import PARTITIONS_DEFAULT, plan_topic
from eventlog.kafka.topic_writer import unowned_transactional_id, writer_transactional_id
from eventlog.kafka_log import APPEND_DEADLINE_S

PAGE = (Path(__file__).resolve().parents[2] / "docs" / "kafka.md").read_text(encoding="utf-8")


def section(heading: str) -> str:
    """The text under a heading, up to the next one."""
    return PAGE.split(f"\n## {heading}\n", 1)[1].split("\n## ", 1)[0]


def cells(text: str) -> list[list[str]]:
    """The cells of a section's tables, without their heads."""
    lines = [line for line in text.splitlines() if line.startswith("|") and set(line) - set("|-")]
    return [
        [cell.strip() for cell in line.removeprefix("|").removesuffix("|").split("|")]
        for line in lines
    ]


def names(cell: str) -> list[str]:
    """What stands in backticks."""
    return re.findall(r"`([^`]+)`", cell)


def test_every_setting_of_the_table_kafka_is_listed_with_its_variable() -> None:
    listed: dict[str, list[str]] = {}
    for row in cells(section("Security"))[1:]:
        if row[1].startswith(f"`{VARIABLE_PREFIX}"):
            listed[row[0]] = names(row[1])
    settings = [name for cell in listed for name in names(cell)]
    assert settings == list(TABLE_KEYS)
    variables = [name for found in listed.values() for name in found]
    wanted = [VARIABLE_PREFIX + name.upper() for name in TABLE_KEYS]
    assert variables == [*wanted, f"{VARIABLE_PREFIX}SASL_PASSWORD"]


def test_every_protocol_and_mechanism_is_listed() -> None:
    shown = names(section("Security"))
    assert {*PROTOCOLS, *MECHANISMS} <= {*shown}


def test_every_part_of_the_url_is_listed() -> None:
    shown = [names(row[0])[0] for row in cells(section("The URL"))[1:]]
    assert shown == ["HOST:PORT", "TOPIC", *QUERY_KEYS]
    assert f"`{schema_topic_of('TOPIC')}`" in section("The URL")


def test_what_topic_create_sets_is_what_it_sets() -> None:
    rows = cells(section("What topic create sets"))[1:]
    named = [name for row in rows for name in names(row[0])]
    assert sorted(named) == sorted(plan_topic(3).settings)
    assert ["partitions", str(PARTITIONS_DEFAULT)] in [row[:2] for row in rows]
    for row in rows:
        for name, value in zip(names(row[0]), names(row[1]), strict=False):
            assert plan_topic(3).settings[name] == value


def test_the_rights_name_the_transactional_ids_that_are_used() -> None:
    prefix = transactional_prefix("TOPIC")
    assert f"TransactionalId, prefixed: `{prefix}`" in PAGE
    assert writer_transactional_id("TOPIC", "w").startswith(prefix)
    assert unowned_transactional_id("TOPIC", "s").startswith(prefix)


def test_the_deadline_is_the_logs() -> None:
    assert f"at the\n  deadline ({APPEND_DEADLINE_S:.0f} s)" in PAGE
