"""The partition of a session: computed here, the same for every client library.

Kafka's own rule for a record with a key, murmur2 as the Java client has it (librdkafka calls it
`murmur2_random`), so that other tools that write by key find the same partition. Client libraries
are never asked: their defaults differ (11 of 200 keys agreed between two of them).
"""

from functools import lru_cache
from typing import Final

SESSIONS_KEPT_MAX: Final = 65_536
"""Sessions whose partition is remembered: 200 bytes each."""

_SEED: Final = 0x9747B28C
_FACTOR: Final = 0x5BD1E995
_LOW_32: Final = 0xFFFFFFFF


@lru_cache(maxsize=SESSIONS_KEPT_MAX)
def partition_of(session_id: str, partition_count: int) -> int:
    """The partition that holds all events of a session: 0 <= p < `partition_count`."""
    return partition_of_key(session_id.encode("utf-8"), partition_count)


def partition_of_key(key: bytes, partition_count: int) -> int:
    """The partition of a record with this key, as Java's default partitioner says."""
    if partition_count < 1:
        raise ValueError(f"a topic has at least one partition, not {partition_count}")
    return (murmur2(key) & 0x7FFFFFFF) % partition_count


def murmur2(data: bytes) -> int:
    """The 32-bit hash, unsigned. Source: MurmurHash2 with Kafka's seed, as in its `Utils.java`."""
    mixed = _SEED ^ len(data)
    whole = len(data) & ~3
    for start in range(0, whole, 4):
        word = int.from_bytes(data[start : start + 4], "little") * _FACTOR & _LOW_32
        word = (word ^ word >> 24) * _FACTOR & _LOW_32
        mixed = mixed * _FACTOR & _LOW_32 ^ word
    if whole < len(data):
        mixed = (mixed ^ int.from_bytes(data[whole:], "little")) * _FACTOR & _LOW_32
    mixed = (mixed ^ mixed >> 13) * _FACTOR & _LOW_32
    return mixed ^ mixed >> 15
