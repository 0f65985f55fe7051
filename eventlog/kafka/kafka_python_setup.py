"""How kafka-python is set up for a log: settings, secrets, TLS, and a quiet logger.

Every default that matters to an event log is set here or by the producer and the reader themselves:
none is left to the library.
"""

import logging
import ssl
from typing import Any, Final, NamedTuple

from eventlog.kafka.client_errors import AccessDenied
from eventlog.kafka.security import KafkaSecurity
from eventlog.kafka.unreached import BrokerWait

REQUEST_TIMEOUT_MS: Final = 5_000
"""Until an unanswered request's connection is closed, and the request sent again by another."""
RECONNECT_BACKOFF_MS: Final = 20
RECONNECT_BACKOFF_MAX_MS: Final = 500
"""Between attempts to reach a broker that is down: a writer goes on soon after it is back."""


class _Secret(str):
    """A text that no log and no message shows: the library logs its settings."""

    __slots__ = ()

    def __repr__(self) -> str:
        return "'***'"


class Endpoint(NamedTuple):
    """A topic, and how its brokers are reached."""

    bootstrap: tuple[str, ...]
    topic: str
    security: KafkaSecurity | None
    tls: ssl.SSLContext | None
    wait: BrokerWait

    @property
    def place(self) -> str:
        """For messages: no secrets."""
        return f"topic {self.topic!r} at {','.join(self.bootstrap)}"

    def options(self) -> dict[str, Any]:
        """The settings that all clients of the library share."""
        options: dict[str, Any] = {
            "bootstrap_servers": list(self.bootstrap),
            "client_id": "steplog",
            "request_timeout_ms": REQUEST_TIMEOUT_MS,
            "reconnect_backoff_ms": RECONNECT_BACKOFF_MS,
            "reconnect_backoff_max_ms": RECONNECT_BACKOFF_MAX_MS,
        }
        if self.security is not None:
            options |= {
                name: _Secret(value) if name == "sasl_plain_password" else value
                for name, value in self.security.client_options().items()
            }
        if self.tls is not None:
            options["ssl_context"] = self.tls
        return options


def make_endpoint(
    bootstrap: tuple[str, ...], topic: str, security: KafkaSecurity | None
) -> Endpoint:
    """Check what can be checked without a network. Raises AccessDenied for unusable TLS files."""
    quieten_library()
    tls = _tls_context(security) if security is not None and security.is_tls else None
    return Endpoint(bootstrap, topic, security, tls, BrokerWait(",".join(bootstrap)))


def quieten_library() -> None:
    """Keep the library's log off users' stderr, unless they have asked for it.

    It warns of what it then mends itself, and reports each error that we raise.
    """
    logger = logging.getLogger("kafka")
    if logger.level == logging.NOTSET:
        logger.setLevel(logging.CRITICAL + 1)


class _TlsSocket(ssl.SSLSocket):
    """Closed when it is forgotten: so the library leaves those whose handshake did not end."""

    def __del__(self) -> None:
        self.close()


def _tls_context(security: KafkaSecurity) -> ssl.SSLContext:
    """As the library makes it, but once, and here: it would find out about a bad file too late."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.sslsocket_class = _TlsSocket
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.check_hostname = security.ssl_check_hostname
    try:
        if security.ssl_cafile is not None:
            context.load_verify_locations(security.ssl_cafile)
        else:
            context.load_default_certs()
        if security.ssl_certfile is not None:
            # With an empty password a locked key is refused, and not asked for on a terminal.
            context.load_cert_chain(security.ssl_certfile, security.ssl_keyfile, password="")
    except (OSError, ValueError) as error:  # An SSLError is an OSError.
        files = [security.ssl_cafile, security.ssl_certfile, security.ssl_keyfile]
        named = ", ".join(repr(file) for file in files if file)
        reason = getattr(error, "reason", None) or getattr(error, "strerror", None) or ""
        raise AccessDenied(
            f"the TLS files ({named}) cannot be used: {type(error).__name__} {reason}".rstrip()
        ) from None
    return context
