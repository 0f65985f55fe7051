"""`KafkaLocation`: where a log in Kafka lies, and where this machine keeps what goes with it.

    kafka://HOST:PORT[,HOST:PORT...]/TOPIC[?folder=DIR&blobs=DIR&snapshots=DIR]

A URL holds no secret, so it may be printed and stored. One that holds a user or a password is
refused, and no refusal repeats what was given.
"""

import os
import re
from collections.abc import Mapping
from difflib import get_close_matches
from hashlib import sha256
from pathlib import Path
from typing import Final, NamedTuple, NoReturn
from urllib.parse import quote, unquote

from eventlog.errors import ConfigError
from eventlog.kafka.security import TABLE_KEYS

SCHEME: Final = "kafka://"
QUERY_KEYS: Final = ("folder", "blobs", "snapshots")
SERVERS_MAX: Final = 64
TOPIC_CHARS_MAX: Final = 249 - len(".schemas")
"""Kafka's limit, with room for the schema topic's name."""

_HOST: Final = re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9._-]{0,252})|\[[0-9A-Fa-f:.]{2,45}\]")
_TOPIC: Final = re.compile(r"[A-Za-z0-9._-]+")
# Names that people try in a URL, and that hold nothing themselves.
_SETTINGS: Final = (
    *TABLE_KEYS,
    *("sasl_password", "user", "username", "password", "topic", "partitions", "refresh", "group"),
)
_FORM: Final = "write kafka://HOST:PORT[,HOST:PORT...]/TOPIC"
_SECRETS_HINT: Final = (
    "name servers and topic only; user and password come from [kafka] in steplog.toml and from "
    "STEPLOG_KAFKA_SASL_USERNAME, STEPLOG_KAFKA_SASL_PASSWORD"
)


class KafkaLocation(NamedTuple):
    """A topic, the servers that are asked for it first, and the folders on this machine.

    `blobs` and `snapshots` are absolute folders: where contents and states too large for an event
    lie. Who shares the topic with other machines puts the blobs where all of them reach them.
    """

    bootstrap: tuple[str, ...]
    topic: str
    folder: Path
    blobs: str
    snapshots: str

    @property
    def url(self) -> str:
        """The location as a URL, without what is the default anyway. Safe to print and store."""
        given = []
        if self.folder != default_folder(self.bootstrap, self.topic):
            given.append(("folder", str(self.folder)))
        given += self._stores_given()
        return _url(self.bootstrap, self.topic, given)

    @property
    def url_in_folder(self) -> str:
        """The same without the folder: what `steplog.toml` in the folder says, which may move."""
        return _url(self.bootstrap, self.topic, self._stores_given())

    @property
    def has_own_blobs(self) -> bool:
        """Whether blobs lie in the folder, where no other machine finds them."""
        return self.blobs == str(self.folder / "blobs")

    def _stores_given(self) -> list[tuple[str, str]]:
        """The stores that lie elsewhere than in the folder."""
        stores = (("blobs", self.blobs), ("snapshots", self.snapshots))
        return [(name, place) for name, place in stores if place != str(self.folder / name)]


def is_kafka_url(place: str | os.PathLike[str]) -> bool:
    """Whether a place is meant for Kafka, well-formed or not: such text is never a local folder."""
    return os.fspath(place).lower().startswith("kafka:")


def parse_kafka_url(url: str, *, home: Path | None = None) -> KafkaLocation:
    """The location that a URL names. Raises `ConfigError`, which never repeats the URL.

    `home` is the folder whose `steplog.toml` holds the URL: the local part lies there.
    """
    if not url.startswith(SCHEME):
        _refuse("a Kafka URL begins with kafka://", _FORM)
    if not url.isprintable() or "#" in url:
        _refuse("the Kafka URL holds a character that URLs do not have", _FORM)
    rest, _, query = url.removeprefix(SCHEME).partition("?")
    servers, slash, topic = rest.partition("/")
    if "@" in unquote(rest):
        _refuse("the Kafka URL holds a user or a password", _SECRETS_HINT)
    if not slash or not topic:
        _refuse("the Kafka URL names no topic", _FORM)
    named = servers.split(",")
    if len(named) > SERVERS_MAX:
        _refuse(f"the Kafka URL names more than {SERVERS_MAX} servers", "a few of them are enough")
    bootstrap = tuple(dict.fromkeys(_server(*each) for each in enumerate(named, 1)))
    _require_topic(topic)
    given = _query(query)
    folder = given.pop("folder", None)
    if folder is None:
        where = home or default_folder(bootstrap, topic)
    elif home is None or Path(folder) == home:
        where = Path(folder)
    else:
        _refuse(
            f"{home}: the log's URL names another folder for the local part",
            "leave `folder` out of it: the local part lies beside its steplog.toml",
        )
    stores = (given.get(name, str(where / name)) for name in ("blobs", "snapshots"))
    return KafkaLocation(bootstrap, topic, where, *stores)


def agreed_location(given: KafkaLocation, recorded: KafkaLocation) -> KafkaLocation:
    """Where the log lies that a URL names, as the `steplog.toml` in its folder says.

    The servers may be others, as they are after a move. Stores that only one of the two names are
    those that it names. Raises `ConfigError` where the two are of different topics or name
    different stores: blobs that are sought in another place than they were put are lost.
    """
    if given.topic != recorded.topic:
        _refuse(
            f"{given.folder} is the local part of topic {recorded.topic!r}, not {given.topic!r}",
            "name another folder in the URL, or none",
        )
    stores = []
    for name in ("blobs", "snapshots"):
        wanted, standing, unsaid = (
            getattr(given, name),
            getattr(recorded, name),
            str(given.folder / name),
        )
        if wanted != standing and unsaid not in (wanted, standing):
            _refuse(
                f"the Kafka URL names other {name} than {given.folder}/steplog.toml: {standing!r}",
                f"leave {name} out of the URL; or, if that is where they are now, edit `log` in "
                f"{given.folder}/steplog.toml",
            )
        stores.append(standing if wanted == unsaid else wanted)
    return given._replace(blobs=stores[0], snapshots=stores[1])


def default_folder(bootstrap: tuple[str, ...], topic: str) -> Path:
    """Where this machine keeps its part of the log: by servers, in any order, and topic."""
    named = "\n".join([*sorted(bootstrap), topic])
    short = sha256(named.encode("utf-8")).hexdigest()[:12]
    return _data_home(os.environ) / "steplog" / "kafka" / f"{topic}-{short}"


def _data_home(environment: Mapping[str, str]) -> Path:
    given = environment.get("XDG_DATA_HOME", "")
    if Path(given).is_absolute():  # The specification: relative ones are to be ignored.
        return Path(given)
    try:
        return Path.home() / ".local" / "share"
    except RuntimeError as error:
        raise ConfigError(
            "this user has no home for the local part of a Kafka workspace",
            hint="set XDG_DATA_HOME, or end the URL in ?folder=/a/folder",
        ) from error


def _url(bootstrap: tuple[str, ...], topic: str, given: list[tuple[str, str]]) -> str:
    query = "&".join(f"{name}={quote(os.fsencode(place))}" for name, place in given)
    return f"{SCHEME}{','.join(bootstrap)}/{topic}{'?' if query else ''}{query}"


def _server(number: int, text: str) -> str:
    host, colon, port = text.rpartition(":")
    is_port = port.isascii() and port.isdecimal() and 0 < int(port[:9]) < 65536
    if not colon or not is_port or len(port) > 5 or _HOST.fullmatch(host) is None:
        _refuse(f"server {number} of the Kafka URL is not HOST:PORT", _FORM)
    return f"{host.lower()}:{int(port)}"


def _require_topic(topic: str) -> None:
    if topic in (".", "..") or _TOPIC.fullmatch(topic) is None:
        _refuse(
            "the Kafka URL's topic is no name of a topic",
            f"{_FORM}; a topic has letters, digits, `.`, `_` and `-`",
        )
    if len(topic) > TOPIC_CHARS_MAX:
        _refuse(
            f"the Kafka URL's topic has {len(topic)} characters, at most {TOPIC_CHARS_MAX}",
            "choose a shorter name",
        )


def _query(query: str) -> dict[str, str]:
    given: dict[str, str] = {}
    for number, pair in enumerate(query.split("&") if query else [], 1):
        name, equals, text = pair.partition("=")
        if name not in QUERY_KEYS:
            _refuse_parameter(number, name)
        if name in given:
            _refuse(f"the Kafka URL names {name} twice", "name it once")
        if not equals or not text:
            _refuse(f"the Kafka URL gives {name} no value", f"write {name}=/a/folder")
        given[name] = _folder_of(name, text)
    return given


def _refuse_parameter(number: int, name: str) -> NoReturn:
    """Refuse a parameter by its name where that is surely a name; else it may be a secret."""
    allowed = f"the parameters are {', '.join(QUERY_KEYS)}"
    near = get_close_matches(name.lower(), QUERY_KEYS, 1)
    if near:
        # What is told must not be more than the name: `blobs-hunter2` is near too.
        told = repr(name) if len(name) <= len(near[0]) + 1 else f"{number}"
        _refuse(f"the Kafka URL has no parameter {told}", f"did you mean {near[0]}=? {allowed}")
    told = repr(name) if name in _SETTINGS else f"{number}"
    _refuse(
        f"the Kafka URL has no parameter {told}: it asks for something else than "
        f"{', '.join(QUERY_KEYS)}",
        f"{allowed}; {_SECRETS_HINT}",
    )


def _folder_of(name: str, text: str) -> str:
    place = unquote(text, errors="surrogateescape")
    scheme, separator, rest = place.partition("://")
    if separator and (scheme != "file" or name == "folder"):
        _refuse(
            f"the Kafka URL's {name} is not a folder",
            f"write {name}=/a/folder; object stores are not supported yet",
        )
    if separator:
        host, slash, path = rest.partition("/")
        if host not in ("", "localhost") or not slash:
            _refuse(f"the Kafka URL's {name} names another host", "write file:///a/folder")
        place = slash + path
    if "\0" in place or not Path(place).is_absolute():
        # A relative one would be another folder for each who uses the same URL.
        _refuse(f"the Kafka URL's {name} is no absolute path", f"write {name}=/a/folder")
    return os.path.normpath(place)


def _refuse(message: str, hint: str) -> NoReturn:
    raise ConfigError(message, hint=hint)
