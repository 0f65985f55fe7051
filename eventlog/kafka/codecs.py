"""Which compressed records can be read here. Events are written plain; others' need not be."""

from importlib.util import find_spec
from typing import Final, NamedTuple


class _Codec(NamedTuple):
    module: str
    package: str


_CODECS: Final = {
    "lz4": _Codec("lz4", "lz4"),
    "snappy": _Codec("snappy", "python-snappy"),
    "zstd": _Codec("zstandard", "zstandard"),
}
"""By Kafka's names; `gzip` needs nothing."""


def package_for(codec: str) -> str:
    """The package that reads records of this codec."""
    return _CODECS[codec].package if codec in _CODECS else f"for {codec}"


def missing_package(codec: str) -> str | None:
    """The package that would be needed, if it is not installed."""
    known = _CODECS.get(codec.strip().lower())
    return known.package if known is not None and find_spec(known.module) is None else None
