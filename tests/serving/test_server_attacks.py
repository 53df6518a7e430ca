"""Short forms of the attacks on the server (benchmarks/attack)."""

import asyncio
import base64
import random
import signal

import pytest
from processes import wait_for

from benchmarks.attack import company, owners, restarts, sockets, states
from benchmarks.attack.server_process import ServerProcess, words_of
from elman.serving.tokens import new_token, write_token


@pytest.mark.slow
def test_foreign_states_are_refused_and_never_parsed(runs):
    target = states.Target([runs["language-model"], runs["words"]])
    kinds = set()
    for number in range(130):
        kind, wrong = states.attack(target, number, seed=0)
        kinds.add(kind)
        assert wrong == [], (kind, number)
    assert len(kinds) == 12
    for model, data in target.states.items():  # what is not changed is accepted, by every door
        for door in range(3):
            assert target.give(model, data, door) != []
    target.client.close()


@pytest.mark.slow
def test_strange_connections_leave_a_server_as_it_was(start, runs):
    server = start(*(runs[name] for name in sockets.MODELS), "--port", 0, *words_of(sockets.SETTINGS))
    wait_for(lambda: server.ask("GET", "/health")[0] == 200, server.process)
    words = sockets.Words(f"127.0.0.1:{server.port}".encode(), server.token.encode())
    found = asyncio.run(sockets.batch(words, server.port, 0, 0, 80))
    assert [wrong for _, _, wrong in found if wrong] == []
    assert len({kind for kind, _, _ in found}) > 12
    body = {"model": "classify", "input": "this is x"}
    assert server.ask("POST", "/classify", body)[0] == 200
    assert "error" not in [entry["level"] for entry in server.log]


@pytest.mark.slow
def test_sessions_of_a_killed_server_go_on(runs, tmp_path):
    """All that was acknowledged, bit for bit, under load."""
    own, token = [runs["lstm"], runs["language-model"]], new_token()
    write_token(tmp_path / "token", token)

    def begin(name):
        words = [*own, "--sessions", tmp_path / "sessions", "--token-file", tmp_path / "token"]
        return ServerProcess(tmp_path / name, *words, token=token)

    sessions = []
    with begin("first") as server:
        load = restarts.Load(server, sessions, "0")
        asyncio.run(load.run(signal.SIGKILL, lambda: len(sessions) > 5))
    with begin("second") as server:
        checked = restarts.Checked(tmp_path, own)
        assert checked.problems(server, sessions, random.Random(0)) == []
        checked.other.close()


@pytest.mark.slow
def test_another_user_reaches_nothing(runs):
    client = owners.Client([runs[owners.MODEL]])
    victim, templates = owners.Victim(client), owners.routes_with_ids(client.app)
    assert len(templates) == 4
    for number in range(60):
        dice = random.Random(number)
        for kind, wrong in [owners.of_a_page(victim, templates, dice), *owners.by_id(victim, templates, dice)]:
            assert wrong == [], kind
    assert victim.now() == victim.before
    client.close()


class Noted:
    """Stands for the record of a campaign."""

    def __init__(self):
        self.cases, self.wrong = 0, []

    def tally(self, _, *wrong):
        self.cases += 1
        self.wrong += wrong


@pytest.mark.slow
def test_texts_are_the_same_alone_in_company_restored_and_after_a_restart(runs):
    found = Noted()
    runs["words"]
    company.attack(runs["words"].parent, "words", "int8", 12, 1, found)
    assert found.wrong == []
    assert found.cases == 36


def test_base64_has_one_spelling():
    from elman.serving.api.text_call import decode_state
    from elman.serving.errors import ApiError

    text = base64.b64encode(b"abcd").decode()
    assert decode_state(text) == b"abcd"
    for other in ("YWJjZB==", "YWJjZA", "YWJjZA===", "YWJj\nZA==", "YWJjZE=="):
        with pytest.raises(ApiError, match="no base64"):
            decode_state(other)
