"""steplog: every step logged; any step replayed.

    import steplog

    with steplog.open_workspace("runs/") as ws:
        ...

This package only re-exports; a name is loaded from its own module when it is first used, so
`import steplog` costs next to nothing.
"""

import sys
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Final


def _refuse_shadowing() -> None:
    # A user's own replay.py in the working folder is found before ours: say so at once, by name,
    # rather than fail later inside a stranger's module.
    home = Path(__file__).resolve().parent.parent
    for package in ("eventlog", "snapshots", "replay"):
        found = _found_file(package)
        if found is None:
            raise ImportError(
                f"steplog is installed without its package {package!r}, which belongs in {home}. "
                f"Reinstall steplog.",
                name=package,
            )
        if found.resolve().parent != home / package:
            raise ImportError(
                f"steplog needs its own package {package!r}, but Python finds {found} first. "
                f"Rename that file, or keep its folder off the import path: start with "
                f"`python -P` or set PYTHONSAFEPATH=1.",
                name=package,
                path=str(found),
            )


def _found_file(package: str) -> Path | None:
    loaded = sys.modules.get(package)
    if loaded is not None:
        return Path(loaded.__file__) if loaded.__file__ else None
    spec = find_spec(package)  # Finds without running the file.
    return Path(spec.origin) if spec is not None and spec.origin else None


_refuse_shadowing()

from eventlog import errors  # noqa: E402 - only once these packages are known to be ours

if TYPE_CHECKING:  # The one place for it: a lazy face still shows its names to type checkers.
    from eventlog.content import Content, JsonText
    from eventlog.errors import SteplogError
    from eventlog.event import Event
    from eventlog.log import SessionFilter
    from eventlog.recorder import SessionRecorder
    from eventlog.values.opaque_values import Registered
    from eventlog.values.registered_types import register_type
    from eventlog.version import VERSION as __version__  # noqa: N811
    from replay.integrity import Expectation
    from replay.reducer import Reducer
    from replay.replayer import Replayed
    from replay.workspace import Workspace, open_workspace
    from snapshots.checkpoint_config import CheckpointConfig
    from snapshots.sample_order import SampleOrder
    from snapshots.snapshot_policy import AtEnd, EveryN
    from snapshots.training_run import TrainingRun

__all__ = [
    "AtEnd",
    "CheckpointConfig",
    "Content",
    "Event",
    "EveryN",
    "Expectation",
    "JsonText",
    "Reducer",
    "Registered",
    "Replayed",
    "SampleOrder",
    "SessionFilter",
    "SessionRecorder",
    "SteplogError",
    "TrainingRun",
    "Workspace",
    "__version__",
    "errors",
    "open_workspace",
    "register_type",
]

_HOMES: Final = {
    "AtEnd": ("snapshots.snapshot_policy", "AtEnd"),
    "CheckpointConfig": ("snapshots.checkpoint_config", "CheckpointConfig"),
    "Content": ("eventlog.content", "Content"),
    "Event": ("eventlog.event", "Event"),
    "EveryN": ("snapshots.snapshot_policy", "EveryN"),
    "Expectation": ("replay.integrity", "Expectation"),
    "JsonText": ("eventlog.content", "JsonText"),
    "Reducer": ("replay.reducer", "Reducer"),
    "Registered": ("eventlog.values.opaque_values", "Registered"),
    "Replayed": ("replay.replayer", "Replayed"),
    "SampleOrder": ("snapshots.sample_order", "SampleOrder"),
    "SessionFilter": ("eventlog.log", "SessionFilter"),
    "SessionRecorder": ("eventlog.recorder", "SessionRecorder"),
    "SteplogError": ("eventlog.errors", "SteplogError"),
    "TrainingRun": ("snapshots.training_run", "TrainingRun"),
    "Workspace": ("replay.workspace", "Workspace"),
    "__version__": ("eventlog.version", "VERSION"),
    "open_workspace": ("replay.workspace", "open_workspace"),
    "register_type": ("eventlog.values.registered_types", "register_type"),
}


if not TYPE_CHECKING:  # Or any name at all would look right to a type checker.

    def __getattr__(name: str) -> object:
        if name not in _HOMES:
            raise AttributeError(f"module 'steplog' has no attribute {name!r}")
        module, attribute = _HOMES[name]
        value: object = getattr(import_module(module), attribute)
        globals()[name] = value  # The next use finds it without coming here.
        return value


def __dir__() -> list[str]:
    return sorted(__all__)
