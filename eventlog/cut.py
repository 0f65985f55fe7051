"""`Cut`: for each partition the end offset, exclusive. Written by the owner of this module."""
