"""Kafka URLs: one meaning each, read back as they are written, and never a secret in them."""

import os
import pickle
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from eventlog.errors import ConfigError
from eventlog.kafka.location import (
    SERVERS_MAX,
    TOPIC_CHARS_MAX,
    KafkaLocation,
    agreed_location,
    default_folder,
    is_kafka_url,
    parse_kafka_url,
)


def test_the_parts_of_a_url() -> None:
    url = "kafka://b1:9092,B2.example:19092/runs?folder=/f&blobs=/shared/a%20b&snapshots=file:///s"
    location = parse_kafka_url(url)
    assert location == KafkaLocation(
        ("b1:9092", "b2.example:19092"), "runs", Path("/f"), "/shared/a b", "/s"
    )


def test_what_is_not_given_lies_in_the_users_data_folder(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path))
    location = parse_kafka_url("kafka://b:9092/runs")
    assert location.folder.parent == tmp_path / "steplog" / "kafka"
    assert location.folder.name.startswith("runs-")
    assert location.blobs == str(location.folder / "blobs")
    assert location.snapshots == str(location.folder / "snapshots")
    assert location.url == "kafka://b:9092/runs"


def test_the_default_folder_is_that_of_servers_and_topic(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("XDG_DATA_HOME", raising=False)
    # SHA-256 of "a:1", "b:2" and "runs", a line each: fixed, or a mirror would be read anew.
    assert default_folder(("b:2", "a:1"), "runs") == (
        Path.home() / ".local/share/steplog/kafka/runs-3ac3222814bc"
    )
    assert default_folder(("a:1", "b:2"), "runs") == default_folder(("b:2", "a:1"), "runs")
    assert default_folder(("a:1",), "runs") != default_folder(("a:1", "b:2"), "runs")
    monkeypatch.setenv("XDG_DATA_HOME", "relative")
    assert default_folder(("a:1",), "runs").is_relative_to(Path.home() / ".local")


def test_a_url_in_a_folder_is_of_that_folder(tmp_path: Path) -> None:
    location = parse_kafka_url("kafka://b:1/t?blobs=/shared", home=tmp_path)
    assert (location.folder, location.blobs) == (tmp_path, "/shared")
    assert location.snapshots == str(tmp_path / "snapshots")
    assert location.url_in_folder == "kafka://b:1/t?blobs=/shared"
    assert parse_kafka_url(location.url_in_folder, home=tmp_path) == location
    assert parse_kafka_url(f"kafka://b:1/t?folder={tmp_path}", home=tmp_path).folder == tmp_path
    with pytest.raises(ConfigError, match="another folder"):
        parse_kafka_url("kafka://b:1/t?folder=/elsewhere", home=tmp_path)


@pytest.mark.parametrize(
    "url",
    [
        "kafka://b:9092/t",
        "kafka://10.0.0.1:9092,[::1]:9092/a.b_c-D",
        "kafka://b:9092/t?folder=/a/b%20c%26d%3De%3Ff%23",
        "kafka://b:9092/t?folder=/f&blobs=/f/blobs2&snapshots=/s",
        "kafka://b:9092/t?folder=/%FF%C3%A9",
    ],
)
def test_the_url_of_a_location_is_the_location(url: str) -> None:
    location = parse_kafka_url(url)
    assert location.url == url
    assert parse_kafka_url(location.url) == location
    assert pickle.loads(pickle.dumps(location)) == location


folders = st.text(
    st.characters(exclude_characters="\0", exclude_categories=["Cs"]), min_size=1
).map(lambda text: os.path.normpath("/" + text))
locations = st.builds(
    KafkaLocation,
    st.lists(st.from_regex(r"[a-z0-9][a-z0-9.-]{0,9}:[1-9][0-9]{0,3}", fullmatch=True), min_size=1)
    .map(dict.fromkeys)
    .map(tuple),
    st.from_regex(r"[A-Za-z0-9_-]{1,12}", fullmatch=True),
    folders.map(Path),
    folders,
    folders,
)


@given(locations)
def test_any_location_comes_back_from_its_url(location: KafkaLocation) -> None:
    assert parse_kafka_url(location.url) == location
    assert location.url.isascii()
    assert '"' not in location.url, "it stands in steplog.toml as it is"
    assert "\\" not in location.url


SECRET = "hunter2-not-to-be-told"


@pytest.mark.parametrize(
    ("url", "what"),
    [
        (f"kafka://user:{SECRET}@b:9092/t", "a user or a password"),
        (f"kafka://{SECRET}@b:9092/t", "a user or a password"),
        (f"kafka://user%3A{SECRET}%40b:9092/t", "a user or a password"),
        (f"kafka://b:9092,user:{SECRET}@c:9092/t", "a user or a password"),
        (f"kafka://user:{SECRET}/slash@b:9092/t", "a user or a password"),
        (f"kafka://user:{SECRET}?@b:9092/t", "no topic"),
        (f"kafka://user:{SECRET}#@b:9092/t", "a character that URLs do not have"),
        (f"kafka://user:{SECRET}/t", "not HOST:PORT"),
        (f"kafka://b:9092/t?sasl_password={SECRET}", "something else than folder"),
        (f"kafka://b:9092/t?{SECRET}=1", "something else than folder"),
        (f"kafka://b:9092/t?blobs=s3://{SECRET}@bucket", "not a folder"),
        (f"kafka://b:9092/t?blobs=file://{SECRET}/x", "another host"),
        (f"kafka://b:9092/t?folder={SECRET}", "no absolute path"),
        (f"kafka:/user:{SECRET}@b:9092/t", "begins with kafka://"),
        (f"KAFKA://user:{SECRET}@b:9092/t", "begins with kafka://"),
        (f"kafka://b:9092/t?blobs=/x\n{SECRET}", "a character"),
    ],
)
def test_a_secret_in_a_url_is_refused_and_not_repeated(url: str, what: str) -> None:
    assert is_kafka_url(url)
    with pytest.raises(ConfigError, match=what) as caught:
        parse_kafka_url(url)
    assert SECRET not in told(caught.value)
    assert caught.value.hint


@given(st.text(st.characters(exclude_categories=["Cs"])), st.sampled_from(["kafka://", ""]))
def test_any_text_is_a_location_or_refused_without_repeating_it(text: str, front: str) -> None:
    secret = f"{text}{SECRET}"
    for url in (
        f"{front}{secret}",
        f"{front}{secret}@b:1/t",
        f"{front}b:1/t?{secret}",
        f"{front}b:1/t?blobs={secret}",
    ):
        assert SECRET not in refusal(lambda url=url: parse_kafka_url(url))


def refusal(attempt: Callable[[], object]) -> str:
    """All that a refusal could show; nothing where there was none."""
    try:
        attempt()
    except ConfigError as error:
        return told(error)
    return ""


def told(error: BaseException) -> str:
    """All that an error could show, its causes and its pickle included."""
    shown, cause = "", error
    while cause is not None:
        shown += f"{cause!r} {cause} {vars(cause)} {pickle.dumps(cause)!r} "
        cause = cause.__cause__ or cause.__context__  # type: ignore[assignment]
    return shown


@pytest.mark.parametrize(
    ("url", "what"),
    [
        ("kafka://b:9092", "no topic"),
        ("kafka://b:9092/", "no topic"),
        ("kafka:///t", "server 1"),
        ("kafka://b/t", "server 1"),
        ("kafka://b:9092,/t", "server 2"),
        ("kafka://b:0/t", "server 1"),
        ("kafka://b:65536/t", "server 1"),
        ("kafka://b:９/t", "server 1"),
        ("kafka://b c:1/t", "server 1"),
        ("kafka://b:1/a/b", "no name of a topic"),
        ("kafka://b:1/..", "no name of a topic"),
        ("kafka://b:1/t%20", "no name of a topic"),
        ("kafka://b:1/" + "t" * (TOPIC_CHARS_MAX + 1), f"at most {TOPIC_CHARS_MAX}"),
        ("kafka://" + ",".join(f"b{n}:1" for n in range(SERVERS_MAX + 1)) + "/t", "more than"),
        ("kafka://b:1/t?folder=/a&folder=/b", "folder twice"),
        ("kafka://b:1/t?folder=", "no value"),
        ("kafka://b:1/t?folder", "no value"),
        ("kafka://b:1/t?folder=file:///x", "not a folder"),
        ("kafka://b:1/t?folder=/a%00b", "no absolute path"),
        ("kafka://b:1/t?blobs=s3://bucket/x", "not a folder"),
    ],
)
def test_what_is_no_location(url: str, what: str) -> None:
    with pytest.raises(ConfigError, match=what) as caught:
        parse_kafka_url(url)
    assert caught.value.hint


@pytest.mark.parametrize(
    ("query", "message", "hint"),
    [
        ("blob=/x", "no parameter 'blob'", "did you mean blobs=?"),
        ("folder=/f&snapshot=/x", "no parameter 'snapshot'", "did you mean snapshots=?"),
        ("BLOBS=/x", "no parameter 'BLOBS'", "did you mean blobs=?"),
        ("sasl_password=/x", "no parameter 'sasl_password'", "STEPLOG_KAFKA_SASL_PASSWORD"),
        ("folder=/f&xyz=/x", "no parameter 2:", "the parameters are folder, blobs, snapshots"),
        ("blobs1234=/x", "no parameter 1", "did you mean blobs=?"),
    ],
)
def test_a_parameter_that_is_mistyped_is_named_and_never_its_value(
    query: str, message: str, hint: str
) -> None:
    with pytest.raises(ConfigError) as refused:
        parse_kafka_url(f"kafka://b:1/t?{query}{SECRET}")
    assert message in refused.value.message
    assert hint in refused.value.hint
    assert "folder, blobs, snapshots" in refused.value.hint
    assert SECRET not in told(refused.value)


def test_servers_that_differ_only_in_case_are_one() -> None:
    assert parse_kafka_url("kafka://B:9092,b:09092,b:9093/t").bootstrap == ("b:9092", "b:9093")


@pytest.mark.parametrize("place", ["runs", "/kafka", "file:///x", "kafka", "./kafka://b:1/t"])
def test_other_places_are_not_in_kafka(place: str) -> None:
    assert not is_kafka_url(place)


def test_a_url_in_a_path_is_told_as_what_it_is() -> None:
    # `Path` makes one slash of two; as a folder it would be made beside the script.
    with pytest.raises(ConfigError, match="begins with kafka://"):
        parse_kafka_url(str(Path("kafka://b:1/t")))


def test_a_folder_keeps_its_topic_and_its_stores() -> None:
    recorded = parse_kafka_url("kafka://b:1/t?blobs=/shared", home=Path("/f"))
    given = parse_kafka_url("kafka://moved:1/t?folder=/f")
    agreed = agreed_location(given, recorded)
    assert (agreed.bootstrap, agreed.blobs) == (("moved:1",), "/shared")
    assert agreed_location(given._replace(blobs="/shared"), recorded) == agreed
    taken = agreed_location(given._replace(snapshots="/s"), recorded)
    assert (taken.blobs, taken.snapshots) == ("/shared", "/s"), "each from who names it"
    recorded = recorded._replace(snapshots="/recorded")
    with pytest.raises(ConfigError, match="local part of topic 't', not 'u'"):
        agreed_location(given._replace(topic="u"), recorded)
    with pytest.raises(ConfigError, match="other blobs than"):
        agreed_location(given._replace(blobs="/elsewhere"), recorded)
    with pytest.raises(ConfigError, match="other snapshots than"):
        agreed_location(given._replace(snapshots="/elsewhere"), recorded)
