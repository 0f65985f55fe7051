"""`KafkaSecurity`: how a log's servers are reached: TLS, SASL, and the secrets for it.

The settings come from the table `[kafka]` of `steplog.toml` and from variables of the environment,
`STEPLOG_KAFKA_` and the setting's name in capitals; the environment wins. A password never stands
in `steplog.toml`: it comes from the environment, or from a file that is named. Nothing here, no
repr, no error and no pickle, ever shows it.
"""

import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from difflib import get_close_matches
from pathlib import Path
from typing import Any, Final, NoReturn

from eventlog.errors import ConfigError
from eventlog.untrusted_file import UnfitFile, read_whole

VARIABLE_PREFIX: Final = "STEPLOG_KAFKA_"

PROTOCOLS: Final = ("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL")
MECHANISMS: Final = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512")

PASSWORD_BYTES_MAX: Final = 64 * 1024
"""Of a password file; tokens used as passwords are long, but not longer."""

TABLE_KEYS: Final = (
    "security_protocol",
    "ssl_cafile",
    "ssl_certfile",
    "ssl_keyfile",
    "ssl_check_hostname",
    "sasl_mechanism",
    "sasl_username",
    "sasl_password_file",
)
"""What the table `[kafka]` may hold; each may also be a variable, and so may SASL_PASSWORD."""

_PATHS: Final = ("ssl_cafile", "ssl_certfile", "ssl_keyfile", "sasl_password_file")
_PASSWORD_VARIABLE: Final = f"{VARIABLE_PREFIX}SASL_PASSWORD"
_PASSWORD_HINT: Final = (
    f"set {_PASSWORD_VARIABLE}, or name a file that only you may read: sasl_password_file"
)
_OTHERS_VARIABLES: Final = ("STEPLOG_KAFKA_PORT",)  # docker/compose.yaml's
_TRUTHS: Final = {"true": True, "1": True, "yes": True, "false": False, "0": False, "no": False}


@dataclass(frozen=True, kw_only=True)
class KafkaSecurity:
    """Settings of the connections to the servers, named as in Kafka's Python clients.

    `client_options` gives the password to the client library, and nobody else should ask for it.
    """

    security_protocol: str = "PLAINTEXT"
    ssl_cafile: str | None = None
    ssl_certfile: str | None = None
    ssl_keyfile: str | None = None
    ssl_check_hostname: bool = True
    sasl_mechanism: str | None = None
    sasl_username: str | None = None
    sasl_password: str | None = field(default=None, repr=False)

    def __post_init__(self) -> None:
        """Raises `ConfigError` where the settings do not go together."""
        _require_one_of("security_protocol", self.security_protocol, PROTOCOLS)
        if self.is_sasl:
            self._require_sasl()
        elif any((self.sasl_mechanism, self.sasl_username, self.sasl_password)):
            _refuse(
                f"SASL settings do not go with security_protocol {self.security_protocol}",
                "set security_protocol to SASL_SSL (or SASL_PLAINTEXT), or leave them out",
            )
        if not self.is_tls and any((self.ssl_cafile, self.ssl_certfile, self.ssl_keyfile)):
            _refuse(
                f"TLS files do not go with security_protocol {self.security_protocol}",
                "set security_protocol to SSL or SASL_SSL, or leave them out",
            )
        if self.ssl_keyfile is not None and self.ssl_certfile is None:
            _refuse("ssl_keyfile goes with ssl_certfile", "name both, or neither")

    @property
    def is_tls(self) -> bool:
        """Whether the connections are encrypted."""
        return self.security_protocol in ("SSL", "SASL_SSL")

    @property
    def is_sasl(self) -> bool:
        """Whether a user is authenticated with a password."""
        return self.security_protocol.startswith("SASL_")

    def client_options(self) -> dict[str, object]:
        """The settings under kafka-python's names, those that are set; they hold the password."""
        options = {
            "security_protocol": self.security_protocol,
            "ssl_cafile": self.ssl_cafile,
            "ssl_certfile": self.ssl_certfile,
            "ssl_keyfile": self.ssl_keyfile,
            "ssl_check_hostname": self.ssl_check_hostname if self.is_tls else None,
            "sasl_mechanism": self.sasl_mechanism,
            "sasl_plain_username": self.sasl_username,
            "sasl_plain_password": self.sasl_password,
        }
        return {name: value for name, value in options.items() if value is not None}

    def _require_sasl(self) -> None:
        _require_one_of("sasl_mechanism", self.sasl_mechanism, MECHANISMS)
        if not self.sasl_username:
            _refuse(f"{self.security_protocol} needs sasl_username", "set the user's name")
        if not self.sasl_password:
            _refuse(f"{self.security_protocol} needs a password", _PASSWORD_HINT)

    def __reduce_ex__(self, protocol: object) -> NoReturn:
        raise TypeError("KafkaSecurity is not pickled: it may hold a password")


def require_table(table: Mapping[str, object], place: str) -> None:
    """Refuse what the table `[kafka]` of the file `place` may not hold. Raises `ConfigError`."""
    for name, value in table.items():
        if name in ("sasl_password", "sasl_plain_password", "password"):
            _refuse(f"{place}: kafka.{name}: a password does not stand in a file", _PASSWORD_HINT)
        if name not in TABLE_KEYS:
            _refuse(
                f"{place}: kafka.{name} is no setting", f"the settings are {', '.join(TABLE_KEYS)}"
            )
        wanted: type = bool if name == "ssl_check_hostname" else str
        if type(value) is not wanted:
            _refuse(
                f"{place}: kafka.{name} is no {'text' if wanted is str else 'true or false'}",
                "mend this setting",
            )


def find_security(
    table: Mapping[str, object], folder: Path, environment: Mapping[str, str] = os.environ
) -> KafkaSecurity:
    """The settings of the table `[kafka]` in `folder`'s `steplog.toml`, and of the environment.

    A path in the table is relative to `folder`, one in a variable to the working folder; `~` is the
    home. Raises `ConfigError` for what is no setting, does not go together or cannot be read.
    """
    require_table(table, str(folder))
    settings: dict[str, Any] = {
        name: str(folder / Path(str(value)).expanduser()) if name in _PATHS else value
        for name, value in table.items()
    }
    settings |= _from_environment(environment)
    for name in _PATHS:
        if name in settings:
            _require_readable(name, settings[name])
    password_file = settings.pop("sasl_password_file", None)
    if password_file is not None and "sasl_password" not in settings:
        settings["sasl_password"] = _read_password(password_file)
    return KafkaSecurity(**settings)


def unknown_variables(environment: Mapping[str, str]) -> dict[str, str]:
    """Variables that look like settings and are none, each with what to do. Tells no value."""
    known = [VARIABLE_PREFIX + name.upper() for name in (*TABLE_KEYS, "sasl_password")]
    found = {}
    for name in sorted(environment):
        if name.startswith(VARIABLE_PREFIX) and name not in (*known, *_OTHERS_VARIABLES):
            near = get_close_matches(name, known, 1)
            found[name] = f"did you mean {near[0]}?" if near else "docs/kafka.md lists those"
    return found


def _from_environment(environment: Mapping[str, str]) -> dict[str, Any]:
    settings: dict[str, Any] = {}
    for name in (*TABLE_KEYS, "sasl_password"):
        variable = VARIABLE_PREFIX + name.upper()
        value = environment.get(variable, "")
        if not value:
            continue  # An empty variable is how shells and containers unset one.
        if name in _PATHS:
            settings[name] = str(Path(value).expanduser().absolute())
        elif name == "ssl_check_hostname":
            settings[name] = _truth(variable, value)
        else:
            settings[name] = value
    return settings


def _truth(variable: str, value: str) -> bool:
    truth = _TRUTHS.get(value.strip().lower())
    if truth is None:
        _refuse(f"{variable} is neither true nor false", "set it to true or false")
    return truth


def _require_readable(name: str, path: str) -> None:
    # Else the client would find out in a thread of its own, and try for ever.
    try:
        with open(path, "rb"):
            return
    except ValueError:
        reason = "it is no path"
    except OSError as error:
        reason = os.strerror(error.errno or 0)
    # Where a password's file is asked for, people also give the password itself: not to be told.
    told = name if name == "sasl_password_file" else f"{name} {path!r}"
    _refuse(f"{told} cannot be read: {reason}", "mend the path, or the file's mode")


def _read_password(path: str) -> str:
    try:
        text = read_whole(Path(path), bytes_max=PASSWORD_BYTES_MAX).decode("utf-8")
    except (OSError, UnfitFile, UnicodeDecodeError):  # Whose messages show what they found.
        text = ""
    text = text.removesuffix("\n").removesuffix("\r")
    if not text:
        _refuse("sasl_password_file holds no text", "write the password alone into it, in UTF-8")
    return text


def _require_one_of(name: str, value: str | None, known: tuple[str, ...]) -> None:
    if value not in known:
        # What was given is not told: in the wrong variable it may be the password.
        _refuse(f"{name} is not one of {', '.join(known)}", "set it to one of these")


def _refuse(message: str, hint: str) -> NoReturn:
    # Not within an `except`: what was being handled would be told with it, secrets included.
    raise ConfigError(message, hint=hint)
