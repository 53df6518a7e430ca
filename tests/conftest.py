"""For all tests: one thread, and hypothesis without a clock, the same examples in every run.

With ELMAN_SHAPES=1 every call of a function of operations, cells, layers and models has its shapes and types checked.
"""

import os

if os.environ.get("ELMAN_SHAPES") == "1":  # before anything of these is imported
    from jaxtyping import install_import_hook

    install_import_hook(["elman.cells", "elman.layers", "elman.models", "elman.ops"], "beartype.beartype")

import pytest
import torch
from hypothesis import settings

torch.set_num_threads(1)
settings.register_profile("elman", deadline=None, derandomize=True, database=None, max_examples=20)
settings.load_profile("elman")


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--renew", action="store_true", help="store the losses of tests/golden anew")


@pytest.fixture(scope="session", autouse=True)
def _machine_code(tmp_path_factory: pytest.TempPathFactory) -> None:
    """What tests compile is kept for this run only, unless ELMAN_CACHE says where."""
    os.environ.setdefault("ELMAN_CACHE", str(tmp_path_factory.mktemp("cache")))
