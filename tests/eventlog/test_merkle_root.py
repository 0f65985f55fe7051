"""The root over a row of events: RFC 6962's published values, and growing one by one."""

import doctest
import json
import random
from hashlib import sha256

import pytest

from eventlog import merkle_root
from eventlog.merkle_root import EMPTY_ROOT, MerkleRoot, leaf_hash, node_hash
from tests.support.data import data_path


def root_by_definition(leaves: list[bytes]) -> bytes:
    """RFC 6962 section 2.1 as it is written: split at the largest power of two below n."""
    if not leaves:
        return sha256(b"").digest()
    if len(leaves) == 1:
        return sha256(b"\x00" + leaves[0]).digest()
    split = 1
    while split * 2 < len(leaves):
        split *= 2
    left, right = root_by_definition(leaves[:split]), root_by_definition(leaves[split:])
    return sha256(b"\x01" + left + right).digest()


def test_published_roots_of_sizes_0_to_8() -> None:
    vectors = json.loads(data_path("vectors", "merkle", "rfc6962_roots.json").read_text())
    row = MerkleRoot()
    assert row.root().hex() == vectors["empty_root"]
    for leaf, root in zip(vectors["leaf_inputs_hex"], vectors["roots_by_size_1_to_8"], strict=True):
        row.add(bytes.fromhex(leaf))
        assert row.root().hex() == root
    nodes = set(vectors["node_hashes_bottom_up"])
    leaves = [bytes.fromhex(leaf) for leaf in vectors["leaf_inputs_hex"]]
    assert leaf_hash(leaves[0]).hex() in nodes
    assert node_hash(leaf_hash(leaves[0]), leaf_hash(leaves[1])).hex() in nodes


def test_every_size_to_130_agrees_with_the_definition() -> None:
    chance = random.Random(6962)
    leaves: list[bytes] = []
    row = MerkleRoot()
    for _ in range(130):
        leaves.append(chance.randbytes(chance.randrange(40)))
        row.add(leaves[-1])
        assert row.root() == root_by_definition(leaves)
    assert row.count == 130
    assert MerkleRoot(leaves).root() == row.root()


def test_going_on_from_what_was_stored_gives_the_same_root() -> None:
    leaves = [bytes([index]) for index in range(77)]
    for cut in range(len(leaves)):
        first = MerkleRoot(leaves[:cut])
        count, peaks = first.stored()
        assert len(peaks) == 32 * cut.bit_count()
        again = MerkleRoot.from_stored(count, peaks)
        branch = first.copy()
        for leaf in leaves[cut:]:
            again.add(leaf)
        branch.add(b"another way")
        assert again.root() == root_by_definition(leaves)
        assert first.root() == root_by_definition(leaves[:cut])
        assert branch.root() == root_by_definition([*leaves[:cut], b"another way"])


@pytest.mark.parametrize(
    ("count", "peaks"), [(1, b""), (0, bytes(32)), (3, bytes(32)), (2, bytes(31)), (-1, bytes(32))]
)
def test_a_count_that_does_not_fit_its_hashes_is_refused(count: int, peaks: bytes) -> None:
    with pytest.raises(ValueError, match="do not fit"):
        MerkleRoot.from_stored(count, peaks)


def test_the_empty_root_and_the_example() -> None:
    assert MerkleRoot().root() == EMPTY_ROOT
    assert doctest.testmod(merkle_root).failed == 0
