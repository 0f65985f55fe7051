"""The settings of checkpoints: defaults, what is refused, and what others call them."""

import dataclasses
import tomllib
from typing import Any

import pytest

from eventlog.errors import ConfigError
from snapshots.checkpoint_config import ELSEWHERE, CheckpointConfig
from snapshots.checkpoint_retention import Retention
from tests.support.sources import ROOT

PAGE = (ROOT / "docs" / "checkpoint-configuration.md").read_text(encoding="utf-8")
FIELDS = dataclasses.fields(CheckpointConfig)


def test_the_defaults() -> None:
    config = CheckpointConfig()
    assert config == CheckpointConfig.from_mapping({})
    assert config.retention == Retention(10, None)
    assert config.schedule.next_due(0) == 500
    assert CheckpointConfig(keep_last_n=None).retention is None
    assert CheckpointConfig(timeout_s=5).timeout_s == 5.0


def test_the_settings_of_a_file() -> None:
    text = """
    save_interval = [[0, 100], [1000, 500]]
    async_save = true
    keep_last_n = 2
    keep_every = 1000
    """
    config = CheckpointConfig.from_mapping(tomllib.loads(text))
    assert config.save_interval == ((0, 100), (1000, 500))
    assert config.retention == Retention(2, 1000)
    assert config.async_save
    assert hash(config) == hash(CheckpointConfig.from_mapping(tomllib.loads(text)))
    with pytest.raises(dataclasses.FrozenInstanceError):
        config.async_save = False  # type: ignore[misc]


@pytest.mark.parametrize(
    ("key", "near"),
    [
        ("save_intervall", "save_interval"),
        ("keep_lastn", "keep_last_n"),
        ("asyncsave", "async_save"),
    ],
)
def test_an_unknown_key_is_refused_with_the_nearest(key: str, near: str) -> None:
    with pytest.raises(ConfigError, match=repr(key)) as caught:
        CheckpointConfig.from_mapping({key: 1})
    assert caught.value.hint == f"did you mean {near!r}?"


@pytest.mark.parametrize(("key", "ours"), ELSEWHERE.items())
def test_the_name_that_others_use_is_told_ours(key: str, ours: str) -> None:
    with pytest.raises(ConfigError, match=repr(key)) as caught:
        CheckpointConfig.from_mapping({key: 1})
    assert caught.value.hint == f"here it is called {ours!r}"
    assert ours in {field.name for field in FIELDS}


def test_a_key_that_is_like_none() -> None:
    with pytest.raises(ConfigError, match="'zzz'") as caught:
        CheckpointConfig.from_mapping({"zzz": 1})
    assert all(field.name in caught.value.hint for field in FIELDS)


@pytest.mark.parametrize(
    "settings",
    [
        {"save_interval": 0}, {"save_interval": "500"}, {"save_interval": None},
        {"async_save": 1}, {"dist_checkpoint": "yes"},
        {"num_async_workers": 0}, {"num_async_workers": 65}, {"num_async_workers": 2.0},
        {"keep_last_n": 1}, {"keep_last_n": True}, {"keep_last_n": 2.0}, {"keep_every": 0},
        {"keep_last_n": None, "keep_every": 5},
        {"timeout_s": 0}, {"timeout_s": float("inf")}, {"timeout_s": float("nan")},
        {"timeout_s": True}, {"timeout_s": "60"},
    ],
)  # fmt: skip
def test_a_value_that_does_not_fit_names_its_setting(settings: dict[str, Any]) -> None:
    with pytest.raises(ConfigError) as caught:
        CheckpointConfig.from_mapping(settings)
    name = list(settings)[-1].replace("save_interval", "interval")
    assert name in str(caught.value)
    assert caught.value.hint


@pytest.mark.parametrize("none", [None, [], "keep_last_n: 3", 5])
def test_what_is_no_mapping_is_a_wrong_setting(none: Any) -> None:
    """An empty part of a YAML file is None."""
    with pytest.raises(ConfigError, match="no mapping"):
        CheckpointConfig.from_mapping(none)


@pytest.mark.parametrize("count", [0, 1])
def test_who_keeps_too_few_is_told_how_to_keep_all(count: int) -> None:
    with pytest.raises(ConfigError) as caught:
        CheckpointConfig(keep_last_n=count)
    assert caught.value.hint == "give a number, 2 or more; None keeps all"


def test_the_page_names_every_setting_with_its_default() -> None:
    for field in FIELDS:
        default: object = field.default
        shown = "none" if default is None else f"{default:g}" if default == 600.0 else str(default)
        assert f"| `{field.name}` | {shown.lower()} |" in PAGE, field.name


def test_the_page_names_what_others_call_them() -> None:
    for name in ELSEWHERE:
        assert f"`{name}`" in PAGE
