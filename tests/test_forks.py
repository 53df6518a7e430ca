"""Commands that tests fork behave like those that they would start."""

import os
import subprocess
from contextlib import suppress

from processes import HANG, environment, forked_python, wait_for


def test_a_forked_command_is_killed_with_its_client() -> None:
    """As torchrun kills its workers. Seen to fail where the client's end was not awaited: the command went on."""
    code = f"import os, time; print(os.getpid(), flush=True); time.sleep({HANG})"
    command = [*forked_python(), "-c", code]
    with subprocess.Popen(command, env=environment(), stdout=subprocess.PIPE, text=True) as client:
        assert client.stdout is not None
        forked = int(client.stdout.readline())
        client.kill()
    wait_for(lambda: not runs(forked))


def runs(process: int) -> bool:
    with suppress(ProcessLookupError):
        os.kill(process, 0)
        return True
    return False
