"""`docker/kafka-local/local_kafka.py` for tests: no package holds it, so it comes from its file."""

import importlib.util
import sys
from types import ModuleType

from tests.support.data import ROOT

FOLDER = ROOT / "docker/kafka-local"


def _load() -> ModuleType:
    spec = importlib.util.spec_from_file_location("local_kafka", FOLDER / "local_kafka.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["local_kafka"] = module
    spec.loader.exec_module(module)
    return module


local_kafka = _load()
