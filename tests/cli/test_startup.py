"""What a command loads before it answers; modules are counted, since times depend on the machine."""

import json
import subprocess
import sys

import pytest
from processes import environment, run_python

REPORT = """
import json, sys
from elman.cli.main import main
try:
    main(sys.argv[1:])
finally:
    from elman.config import attribute_docstrings
    read = attribute_docstrings.cache_info().misses
    sys.stderr.write("\\n" + json.dumps({"modules": [*sys.modules], "help_texts": read}))
"""
HEAVY = {"rich", "matplotlib", "pyarrow", "pandas", "datasets", "ray", "optuna", "torch._dynamo", "torch._inductor"}
HEAVY |= {f"elman.{name}" for name in ("figures", "comparison", "bench", "training.loop", "pipeline.session")}
MOST = 235  # modules of elman


def loaded_by(*words, folder, stdin=""):
    command = [sys.executable, "-c", REPORT, *map(str, words)]
    ended = subprocess.run(
        command, check=False, input=stdin, capture_output=True, text=True, cwd=folder, env=environment()
    )
    assert ended.returncode == 0, ended.stderr
    return json.loads(ended.stderr.splitlines()[-1])


@pytest.mark.slow
def test_training_does_not_import_torchs_compiler(text):
    """Its optimizers import it at the first update, which took longer than a small training."""
    words = ["--model.hidden_size", "8", "--training.max_steps", "2", "--device", "cpu", "--run", "run"]
    modules = set(loaded_by("train", "--data", text, *words, folder=text.parent)["modules"])
    assert "elman.training.loop" in modules
    assert not modules & {"torch._dynamo", "torch._inductor", "sympy"}


def test_a_command_ends_without_a_search_for_cycles():
    """Which took half a second; functions that were registered first are called last."""
    code = "import atexit, gc; atexit.register(lambda: print(gc.get_freeze_count() > 0))"
    ended = run_python("-c", f"{code}; from elman.cli.main import main; main(['--version'])", check=True)
    assert ended.stdout.splitlines()[-1] == "True"


@pytest.mark.slow
@pytest.mark.parametrize("task", ["generate", "predict"])
def test_answers_need_neither_training_nor_figures_nor_help_texts(elman, text, tmp_path, task):
    settings = ["--model.hidden_size", "8", "--training.max_steps", "2", "--device", "cpu", "--run", "run"]
    if task == "predict":
        (tmp_path / "moods.csv").write_text(
            "label,text\n" + "".join(f"kind,good cat {n}\nunkind,bad {n}\n" for n in range(40))
        )
        assert elman("train", "--task", "classify", "--data", "moods.csv", *settings).code == 0
        found = loaded_by("predict", "run", folder=tmp_path, stdin="good dog\n")
    else:
        assert elman("train", "--data", text, *settings).code == 0
        found = loaded_by("generate", "run", "--max-tokens", "5", folder=tmp_path)
    modules = set(found["modules"])
    assert not modules & HEAVY
    assert sum(name.partition(".")[0] == "elman" for name in modules) <= MOST
    assert found["help_texts"] == 0


def test_a_known_verb_is_declared_alone(monkeypatch, elman):
    """Catches the options of all verbs declared to run one, which took longer than to answer."""
    from typer import main as typer_main

    declared = []
    original = typer_main.get_command_from_info

    def noted(command_info, **more):
        declared.append(command_info.name)
        return original(command_info, **more)

    monkeypatch.setattr(typer_main, "get_command_from_info", noted)
    assert elman("generate", "--help").code == 0
    assert declared == ["generate"]


def test_shells_complete_verbs_and_options(tmp_path):
    """Catches completion that is switched off."""

    def completed(line):
        setting = {"_ELMAN_COMPLETE": "complete_bash", "COMP_WORDS": line, "COMP_CWORD": str(len(line.split()) - 1)}
        command = [sys.executable, "-m", "elman"]
        environ = environment() | setting
        return subprocess.run(command, check=False, capture_output=True, text=True, env=environ).stdout.split()

    assert completed("elman gen") == ["generate"]
    assert completed("elman generate --max") == ["--max-tokens"]
