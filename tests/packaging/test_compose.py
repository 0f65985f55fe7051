"""`docker/compose.yaml`: what a person who has Docker gets is what the image and Kafka take.

No Docker is needed: names and values of the settings are tried on the broker from its jars.
"""

import itertools
import os
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest

from eventlog.kafka.schema_topic import schema_topic_of
from eventlog.kafka.topic_settings import plan_schema_topic, plan_topic
from tests.support.brokers import KafkaAddress, require_jars
from tests.support.compose_file import read_compose
from tests.support.data import ROOT
from tests.support.local_kafka import local_kafka

FILE = ROOT / "docker/compose.yaml"
SERVICES: dict[str, dict[str, Any]] = read_compose(FILE.read_text(encoding="utf-8"))["services"]
BROKERS = [name for name, service in SERVICES.items() if "ports" in service]
TOPICS = {"topic": "kafka", "cluster-topic": "kafka-1"}


def settings_of(service: str) -> dict[str, str]:
    """The broker's settings, by the image's documented rule from names of variables to settings."""
    found = {}
    for name, value in SERVICES[service]["environment"].items():
        if name.startswith("KAFKA_"):
            setting = re.sub(
                "_+", lambda run: {1: ".", 2: "_", 3: "-"}[len(run[0])], name[6:].lower()
            )
            found[setting] = value.replace("${STEPLOG_KAFKA_PORT:-9092}", "9092")
    return found


def test_one_broker_by_default_and_three_with_the_profile() -> None:
    profiles = {name: service.get("profiles", []) for name, service in SERVICES.items()}
    assert [name for name, given in profiles.items() if not given] == ["kafka", "topic"]
    cluster = ["kafka-1", "kafka-2", "kafka-3", "cluster-topic"]
    assert [name for name, given in profiles.items() if given == ["cluster"]] == cluster
    assert sorted(BROKERS) == ["kafka", "kafka-1", "kafka-2", "kafka-3"]


@pytest.mark.parametrize("name", BROKERS)
def test_a_broker_answers_on_this_machine_only(name: str) -> None:
    (port,) = SERVICES[name]["ports"]
    host, published, inside = re.fullmatch(r"([\d.]+):(.*):(\d+)", port).groups()  # type: ignore[union-attr]
    assert (host, inside) == ("127.0.0.1", "9092")
    settings = settings_of(name)
    assert f"HOST://:{inside}" in settings["listeners"].split(",")
    # Clients go on to where the broker says that it is: the published port.
    advertised = SERVICES[name]["environment"]["KAFKA_ADVERTISED_LISTENERS"].split(",")
    assert advertised == [f"INTERNAL://{name}:19092", f"HOST://127.0.0.1:{published}"]


@pytest.mark.parametrize("name", BROKERS)
def test_a_broker_is_of_the_tested_version_checked_and_kept(name: str) -> None:
    service = SERVICES[name]
    assert service["image"] == f"apache/kafka:{local_kafka.kafka_version()}"
    assert service["healthcheck"]["test"][0] == "CMD"
    # The image's user may write there; what lies elsewhere is gone with the container.
    assert service["volumes"] == [f"{name}:{settings_of(name)['log.dirs']}"]
    assert settings_of(name)["log.dirs"] == "/var/lib/kafka/data"
    assert re.fullmatch(r"[\w-]{22}", service["environment"]["CLUSTER_ID"])


def test_the_three_are_one_cluster() -> None:
    three = [SERVICES[f"kafka-{number}"]["environment"] for number in (1, 2, 3)]
    assert [each["KAFKA_NODE_ID"] for each in three] == ["1", "2", "3"]
    for name in ("CLUSTER_ID", "KAFKA_CONTROLLER_QUORUM_VOTERS"):
        assert len({each[name] for each in three}) == 1
    voters = three[0]["KAFKA_CONTROLLER_QUORUM_VOTERS"].split(",")
    assert voters == [f"{number}@kafka-{number}:9093" for number in (1, 2, 3)]
    assert three[0]["CLUSTER_ID"] != SERVICES["kafka"]["environment"]["CLUSTER_ID"]


@pytest.mark.parametrize("name", BROKERS)
def test_kafka_takes_the_values(name: str, tmp_path: Path) -> None:
    require_jars()
    node = local_kafka.Node(1, tmp_path, 9092, 9093)
    settings = {**settings_of(name), "log.dirs": str(tmp_path / "data")}
    local_kafka.prepare(node, settings, SERVICES[name]["environment"]["CLUSTER_ID"])
    assert (tmp_path / "data/meta.properties").exists()


def test_kafka_knows_the_names(kafka_broker: KafkaAddress) -> None:
    from kafka.admin import ConfigResource

    with kafka_broker.admin() as admin:
        number = admin.describe_cluster()["brokers"][0]["broker_id"]
        described = admin.describe_configs(
            [ConfigResource("BROKER", str(number))], config_filter="all"
        )
    known = described["broker"][str(number)]
    for name in BROKERS:
        assert settings_of(name).keys() - set(known) == set()


@pytest.mark.parametrize(("name", "broker"), TOPICS.items())
def test_the_topics_are_those_of_the_command(name: str, broker: str, tmp_path: Path) -> None:
    if shutil.which("bash") is None:
        pytest.skip("no bash")
    tool = tmp_path / "kafka-topics.sh"
    tool.write_text(f'#!/bin/sh\necho "$*" >> {tmp_path}/told\n', encoding="utf-8")
    tool.chmod(0o755)
    service = SERVICES[name]
    environment = {**os.environ, **service["environment"], "KAFKA_BIN": str(tmp_path)}
    script = FILE.parent / service["volumes"][0].partition(":")[0]
    subprocess.run(["bash", script], env=environment, check=True)

    copies = int(service["environment"]["COPIES"])
    plans = {
        "steplog": plan_topic(copies),
        schema_topic_of("steplog"): plan_schema_topic(copies),
    }
    lines = (tmp_path / "told").read_text(encoding="utf-8").splitlines()
    for line, (topic, plan) in zip(lines, plans.items(), strict=True):
        words = line.split()
        given = dict(itertools.pairwise(words))
        assert given["--bootstrap-server"] == f"{broker}:19092"
        assert "--if-not-exists" in words
        assert given["--topic"] == topic
        assert int(given["--partitions"]) == plan.partition_count
        assert int(given["--replication-factor"]) == plan.replication_factor
        told = [words[place + 1] for place, word in enumerate(words) if word == "--config"]
        assert dict(each.split("=", 1) for each in told) == dict(plan.settings)


def test_the_topic_waits_for_healthy_brokers() -> None:
    one, three = ["kafka"], ["kafka-1", "kafka-2", "kafka-3"]
    for name, brokers in zip(TOPICS, (one, three), strict=True):
        waits = SERVICES[name]["depends_on"]
        assert waits == {broker: {"condition": "service_healthy"} for broker in brokers}


@pytest.mark.parametrize("profile", [[], ["--profile", "cluster"]])
def test_docker_compose_takes_the_file(profile: list[str]) -> None:
    command = ["docker", "compose", "--file", str(FILE), *profile, "config", "--quiet"]
    version = ["docker", "compose", "version"]
    if not shutil.which("docker") or subprocess.run(version, capture_output=True).returncode != 0:
        pytest.skip("docker compose is not here to check docker/compose.yaml")
    told = subprocess.run(command, capture_output=True, text=True, check=False)
    assert told.returncode == 0, told.stderr
