"""Print digests of seeded values: run by tests in other processes, which must print the same.

    python -m tests.support.digest_values COUNT

A line each for COUNT opaque values, by both encoders, and, for each tenth, its JSON form and a live
value; each is a SHA-256 over what was written. Imports no pytest: other Pythons lack it.
"""

import random
import sys
from hashlib import sha256

from eventlog import canonical
from eventlog.json_form import dumps
from eventlog.values import canonical_accelerated, canonical_reference
from tests.support.values import random_live_value, random_value, register_live_types


def digest_lines(count: int) -> list[str]:
    """The three digests, in hex."""
    register_live_types()
    opaque, live, forms = sha256(), sha256(), sha256()
    for seed in range(count):
        rng = random.Random(seed)
        value = random_value(rng, rng.choice((1, 2, 3)))
        data = canonical_reference.encode(value)
        if canonical_accelerated.encode(value) != data:
            raise AssertionError(f"the encoders differ at seed {seed}")
        opaque.update(data)
        if seed % 10 == 0:
            forms.update(dumps(value).encode())
            live.update(canonical.encode(random_live_value(random.Random(seed), 3)))
    return [opaque.hexdigest(), live.hexdigest(), forms.hexdigest()]


if __name__ == "__main__":
    print("\n".join(digest_lines(int(sys.argv[1]))))
