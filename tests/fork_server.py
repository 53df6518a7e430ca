"""A Python process that has imported elman, and forks itself for each command that tests give it.

Importing torch and elman takes about two seconds of processor time; a fork takes a hundredth of one. Each command runs
in a process of its own, with the arguments, environment, working directory and standard streams of its client.

    python fork_server.py --serve SOCKET                     the server; ends when its standard input is closed
    python -IS fork_server.py SOCKET [-P] -m MODULE ARG...   a client, which behaves like `python [-P] -m MODULE ARG...`
    python -IS fork_server.py SOCKET -c CODE ARG...          or like `python -c CODE ARG...`
"""

import array
import json
import os
import select
import signal
import socket
import sys
from contextlib import suppress

STREAMS = (0, 1, 2)


def ask(path: str, arguments: list[str]) -> int:
    """The client: passes its streams to the server and returns the exit code of the command."""
    server = socket.socket(socket.AF_UNIX)
    server.connect(path)
    passed_on = (signal.SIGINT, signal.SIGTERM)
    signal.pthread_sigmask(signal.SIG_BLOCK, passed_on)  # until there is someone to pass them on to
    request = json.dumps({"arguments": arguments, "cwd": os.getcwd(), "environment": dict(os.environ)}).encode()
    rights = (socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", STREAMS))
    server.sendmsg([len(request).to_bytes(4, "big")], [rights])
    server.sendall(request)
    child = int(server.recv(64))
    for number in passed_on:
        signal.signal(number, lambda received, _: os.kill(child, received))
    signal.pthread_sigmask(signal.SIG_UNBLOCK, passed_on)
    code = int(server.recv(64) or 1)
    if code < 0:
        os.kill(os.getpid(), -code)
    return code


def serve(path: str) -> None:
    """Accept clients until standard input is closed, which also happens when the parent is killed."""
    sys.path.pop(0)  # the folder of this file
    warm_up()
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # the kernel reaps the children
    server = socket.socket(socket.AF_UNIX)
    server.bind(path)
    server.listen()
    print("ready", flush=True)
    while True:
        readable, _, _ = select.select([server, 0], [], [])
        if 0 in readable:
            return
        client, _ = server.accept()
        if os.fork() == 0:
            server.close()
            os._exit(run_for(client))
        client.close()


def run_for(client: socket.socket) -> int:
    """Forks the command, and tells the client its process id and, when it has ended, its exit code."""
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    length, streams, _, _ = socket.recv_fds(client, 4, len(STREAMS))
    received = b""
    while len(received) < int.from_bytes(length, "big"):
        received += client.recv(1 << 16)
    child = os.fork()
    if child == 0:
        client.close()
        for own, given in zip(STREAMS, streams, strict=True):
            os.dup2(given, own)
            os.close(given)
        os._exit(run(**json.loads(received)))
    for stream in streams:
        os.close(stream)
    with suppress(BrokenPipeError):
        client.sendall(str(child).encode())
        end_with(client, child)
        _, status = os.waitpid(child, 0)
        client.sendall(str(os.waitstatus_to_exitcode(status)).encode())
    return 0


def end_with(client: socket.socket, child: int) -> None:
    """Wait for the end of the command, and kill it if its client, which has no more to send, is killed."""
    if hasattr(os, "pidfd_open"):
        ended = os.pidfd_open(child)
        if ended not in select.select([ended, client], [], [])[0]:
            os.kill(child, signal.SIGKILL)
        os.close(ended)


def run(arguments: list[str], cwd: str, environment: dict[str, str]) -> int:
    """What Python does with these arguments."""
    import atexit
    import random
    import runpy
    import traceback
    import types

    os.chdir(cwd)
    os.environ.clear()
    os.environ.update(environment)
    sys.stdin, sys.stdout = open(0), open(1, "w")  # noqa: SIM115
    sys.stderr = open(2, "w", buffering=1)  # noqa: SIM115
    random.seed()
    sys.path[:] = [*filter(None, environment.get("PYTHONPATH", "").split(os.pathsep)), *sys.path]
    if arguments[0] == "-P":
        del arguments[0]
    else:
        sys.path.insert(0, "" if arguments[0] == "-c" else cwd)
    option, program, *words = arguments
    sys.argv = [option, *words]
    try:
        if option == "-m":
            runpy.run_module(program, run_name="__main__", alter_sys=True)
        else:
            sys.modules["__main__"] = main = types.ModuleType("__main__")
            exec(compile(program, "<string>", "exec"), main.__dict__)
        code = 0
    except SystemExit as end:
        code = end.code if isinstance(end.code, int) else int(end.code is not None)
    except KeyboardInterrupt:
        code = 130
    except BaseException:
        traceback.print_exc()
        code = 1
    atexit._run_exitfuncs()
    with suppress(Exception):
        sys.stdout.flush()
    with suppress(Exception):
        sys.stderr.flush()
    return code


def warm_up() -> None:
    """Import what commands import. Modules with Triton kernels are left out: on a machine without a GPU none runs."""
    import importlib
    import pkgutil

    import elman

    for found in pkgutil.walk_packages(elman.__path__, "elman."):
        if not found.name.endswith("__main__") and not found.name.startswith(("elman.bench", "elman.compiler.triton")):
            with suppress(ImportError):
                importlib.import_module(found.name)
    for name in ("matplotlib.backends.backend_agg", "matplotlib.backends.backend_svg", "matplotlib.pyplot"):
        importlib.import_module(name)
    for name in ("torch._dynamo", "pandas"):  # as torch's optimizers and pyarrow do at the first use
        with suppress(ImportError):
            importlib.import_module(name)


if __name__ == "__main__":
    if sys.argv[1] == "--serve":
        serve(sys.argv[2])
    else:
        sys.exit(ask(sys.argv[1], sys.argv[2:]))
