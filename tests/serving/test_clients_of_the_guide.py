"""The clients that docs/guides/deploy.md shows, asked of a server with models of these names."""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from processes import environment

from elman.serving.chat_format import read_chat_format

GUIDES = Path(__file__).parents[2] / "docs" / "guides"
GUIDE = (GUIDES / "deploy.md").read_text()
BLOCKS = re.findall(r"^```(\w+)\n(.*?)^```$", GUIDE, re.MULTILINE | re.DOTALL)
CURL = [text for language, text in BLOCKS if language == "bash" and "curl " in text]
PYTHON = [text for language, text in BLOCKS if language == "py"]
NODE = [text for language, text in BLOCKS if language == "js"]
GO = [text for language, text in BLOCKS if language == "go"]


@pytest.mark.slow
def test_every_client_gets_an_answer(start, runs, tmp_path):
    for name, own in (("classify", "classifier"), ("language-model", "story")):
        shutil.copytree(runs[name], tmp_path / own)
    server = start(tmp_path / "classifier", tmp_path / "story", "--port", 0).ready()
    commands = [["bash", "-c", f"{text.strip()} --silent --fail"] for text in CURL]
    commands += [[sys.executable, "-c", text] for text in PYTHON]
    commands += [["node", "--input-type=module", "--eval", text] for text in NODE if shutil.which("node")]
    run_go = ["bash", "-c", 'printf %s "$0" > main.go && go run main.go']
    commands += [[*run_go, text] for text in GO if shutil.which("go")]
    assert all((CURL, PYTHON, NODE, GO))
    for *command, text in commands:
        shown = text.replace("127.0.0.1:8000", f"127.0.0.1:{server.port}")
        done = subprocess.run(
            [*command, shown], env={**environment(), "TOKEN": server.token}, cwd=tmp_path,
            check=False, capture_output=True, text=True, timeout=120,
        )  # fmt: skip
        assert done.returncode == 0, done.stderr
        assert re.match(r"[ab]\n|\{", done.stdout), done.stdout
    assert sorted(os.listdir(tmp_path / "classifier")) == sorted(os.listdir(runs["classify"]))


def test_every_option_and_path_of_the_guide_exists():
    from elman.serving.settings import ServeConfig

    text = GUIDE + (GUIDES / "many-machines.md").read_text()
    commands = re.findall(r"^elman serve ([^#\n]*)", text, re.MULTILINE)
    assert len(commands) >= 4
    for option in re.findall(r"--([\w-]+)", " ".join(commands)):
        assert option.replace("-", "_") in ServeConfig.model_fields


def test_the_chat_template_of_the_guide_is_one(tmp_path):
    (shown,) = [text for language, text in BLOCKS if language == "yaml"]
    (tmp_path / "chat.yaml").write_text(shown)
    written = read_chat_format(tmp_path / "chat.yaml").text([("system", "Be kind."), ("user", "a"), ("assistant", "b")])
    assert written == "Be kind.\nQ: a\nA: b\nA:"
