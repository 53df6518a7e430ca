"""Reach for what belongs to another token: its sessions, states and responses, by every route; and for the server by
pages of other sites.

    python -m benchmarks.attack.owners --count 5000

A second user knows the ids of the first one's sessions and responses, or guesses them, and tries them in all places of
all routes of the application, in other spellings and with other headers. A page of another site knows the token as
well, but not how to be of the same Host and Origin. A violation is an answer that is not an error of the 400s or that
differs from the answer for an id that does not exist, and any change of a session or response of the first user.
"""

import random
import tempfile
import urllib.parse
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from benchmarks.attack.campaign import Campaign, parser
from benchmarks.attack.in_process import BEARER, OTHER, OTHERS, SECRET, Client, wrong_refusal
from benchmarks.attack.small_runs import runs_in

MODEL = "language-model"
METHODS = ("GET", "POST", "DELETE", "PUT", "PATCH", "HEAD", "OPTIONS")
NOBODY = "AAAAAAAAAAAAAAAAAAAAAAAA"  # an id that does not exist
Dice = random.Random


def routes_with_ids(app: Any) -> list[str]:
    """Paths of the application that name a session or response; that of models does not."""
    routes, found = [*app.routes], set[str]()
    for route in routes:
        routes += getattr(getattr(route, "original_router", None), "routes", [])
        if "{id}" in getattr(route, "path", ""):
            found.add(route.path)
    return sorted(found)


class Victim:
    """What the first user has."""

    def __init__(self, client: Client):
        self.client = client
        made = [client.post("/v1/sessions", {"prompt": text}).json()["id"] for text in ("the cat", "a big dog", "")]
        answers = [client.post("/v1/responses", {"input": text, "max_output_tokens": 3}).json() for text in "ab"]
        self.sessions, self.responses = made, [answer["id"] for answer in answers]
        self.before = self.now()

    @property
    def ids(self) -> list[str]:
        return [*self.sessions, *self.responses]

    def now(self) -> list[bytes]:
        """Every byte of it."""
        paths = [f"/v1/sessions/{id}{part}" for id in self.sessions for part in ("", "/state")]
        return [self.client.get(path).content for path in [*paths, *(f"/v1/responses/{id}" for id in self.responses)]]


SPELLINGS: list[Callable[[str, Dice], str]] = [
    lambda id, dice: id,
    lambda id, dice: id.removeprefix("resp_"),
    lambda id, dice: f"resp_{id}",
    lambda id, dice: "".join(f"%{ord(one):02x}" for one in id),
    lambda id, dice: f"./{id}",
    lambda id, dice: f"{id}%00",
    lambda id, dice: f"{id}%20",
    lambda id, dice: id.swapcase(),
    lambda id, dice: id[: dice.randrange(len(id))] + "%25",
    lambda id, dice: f"ann%2f{id}",
    lambda id, dice: f"{id}'%20OR%20'1'='1",
    lambda id, dice: id[:-1] + dice.choice("AQgw_-"),
    lambda id, dice: urllib.parse.quote(f"%{id[1:-1]}%"),
]
CLAIMS: list[list[tuple[str, str]]] = [
    [*OTHERS.items()],
    [*OTHERS.items(), ("X-Owner", "ann"), ("X-Forwarded-User", "ann"), ("Cookie", f"token={SECRET}")],
    [("Authorization", f"Bearer ann:{OTHER}")],
    [("Authorization", f"Bearer {OTHER}"), ("Authorization", "Bearer ann")],
    [("Authorization", f"Bearer {OTHER} ann")],
    [("Authorization", f"Bearer {SECRET[:-1]}")],
    [("Authorization", f"Basic {SECRET}")],
    [("X-Api-Key", SECRET)],
    [],
]


def by_id(victim: Victim, templates: list[str], dice: Dice) -> Iterator[tuple[str, list[str]]]:
    """An id of the first user in a path or a field, asked for by the second."""
    id, method = dice.choice(victim.ids), dice.choice(METHODS)
    template, spelled = dice.choice(templates), dice.choice(SPELLINGS)(id, dice)
    headers = dice.choice(CLAIMS) if dice.random() < 0.5 else CLAIMS[0]

    def ask(id: str) -> Any:
        return victim.client.ask(method, template.replace("{id}", id), headers=headers)

    yield "id in a path", judged(ask(spelled), ask(NOBODY), method, id)
    name = dice.choice(("session", "previous_response_id"))
    path = "/v1/completions" if name == "session" else "/v1/responses"
    fields = {"prompt": "", "return_state": True} if name == "session" else {"input": "x"}
    body = {**fields, name: urllib.parse.unquote(spelled)[:128]}
    found, nobody = (victim.client.post(path, {**body, name: one}, headers=headers) for one in (body[name], NOBODY))
    yield "id in a field", judged(found, nobody, "POST", id)


def judged(found: Any, nobody: Any, method: str, id: str) -> list[str]:
    """What is wrong with the answer for an id, beside that for one that does not exist."""
    if method == "HEAD" or (found.status_code == nobody.status_code == 405):
        return [] if 400 <= found.status_code < 500 else [f"status {found.status_code}"]
    wrong = wrong_refusal(found.status_code, found.content, found.headers.get("content-type", ""))
    other_path = b"there is no '/" in found.content  # the spelling has made another path of it
    if found.status_code != nobody.status_code and not other_path:
        wrong.append(f"status {found.status_code}, but {nobody.status_code} for an id that does not exist")
    return [f"{text}: {found.request.method} {found.request.url} for {id}" for text in wrong]


HOSTS = ["evil.example", "evil.example:8000", "127.0.0.1.evil.example:8000", "localhost.:8000", "0.0.0.0:8000", ""]
HOSTS += ["127.0.0.1:8000@evil.example", "127.1:8000", "127.0.0.1:8001", "127.0.0.1", "[::ffff:7f00:1]:8000"]
ORIGINS = [
    "null",
    "http://evil.example",
    "https://127.0.0.1:8000",
    "http://127.0.0.1:8001",
    "http://localhost",
    "file://",
]
ORIGINS += ["http://127.0.0.1:8000.evil.example", "http://evil.example#http://127.0.0.1:8000", "chrome-extension://a"]
SITES = ["cross-site", "same-site", "x"]
TYPES = [
    "text/plain",
    "application/x-www-form-urlencoded",
    "multipart/form-data; boundary=a",
    "text/json",
    "",
    "application/*",
]


def of_a_page(victim: Victim, templates: list[str], dice: Dice) -> tuple[str, list[str]]:
    """A request with the token of the first user, as a page of another site can send it."""
    path = dice.choice([*templates, "/v1/models", "/v1/completions", "/v1/sessions", "/metrics", "/openapi.json"])
    path = path.replace("{id}", dice.choice(victim.sessions))
    trick = dice.choice(("Host", "Origin", "Sec-Fetch-Site", "Content-Type"))
    value = dice.choice({"Host": HOSTS, "Origin": ORIGINS, "Sec-Fetch-Site": SITES, "Content-Type": TYPES}[trick])
    method = "POST" if trick == "Content-Type" else dice.choice(METHODS)
    content = b'{"prompt":"x","max_tokens":1}' if method in ("POST", "PUT", "PATCH") else None
    headers = {**BEARER, **({"Content-Type": "application/json"} if content else {}), trick: value}
    found = victim.client.ask(method, path, headers=headers, content=content)
    allowed = {"Host": (421,), "Origin": (403,), "Sec-Fetch-Site": (403,), "Content-Type": (415,)}[trick]
    wrong = [] if found.status_code in allowed else [f"status {found.status_code} with {trick}: {value!r}"]
    if "access-control-allow-origin" in found.headers:
        wrong.append("a CORS header")
    return f"{trick} of another site", [f"{text}, {method} {path}" for text in wrong]


def main() -> None:
    campaign = Campaign(parser("owners", __doc__, 5000).parse_args())
    with tempfile.TemporaryDirectory() as place:
        client = Client(runs_in(Path(place), [MODEL]))
        victim, templates = Victim(client), routes_with_ids(client.app)
        for number in campaign.numbers():
            dice = Dice(f"{campaign.seed} {number}")
            cases = [of_a_page(victim, templates, dice)] if number % 3 == 0 else [*by_id(victim, templates, dice)]
            for kind, wrong in cases:
                campaign.tally(kind, *(f"case {number}: {text}" for text in wrong))
            if number % 100 < 2 and victim.now() != victim.before:
                campaign.report("afterwards", f"case {number}: a session or response of the first user has changed")
                victim.before = victim.now()
        client.close()
    campaign.facts["routes"] = templates
    campaign.end()


if __name__ == "__main__":
    main()
