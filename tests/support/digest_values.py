"""Print digests of seeded values: run by tests in other processes, which must print the same.

    python -m tests.support.digest_values COUNT

One line for the opaque values, one for the live ones, one for their JSON forms; each is a SHA-256
over the values' canonical bytes, from both encoders. Imports no pytest: other Pythons lack it.
"""

import random
import sys
from hashlib import sha256

from eventlog import canonical, canonical_accelerated, canonical_reference
from eventlog.json_form import dumps
from tests.support.values import random_live_value, random_value, register_live_types


def digest_lines(count: int) -> list[str]:
    """Three digests over `count` values each."""
    register_live_types()
    opaque, live, forms = sha256(), sha256(), sha256()
    for seed in range(count):
        value = random_value(random.Random(seed), 3)
        data = canonical_reference.encode(value)
        if canonical_accelerated.encode(canonical.decode(data, opaque=True)) != data:
            raise AssertionError(f"the encoders differ at seed {seed}")
        opaque.update(data)
        forms.update(dumps(value).encode())
        live.update(canonical.encode(random_live_value(random.Random(seed), 3)))
    return [opaque.hexdigest(), live.hexdigest(), forms.hexdigest()]


if __name__ == "__main__":
    print("\n".join(digest_lines(int(sys.argv[1]))))
