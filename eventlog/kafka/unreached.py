"""Brokers that are not reached: why not, in words, and a word in the log while they are waited for.

The client libraries tell the reason only in text, each in its own.
"""

import logging
import time
from enum import Enum
from typing import Final

from eventlog.kafka.client_errors import BrokersUnavailable

TELL_AFTER_S: Final = 5.0
"""A wait is told in the log once it is longer than a broker's restart, or an election, takes."""

_FORGET_AFTER_S: Final = 10.0
"""Nobody has asked for so long: what comes then is another wait."""

_logger = logging.getLogger("steplog.log")


class Why(Enum):
    """Why no connection came about. The value is what a message says."""

    REFUSED = "connection refused"
    NO_SUCH_HOST = "the host name is not known"
    NO_TLS = "the TLS handshake failed"
    NO_KAFKA = "what answers there is not Kafka without TLS"
    NO_WAY = "no way to the host"
    CLOSED = "the connection was closed at once"
    SILENT = "no answer"


_SIGNS: Final = (
    ("dns resolution", Why.NO_SUCH_HOST),
    ("failed to resolve", Why.NO_SUCH_HOST),
    ("econnrefused", Why.REFUSED),
    ("connection refused", Why.REFUSED),
    ("unreach", Why.NO_WAY),
    ("handshake", Why.NO_TLS),
    ("_ssl:", Why.NO_TLS),
    ("invalid frame length", Why.NO_KAFKA),
    ("timed out", Why.SILENT),
    ("disconnected", Why.CLOSED),
    ("kafkaconnectionerror", Why.CLOSED),
)
"""What the libraries' texts hold, in lower case: the first that fits decides."""


class BrokersUnreached(BrokersUnavailable):
    """No connection to any broker came about in time."""

    def __init__(self, place: str, trouble: str, waited_s: float | None = None) -> None:
        """`place` names the brokers; `trouble` is what the library says, empty if nothing."""
        self.why = why_of(trouble)
        super().__init__(f"{place}: not reached: {self.why.value}", waited_s=waited_s)


def why_of(trouble: str) -> Why:
    """The reason in a client library's text."""
    text = trouble.lower()
    return next((why for sign, why in _SIGNS if sign in text), Why.SILENT)


def in_words(trouble: str) -> str:
    """The reason as the end of a message; empty where the library says nothing."""
    return trouble and f" ({why_of(trouble).value})"


class BrokerWait:
    """Tells in the log, once for each wait, that brokers are waited for, and that they are back.

    One for each client. Any thread: two that meet may tell of it twice.
    """

    def __init__(self, brokers: str) -> None:
        self._brokers = brokers
        self._since: float | None = None
        self._asked_at = 0.0
        self._is_told = False

    def go_on(self, trouble: str) -> None:
        """There is no answer yet. `trouble`: what the library says, empty if nothing."""
        now = time.monotonic()
        if self._since is None or now - self._asked_at > _FORGET_AFTER_S:
            self._since, self._is_told = now, False
        self._asked_at = now
        waited_s = now - self._since
        if waited_s >= TELL_AFTER_S and not self._is_told:
            self._is_told = True
            _logger.warning(
                "waiting for the brokers at %s since %.0f s: %s",
                self._brokers,
                waited_s,
                why_of(trouble).value,
            )

    def end(self) -> None:
        """An answer came."""
        if self._since is None:
            return
        since, self._since = self._since, None
        if self._is_told:
            self._is_told = False
            waited_s = time.monotonic() - since
            _logger.warning("the brokers at %s are back after %.0f s", self._brokers, waited_s)
