"""Checkpoints in the files of others, and out of them."""
