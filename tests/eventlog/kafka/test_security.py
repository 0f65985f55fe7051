"""How servers are reached: what goes together, where it comes from, and that no secret shows."""

import copy
import logging
import pickle
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from eventlog.errors import ConfigError
from eventlog.kafka.security import (
    TABLE_KEYS,
    VARIABLE_PREFIX,
    KafkaSecurity,
    find_security,
    require_table,
    unknown_variables,
)
from tests.eventlog.kafka.test_location import SECRET, refusal, told

SASL = {"security_protocol": "SASL_SSL", "sasl_mechanism": "PLAIN", "sasl_username": "me"}


def test_nothing_said_is_a_plain_connection(tmp_path: Path) -> None:
    security = find_security({}, tmp_path, {})
    assert security == KafkaSecurity()
    assert security.client_options() == {"security_protocol": "PLAINTEXT"}


def test_the_environment_wins(tmp_path: Path) -> None:
    variables = {
        "STEPLOG_KAFKA_SASL_USERNAME": "other",
        "STEPLOG_KAFKA_SASL_PASSWORD": SECRET,
        "STEPLOG_KAFKA_SSL_CHECK_HOSTNAME": "False",
        "STEPLOG_KAFKA_SASL_MECHANISM": "",
    }
    security = find_security(SASL, tmp_path, variables)
    assert security.client_options() == {
        "security_protocol": "SASL_SSL",
        "ssl_check_hostname": False,
        "sasl_mechanism": "PLAIN",
        "sasl_plain_username": "other",
        "sasl_plain_password": SECRET,
    }


def test_files_are_found_beside_the_settings(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "ws").mkdir()
    for name in ("ws/ca.pem", "ca.pem", "ws/pw"):
        (tmp_path / name).write_text(f"{SECRET}\n")
    monkeypatch.chdir(tmp_path)
    table = {**SASL, "ssl_cafile": "ca.pem", "sasl_password_file": "pw"}
    security = find_security(table, tmp_path / "ws", {})
    assert security.ssl_cafile == str(tmp_path / "ws" / "ca.pem")
    assert security.sasl_password == SECRET
    security = find_security(table, tmp_path / "ws", {"STEPLOG_KAFKA_SSL_CAFILE": "ca.pem"})
    assert security.ssl_cafile == str(tmp_path / "ca.pem")


def test_a_password_in_the_environment_goes_before_a_file(tmp_path: Path) -> None:
    (tmp_path / "pw").write_text("another")
    table = {**SASL, "sasl_password_file": "pw"}
    security = find_security(table, tmp_path, {"STEPLOG_KAFKA_SASL_PASSWORD": SECRET})
    assert security.sasl_password == SECRET


@pytest.mark.parametrize(
    ("settings", "what"),
    [
        ({"security_protocol": "TLS"}, "security_protocol is not one of PLAINTEXT"),
        ({**SASL, "sasl_mechanism": "GSSAPI", "sasl_password": "x"}, "sasl_mechanism is not one"),
        ({"security_protocol": "SASL_SSL"}, "sasl_mechanism is not one"),
        (SASL, "needs a password"),
        ({**SASL, "sasl_username": "", "sasl_password": "x"}, "needs sasl_username"),
        ({"sasl_username": "me"}, "do not go with security_protocol PLAINTEXT"),
        ({"sasl_password": "x"}, "do not go with security_protocol PLAINTEXT"),
        ({"security_protocol": "SSL", "sasl_mechanism": "PLAIN"}, "do not go with"),
        ({"ssl_cafile": "/ca.pem"}, "TLS files do not go with"),
        ({"security_protocol": "SSL", "ssl_keyfile": "/k"}, "goes with ssl_certfile"),
    ],
)
def test_what_does_not_go_together(settings: dict[str, str], what: str) -> None:
    with pytest.raises(ConfigError, match=what) as caught:
        KafkaSecurity(**settings)  # type: ignore[arg-type]
    assert caught.value.hint


@pytest.mark.parametrize(
    ("variables", "what"),
    [
        ({"STEPLOG_KAFKA_SSL_CHECK_HOSTNAME": "maybe"}, "neither true nor false"),
        ({"STEPLOG_KAFKA_SSL_CAFILE": "/no/such/ca.pem"}, "'/no/such/ca.pem' cannot be read: No"),
        ({"STEPLOG_KAFKA_SSL_CAFILE": "a\0b"}, "cannot be read"),
        ({"STEPLOG_KAFKA_SSL_CAFILE": "/"}, "cannot be read"),
    ],
)
def test_what_the_environment_says_wrong(
    tmp_path: Path, variables: dict[str, str], what: str
) -> None:
    with pytest.raises(ConfigError, match=what):
        find_security({"security_protocol": "SSL"}, tmp_path, variables)


@pytest.mark.parametrize("name", TABLE_KEYS)
def test_every_setting_has_a_type(name: str) -> None:
    with pytest.raises(ConfigError, match=f"f: kafka.{name} is no"):
        require_table({name: 7}, "f")


@pytest.mark.parametrize("name", ["sasl_password", "sasl_plain_password", "password"])
def test_a_password_does_not_stand_in_a_file(name: str) -> None:
    with pytest.raises(ConfigError, match="does not stand in a file") as caught:
        require_table({name: SECRET}, "f")
    assert SECRET not in told(caught.value)
    assert "STEPLOG_KAFKA_SASL_PASSWORD" in caught.value.hint


@pytest.mark.parametrize(
    "data", [b"", b"\n", b"\xff" + SECRET.encode(), SECRET.encode() * 9999], ids=repr
)
def test_a_password_file_that_holds_none(tmp_path: Path, data: bytes) -> None:
    (tmp_path / "pw").write_bytes(data)
    with pytest.raises(ConfigError, match="sasl_password_file holds no text") as caught:
        find_security({**SASL, "sasl_password_file": "pw"}, tmp_path, {})
    assert SECRET not in told(caught.value)


def test_a_variable_that_is_no_setting_is_named_and_not_its_value() -> None:
    known = {VARIABLE_PREFIX + name.upper(): "x" for name in (*TABLE_KEYS, "sasl_password")}
    assert unknown_variables({**known, "STEPLOG_KAFKA_PORT": "1", "STEPLOG_WORKSPACE": "x"}) == {}
    found = unknown_variables({"STEPLOG_KAFKA_SSL_CA_FILE": "hunter2", "STEPLOG_KAFKA_Q": "1"})
    assert list(found) == ["STEPLOG_KAFKA_Q", "STEPLOG_KAFKA_SSL_CA_FILE"]
    assert found["STEPLOG_KAFKA_SSL_CA_FILE"] == "did you mean STEPLOG_KAFKA_SSL_CAFILE?"
    assert "hunter2" not in repr(found)


def test_no_repr_no_pickle_and_no_copy_holds_the_password(caplog: pytest.LogCaptureFixture) -> None:
    security = KafkaSecurity(**SASL, sasl_password=SECRET)  # type: ignore[arg-type]
    assert SECRET not in f"{security!r} {security} {[security]} {{1: security}}"
    with caplog.at_level(logging.DEBUG):
        logging.getLogger("steplog").warning("with %s", security)
    assert SECRET not in caplog.text
    for keep in (pickle.dumps, copy.copy, copy.deepcopy):
        with pytest.raises(TypeError, match="is not pickled"):
            keep(security)


# The paths of certificates are told, or nobody could mend them; the one of a password file is not.
hiding = [name for name in (*TABLE_KEYS, "sasl_password", "x") if not name.startswith("ssl_c")]
settings = st.dictionaries(
    st.sampled_from([name for name in hiding if name != "ssl_keyfile"]),
    st.one_of(
        st.just(SECRET),
        st.sampled_from(["SASL_SSL", "PLAIN", "true", "PLAINTEXT"]),
        st.booleans(),
        st.lists(st.just(SECRET)),
    ),
)


@given(settings, settings)
def test_a_secret_given_anywhere_is_not_told(
    table: dict[str, object], variables: dict[str, object]
) -> None:
    environment = {f"STEPLOG_KAFKA_{key.upper()}": str(value) for key, value in variables.items()}
    assert SECRET not in refusal(lambda: find_security(table, Path("/f"), environment))
