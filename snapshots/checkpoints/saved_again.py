"""`saved_last`: of checkpoints of one step, the one that was saved last. Pure.

After training went back, a step is saved again. Clocks go back too, so they decide last: the sets
of a training are in the order of its own session, and nothing was saved before what it rests on.
"""

from collections.abc import Mapping

from snapshots.checkpoints.manifest import CheckpointRef, Manifest


def saved_last(
    found: Mapping[CheckpointRef, Manifest], above: Mapping[CheckpointRef, Manifest]
) -> CheckpointRef:
    """The last of `found`; `above` has what they rest on, as far as it can be read.

    A set comes after what is none. Sets are told apart by the claim of their training, then by
    where its session stood. Others by their clock, which is no earlier than that of any of `found`
    they rest on: of two whose clocks went back, and neither rests on the other, it may be wrong.
    """
    known = {**above, **found}

    def place(ref: CheckpointRef) -> tuple[int, int, int, int, str]:
        manifest = known[ref]
        record, created_ns, below = manifest.set, manifest.created_ns, manifest
        while below.ancestor is not None and below.ancestor in known:
            nearer, below = below, known[below.ancestor]
            if below.generation >= nearer.generation:
                break  # It is damaged, and would go round for ever.
            created_ns = max(created_ns, below.created_ns)
        attempt, step = (-1, -1) if record is None else (record.attempt, record.step)
        return attempt, step, created_ns, manifest.generation, ref.id

    return max(found, key=place)
