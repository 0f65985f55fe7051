"""What kafka-python raises, in our words (`client_errors`).

Messages name the bootstrap servers and the topic. Of other exceptions than Kafka's own only the
kind is told: they may hold settings, and settings may hold a password.
"""

import re
from functools import cache
from typing import Final

from eventlog.kafka.client_errors import (
    AccessDenied,
    BrokersUnavailable,
    ClientFault,
    CodecMissing,
    ProducerBroken,
    ProducerFenced,
    RecordsCorrupt,
    RecordsRefused,
    RequestRefused,
    TopicMissing,
    error_in_words,
)
from eventlog.kafka.codecs import package_for

FENCED_STATE = "BUMPING_PRODUCER_EPOCH"
"""Where kafka-python says only this, its answer to a broker that had refused the epoch."""

REFUSED_HANDSHAKES = ("CERTIFICATE_VERIFY_FAILED", "WRONG_VERSION_NUMBER", "UNKNOWN_CA")
"""OpenSSL's reasons that do not go away by trying again; the library tells them in words."""

_CODEC: Final = re.compile(r"Libraries for (\w+) compression")
"""What kafka-python says where a codec's package is missing."""


@cache
def library_faults() -> tuple[type[Exception], ...]:
    """Whatever may come out of the library: its own errors, and what its inside fails with."""
    from kafka.errors import KafkaError

    return (
        KafkaError,
        OSError,
        RuntimeError,
        ValueError,
        TypeError,
        LookupError,
        AttributeError,
        AssertionError,
    )


def told(error: BaseException) -> str:
    """An exception as a message may show it."""
    from kafka.errors import KafkaError

    name = error_in_words(type(error).__name__)
    if not isinstance(error, KafkaError):
        return name
    text = str(error.args[0]) if error.args and error.args[0] is not None else ""
    return f"{name}: {text}" if text else name


def is_refusal(error: BaseException) -> bool:
    """Whether the brokers refused us: a connection that fails so will fail again."""
    from kafka import errors

    refusals = (
        errors.AuthorizationError,
        errors.SaslAuthenticationFailedError,
        errors.UnsupportedSaslMechanismError,
        errors.IllegalSaslStateError,
        errors.SecurityDisabledError,
    )
    return isinstance(error, refusals) or any(each in str(error) for each in REFUSED_HANDSHAKES)


def to_fault(error: BaseException, place: str) -> ClientFault:
    """The fault that an exception of the library stands for; `place` says where it happened."""
    if isinstance(error, ClientFault):
        return error
    from kafka import errors

    message = f"{place}: {told(error)}"
    if is_refusal(error):
        return AccessDenied(message)
    if isinstance(error, errors.ProducerFencedError):
        return ProducerFenced(message)
    if isinstance(error, errors.UnknownTopicOrPartitionError | errors.UnknownTopicIdError):
        return TopicMissing.at(place)
    if isinstance(error, errors.UnsupportedCodecError):
        return _codec_missing(error, place)
    if isinstance(error, errors.CorruptRecordError):
        return RecordsCorrupt(message)
    if isinstance(error, errors.RetriableError | OSError | RuntimeError):
        return BrokersUnavailable(message)
    return RequestRefused(message)


def _codec_missing(error: BaseException, place: str) -> ClientFault:
    named = _CODEC.search(str(error))
    if named is None:
        return RecordsCorrupt(f"{place}: {told(error)}")
    package = package_for(named[1])
    return CodecMissing(
        f"{place} holds records compressed with {named[1]}, which needs the package {package} here",
        package=package,
    )


def to_producer_fault(
    causes: list[BaseException], place: str, *, sent: bool
) -> ProducerFenced | ProducerBroken:
    """What a failed transaction comes to. `causes`: all that the library told, the first first."""
    from kafka import errors

    message = f"{place}: {told(causes[0])}"
    fenced = (errors.ProducerFencedError, errors.InvalidProducerEpochError)
    if any(isinstance(each, fenced) or FENCED_STATE in str(each) for each in causes):
        return ProducerFenced(message)
    refused = (
        errors.MessageSizeTooLargeError,
        errors.RecordListTooLargeError,
        errors.InvalidTimestampError,
        errors.InvalidRecordError,
        errors.PolicyViolationError,
        errors.TopicAuthorizationFailedError,
    )
    for each in causes:
        if isinstance(each, refused):
            return RecordsRefused(f"{place}: {told(each)}", sent=sent)
    return ProducerBroken(message, sent=sent)
