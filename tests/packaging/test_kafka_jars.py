"""The broker's jars: fetched once, kept outside the checkout, never used half fetched."""

import os
import re
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from tests.support.data import ROOT
from tests.support.local_kafka import FOLDER, local_kafka

# Stands in for Maven, and tells each time that it ran; `behaviour` decides how that ends.
MAVEN = """#!/bin/sh
echo run >> {folder}/runs
for argument; do
    case $argument in -DoutputDirectory=*) out=${{argument#*=}} ;; esac
done
mkdir -p "$out"
touch "$out/slf4j-api.jar"
{behaviour}
touch "$out/kafka_2.13-4.4.0.jar"
"""
JAVA = """#!/bin/sh
echo 'openjdk version "{version}" 2025-04-15' >&2
"""


@pytest.fixture
def tools(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder that is the whole PATH but for the system's own, and a cache that is empty."""
    tools = tmp_path / "tools"
    tools.mkdir()
    monkeypatch.setenv("PATH", f"{tools}:/bin:/usr/bin")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.delenv("JAVA_HOME", raising=False)
    put_java(tools, "17.0.2")
    local_kafka.java.cache_clear()
    return tools


@pytest.fixture(autouse=True)
def _forget_the_java_of_these_tests() -> object:
    yield
    local_kafka.java.cache_clear()


def put_java(folder: Path, version: str) -> None:
    put(folder / "java", JAVA.format(version=version))


def put_maven(folder: Path, behaviour: str = ":") -> None:
    put(folder / "mvn", MAVEN.format(folder=folder, behaviour=behaviour))


def put(path: Path, text: str) -> None:
    path.write_text(text, encoding="utf-8")
    path.chmod(0o755)


def runs(tools: Path) -> int:
    return (tools / "runs").read_text().count("run")


def test_jars_are_fetched_once(tools: Path) -> None:
    put_maven(tools)
    folder = local_kafka.fetch_jars()
    assert sorted(path.name for path in folder.iterdir()) == [
        "kafka_2.13-4.4.0.jar",
        "slf4j-api.jar",
    ]
    assert not folder.is_relative_to(ROOT)
    (tools / "mvn").unlink()
    assert local_kafka.fetch_jars() == folder
    assert runs(tools) == 1


@pytest.mark.parametrize("behaviour", ["exit 1", "kill -9 $$", "echo no such jar; exit 0; "])
def test_what_was_half_fetched_is_never_used(tools: Path, behaviour: str) -> None:
    put_maven(tools, behaviour)
    with pytest.raises(local_kafka.KafkaMissingError, match="Maven could not fetch"):
        local_kafka.fetch_jars()
    assert not local_kafka.jars_folder().exists()
    put_maven(tools)
    folder = local_kafka.fetch_jars()
    assert len(list(folder.iterdir())) == 2
    assert runs(tools) == 2


def test_two_that_fetch_at_once_fetch_once(tools: Path) -> None:
    put_maven(tools, "sleep 0.3")
    script = [sys.executable, "-c", "import local_kafka; print(local_kafka.fetch_jars())"]

    def fetch(_number: int) -> str:
        return subprocess.run(
            script,
            env={**os.environ, "PYTHONPATH": str(FOLDER)},
            stdout=subprocess.PIPE,
            text=True,
            check=True,
        ).stdout

    with ThreadPoolExecutor(3) as pool:
        assert set(pool.map(fetch, range(3))) == {f"{local_kafka.jars_folder()}\n"}
    assert runs(tools) == 1


def test_another_pom_has_jars_of_its_own(
    tools: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ours = local_kafka.jars_folder()
    other = tmp_path / "pom.xml"
    other.write_text(local_kafka.POM.read_text().replace("4.4.0", "4.4.1"), encoding="utf-8")
    monkeypatch.setattr(local_kafka, "POM", other)
    assert local_kafka.jars_folder() != ours
    assert local_kafka.kafka_version() == "4.4.1"


def test_a_cache_that_cannot_be_written_is_named(tools: Path, tmp_path: Path) -> None:
    put_maven(tools)
    (tmp_path / "cache").write_text("no folder", encoding="utf-8")
    with pytest.raises(local_kafka.KafkaMissingError, match=r"jars cannot be kept.*cache"):
        local_kafka.fetch_jars()


def test_an_old_java_is_named(tools: Path) -> None:
    put_java(tools, "11.0.9")
    with pytest.raises(local_kafka.KafkaMissingError, match=r"tools/java is 11\.0\.9; install one"):
        local_kafka.java()


def test_java_home_comes_before_the_path(
    tools: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "jdk/bin").mkdir(parents=True)
    put_java(tmp_path / "jdk/bin", "21.0.1")
    monkeypatch.setenv("JAVA_HOME", str(tmp_path / "jdk"))
    assert local_kafka.java() == (f"{tmp_path}/jdk/bin/java", "21.0.1")
    put_java(tmp_path / "jdk/bin", "1.8.0_402")
    local_kafka.java.cache_clear()
    assert local_kafka.java() == (f"{tools}/java", "17.0.2")


def test_the_script_needs_no_package() -> None:
    """It must run before there is an environment: a bare interpreter imports it."""
    for name in ("local_kafka", "guard", "run"):
        subprocess.run(
            [sys.executable, "-S", "-c", f"import {name}"],
            env={"PYTHONPATH": str(FOLDER)},
            check=True,
        )


def test_the_versions_are_pinned_where_they_are_used() -> None:
    text = local_kafka.POM.read_text(encoding="utf-8")
    versions = re.findall(r"<version>([^<]+)</version>", text)
    assert versions == ["1", "4.4.0", "1.7.36", "3.8.1"]
    assert "<artifactId>slf4j-reload4j</artifactId>" in text
