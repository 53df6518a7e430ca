"""Fixtures: tiny runs of every task, trained once, and a client in the same process."""

import pytest
import served
from started import Started

from benchmarks.attack.small_runs import train


@pytest.fixture(scope="session")
def runs(tmp_path_factory):
    """Run folders by name, each trained when it is first asked for; tests only read them."""
    folder = tmp_path_factory.mktemp("served")

    class Runs(dict):
        def __missing__(self, name):
            self[name] = train(name, folder)
            return self[name]

    return Runs()


@pytest.fixture
def client(runs):
    """A client of a server with these runs and settings: `client("classify", max_inputs=2)`."""
    opened = []

    def open_client(*names, tokens=served.TOKENS, **settings):
        found = served.Client([runs[name] for name in names], tokens, **settings)
        opened.append(found)
        return found

    yield open_client
    for one in opened:
        one.close()


@pytest.fixture
def start(tmp_path):
    started = []

    def begin(*words, **more):
        folder = tmp_path / f"server-{len(started)}"
        folder.mkdir()
        started.append(Started(folder, *words, **more))
        return started[-1]

    yield begin
    for one in started:
        if one.process.poll() is None:
            one.process.kill()
            one.process.wait()
