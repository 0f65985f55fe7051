"""Checkpoints in a folder: what a manifest says, where parts lie, what may be asked of them."""
