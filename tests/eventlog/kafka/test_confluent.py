"""What we build around confluent-kafka, without a broker: its errors, and its settings."""

import re

import pytest
from confluent_kafka import KafkaError, KafkaException

from eventlog.errors import ConfigError
from eventlog.kafka.client_errors import (
    AccessDenied,
    BrokersUnavailable,
    ClientFault,
    RecordsCorrupt,
    RequestRefused,
    TopicMissing,
)
from eventlog.kafka.confluent_setup import (
    Troubles,
    exception_to_fault,
    shared_settings,
    to_fault,
)
from eventlog.kafka.connection import open_client
from eventlog.kafka.kafka_python_setup import make_endpoint
from eventlog.kafka.security import KafkaSecurity
from tests.support.threads import no_thread_is_left


@pytest.mark.parametrize(
    ("code", "expected"),
    [
        (KafkaError._TIMED_OUT, BrokersUnavailable),
        (KafkaError._ALL_BROKERS_DOWN, BrokersUnavailable),
        (KafkaError._RESOLVE, BrokersUnavailable),
        (KafkaError._AUTHENTICATION, AccessDenied),
        (KafkaError.TOPIC_AUTHORIZATION_FAILED, AccessDenied),
        (KafkaError.TRANSACTIONAL_ID_AUTHORIZATION_FAILED, AccessDenied),
        (KafkaError.UNKNOWN_TOPIC_OR_PART, TopicMissing),
        (KafkaError._UNKNOWN_TOPIC, TopicMissing),
        (KafkaError._BAD_MSG, RecordsCorrupt),
        (KafkaError.INVALID_CONFIG, RequestRefused),
    ],
)
def test_each_error_of_the_library_is_one_of_ours(code: int, expected: type[ClientFault]) -> None:
    error = KafkaError(code)
    assert type(to_fault(error, "here")) is expected
    fault = exception_to_fault(KafkaException(error), "topic 't' at h:1")
    assert type(fault) is expected
    assert "topic 't' at h:1" in str(fault)


def test_what_is_no_error_of_kafka_is_told_without_its_text() -> None:
    fault = exception_to_fault(ValueError("sasl.password S3cret"), "here")
    assert type(fault) is RequestRefused
    assert "S3cret" not in str(fault)


def test_a_refusal_stands_until_all_is_well() -> None:
    troubles = Troubles()
    troubles.require_access("here")
    troubles.note(KafkaError(KafkaError._AUTHENTICATION, "wrong password"))
    troubles.note(KafkaError(KafkaError._TRANSPORT, "closed"))
    with pytest.raises(AccessDenied, match="here: the login was refused: wrong password"):
        troubles.require_access("here")
    troubles.forget()
    troubles.require_access("here")
    assert troubles.text == ""
    troubles.note(KafkaError(KafkaError._SSL, "certificate verify failed: no issuer"))
    with pytest.raises(AccessDenied):
        troubles.require_access("here")


def test_all_settings_of_a_secured_connection_are_passed_on() -> None:
    security = KafkaSecurity(
        security_protocol="SASL_SSL",
        ssl_check_hostname=False,
        sasl_mechanism="SCRAM-SHA-512",
        sasl_username="ann",
        sasl_password="S3cret",
    )
    settings = shared_settings(make_endpoint(("a:1", "b:2"), "t", security), Troubles())
    assert settings["bootstrap.servers"] == "a:1,b:2"
    assert {
        "security.protocol": "SASL_SSL",
        "sasl.mechanisms": "SCRAM-SHA-512",
        "sasl.username": "ann",
        "sasl.password": "S3cret",
        "ssl.endpoint.identification.algorithm": "none",
    }.items() <= settings.items()


def test_a_client_that_is_not_installed_is_told_with_its_extra(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("eventlog.kafka.connection.find_spec", lambda name: None)
    with pytest.raises(ConfigError, match="not installed") as told:
        open_client(["h:1"], "t", client="confluent")
    assert re.search(r"steplog\[confluent\]", told.value.hint)


def test_opening_needs_no_network() -> None:
    with no_thread_is_left():
        client = open_client(["127.0.0.1:1"], "t", client="confluent")
        client.open_reader(committed=True).close()
        client.open_producer("id").abandon()
        client.close()
