"""The partition of a session is Kafka's own, whatever client library is used."""

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st
from kafka.partitioner.default import murmur2 as murmur2_of_kafka_python

from eventlog.kafka.partitioning import murmur2, partition_of, partition_of_key


@given(st.binary(max_size=80))
def test_the_hash_is_that_of_kafka_python(data: bytes) -> None:
    assert murmur2(data) == murmur2_of_kafka_python(data) & 0xFFFFFFFF


@pytest.mark.parametrize(
    ("key", "signed"),
    [
        # The cases of Kafka's own UtilsTest.testMurmur2.
        (b"21", -973932308),
        (b"foobar", -790332482),
        (b"a-little-bit-long-string", -985981536),
        (b"a-little-bit-longer-string", -1486304829),
        (b"lkjh234lh9fiuh90y23oiuhsafujhadof229phr9h19h89h8", -58897971),
        (b"abc", 479470107),
    ],
)
def test_the_hash_is_that_of_java(key: bytes, signed: int) -> None:
    assert murmur2(key) == signed & 0xFFFFFFFF


def test_sessions_spread_evenly_and_stay_where_they_are() -> None:
    chance = random.Random(7)
    sessions = [f"{chance.getrandbits(128):032x}" for _ in range(4_000)]
    counts = [0] * 16
    for session in sessions:
        partition = partition_of(session, 16)
        assert partition == partition_of_key(session.encode(), 16)
        counts[partition] += 1
    assert 180 < min(counts) <= max(counts) < 330


def test_a_session_id_is_hashed_as_utf8() -> None:
    assert partition_of("süß", 997) == partition_of_key("süß".encode(), 997)


def test_no_topic_is_without_partitions() -> None:
    with pytest.raises(ValueError, match="at least one partition"):
        partition_of_key(b"a", 0)
