"""What we build around kafka-python, without a broker: gate, faults, secrets, and its inside."""

import logging
import threading
import time
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest
from kafka import KafkaConsumer, KafkaProducer, TopicPartition, errors
from kafka.consumer.fetcher import Fetcher
from kafka.future import Future
from kafka.net.compat import KafkaNetClient
from kafka.producer.sender import Sender
from kafka.producer.transaction_manager import TransactionalRequestResult, TransactionManager
from kafka.protocol.producer import EndTxnRequest, InitProducerIdRequest, ProduceRequest

from eventlog.errors import ConfigError, LogError
from eventlog.kafka.client_errors import (
    AccessDenied,
    BrokersUnavailable,
    ClientClosed,
    ClientFault,
    CodecMissing,
    OffsetOutOfRange,
    ProducerBroken,
    ProducerFenced,
    RecordsCorrupt,
    RecordsRefused,
    RequestRefused,
    TopicMissing,
)
from eventlog.kafka.connection import CLIENTS, open_client
from eventlog.kafka.errors import as_ours
from eventlog.kafka.kafka_python_batches import _new_batch
from eventlog.kafka.kafka_python_faults import (
    is_refusal,
    library_faults,
    to_fault,
    to_producer_fault,
)
from eventlog.kafka.kafka_python_gate import Gate
from eventlog.kafka.kafka_python_inside import never_spin
from eventlog.kafka.kafka_python_network import Network
from eventlog.kafka.kafka_python_reader import KafkaPythonReader
from eventlog.kafka.kafka_python_setup import make_endpoint, quieten_library
from eventlog.kafka.security import KafkaSecurity
from tests.support.threads import no_thread_is_left

NO_LZ4 = "Libraries for lz4 compression codec not found"
NOWHERE = {"bootstrap_servers": ["127.0.0.1:1"], "api_version": (2, 4)}


def answered(request: type) -> Any:
    """A request of this kind, as far as the gate looks."""
    return request.__new__(request)


@pytest.fixture
def gate(monkeypatch: pytest.MonkeyPatch) -> Iterator[Gate]:
    """A gate whose client hands requests to `passed_by(gate)` instead of a broker."""
    gate = Gate("topic")
    client = KafkaNetClient(**NOWHERE)
    client.passed, client.answers = [], []

    def send(node_id: Any, request: Any, **options: Any) -> Any:
        client.passed.append(type(request))
        client.answers.append(Future())
        return client.answers[-1]

    client.send = send
    monkeypatch.setattr("kafka.net.compat.KafkaNetClient", lambda **options: client)
    gate.open()
    yield gate
    client.close()


def passed_by(gate: Gate) -> list[type]:
    """What reached the brokers."""
    found: list[type] = gate.network.client.passed
    return found


def answers_of(gate: Gate) -> list[Any]:
    """The brokers' answers, still to be given."""
    found: list[Any] = gate.network.client.answers
    return found


def test_a_gate_tells_exactly_whether_records_were_handed_over(gate: Gate) -> None:
    gate.begin()
    gate.network.client.send(1, answered(EndTxnRequest))
    assert not gate.has_sent
    gate.network.client.send(1, answered(ProduceRequest))
    assert gate.has_sent
    gate.begin()
    assert not gate.has_sent


def test_nothing_passes_a_gate_that_is_shut(gate: Gate) -> None:
    gate.begin()
    gate.shut()
    gate.shut()
    for request in (ProduceRequest, EndTxnRequest, InitProducerIdRequest):
        answer = gate.network.client.send(1, answered(request))
        assert isinstance(answer.exception, errors.IllegalStateError)
        assert not answer.retriable()
    assert passed_by(gate) == []
    assert not gate.has_sent


def test_an_id_is_initialised_only_before_the_first_transaction(gate: Gate) -> None:
    # Else a producer whose epoch was refused would take another, and fence its successor (KIP-360).
    gate.network.client.send(1, answered(InitProducerIdRequest))
    gate.begin()
    answer = gate.network.client.send(1, answered(InitProducerIdRequest))
    assert answer.failed()
    assert passed_by(gate) == [InitProducerIdRequest]


@pytest.mark.parametrize(
    ("error", "told"),
    [
        (errors.RequestTimedOutError("late"), errors.KafkaConnectionError),
        (errors.IllegalStateError("other"), errors.IllegalStateError),
    ],
)
def test_a_request_that_times_out_is_a_lost_connection(
    gate: Gate, error: Exception, told: type[Exception]
) -> None:
    # For anything else than a lost connection the library gives the producer up for good.
    answer = gate.network.client.send(1, answered(EndTxnRequest))
    answers_of(gate)[0].failure(error)
    assert type(answer.exception) is told


def test_a_coordinator_that_is_not_there_is_not_ready(gate: Gate) -> None:
    # Where this raises, the library forgets the request that it was about to send.
    assert gate.network.client.await_ready(7, timeout_ms=1) is False


def test_no_question_for_a_topic_creates_it() -> None:
    network = Network(["topic"])
    client = network.open(**NOWHERE)
    request = client.cluster.metadata_request()
    assert request.allow_auto_topic_creation is False
    assert [each.name for each in request.topics] == ["topic"]
    client.close()


@pytest.mark.parametrize(
    ("error", "expected"),
    [
        (errors.SaslAuthenticationFailedError("no"), AccessDenied),
        (errors.TopicAuthorizationFailedError({"t"}), AccessDenied),
        (errors.TransactionalIdAuthorizationFailedError(), AccessDenied),
        (errors.UnsupportedSaslMechanismError(), AccessDenied),
        (errors.KafkaConnectionError("[SSL: CERTIFICATE_VERIFY_FAILED] no"), AccessDenied),
        (errors.UnknownTopicOrPartitionError(), TopicMissing),
        (errors.CorruptRecordError("crc"), RecordsCorrupt),
        (errors.UnsupportedCodecError("Unrecognized compression type: 7"), RecordsCorrupt),
        (errors.UnsupportedCodecError(NO_LZ4), CodecMissing),
        (errors.KafkaTimeoutError("late"), BrokersUnavailable),
        (errors.KafkaConnectionError("refused"), BrokersUnavailable),
        (errors.NodeNotReadyError("1"), BrokersUnavailable),
        (errors.NotLeaderForPartitionError(), BrokersUnavailable),
        (OSError(113, "no route"), BrokersUnavailable),
        (RuntimeError("NetworkSelector closed!"), BrokersUnavailable),
        (errors.InvalidReplicationFactorError(), RequestRefused),
        (errors.KafkaConfigurationError("bad"), RequestRefused),
        (ValueError("bad"), RequestRefused),
        (KeyError("bad"), RequestRefused),
    ],
)
def test_each_error_of_the_library_is_one_of_ours(
    error: Exception, expected: type[ClientFault]
) -> None:
    assert isinstance(error, library_faults())
    fault = to_fault(error, "topic 't' at h:1")
    assert type(fault) is expected
    assert "topic 't' at h:1" in str(fault)
    assert is_refusal(error) == (expected is AccessDenied)


def test_every_error_class_of_the_library_becomes_one_of_ours() -> None:
    classes = [
        each
        for each in vars(errors).values()
        if isinstance(each, type) and issubclass(each, errors.KafkaError)
    ]
    assert len(classes) > 100
    for each in classes:
        error = each({}) if each is errors.LogTruncationError else each()
        assert isinstance(to_fault(error, "here"), ClientFault)
        assert isinstance(
            to_producer_fault([error], "here", sent=True), ProducerFenced | ProducerBroken
        )


def test_settings_in_an_error_are_not_told() -> None:
    fault = to_fault(ValueError("Unrecognized configs: {'sasl_plain_password': 'S3cret'}"), "here")
    assert "S3cret" not in str(fault)


@pytest.mark.parametrize(
    "causes",
    [
        [errors.ProducerFencedError()],
        [errors.KafkaError("Cannot send"), errors.InvalidProducerEpochError()],
        [errors.KafkaError("Invalid transition attempted from state BUMPING_PRODUCER_EPOCH to X")],
        [errors.KafkaError("we are in an error state"), errors.ProducerFencedError()],
    ],
)
def test_fencing_has_several_faces(causes: list[BaseException]) -> None:
    assert type(to_producer_fault(causes, "here", sent=True)) is ProducerFenced


@pytest.mark.parametrize("sent", [True, False])
@pytest.mark.parametrize(
    ("error", "expected"),
    [
        (errors.InvalidProducerIdMappingError(), ProducerBroken),
        (errors.KafkaError(errors.InvalidProducerIdMappingError()), ProducerBroken),
        (errors.OutOfOrderSequenceNumberError(), ProducerBroken),
        (errors.UnknownProducerIdError(), ProducerBroken),
        (errors.InvalidTxnStateError(), ProducerBroken),
        (errors.IllegalStateError("closed"), ProducerBroken),
        (errors.MessageSizeTooLargeError(), RecordsRefused),
        (errors.RecordListTooLargeError(), RecordsRefused),
        (errors.InvalidTimestampError(), RecordsRefused),
        (errors.TopicAuthorizationFailedError(), RecordsRefused),
    ],
)
def test_what_is_no_fencing_breaks_the_producer(
    error: Exception, expected: type[ProducerBroken], sent: bool
) -> None:
    fault = to_producer_fault([error], "here", sent=sent)
    assert type(fault) is expected
    assert isinstance(fault, ProducerBroken)
    assert fault.sent is sent


def test_passwords_are_passed_on_and_never_shown() -> None:
    security = KafkaSecurity(
        security_protocol="SASL_PLAINTEXT",
        sasl_mechanism="PLAIN",
        sasl_username="ann",
        sasl_password="S3cret",
    )
    endpoint = make_endpoint(("h:1",), "t", security)
    options = endpoint.options()
    assert options["sasl_plain_password"] == "S3cret"
    assert options["sasl_plain_password"].encode() == b"S3cret"
    for shown in (repr(options), f"{options}", repr(endpoint), endpoint.place):
        assert "S3cret" not in shown


def test_unusable_tls_files_are_told_before_any_connection(tmp_path: Any) -> None:
    bad = tmp_path / "ca.pem"
    bad.write_text("no certificate")
    security = KafkaSecurity(security_protocol="SSL", ssl_cafile=str(bad))
    with pytest.raises(AccessDenied, match=r"ca\.pem"):
        open_client(["h:1"], "t", security)


def test_the_library_s_log_is_quiet_unless_asked_for() -> None:
    logger = logging.getLogger("kafka")
    before = logger.level
    try:
        logger.setLevel(logging.NOTSET)
        quieten_library()
        assert not logging.getLogger("kafka.net.manager").isEnabledFor(logging.CRITICAL)
        logger.setLevel(logging.DEBUG)
        quieten_library()
        assert logger.level == logging.DEBUG
    finally:
        logger.setLevel(before)


def test_the_inside_of_the_library_is_as_we_use_it() -> None:
    # `kafka_python_inside`, and the gate, lean on these names.
    for owner, names in {
        TransactionManager: ["begin_commit", "last_error", "maybe_add_partition_to_transaction"],
        TransactionalRequestResult: ["wait"],
        Sender: ["wakeup", "force_close", "is_alive"],
        KafkaProducer: ["_unregister_cleanup", "init_transactions", "partitions_for"],
        KafkaConsumer: ["assign", "seek", "poll", "end_offsets", "beginning_offsets"],
        KafkaNetClient: ["send", "await_ready", "close", "cluster"],
    }.items():
        assert [name for name in names if not hasattr(owner, name)] == []
    client = KafkaNetClient(**NOWHERE)
    assert client._manager._conns == {}
    assert {"allow_auto_create_topics", "retry_backoff_ms"} <= client.cluster.config.keys()
    assert callable(client._manager.get_connection)
    client.close()
    producer = KafkaProducer(**NOWHERE, transactional_id="x", metrics_enabled=False)
    assert producer._closed is False
    assert producer.config["max_block_ms"]
    accumulator = producer._accumulator
    target = TopicPartition("t", 0)
    with accumulator._tp_lock(target):
        assert not accumulator._batches[target]
    assert accumulator._closed is False
    assert callable(accumulator._incomplete.add)
    assert callable(accumulator._appends_in_progress.increment)
    assert callable(accumulator._appends_in_progress.decrement)
    batch = _new_batch(accumulator, target)
    assert batch._record_futures == []
    assert batch.records.append(1_000, b"k", b"v", []) is not None
    batch.complete(17, -1)
    assert batch.produce_future.value == (17, -1, None)
    producer._unregister_cleanup()
    producer._closed = True
    producer._sender.force_close()
    producer._sender.join(10)
    assert not producer._sender.is_alive()
    consumer = KafkaConsumer(**NOWHERE, metrics_enabled=False)
    assert consumer._subscription.assignment == {}
    assert consumer._client.cluster is consumer._cluster
    assert "fetch_max_wait_ms" in consumer._fetcher.config
    assert consumer._fetcher._next_partition_records is None
    assert callable(consumer._fetcher._append)
    assert callable(Fetcher.PartitionRecords.drain)
    consumer.close()


def test_no_other_client_library_is_known() -> None:
    with pytest.raises(ConfigError, match="kafka-java"):
        open_client(["h:1"], "t", client="kafka-java")


def test_opening_a_client_a_reader_and_a_producer_needs_no_network() -> None:
    with no_thread_is_left():
        client = open_client(["127.0.0.1:1"], "t")
        client.open_reader(committed=True).close()
        producer = client.open_producer("id")
        assert producer.transactional_id == "id"
        producer.abandon()
        client.close()
        client.close()


class _Ends:
    """Says where every partition begins and ends."""

    def starts(self, partitions: list[int], timeout_s: float) -> dict[int, int]:
        return dict.fromkeys(partitions, 0)

    def ends(self, partitions: list[int], timeout_s: float) -> dict[int, int]:
        return dict.fromkeys(partitions, 20)


def test_a_log_that_was_cut_and_grew_again_is_out_of_range() -> None:
    class Cut:
        def poll(self, **options: Any) -> Any:
            raise errors.LogTruncationError({TopicPartition("topic", 3): None})

    endpoint = make_endpoint(("h:1",), "topic", None)
    reader = KafkaPythonReader(endpoint, _Ends(), committed=True)  # type: ignore[arg-type]
    reader.seek({2: 5, 3: 18})
    reader._consumer = Cut()
    with pytest.raises(OffsetOutOfRange) as caught:
        reader.fetch(1.0)
    out = caught.value
    assert (out.partition, out.offset, out.start, out.end) == (3, 18, 0, 20)
    assert reader._consumer is None  # It would raise the same for ever.


def test_a_codec_whose_package_is_missing_is_named_with_partition_and_package() -> None:
    class Compressed:
        def __init__(self) -> None:
            part = SimpleNamespace(topic_partition=TopicPartition("topic", 3))
            self._fetcher = SimpleNamespace(_next_partition_records=part)

        def poll(self, **options: Any) -> Any:
            raise errors.UnsupportedCodecError(NO_LZ4)

    endpoint = make_endpoint(("h:1",), "topic", None)
    reader = KafkaPythonReader(endpoint, _Ends(), committed=True)  # type: ignore[arg-type]
    reader.seek({3: 0})
    reader._consumer = Compressed()
    with pytest.raises(CodecMissing) as caught:
        reader.fetch(1.0)
    error = as_ours(caught.value)
    assert isinstance(error, ConfigError)
    assert "partition 3 holds records compressed with lz4, which needs the package lz4 here" in str(
        error
    )


def test_a_consumer_never_turns_in_a_circle_over_records_that_failed() -> None:
    class Failed:
        is_left = True

        def __bool__(self) -> bool:
            return self.is_left

        def drain(self) -> None:
            self.is_left = False

    part = Failed()
    fetcher = SimpleNamespace(_append=lambda *_: 0)
    never_spin(SimpleNamespace(_fetcher=fetcher))
    assert fetcher._append({}, part, 1, True) == 0
    assert not part


@pytest.mark.parametrize("client_name", CLIENTS)
def test_after_a_close_nothing_is_opened_any_more(client_name: str) -> None:
    with no_thread_is_left():
        client = open_client(["127.0.0.1:1"], "t", client=client_name)
        readers = [client.open_reader(committed=True), client.open_reader(committed=False)]
        readers[1].seek({0: 0})
        for each in (*readers, client):
            each.close()
        for question in (
            lambda: readers[0].fetch(5.0),
            lambda: readers[1].fetch(5.0),
            lambda: readers[0].high_watermarks([0], 5.0),
            lambda: readers[0].log_starts([0], 5.0),
            lambda: client.identity(5.0),
            lambda: client.group_offsets("g", 5.0),
        ):
            with pytest.raises(ClientClosed) as caught:
                question()
            error = as_ours(caught.value)
            assert type(error) is LogError
            assert "this handle is closed" in str(error)


@pytest.mark.parametrize("asks_offsets", [True, False])
def test_who_waits_for_brokers_is_told_of_a_close_at_once(asks_offsets: bool) -> None:
    client = open_client(["127.0.0.1:1"], "t")
    reader = client.open_reader(committed=True)
    began = time.monotonic()
    threading.Timer(0.3, client.close).start()
    with pytest.raises(ClientClosed):
        reader.high_watermarks([0], 20.0) if asks_offsets else client.identity(20.0)
    assert time.monotonic() - began < 15
