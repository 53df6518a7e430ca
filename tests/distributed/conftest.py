"""No job outlives its test."""

import pytest
from launching import started
from processes import HANG


@pytest.fixture(autouse=True)
def _nothing_is_left_running():
    yield
    for job in started:
        job.terminate()  # torchrun ends its workers
        job.wait(HANG)
    started.clear()
