"""The names of the parts of what a training saves. They stand in manifests and never change."""

from typing import Final

MODEL: Final = "model"
OPTIMIZER: Final = "optimizer"
EXTRA: Final = "extra"
RANK_STATES: Final = "training"
"""The part of a saved tree that holds what each rank brings of its own."""

SCHEDULER: Final = "scheduler"
DATA: Final = "data"
"""With `SCHEDULER`, what a rank may bring of its own."""
