"""`Network`: kafka-python's network client, opened our way, and why it cannot connect.

The library logs why a connection failed, and tries again until the end of time: also where a
password is wrong. So each connection is asked here what became of it.
"""

from typing import Any, Final
from weakref import WeakSet

from eventlog.kafka.client_errors import AccessDenied
from eventlog.kafka.kafka_python_faults import is_refusal, told
from eventlog.kafka.kafka_python_inside import connections_of, hear_last_words, manager_of

METADATA_BACKOFF_MS: Final = 20
"""Between two questions for the leaders of partitions (the library's own: 100 ms, also at start)"""


class Network:
    """One for each producer, consumer and admin client."""

    def __init__(self, topics: list[str]) -> None:
        """`topics` are asked for from the first question on."""
        self.client: Any = None
        """The library's object, once there is one."""
        self._topics = topics
        self._trouble: BaseException | None = None

    def open(self, **options: Any) -> Any:
        """What the library's setting `kafka_client` is for. Opens no connection yet."""
        from kafka.net.compat import KafkaNetClient

        client = KafkaNetClient(**options)
        self.client = client
        # The library has a setting for it, and does not pass it on.
        client.cluster.config["allow_auto_create_topics"] = False
        client.cluster.config["retry_backoff_ms"] = METADATA_BACKOFF_MS
        self._watch_connections(manager_of(client))
        _drop_connections_at_close(client)
        client.cluster.set_topics(self._topics)
        return client

    def require_access(self, place: str) -> None:
        """Raise AccessDenied if the last connection was refused in a way that will not change."""
        if self._trouble is not None and is_refusal(self._trouble):
            raise AccessDenied(f"{place}: {told(self._trouble)}")

    @property
    def trouble(self) -> str:
        """Why the last connection failed, for a message: empty if it did not."""
        return "" if self._trouble is None else told(self._trouble)

    def _watch_connections(self, manager: Any) -> None:
        get_connection = manager.get_connection
        known: WeakSet[Any] = WeakSet()

        def watched(*node: Any, **options: Any) -> Any:
            connection = get_connection(*node, **options)
            if connection not in known:
                known.add(connection)
                hear_last_words(connection)
                connection.init_future.add_callback(self._note_success)
                connection.init_future.add_errback(self._note_trouble)
            return connection

        manager.get_connection = watched

    def _note_success(self, _: object) -> None:
        self._trouble = None

    def _note_trouble(self, error: BaseException) -> None:
        # A refusal stands until a connection succeeds: the next attempt may fail less clearly.
        if self._trouble is None or not is_refusal(self._trouble):
            self._trouble = error


def _drop_connections_at_close(client: Any) -> None:
    from kafka.errors import KafkaConnectionError

    close = client.close

    def drop_and_close(node_id: Any = None) -> None:
        # By itself it waits for what is still to be written, and leaves the socket open for that.
        if node_id is None:
            client.cluster.close()  # Else it would connect again, to ask what became of them.
            for connection in connections_of(client):
                connection.close(KafkaConnectionError("closed by us"))
        close(node_id)

    client.close = drop_and_close
