"""Clients that others wrote, unchanged, against `elman serve`: which versions work.

    python -m benchmarks.serving.clients RUN [--node-modules FOLDER]

RUN is a language model. openai-python and curl are always asked; LangChain (pip install langchain-openai) and OpenAI's
package for JavaScript (npm install openai, in FOLDER) where they are installed.
"""

import argparse
import json
import os
import shutil
import subprocess
import tempfile
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import openai

from benchmarks.reporting import write
from benchmarks.serving.__main__ import free_port, server

TOKEN = "a-token-of-this-benchmark"
NODE = """
import OpenAI from "openai";
const client = new OpenAI({ baseURL: process.env.ADDRESS + "/v1", apiKey: process.env.TOKEN });
const model = process.env.MODEL, settings = { model, max_tokens: 8, seed: 1 };
const whole = (await client.completions.create({ ...settings, prompt: "the cat" })).choices[0].text;
let parts = "";
for await (const part of await client.completions.create({ ...settings, prompt: "the cat", stream: true })) {
  parts += part.choices[0].text;
}
let chat = "";
const messages = [{ role: "user", content: "the cat" }];
for await (const part of await client.chat.completions.create({ ...settings, messages, stream: true })) {
  chat += part.choices[0]?.delta?.content ?? "";
}
const answered = (await client.chat.completions.create({ ...settings, messages })).choices[0].message.content;
const wrong = await client.models.retrieve("other").catch((error) => error.status);
const right = whole === parts && chat === answered && wrong === 404;
if (!right) throw new Error([whole, parts, chat, answered, wrong].join());
"""


def openai_python(address: str, model: str) -> None:
    """Whole texts and streams, logprobs, n, stop, chat, responses, errors."""
    client = openai.OpenAI(base_url=f"{address}/v1", api_key=TOKEN, max_retries=0)
    settings: dict[str, Any] = {"model": model, "prompt": "the cat", "max_tokens": 12, "seed": 1}
    whole: Any = client.completions.create(**settings, n=2, logprobs=3)
    first, second = whole.choices
    assert first.text != second.text
    assert first.logprobs is not None
    assert len(first.logprobs.tokens or []) == whole.usage.completion_tokens // 2
    assert "".join(part.choices[0].text for part in client.completions.create(**settings, stream=True)) == first.text
    stop = first.text[4:6]
    assert client.completions.create(**settings, stop=[stop]).choices[0].text == first.text.partition(stop)[0]
    messages: Any = [{"role": "user", "content": "the cat"}]
    chat: Any = {"model": model, "messages": messages, "max_tokens": 8, "seed": 1}
    answer: Any = client.chat.completions.create(**chat, logprobs=True, top_logprobs=2)
    assert len(answer.choices[0].logprobs.content) > 0
    parts = [*client.chat.completions.create(**chat, stream=True, stream_options={"include_usage": True})]
    text = "".join(part.choices[0].delta.content or "" for part in parts if part.choices)
    assert text == answer.choices[0].message.content
    assert parts[-1].usage is not None
    reply = client.responses.create(model=model, input="the cat", max_output_tokens=8)
    more = client.responses.create(model=model, input="and", max_output_tokens=8, previous_response_id=reply.id)
    assert more.previous_response_id == reply.id
    with client.responses.stream(model=model, input="the cat", max_output_tokens=8) as events:
        *_, last = events
        assert last.type in ("response.completed", "response.incomplete")
    wrong: dict[Any, dict[str, Any]] = {openai.BadRequestError: {"n": 99}, openai.NotFoundError: {"model": "other"}}
    for kind, fields in wrong.items():
        try:
            client.completions.create(**settings | fields)
            raise SystemExit(f"{kind.__name__} was not raised")
        except kind:
            pass
    client.close()


def retries(address: str, model: str) -> None:
    """A full queue answers 429 with Retry-After, which openai-python waits for; all get an answer."""
    refused = []
    with openai.OpenAI(base_url=f"{address}/v1", api_key=TOKEN, max_retries=40) as client:
        long: dict[str, Any] = {"model": model, "prompt": "the cat", "max_tokens": 2000}
        long["extra_body"] = {"ignore_eos": True}

        def ask(seed: int) -> str:
            return client.completions.create(**long, seed=seed).choices[0].text

        def refuse(seed: int) -> None:
            try:
                client.with_options(max_retries=0).completions.create(**long)
            except openai.RateLimitError as error:
                refused.append(float(error.response.headers["retry-after"]))

        with ThreadPoolExecutor(24) as pool:
            answers = [pool.submit(ask, number) for number in range(12)]
            for one in [pool.submit(refuse, number) for number in range(12)]:
                one.result()
            assert all(one.result() for one in answers)
    assert refused, "the queue was never full"


def langchain(address: str, model: str) -> None:
    """A chain of a prompt, a chat model and a parser: one, streamed, and several at once."""
    from langchain_core.output_parsers import StrOutputParser
    from langchain_core.prompts import ChatPromptTemplate
    from langchain_openai import ChatOpenAI, OpenAI

    settings: Any = {"base_url": f"{address}/v1", "api_key": TOKEN, "model": model, "max_tokens": 8, "seed": 1}
    prompt: Any = ChatPromptTemplate([("system", "you are {who}"), ("user", "{text}")])
    chain = prompt | ChatOpenAI(**settings, temperature=0) | StrOutputParser()
    given = {"who": "a cat", "text": "the cat"}
    answer = chain.invoke(given)
    assert "".join(chain.stream(given)) == answer
    assert chain.batch([given, given]) == [answer] * 2
    llm = OpenAI(**settings)
    assert "".join(llm.stream("the cat")) == llm.invoke("the cat")


def curl(address: str, model: str) -> None:
    """`curl -N` shows events as they come."""
    body = json.dumps({"model": model, "prompt": "the cat", "max_tokens": 8, "stream": True})
    head = ["-H", f"Authorization: Bearer {TOKEN}", "-H", "Content-Type: application/json"]
    command = ["curl", "-N", "--silent", "--fail", f"{address}/v1/completions", *head, "-d", body]
    lines = subprocess.run(command, check=True, capture_output=True, text=True).stdout.split("\n\n")
    assert lines[-2:] == ["data: [DONE]", ""]
    assert len([line for line in lines if line.startswith("data: {")]) >= 2


def node(folder: Path) -> Callable[[str, str], None]:
    def ask(address: str, model: str) -> None:
        script = folder / "elman-client.mjs"  # beside the package, or it is not found
        script.write_text(NODE)
        try:
            own = {"ADDRESS": address, "TOKEN": TOKEN, "MODEL": model}
            subprocess.run(["node", script], check=True, env={**os.environ, **own}, timeout=120)
        finally:
            script.unlink()

    return ask


def version_of(package: str) -> str | None:
    try:
        return version(package)
    except PackageNotFoundError:
        return None


def clients(modules: Path | None) -> dict[str, tuple[str | None, Callable[[str, str], None]]]:
    """Each client with its version, which is None where it is not installed."""
    found: dict[str, tuple[str | None, Callable[[str, str], None]]] = {
        "openai-python": (version_of("openai"), openai_python),
        "openai-python, retries": (version_of("openai"), retries),
        "langchain-openai": (version_of("langchain-openai"), langchain),
        "curl -N": (said("curl", "--version").split()[1] if shutil.which("curl") else None, curl),
    }
    if modules and shutil.which("node"):
        package = json.loads((modules / "openai" / "package.json").read_text())
        name = f"{package['version']}, node {said('node', '--version').strip()}"
        found["openai for JavaScript"] = (name, node(modules.parent))
    return found


def said(*command: str) -> str:
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("run", type=Path)
    parser.add_argument("--node-modules", type=Path)
    options = parser.parse_args()
    results, port = {}, free_port()
    with tempfile.TemporaryDirectory() as folder:
        tokens = Path(folder) / "tokens"
        tokens.write_text(f"{TOKEN}\n")
        tokens.chmod(0o600)
        words = ["--token-file", str(tokens), "--max-batch", "1", "--max-queue", "2", "--port", str(port)]
        with server(["-m", "elman", "serve", str(options.run), *words], port):
            for name, (release, ask) in clients(options.node_modules).items():
                begun = time.monotonic()
                if release is not None:
                    ask(f"http://127.0.0.1:{port}", options.run.name)
                    results[name] = release
                print(f"{name:<24} {release or 'not installed':<20} {time.monotonic() - begun:.1f} s")
    print(write("clients", results))


if __name__ == "__main__":
    main()
