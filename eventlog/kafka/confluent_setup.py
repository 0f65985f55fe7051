"""How confluent-kafka (librdkafka) is set up for a log, and its errors in our words."""

from functools import cache
from typing import Any, Final

from eventlog.kafka.client_errors import (
    AccessDenied,
    BrokersUnavailable,
    ClientFault,
    RecordsCorrupt,
    RequestRefused,
    TopicMissing,
    error_in_words,
)
from eventlog.kafka.kafka_python_setup import (
    RECONNECT_BACKOFF_MAX_MS,
    RECONNECT_BACKOFF_MS,
    REQUEST_TIMEOUT_MS,
    Endpoint,
)

_NAMES: Final = {
    "security_protocol": "security.protocol",
    "ssl_cafile": "ssl.ca.location",
    "ssl_certfile": "ssl.certificate.location",
    "ssl_keyfile": "ssl.key.location",
    "sasl_mechanism": "sasl.mechanisms",
    "sasl_plain_username": "sasl.username",
    "sasl_plain_password": "sasl.password",
}


class Troubles:
    """What the library tells of its connections, when it is polled."""

    def __init__(self) -> None:
        self._last: Any = None

    def note(self, error: Any) -> None:
        """The library's setting `error_cb`."""
        if self._last is None or not _is_refusal(self._last):
            self._last = error

    def forget(self) -> None:
        """All is well again."""
        self._last = None

    def require_access(self, place: str) -> None:
        """Raise AccessDenied if a connection was refused in a way that will not change."""
        if self._last is not None and _is_refusal(self._last):
            raise AccessDenied(f"{place}: {told(self._last)}")

    @property
    def text(self) -> str:
        """Why no connection came about, for a message: empty if none failed."""
        return "" if self._last is None else told(self._last)


def shared_settings(endpoint: Endpoint, troubles: Troubles) -> dict[str, Any]:
    """The settings that producers and consumers share; they hold secrets."""
    settings: dict[str, Any] = {
        "bootstrap.servers": ",".join(endpoint.bootstrap),
        "client.id": "steplog",
        "socket.timeout.ms": REQUEST_TIMEOUT_MS,
        "reconnect.backoff.ms": RECONNECT_BACKOFF_MS,
        "reconnect.backoff.max.ms": RECONNECT_BACKOFF_MAX_MS,
        "socket.nagle.disable": True,
        # It would write to stderr.
        "log_level": 0,
        "error_cb": troubles.note,
    }
    if endpoint.security is not None:
        options = endpoint.security.client_options()
        settings |= {_NAMES[name]: value for name, value in options.items() if name in _NAMES}
        if options.get("ssl_check_hostname") is False:
            settings["ssl.endpoint.identification.algorithm"] = "none"
    return settings


@cache
def library_faults() -> tuple[type[Exception], ...]:
    """Whatever may come out of the library."""
    from confluent_kafka import KafkaException

    return (
        KafkaException,
        BufferError,
        RuntimeError,
        ValueError,
        TypeError,
        OSError,
        AttributeError,
    )


def error_of(exception: BaseException) -> Any:
    """The library's `KafkaError` in an exception; None where it has none."""
    from confluent_kafka import KafkaError

    first = exception.args[0] if exception.args else None
    return first if isinstance(first, KafkaError) else None


def told(error: Any) -> str:
    """A `KafkaError` as a message may show it."""
    return f"{error_in_words(error.name())}: {error.str()}"


def to_fault(error: Any, place: str) -> ClientFault:
    """The fault that a `KafkaError` stands for."""
    from confluent_kafka import KafkaError

    message = f"{place}: {told(error)}"
    if _is_refusal(error):
        return AccessDenied(message)
    code = error.code()
    if code in (KafkaError.UNKNOWN_TOPIC_OR_PART, KafkaError._UNKNOWN_TOPIC):
        return TopicMissing.at(place)
    if code in (KafkaError._BAD_MSG, KafkaError._BAD_COMPRESSION, KafkaError.INVALID_MSG):
        return RecordsCorrupt(message)
    if error.retriable() or code in _out_of_reach():
        return BrokersUnavailable(message)
    return RequestRefused(message)


def exception_to_fault(exception: BaseException, place: str) -> ClientFault:
    """The fault that an exception of the library stands for."""
    error = error_of(exception)
    if error is None:
        return RequestRefused(f"{place}: {type(exception).__name__}")
    return to_fault(error, place)


def _out_of_reach() -> tuple[int, ...]:
    from confluent_kafka import KafkaError

    return (
        KafkaError._TIMED_OUT,
        KafkaError._TIMED_OUT_QUEUE,
        KafkaError._MSG_TIMED_OUT,
        KafkaError._TRANSPORT,
        KafkaError._RESOLVE,
        KafkaError._ALL_BROKERS_DOWN,
        KafkaError._STATE,
        KafkaError._DESTROY,
    )


def _is_refusal(error: Any) -> bool:
    from confluent_kafka import KafkaError

    refusals = (
        KafkaError._AUTHENTICATION,
        KafkaError.SASL_AUTHENTICATION_FAILED,
        KafkaError.UNSUPPORTED_SASL_MECHANISM,
        KafkaError.ILLEGAL_SASL_STATE,
        KafkaError.TOPIC_AUTHORIZATION_FAILED,
        KafkaError.GROUP_AUTHORIZATION_FAILED,
        KafkaError.CLUSTER_AUTHORIZATION_FAILED,
        KafkaError.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
    )
    is_untrusted = error.code() == KafkaError._SSL and "certificate verify failed" in error.str()
    return error.code() in refusals or is_untrusted
