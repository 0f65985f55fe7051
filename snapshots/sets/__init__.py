"""Checkpoint sets: what ties a checkpoint to a cut of a log."""
