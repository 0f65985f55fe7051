"""The inside of kafka-python that we lean on, all of it, and why. Checked by a test.

Its face has no commit with a deadline, and no way to close a producer without flushing it; and what
it knows about refused logins and positions it tells only late, or slowly.
"""

import time
from collections.abc import Callable, Iterator
from typing import Any, Final

WAKE_EVERY_S: Final = 0.1


def commit_by(producer: Any, deadline: float, look: Callable[[], object] = lambda: None) -> bool:
    """`commit_transaction` with a deadline (monotonic); False if the time was up.

    `look` is called now and then meanwhile.

    Raises what went wrong. By itself the library waits for ever while no broker answers; and where
    records were refused after the commit began, its thread sleeps on the news until it is woken.
    """
    result = producer._transaction_manager.begin_commit()
    while True:
        producer._sender.wakeup()
        left_s = deadline - time.monotonic()
        if result.wait(min(WAKE_EVERY_S, max(0.0, left_s)) * 1_000):
            return True
        if left_s <= 0:
            return False
        look()


def last_error(producer: Any) -> BaseException | None:
    """Why the producer refuses to go on: the errors it raises name the reason only in words."""
    error = producer._transaction_manager.last_error
    return error if isinstance(error, BaseException) else None


def leave_exit_alone(producer: Any) -> None:
    """No waiting, and no flushing, for this producer when the process ends."""
    producer._unregister_cleanup()


def end_at_once(producer: Any) -> None:
    """Stop the producer's thread without flushing. Does not wait; any thread; idempotent.

    `close` would send what waits, and with a short timeout it raises and leaves the thread running.
    """
    producer._closed = True
    producer._sender.force_close()


def thread_of(producer: Any) -> Any:
    """The thread that speaks to the brokers."""
    return producer._sender


def manager_of(client: Any) -> Any:
    """The keeper of a network client's connections."""
    return client._manager


def connections_of(client: Any) -> list[Any]:
    """A network client's connections, whatever their state."""
    return list(client._manager._conns.values())


def hear_last_words(connection: Any) -> None:
    """What a broker says before it closes a new connection is heard, and then its closing.

    The library drops an answer that arrives together with the end of the connection: so does the
    one that says why a login failed, most of the time.
    """
    made = connection.connection_made

    def connection_made(transport: Any) -> None:
        receive = transport._sock_recv

        def receive_all() -> tuple[bytes, Exception | None]:
            data, error = receive()
            return data, (None if data else error)

        transport._sock_recv = receive_all
        made(transport)

    connection.connection_made = connection_made


def network_of(consumer: Any) -> Any:
    """A consumer's network client; `.cluster` is what it knows of brokers and topics."""
    return consumer._client


def set_fetch_wait(consumer: Any, wait_ms: int) -> None:
    """How long brokers hold the consumer's next questions that find nothing new."""
    consumer._fetcher.config["fetch_max_wait_ms"] = wait_ms


def partition_in_hand(consumer: Any) -> int | None:
    """The partition whose records the consumer was taking apart when it raised an error."""
    part = consumer._fetcher._next_partition_records
    return None if part is None else int(part.topic_partition.partition)


def never_spin(consumer: Any) -> None:
    """Records whose taking apart failed once are asked for again.

    By itself the library may turn in a circle over them, in one call, without an end.
    """
    append = consumer._fetcher._append

    def append_or_drop(drained: Any, part: Any, *options: Any) -> int:
        count = int(append(drained, part, *options))
        # Nothing came of it, and it is not through: so nothing ever will.
        if not count and part:
            part.drain()
        return count

    consumer._fetcher._append = append_or_drop


def positions_of(consumer: Any) -> Iterator[tuple[int, int]]:
    """(partition, next offset) of each partition read.

    `consumer.position` looks through all partitions for each that is asked for: 65 ms at 256.
    """
    for topic_partition, state in consumer._subscription.assignment.items():
        if state.position is not None:
            yield topic_partition.partition, state.position.offset
