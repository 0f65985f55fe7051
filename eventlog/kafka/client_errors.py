"""What a client library can answer. Only the writer and the mirror meet these; no user does.

`ClientFault`
    `BrokersUnavailable`   not reached in time, nothing was written: try again
                           (`unreached.BrokersUnreached`: not even connected)
    `ClientClosed`         the client or reader was closed, maybe while it was asked
    `AccessDenied`         TLS, authentication or an ACL refused
    `TopicMissing`         no such topic
    `OffsetOutOfRange`     the position asked for is not in the log (any more)
    `CodecMissing`         records are compressed in a way that cannot be read here
    `RecordsCorrupt`       what the broker sent fails its checksum, or cannot be taken apart
    `RequestRefused`       the brokers, or the library, refuse what was asked: do not repeat it
    `ProducerFenced`       a newer producer has this transactional id
    `ProducerBroken`       this producer is dead; whether its transaction was written is in `sent`
        `RecordsRefused`   ...because the broker takes no such records: the same again fails again

Messages name the bootstrap servers and the topic, never a secret.
"""

from typing import Final

_REFUSALS: Final = {
    "illegalsaslstate": "the port takes no login: security_protocol does not fit it",
    "unsupportedsaslmechanism": "the brokers do not take this sasl_mechanism",
    "saslauthenticationfailed": "the login was refused",
    "authentication": "the login was refused",
    "topicauthorizationfailed": "this user has no right to do this with the topic",
    "groupauthorizationfailed": "this user has no right to do this with the group",
    "clusterauthorizationfailed": "this user has no right to ask this of the cluster",
    "transactionalidauthorizationfailed": "this user has no right to use the TransactionalId",
}


def error_in_words(name: str) -> str:
    """What a library's error of this name says to a user; the name itself where it is unknown.

    The libraries spell them differently: `IllegalSaslStateError`, `ILLEGAL_SASL_STATE`.
    """
    return _REFUSALS.get(name.replace("_", "").lower().removesuffix("error"), name)


class ClientFault(Exception):  # noqa: N818  (a name that says what is the matter is better)
    """Anything a client library raises, in our words."""


class BrokersUnavailable(ClientFault):
    """The brokers could not be reached, or did not answer, within the time; nothing was written.

    `waited_s`: how long that was in all; who puts a question again and again corrects it.
    """

    def __init__(self, message: str, *, waited_s: float | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.waited_s = waited_s

    def __str__(self) -> str:
        if self.waited_s is None:
            return self.message
        return f"{self.message} (waited {self.waited_s:.{0 if self.waited_s >= 1 else 1}f} s)"


class ClientClosed(ClientFault):
    """It was closed, before it was asked or meanwhile. Nothing is opened any more."""

    def __init__(self) -> None:
        super().__init__("this handle is closed")


class AccessDenied(ClientFault):
    """TLS, authentication or authorisation refused us. The same again fails again."""


class TopicMissing(ClientFault):
    """The topic does not exist, or is not visible to us."""

    @classmethod
    def at(cls, place: str) -> "TopicMissing":
        """The fault in words; `place` ends in "topic NAME at HOST:PORT" where it names a topic."""
        _, names_topic, topic = place.rpartition("topic ")
        return cls(f"there is no topic {topic}" if names_topic else f"{place}: no such topic")


class OffsetOutOfRange(ClientFault):
    """A reader's position is outside of the log: `start` <= position <= `end` does not hold."""

    def __init__(self, partition: int, offset: int, start: int, end: int) -> None:
        super().__init__(
            f"partition {partition}: offset {offset} is outside of the log, {start} to {end}"
        )
        self.partition = partition
        self.offset = offset
        self.start = start
        self.end = end


class CodecMissing(ClientFault):
    """Records are compressed with a codec whose package is not installed here."""

    def __init__(self, message: str, *, package: str) -> None:
        super().__init__(message)
        self.package = package


class RecordsCorrupt(ClientFault):
    """Records that came are damaged: on the way, or on the broker's disk."""


class RequestRefused(ClientFault):
    """The brokers or the client library refuse what was asked. The same again fails again."""


class ProducerFenced(ClientFault):
    """A newer producer initialised this transactional id; nothing of the transaction is visible.

    (Unless it had committed before it was fenced: the answer, not the commit, may have been lost.)
    """


class ProducerBroken(ClientFault):
    """This producer is dead.

    `sent` False: surely no record of the transaction was handed to a broker, nor will be. True: the
    outcome is unknown until the transactional id is initialised again.
    """

    def __init__(self, message: str, *, sent: bool) -> None:
        super().__init__(message)
        self.sent = sent


class RecordsRefused(ProducerBroken):
    """The records cannot be written as they are (too large, or a time stamp the broker refuses)."""
