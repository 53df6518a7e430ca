"""Settings of all tests: one thread, one cache of compiled code, reproducible hypothesis, slow tests first.

HYPOTHESIS_PROFILE chooses how many examples a property is tried on: `quick`, which `make fast` uses, 4; `default` 8;
`ci`, which `make test` uses, 12; `thorough` 300, others in every run.

ELMAN_SHAPES=1 checks shapes and types at every call of a function of operations, cells, layers and models.
"""

import gc
import os
import time
from pathlib import Path

if os.environ.get("ELMAN_SHAPES") == "1":  # before anything of these is imported
    from jaxtyping import install_import_hook

    install_import_hook(["elman.cells", "elman.layers", "elman.models", "elman.ops"], "beartype.beartype")

import pytest
import torch
from hypothesis import settings
from triton_interpreter import triton_interpreter  # noqa: F401  (a fixture)

from elman.ops.cache import cache_folder

torch.set_num_threads(1)
common = settings(deadline=None, database=None)  # no time limit on an example: machines are busy
settings.register_profile("quick", common, derandomize=True, max_examples=4)
settings.register_profile("default", common, derandomize=True, max_examples=8)
settings.register_profile("ci", common, derandomize=True, max_examples=12)
settings.register_profile("thorough", common, derandomize=False, max_examples=300)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "default"))

# Compiled code, named by a hash of its source, is shared by all processes of a run and kept for later runs.
CACHE = Path(os.environ.setdefault("ELMAN_CACHE", str(cache_folder("tests"))))
os.environ.setdefault("TRITON_CACHE_DIR", str(CACHE / "triton"))
DAYS_KEPT = 30


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--renew", action="store_true", help="store the losses of tests/golden anew")


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Slow tests first, so that no worker begins a long one when the others have nothing left to do."""
    items.sort(key=lambda item: item.get_closest_marker("slow") is None)


def pytest_collection_finish() -> None:
    """Garbage collection need not search what is imported and collected, nor forks copy it."""
    gc.collect()
    gc.freeze()


def pytest_sessionfinish(session: pytest.Session) -> None:
    """Delete compiled code that has not been read for a month."""
    if hasattr(session.config, "workerinput") or not CACHE.is_dir():
        return
    oldest = time.time() - DAYS_KEPT * 24 * 3600
    for path in CACHE.rglob("*"):
        if path.is_file() and max(path.stat().st_atime, path.stat().st_mtime) < oldest:
            path.unlink(missing_ok=True)
