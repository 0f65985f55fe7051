"""A forked child has none of its parent's connections: it uses its own, and ends none of theirs."""

import pytest

from tests.support.brokers import KafkaAddress
from tests.support.processes import finish, python_script
from tests.support.topic_clients import LIBRARIES

pytestmark = pytest.mark.kafka

FORK = """
import gc, os, sys, warnings
from eventlog.kafka.client_errors import ProducerBroken
from tests.support.topic_clients import *

# Python warns of forks beside threads from 3.12 on: that is what is tried here.
warnings.filterwarnings("ignore", message=".*fork", category=DeprecationWarning)
client = opener(sys.argv[1])(sys.argv[2], sys.argv[3])
producer = client.open_producer("parent-" + sys.argv[3])
producer.initialise(30)
producer.commit([record(0, b"1")], 30)
reader = client.open_reader(True)
reader.seek({0: 0})
assert values_of(read_to_end(reader)) == [b"1"]
client.describe()

child = os.fork()
if child == 0:
    try:
        producer.commit([record(0, b"child")], 30)
    except ProducerBroken as broken:
        assert not broken.sent
    producer.abandon()
    assert values_of(read_to_end(reader)) == []
    with ready_producer(client, "child-" + sys.argv[3]) as own:
        own.commit([record(0, b"2")], 30)
        assert values_of(read_to_end(reader)) == [b"2"]
    assert client.describe().partition_count == 1
    del producer, reader, client
    gc.collect()
    sys.exit(0)
assert os.waitpid(child, 0)[1] == 0
for number in range(20):
    producer.commit([record(0, b"3")], 30)
found = values_of(read_to_end(reader))
assert found == [b"2"] + [b"3"] * 20, found
assert client.describe().partition_count == 1
print("both went on")
"""


@pytest.mark.parametrize("library", LIBRARIES)
def test_parent_and_child_go_on_side_by_side(library: str, kafka_broker: KafkaAddress) -> None:
    topic = kafka_broker.new_topic(1)
    process = python_script(FORK, library, kafka_broker.bootstrap, topic)
    assert finish(process) == "both went on\n"
    kafka_broker.delete_topics(topic)
