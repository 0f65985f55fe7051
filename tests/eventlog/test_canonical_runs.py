"""The same values have the same bytes in every process: other hash seeds, another Python."""

import functools
import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from tests.support.digest_values import digest_lines
from tests.support.scale import scaled
from tests.support.second_python import second_python

ROOT = Path(__file__).resolve().parents[2]


COUNT = scaled(2_000, 100_000)


@functools.cache
def digests_here() -> list[str]:
    """The digests in this process, with its own hash seed."""
    return digest_lines(COUNT)


def digests_in(python: str, hash_seed: str, count: int) -> list[str]:
    """What `tests.support.digest_values` prints in a process of its own."""
    done = subprocess.run(
        [python, "-m", "tests.support.digest_values", str(count)],
        cwd=ROOT,
        env={**os.environ, "PYTHONHASHSEED": hash_seed},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-2000:]
    return done.stdout.split()


def test_three_hash_seeds_give_the_same_digests() -> None:
    with ThreadPoolExecutor(3) as pool:
        runs = list(pool.map(lambda seed: digests_in(sys.executable, seed, COUNT), "012"))
    assert runs == [digests_here()] * 3


def test_another_python_gives_the_same_digests() -> None:
    assert digests_in(second_python(), "7", COUNT) == digests_here()
