"""A client library's faults as errors of ours: the only way out for them."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from eventlog.errors import ConfigError, LogError, LogUnavailableError, SteplogError
from eventlog.kafka.client_errors import (
    AccessDenied,
    ClientClosed,
    ClientFault,
    CodecMissing,
    RecordsRefused,
    RequestRefused,
    TopicMissing,
)
from eventlog.kafka.unreached import BrokersUnreached, Why

_UNREACHED_HINTS: Final = {
    Why.REFUSED: "is a broker running there, and listening on this port?",
    Why.NO_SUCH_HOST: "is the host name right?",
    Why.NO_TLS: "does the port speak TLS? If it does not, leave security_protocol out",
    Why.NO_KAFKA: "is this the port of a broker? If it speaks TLS, set security_protocol "
    "(docs/kafka.md)",
    Why.NO_WAY: "is the host up, and can it be reached from this machine?",
    Why.CLOSED: "is this the port of a broker, and does security_protocol fit it? (docs/kafka.md)",
    Why.SILENT: "are host and port right, and does every firewall between let this through?",
}


def as_ours(fault: ClientFault) -> SteplogError:
    """The error of ours for a fault met while nothing was, or could be, written."""
    if isinstance(fault, TopicMissing):
        return ConfigError(
            str(fault), hint="make it with `steplog topic create`, or name another topic"
        )
    if isinstance(fault, AccessDenied):
        return ConfigError(
            str(fault), hint="see docs/kafka.md for the settings and the rights that are needed"
        )
    if isinstance(fault, ClientClosed):
        return LogError(str(fault), hint="open the log again")
    if isinstance(fault, CodecMissing):
        return ConfigError(
            str(fault), hint=f"install the package {fault.package}; see docs/kafka.md, Limits"
        )
    if isinstance(fault, RequestRefused):
        return ConfigError(str(fault), hint="the same is refused again: see what it names")
    if isinstance(fault, RecordsRefused):
        return ConfigError(
            str(fault), hint="the topic's settings do not allow it: `steplog doctor` says which"
        )
    if isinstance(fault, BrokersUnreached):
        return LogUnavailableError(str(fault), hint=_UNREACHED_HINTS[fault.why])
    return LogUnavailableError(
        str(fault), hint="see whether all brokers are up, and in their logs; then try again"
    )


@contextmanager
def faults_as_ours() -> Iterator[None]:
    """Turn a client library's faults met inside into errors of ours."""
    try:
        yield
    except ClientFault as fault:
        raise as_ours(fault) from fault
