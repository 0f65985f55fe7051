"""`CheckpointConfig`: how often a training is saved, how, and what is kept; the names are NeMo's.

A frozen value, checked when it is made. docs/checkpoint-configuration.md says what Megatron, NeMo
RL and torchtitan call each setting; their names are refused with ours as the hint. Read by
`Workspace.training`.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from difflib import get_close_matches
from typing import Any, Final

from eventlog.errors import ConfigError
from snapshots.checkpoint_retention import KEEP_LAST_MIN, Retention
from snapshots.checkpoints.limits import COLLECTIVE_TIMEOUT_S, THREADS, THREADS_MAX
from snapshots.save_schedule import SaveSchedule

ELSEWHERE: Final[Mapping[str, str]] = {
    "async_mode": "async_save",
    "ckpt_fully_parallel_save": "dist_checkpoint",
    "dist_ckpt_torch_dist_multiproc": "num_async_workers",
    "dist_ckpt_workers": "num_async_workers",
    "distributed_timeout_minutes": "timeout_s",
    "every_n_train_steps": "save_interval",
    "ft_keep_latest_k": "keep_last_n",
    "ft_save_period": "save_interval",
    "fully_parallel_save": "dist_checkpoint",
    "interval": "save_interval",
    "keep_latest_k": "keep_last_n",
    "most_recent_k": "keep_last_n",
    "save_period": "save_interval",
    "save_retain_interval": "keep_every",
}
"""Names of other frameworks for what is named here."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckpointConfig:
    """The settings of a training's checkpoints. Raises `ConfigError` for what is no setting.

    - `save_interval`: steps between saves, or phases `[(from_step, interval), ...]`
    - `async_save`: the call returns when the values are copied, and the rest goes on beside it
    - `num_async_workers`: threads that encode and write, in each rank
    - `keep_last_n`: the newest steps that are kept, at least 2; None keeps all
    - `keep_every`: steps that are a multiple of it are kept as well; None: no others
    - `dist_checkpoint`: every rank writes its shards; else rank 0 writes the gathered whole
    - `timeout_s`: seconds that a rank waits for the others before it gives up
    """

    save_interval: int | Sequence[Sequence[int]] = 500
    async_save: bool = False
    num_async_workers: int = THREADS
    keep_last_n: int | None = 10
    keep_every: int | None = None
    dist_checkpoint: bool = True
    timeout_s: float = COLLECTIVE_TIMEOUT_S

    def __post_init__(self) -> None:
        phases = SaveSchedule(self.save_interval).phases
        if not isinstance(self.save_interval, int):
            # As a value: equal, hashable, and no list that somebody changes afterwards.
            object.__setattr__(self, "save_interval", phases)
        _require_flag("async_save", self.async_save)
        _require_flag("dist_checkpoint", self.dist_checkpoint)
        _require_count("num_async_workers", self.num_async_workers, 1, THREADS_MAX)
        if self.keep_last_n is not None:
            _require_count("keep_last_n", self.keep_last_n, KEEP_LAST_MIN, none="keeps all")
        if self.keep_every is not None:
            _require_count("keep_every", self.keep_every, 1, none="keeps no others")
            if self.keep_last_n is None:
                raise ConfigError(
                    "keep_every has no effect: without keep_last_n all checkpoints are kept",
                    hint="set keep_last_n, or leave keep_every out",
                )
        timeout = self.timeout_s
        if type(timeout) not in (int, float) or not 0 < timeout < math.inf:
            raise ConfigError(f"timeout_s is {timeout!r}", hint="give seconds above 0")
        object.__setattr__(self, "timeout_s", float(timeout))

    @property
    def schedule(self) -> SaveSchedule:
        """At which steps a checkpoint is due."""
        return SaveSchedule(self.save_interval)

    @property
    def retention(self) -> Retention | None:
        """What is kept after each commit; None: everything."""
        return None if self.keep_last_n is None else Retention(self.keep_last_n, self.keep_every)

    @classmethod
    def from_mapping(cls, mapping: Mapping[str, Any]) -> "CheckpointConfig":
        """The settings in a dict, as read from YAML or TOML; what is left out has its default.

        Raises `ConfigError` for a key that is none, with the nearest that is one, for a value that
        does not fit (nothing is converted), and for what is no mapping.
        """
        if not isinstance(mapping, Mapping):
            raise ConfigError(
                f"the settings of checkpoints are {mapping!r}, no mapping",
                hint="give a dict by the settings' names; an empty one has the defaults",
            )
        names = [field.name for field in fields(cls)]
        for key in mapping:
            if key not in names:
                raise ConfigError(
                    f"{key!r} is no setting of checkpoints", hint=_nearest(key, names)
                )
        return cls(**mapping)


def _nearest(key: object, names: list[str]) -> str:
    text = str(key)
    if text in ELSEWHERE:
        return f"here it is called {ELSEWHERE[text]!r}"
    near = get_close_matches(text, names, 1)
    return f"did you mean {near[0]!r}?" if near else f"the settings are {', '.join(names)}"


def _require_flag(name: str, value: object) -> None:
    if type(value) is not bool:
        raise ConfigError(f"{name} is {value!r}", hint="give true or false")


def _require_count(
    name: str, value: object, least: int, most: int | None = None, none: str | None = None
) -> None:
    if type(value) is not int or value < least or (most is not None and value > most):
        upper = " or more" if most is None else f" to {most}"
        or_none = "" if none is None else f"; None {none}"
        raise ConfigError(f"{name} is {value!r}", hint=f"give a number, {least}{upper}{or_none}")
