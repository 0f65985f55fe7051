"""A client that must prove who it is: over TLS, with a password, and with rights or without.

What is refused for good is told at once, whatever time was given, and never with a secret.
"""

import shutil
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from secrets import token_hex
from typing import NamedTuple

import pytest

from eventlog.kafka.client import TopicClient
from eventlog.kafka.client_errors import AccessDenied, RecordsRefused
from eventlog.kafka.security import KafkaSecurity
from tests.support.brokers import Broker, free_ports, running_broker, skip_or_fail
from tests.support.local_kafka import local_kafka
from tests.support.topic_clients import (
    LIBRARIES,
    S_MAX,
    opener,
    read_to_end,
    reading,
    ready_producer,
    record,
    values_of,
)

pytestmark = pytest.mark.kafka

PASSWORD = "c0rrect-h0rse"
AT_ONCE_S = 15.0
"""Of the 60 s that are given."""


class Listeners(NamedTuple):
    """A broker with two more ports, and the certificate that signs its own."""

    broker: Broker
    tls: str
    sasl: str
    ca: Path


def make_certificates(folder: Path) -> tuple[Path, Path]:
    """A certificate authority, and a key store for `localhost`; made for this run."""
    if shutil.which("openssl") is None:
        skip_or_fail("no openssl to make certificates with")

    def openssl(*arguments: str) -> None:
        subprocess.run(["openssl", *arguments], cwd=folder, check=True, capture_output=True)

    key = ["-newkey", "rsa:2048", "-nodes"]
    openssl("req", "-x509", *key, "-keyout", "ca.key", "-out", "ca.pem", "-subj", "/CN=test ca")
    openssl("req", *key, "-keyout", "server.key", "-out", "server.csr", "-subj", "/CN=localhost")
    (folder / "names").write_text("subjectAltName=DNS:localhost")
    signed_by = ["-CA", "ca.pem", "-CAkey", "ca.key", "-CAcreateserial", "-extfile", "names"]
    openssl("x509", "-req", "-in", "server.csr", *signed_by, "-out", "server.pem")
    store = folder / "store.pem"
    store.write_text((folder / "server.key").read_text() + (folder / "server.pem").read_text())
    return folder / "ca.pem", store


@pytest.fixture(scope="module")
def listeners(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Listeners]:
    folder = tmp_path_factory.mktemp("certificates")
    ca, store = make_certificates(folder)
    with running_broker(tmp_path_factory.mktemp("broker")) as broker:
        broker.stop()
        tls, sasl = free_ports(2)
        more = f"SSL://localhost:{tls},SASL_PLAINTEXT://{local_kafka.HOST}:{sasl}"
        users = f'username="ann" password="{PASSWORD}" user_ann="{PASSWORD}" user_bob="{PASSWORD}"'
        plain = "org.apache.kafka.common.security.plain.PlainLoginModule"
        settings = {
            "ssl.keystore.type": "PEM",
            "ssl.keystore.location": str(store),
            "sasl.enabled.mechanisms": "PLAIN",
            "listener.name.sasl_plaintext.plain.sasl.jaas.config": f"{plain} required {users};",
            "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
            "super.users": "User:ANONYMOUS;User:ann",
        }
        properties = broker.node.folder / "server.properties"
        lines = [
            f"{line},{more}" if line.startswith(("listeners=", "advertised.listeners=")) else line
            for line in properties.read_text().splitlines()
        ]
        lines = [
            f"{line},SSL:SSL,SASL_PLAINTEXT:SASL_PLAINTEXT" if "protocol.map=" in line else line
            for line in lines
        ]
        lines += [f"{name}={value}" for name, value in settings.items()]
        properties.write_text("\n".join(lines) + "\n")
        broker.restart()
        yield Listeners(broker, f"localhost:{tls}", f"{local_kafka.HOST}:{sasl}", ca)


@pytest.fixture(params=LIBRARIES)
def library(request: pytest.FixtureRequest) -> str:
    return str(request.param)


def with_password(user: str = "ann", password: str = PASSWORD) -> KafkaSecurity:
    """SASL without TLS: the passwords here are worth nothing."""
    return KafkaSecurity(
        security_protocol="SASL_PLAINTEXT",
        sasl_mechanism="PLAIN",
        sasl_username=user,
        sasl_password=password,
    )


def write_and_read(client: TopicClient) -> None:
    """All that a log does."""
    with ready_producer(client) as producer, reading(client, {0: 0}) as reader:
        producer.commit([record(0, b"one"), record(0, b"two")], S_MAX)
        assert values_of(read_to_end(reader)) == [b"one", b"two"]
    assert client.describe(S_MAX).partition_count == 1
    client.close()


def refused(call: Callable[[], object]) -> str:
    """What the call says when it is refused, long before its time is up."""
    began = time.monotonic()
    with pytest.raises(AccessDenied) as denied:
        call()
    assert time.monotonic() - began < AT_ONCE_S
    assert PASSWORD not in str(denied.value)
    return str(denied.value)


def refused_everywhere(client: TopicClient) -> list[str]:
    """The refusals of all that a log does."""
    producer = client.open_producer(token_hex(8))
    reader = client.open_reader(committed=True)
    told = [
        refused(lambda: producer.initialise(60.0)),
        refused(lambda: reader.high_watermarks([0], 60.0)),
        refused(lambda: client.describe(60.0)),
        refused(lambda: client.publish(client.topic, [(b"k", b"v")], 60.0)),
    ]
    producer.abandon()
    reader.close()
    client.close()
    return told


def test_tls_with_the_right_authority(listeners: Listeners, library: str) -> None:
    security = KafkaSecurity(security_protocol="SSL", ssl_cafile=str(listeners.ca))
    write_and_read(opener(library)(listeners.tls, listeners.broker.new_topic(), security))


def test_tls_with_another_authority_is_refused(listeners: Listeners, library: str) -> None:
    client = opener(library)(listeners.tls, "t", KafkaSecurity(security_protocol="SSL"))
    assert all("certificate" in told for told in refused_everywhere(client))


def test_a_password_that_is_right(listeners: Listeners, library: str) -> None:
    topic = listeners.broker.new_topic()
    write_and_read(opener(library)(listeners.sasl, topic, with_password()))


def test_a_password_that_is_wrong_is_refused(listeners: Listeners, library: str) -> None:
    client = opener(library)(listeners.sasl, "t", with_password(password="wr0ng"))
    for told in refused_everywhere(client):
        assert "wr0ng" not in told
        assert listeners.sasl in told


def test_a_user_without_rights_is_refused(listeners: Listeners, library: str) -> None:
    topic = listeners.broker.new_topic()
    client = opener(library)(listeners.sasl, topic, with_password(user="bob"))
    assert all(topic in told for told in refused_everywhere(client))


def test_a_user_who_may_see_but_not_write_is_told_at_the_commit(
    listeners: Listeners, library: str
) -> None:
    from kafka.admin import ACL, ACLOperation, ACLPermissionType, ResourcePattern, ResourceType

    topic = listeners.broker.new_topic()
    allowed = [
        (ResourceType.TOPIC, topic, ACLOperation.DESCRIBE),
        (ResourceType.TRANSACTIONAL_ID, "id", ACLOperation.WRITE),
    ]
    with listeners.broker.admin() as admin:
        admin.create_acls(
            [
                ACL("User:bob", "*", may, ACLPermissionType.ALLOW, ResourcePattern(kind, name))
                for kind, name, may in allowed
            ]
        )
    client = opener(library)(listeners.sasl, topic, with_password(user="bob"))
    producer = client.open_producer("id")
    producer.initialise(S_MAX)
    with pytest.raises(RecordsRefused) as denied:
        producer.commit([record(0)], S_MAX)
    assert not denied.value.sent
    producer.abandon()
    client.close()
