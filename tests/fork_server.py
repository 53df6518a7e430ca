"""A Python process that has imported elman, and forks itself for each command that tests give it.

Importing torch and elman takes about two seconds of processor time; a fork takes a hundredth of one. Each command runs
in a process of its own, with the arguments, environment, working directory and standard streams of its client.

    python fork_server.py --serve SOCKET                     the server; ends when its standard input is closed
    python -IS fork_server.py SOCKET [-P] -m MODULE ARG...   a client, which behaves like `python [-P] -m MODULE ARG...`
    python -IS fork_server.py SOCKET -c CODE ARG...          or like `python -c CODE ARG...`
"""

import array
import gc
import json
import os
import select
import signal
import socket
import sys
from collections.abc import Callable
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
    fork_race_workers(path)
    gc.freeze()  # garbage collection in a fork would copy the pages of all that is imported
    server = socket.socket(socket.AF_UNIX)
    server.bind(path)
    server.listen()
    ended, end = os.pipe()  # readable when a command has ended
    os.set_blocking(end, False)
    signal.set_wakeup_fd(end)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    clients: dict[int, socket.socket] = {}  # by the process id of their command
    print("ready", flush=True)
    while True:
        readable = select.select([server, 0, ended, *clients.values()], [], [])[0]
        if 0 in readable:
            return
        if ended in readable:
            os.read(ended, 1 << 10)
            report(clients)
        for child, client in clients.items():
            if client in readable:  # it has no more to send: it was killed
                os.kill(child, signal.SIGKILL)
        if server in readable:
            start(server.accept()[0], clients, [server.fileno(), ended, end])


def start(client: socket.socket, clients: dict[int, socket.socket], own: list[int]) -> None:
    """Forks the command, which inherits none of the server's own files, and tells the client its process id."""
    length, streams, _, _ = socket.recv_fds(client, 4, len(STREAMS))
    received = client.recv(int.from_bytes(length, "big"), socket.MSG_WAITALL)
    child = os.fork()
    if child == 0:
        try:
            signal.set_wakeup_fd(-1)
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
            signal.signal(signal.SIGINT, signal.default_int_handler)
            for number, given in zip(STREAMS, streams, strict=True):
                os.dup2(given, number)
            for file in [*streams, *own, client.fileno(), *(other.fileno() for other in clients.values())]:
                os.close(file)
            os._exit(run(**json.loads(received)))
        finally:
            os._exit(1)
    for stream in streams:
        os.close(stream)
    clients[child] = client
    with suppress(BrokenPipeError):
        client.sendall(str(child).encode())


def report(clients: dict[int, socket.socket]) -> None:
    """Tell the clients whose commands have ended the exit codes."""
    while clients:
        child, status = os.waitpid(-1, os.WNOHANG)
        if child == 0:
            return
        with clients.pop(child) as client, suppress(BrokenPipeError):
            client.sendall(str(os.waitstatus_to_exitcode(status)).encode())


def fork_race_workers(path: str) -> None:
    """For all commands: they would start Python anew for each worker."""
    from elman.comparison.workers import ForkingWorker

    ForkingWorker._start = forked_start(lambda: [sys.executable, "-IS", __file__, path])  # type: ignore[method-assign]


def forked_start(client: Callable[[], list[str]]) -> Callable[..., object]:
    """How a race starts a worker, but as a fork of the server that `client` speaks to."""
    from elman.comparison.workers import ForkingWorker

    start, served = ForkingWorker._start, [sys.executable, "-P", "-m", "elman.comparison.worker_process"]

    def fork(self: ForkingWorker, command: list[str], **files: object) -> object:
        return start(self, [*client(), *command[1:]] if command[: len(served)] == served else command, **files)

    return fork


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
    import weakref

    import elman

    for found in pkgutil.walk_packages(elman.__path__, "elman."):
        if not found.name.endswith("__main__") and not found.name.startswith(("elman.bench", "elman.compiler.triton")):
            with suppress(ImportError):
                importlib.import_module(found.name)
    for name in ("matplotlib.backends.backend_agg", "matplotlib.backends.backend_svg", "matplotlib.pyplot"):
        importlib.import_module(name)
    # as pyarrow does at the first use, torch where it counts operations, and torch again at the end of a process
    for name in ("pandas", "torch._dynamo", "tabulate"):
        with suppress(ImportError):
            importlib.import_module(name)
    for inherited in list(weakref.finalize._registry):  # torch's operators, which a fork need not take down
        inherited.atexit = False


if __name__ == "__main__":
    if sys.argv[1] == "--serve":
        serve(sys.argv[2])
    else:
        sys.exit(ask(sys.argv[1], sys.argv[2:]))
