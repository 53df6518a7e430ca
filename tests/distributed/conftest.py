"""Ends the processes of a test with it."""

import pytest
from launching import started
from processes import HANG


@pytest.fixture(autouse=True)
def _end_processes():
    yield
    for job in started:
        job.terminate()  # torchrun ends its workers
        job.wait(HANG)
    started.clear()
