"""`Gate`: stands between a producer's thread and its brokers.

It knows what was handed to a broker, and lets nothing more pass once its producer is given up: a
commit that timed out must not leave minutes later, when the brokers are back. And it mends how the
library takes an outage: where a coordinator cannot be reached at once, its request is forgotten,
and the commit never ends; where one does not answer in time, the producer ends for good.
"""

import threading
from typing import Any

from eventlog.kafka.kafka_python_network import Network
from eventlog.kafka.kafka_python_setup import REQUEST_TIMEOUT_MS


class Gate:
    """One for each producer. `has_sent` is exact once the gate is shut."""

    def __init__(self, topic: str) -> None:
        self.network = Network([topic])
        self._lock = threading.Lock()
        self._is_shut = False
        self._may_initialise = True
        self.has_sent = False
        """Whether records of this transaction were handed to a broker."""

    def open(self, **options: Any) -> Any:
        """What the producer's setting `kafka_client` is for."""
        client = self.network.open(**options)
        self._stand_before(client)
        _survive_outages(client)
        return client

    def begin(self) -> None:
        """A transaction begins, of which nothing is sent yet; the id is initialised for good.

        Another initialisation by the library itself, after a broker refused its epoch, would fence
        whoever rightly has the id now.
        """
        with self._lock:
            self._may_initialise = False
            self.has_sent = False

    def shut(self) -> None:
        """Let nothing more pass. Any thread; idempotent."""
        with self._lock:
            self._is_shut = True

    def _stand_before(self, client: Any) -> None:
        from kafka.errors import IllegalStateError
        from kafka.future import Future
        from kafka.protocol.producer import InitProducerIdRequest, ProduceRequest

        pass_on = client.send

        def send(node_id: Any, request: Any, **options: Any) -> Any:
            with self._lock:
                again = isinstance(request, InitProducerIdRequest) and not self._may_initialise
                if self._is_shut or again:
                    return Future().failure(IllegalStateError("the producer was given up"))
                if isinstance(request, ProduceRequest):
                    self.has_sent = True
                return pass_on(node_id, request, **options)

        client.send = send


def _survive_outages(client: Any) -> None:
    from kafka.errors import KafkaConnectionError, KafkaError, RequestTimedOutError
    from kafka.future import Future
    from kafka.protocol.producer import ProduceRequest

    await_ready, pass_on = client.await_ready, client.send

    def is_ready(node_id: Any, timeout_ms: float = REQUEST_TIMEOUT_MS) -> bool:
        try:
            return bool(await_ready(node_id, timeout_ms))
        except KafkaError:
            return False  # As its caller expects; what it raises costs the caller its request.

    def send(node_id: Any, request: Any, **options: Any) -> Any:
        answer = pass_on(node_id, request, **options)
        if isinstance(request, ProduceRequest):
            return answer  # These are sent again by themselves.
        told = Future()

        def fail(error: BaseException) -> None:
            # Only a lost connection makes the library ask again.
            is_late = isinstance(error, RequestTimedOutError)
            told.failure(KafkaConnectionError(str(error)) if is_late else error)

        answer.add_callback(told.success)
        answer.add_errback(fail)
        return told

    client.await_ready, client.send = is_ready, send
