"""Opening and ending the library's consumers and admin clients, whatever the brokers do.

Both connect while they are made, run a thread from then on, and leave it behind when they cannot
connect; and a TLS handshake, or a look-up of a name, has no deadline there. So each is made in a
thread of ours, for which several calls may wait, and what was opened for one that failed is closed.
"""

import threading
import time
from collections.abc import Callable
from contextlib import suppress
from typing import Any, Final

from eventlog.kafka.client_errors import (
    AccessDenied,
    BrokersUnavailable,
    ClientClosed,
    ClientFault,
)
from eventlog.kafka.deadline import DeadlinePassed, LateCall
from eventlog.kafka.kafka_python_faults import library_faults, to_fault
from eventlog.kafka.kafka_python_network import Network
from eventlog.kafka.kafka_python_setup import Endpoint
from eventlog.kafka.unreached import BrokersUnreached

OPENING_S_MAX: Final = 15.0
"""After which an attempt is given up: whoever still waits begins another."""

Make = Callable[..., Any]


def consumer_maker(**settings: Any) -> Make:
    """Makes a `KafkaConsumer` with these settings: no group, and it never commits."""

    def make(**options: Any) -> Any:
        from kafka import KafkaConsumer

        return KafkaConsumer(
            **options,
            group_id=None,
            enable_auto_commit=False,
            auto_offset_reset="none",
            allow_auto_create_topics=False,
            metrics_enabled=False,
            check_crcs=True,
            **settings,
        )

    return make


def make_admin(**options: Any) -> Any:
    """Makes a `KafkaAdminClient`."""
    from kafka.admin import KafkaAdminClient

    return KafkaAdminClient(**options)


class Opening:
    """A consumer or an admin client that is being made, or was. Used by one thread at a time."""

    def __init__(self, endpoint: Endpoint, make: Make, topics: list[str]) -> None:
        """Begins nothing. `topics` are those whose leaders the object is to know."""
        self._endpoint = endpoint
        self._make = make
        self._topics = topics
        self._network = Network(topics)
        self._call: LateCall[Any] | None = None
        self._is_closed = False

    def object_within(self, timeout_s: float) -> Any:
        """The object; an attempt that is under way goes on after the time is up.

        Raises BrokersUnavailable, AccessDenied, and ClientClosed also where it is closed meanwhile.
        """
        place = self._endpoint.place
        began_at = time.monotonic()
        self.require_open()
        call = self._call
        if call is None:
            call = self._call = self._begin()
        if self._is_closed:
            self.give_up()  # Closed between: who closed it has not seen this one.
        try:
            found = call.wait(timeout_s, self._look)
            self.require_open()
            return found
        except DeadlinePassed:
            raise self._unreached(began_at) from None
        except library_faults() as error:
            self.require_open()
            fault = to_fault(error, place)
            is_out_of_reach = isinstance(fault, BrokersUnavailable)
            told = self._unreached(began_at) if is_out_of_reach else fault
            self.give_up()
            raise told from error
        except AccessDenied:
            self.give_up()
            raise

    def give_up(self) -> None:
        """Close the object, made or not; the next question begins another attempt."""
        call, self._call = self._call, None
        if call is not None:
            call.leave()
            if self._network.client is not None:
                close_aside(self._network.client)
            self._network = Network(self._topics)

    def close(self) -> None:
        """Close the object for good: nothing is opened any more. Any thread; idempotent."""
        self._is_closed = True
        self.give_up()

    def require_open(self) -> None:
        """Raise ClientClosed where it was closed: whatever failed then, failed for that reason."""
        if self._is_closed:
            raise ClientClosed

    def inherited(self) -> list[object]:
        """In a forked child: what the parent had opened, which is forgotten here."""
        objects: list[object] = [self._call, self._network]
        self._call, self._network = None, Network(self._topics)
        return objects

    def _begin(self) -> LateCall[Any]:
        options = self._endpoint.options() | {
            "kafka_client": self._network.open,
            "bootstrap_timeout_ms": OPENING_S_MAX * 1_000,
        }
        make = self._make
        return LateCall(lambda: make(**options), faults=library_faults(), discard=close_aside)

    def _look(self) -> None:
        self.require_open()
        self._network.require_access(self._endpoint.place)
        self._endpoint.wait.go_on(self._network.trouble)

    def _unreached(self, began_at: float) -> ClientFault:
        waited_s = time.monotonic() - began_at
        return BrokersUnreached(self._endpoint.place, self._network.trouble, waited_s)


def close_aside(library_client: Any) -> None:
    """Close a consumer, an admin client or a network client without waiting for its thread."""

    def close() -> None:
        with suppress(*library_faults()):
            library_client.close()

    threading.Thread(target=close, name="steplog-kafka-close", daemon=True).start()
