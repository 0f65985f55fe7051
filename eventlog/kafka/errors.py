"""A client library's faults as errors of ours: the only way out for them."""

from collections.abc import Iterator
from contextlib import contextmanager

from eventlog.errors import ConfigError, LogUnavailableError, SteplogError
from eventlog.kafka.client_errors import (
    AccessDenied,
    ClientFault,
    RecordsRefused,
    RequestRefused,
    TopicMissing,
)


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
    if isinstance(fault, RequestRefused):
        return ConfigError(str(fault), hint="the same is refused again: see what it names")
    if isinstance(fault, RecordsRefused):
        return ConfigError(
            str(fault), hint="the topic's settings do not allow it: `steplog doctor` says which"
        )
    return LogUnavailableError(
        str(fault), hint="check the brokers with `steplog doctor`, then try again"
    )


@contextmanager
def faults_as_ours() -> Iterator[None]:
    """Turn a client library's faults met inside into errors of ours."""
    try:
        yield
    except ClientFault as fault:
        raise as_ours(fault) from fault
