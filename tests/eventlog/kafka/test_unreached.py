"""Brokers that are not reached: the reason in words, what to look at, and the time waited."""

import logging
import socket
import threading
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from kafka import errors

from eventlog.errors import ConfigError, LogUnavailableError
from eventlog.kafka import unreached
from eventlog.kafka.client_errors import BrokersUnavailable, TopicMissing
from eventlog.kafka.connection import open_client
from eventlog.kafka.errors import as_ours, faults_as_ours
from eventlog.kafka.kafka_python_faults import to_fault
from eventlog.kafka.kafka_python_offsets import OffsetWatch
from eventlog.kafka.kafka_python_setup import make_endpoint
from eventlog.kafka.security import KafkaSecurity
from eventlog.kafka.topic import examine_topic
from eventlog.kafka.unreached import BrokersUnreached, BrokerWait, Why, why_of
from eventlog.kafka_log import KafkaLog


@pytest.fixture
def plain_port() -> Iterator[str]:
    """A port that closes what does not begin as it knows it, as a broker does."""
    with socket.create_server(("127.0.0.1", 0)) as server:

        def serve() -> None:
            with suppress(OSError):
                while True:
                    with server.accept()[0] as connection, suppress(ConnectionError):
                        connection.recv(64)

        threading.Thread(target=serve, daemon=True).start()
        yield f"127.0.0.1:{server.getsockname()[1]}"


@pytest.fixture
def closed_port() -> Iterator[str]:
    """An address where nobody listens, nor can begin to."""
    with socket.socket() as held:
        held.bind(("127.0.0.1", 0))
        yield f"127.0.0.1:{held.getsockname()[1]}"


@pytest.mark.parametrize(
    ("trouble", "why"),
    [
        ("KafkaConnectionError: 111 ECONNREFUSED", Why.REFUSED),
        ("KafkaConnectionError: DNS Resolution failure", Why.NO_SUCH_HOST),
        ("KafkaConnectionError: Handshake failed: [SSL: UNEXPECTED_EOF_WHILE_READING]", Why.NO_TLS),
        ("InvalidReceiveError: Invalid frame length: 352518912", Why.NO_KAFKA),
        ("KafkaConnectionError: 113 EHOSTUNREACH", Why.NO_WAY),
        ("KafkaTimeoutError: Connection timed out", Why.SILENT),
        ("KafkaConnectionError", Why.CLOSED),
        ("", Why.SILENT),
        ("_TRANSPORT: ssl://dns-1:9093/bootstrap: Connect failed: Connection refused", Why.REFUSED),
        ("_RESOLVE: nowhere:9092/bootstrap: Failed to resolve 'nowhere:9092'", Why.NO_SUCH_HOST),
        ("_SSL: ssl://h:9092/bootstrap: SSL handshake failed", Why.NO_TLS),
    ],
)
def test_the_reason_in_a_library_s_text(trouble: str, why: Why) -> None:
    assert why_of(trouble) is why


def test_each_reason_has_a_hint_of_its_own_and_none_sends_one_in_a_circle() -> None:
    hints = set()
    for why in Why:
        fault = BrokersUnreached("topic 't' at h:1", "")
        fault.why = why
        hints.add(as_ours(fault).hint)
    assert len(hints) == len(Why)
    hints.add(as_ours(BrokersUnavailable("no answer")).hint)
    assert not any("doctor" in hint for hint in hints)


def test_a_refused_connection_is_told_as_such_with_the_time_waited(closed_port: str) -> None:
    client = open_client([closed_port], "t")
    with pytest.raises(BrokersUnreached) as caught:
        client.identity(1.5)
    assert caught.value.why is Why.REFUSED
    text = f"topic 't' at {closed_port}: not reached: connection refused (waited "
    assert str(caught.value).startswith(text)
    assert 1.5 <= float(str(caught.value).removeprefix(text).removesuffix(" s)")) < 15


def test_tls_against_a_port_without_it_is_told_as_such(plain_port: str) -> None:
    security = KafkaSecurity(security_protocol="SSL")
    client = open_client([plain_port], "t", security)
    with pytest.raises(BrokersUnreached) as caught:
        client.identity(3.0)
    client.close()
    assert caught.value.why is Why.NO_TLS
    assert "security_protocol" in as_ours(caught.value).hint


def test_a_first_read_ends_soon_and_says_what_can_be_read_without_brokers(
    closed_port: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("eventlog.mirror.FIRST_ANSWER_S", 1.5)
    log = KafkaLog([closed_port], "t", tmp_path)
    with pytest.raises(LogUnavailableError, match=r"connection refused \(waited [0-9]") as caught:
        log.session_info("s")
    log.close()
    assert "--no-refresh" in caught.value.hint


def test_examining_a_topic_does_not_say_to_examine_it(
    closed_port: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("eventlog.kafka.topic.ANSWER_S", 0.3)
    client = open_client([closed_port], "t")
    with pytest.raises(LogUnavailableError) as caught:
        list(examine_topic(client))
    client.close()
    assert "doctor" not in caught.value.hint


@pytest.mark.parametrize("question", ["ends", "starts"])
def test_ends_that_are_not_told_in_time_are_told_without_a_list_of_partitions(
    question: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def late(_: Any) -> None:
        raise errors.KafkaTimeoutError("Failed to get offsets by timestamps in 226.817 ms")

    consumer = SimpleNamespace(config={}, end_offsets=late, beginning_offsets=late)

    watch = OffsetWatch(make_endpoint(("h:1",), "t", None))
    monkeypatch.setattr(watch._opening, "object_within", lambda _: consumer)
    monkeypatch.setattr(watch, "_require_topic", lambda _: None)
    with pytest.raises(BrokersUnavailable) as caught:
        getattr(watch, question)(range(64), 0.2)
    text, _, waited = str(caught.value).rpartition(" (waited ")
    assert text == (
        "topic 't' at h:1: the brokers did not say in time where its partitions "
        f"{question.removesuffix('s').replace('start', 'begin')}"
    )
    assert 0.2 <= float(waited.removesuffix(" s)")) < 15


@pytest.mark.parametrize("place", ["topic 'nosuch' at h:1", "reader of topic 'nosuch' at h:1"])
def test_a_topic_that_is_not_there_is_told_in_words(place: str) -> None:
    fault = to_fault(errors.UnknownTopicOrPartitionError(), place)
    assert isinstance(fault, TopicMissing)
    assert str(fault) == "there is no topic 'nosuch' at h:1"


@pytest.mark.parametrize(
    ("error", "told"),
    [
        (errors.IllegalSaslStateError(), "the port takes no login"),
        (errors.SaslAuthenticationFailedError("bad"), "the login was refused: bad"),
        (errors.TopicAuthorizationFailedError(), "no right to do this with the topic"),
    ],
)
def test_a_refusal_is_told_in_words(error: Exception, told: str) -> None:
    with pytest.raises(ConfigError, match=told) as caught, faults_as_ours():
        raise to_fault(error, "topic 't' at h:1")
    assert type(error).__name__ not in caught.value.message


class Clock:
    """Stands in for `time`."""

    now = 100.0

    def monotonic(self) -> float:
        return self.now


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    monkeypatch.setattr(unreached, "time", clock)
    return clock


def test_a_long_wait_and_its_end_are_told_once_in_the_log(
    clock: Clock, caplog: pytest.LogCaptureFixture
) -> None:
    wait = BrokerWait("h:1")
    with caplog.at_level(logging.INFO, logger="steplog.log"):
        for _ in range(20):
            wait.go_on("111 ECONNREFUSED")
            clock.now += 1
        wait.end()
        wait.end()
    assert caplog.messages == [
        "waiting for the brokers at h:1 since 5 s: connection refused",
        "the brokers at h:1 are back after 20 s",
    ]


def test_short_waits_and_those_long_ago_are_not_told(
    clock: Clock, caplog: pytest.LogCaptureFixture
) -> None:
    wait = BrokerWait("h:1")
    for _ in range(3):
        wait.go_on("")
        clock.now += 4
        wait.end()
    wait.go_on("")
    clock.now += 3_600  # Whoever asked gave up; this is another question.
    wait.go_on("")
    assert caplog.messages == []
