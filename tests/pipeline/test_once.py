"""What a run does once: read its data, build its recipe; and what it does not load at all."""

import json
import subprocess
import sys

import pytest
from processes import environment

import elman
from elman.corpus import sources
from elman.pipeline.recipe import Recipe

# Counts how often a file whose name ends in the first word is opened, and lists the modules that are loaded at the end.
PROBE = """
import json, sys
end, opened = sys.argv.pop(1), []
sys.addaudithook(lambda event, given: opened.append(1) if event == "open" and str(given[0]).endswith(end) else None)
from elman.cli.main import main
try:
    main(sys.argv[1:])
except SystemExit:
    pass
print(json.dumps([len(opened), [name for name in sys.modules if name.startswith("elman.")]]))
"""
SMALL = ("--model", "gru", "--model.hidden_size", "12", "--training.max_steps", "3", "--device", "cpu")


def probe(*words):
    command = [sys.executable, "-c", PROBE, *words]
    found = subprocess.run(command, capture_output=True, text=True, env=environment(), check=True)
    return json.loads(found.stdout.splitlines()[-1])


@pytest.mark.slow
def test_a_text_is_read_once(folder):
    """Seven times before: for its passages, for what is held out, for the tokenizer, for two fingerprints and for two
    stores."""
    opened, _ = probe("text.txt", "train", "--data", "text.txt", "--run", "run", *SMALL)
    assert opened == 1


def test_a_text_too_large_to_keep_is_still_hashed_once(folder, monkeypatch):
    monkeypatch.setattr(sources, "CACHE_BYTES", 10)
    with sources.cached_files():
        with sources.open_file(folder / "text.txt") as file:
            assert file.read() == (folder / "text.txt").read_bytes()
        first = sources.file_digest(folder / "text.txt")
        (folder / "text.txt").write_text("other")
        assert sources.file_digest(folder / "text.txt") == first
    assert sources.file_digest(folder / "text.txt") != first


@pytest.mark.slow
def test_the_recipe_is_built_once(folder, monkeypatch, recipe):
    """Three times before."""
    made = []
    make = Recipe.make
    monkeypatch.setattr(Recipe, "make", lambda *given, **more: made.append(given) or make(*given, **more))
    list(elman.iterate(elman.read_recipe(recipe), run="run"))
    assert len(made) == 1


def test_a_recipe_changed_by_hand_is_checked_again(recipe, folder):
    built = elman.read_recipe(recipe)
    assert elman.read_recipe(built) is built
    odd = built.model_copy(update={"evaluation": built.evaluation.model_copy(update={"choose_by": "beauty"})})
    with pytest.raises(elman.ElmanError, match="beauty"):
        elman.read_recipe(odd)


@pytest.mark.slow
def test_generating_loads_what_it_needs(folder):
    """No task but its own, nothing that trains, judges, searches or draws. 307 modules before."""
    probe("-", "train", "--data", "text.txt", "--run", "run", *SMALL)
    _, modules = probe("-", "generate", "run", "--max-tokens", "4")
    for part in (
        "inspection.inspected_text",
        "figures",
        "training.loop",
        "pipeline.session",
        "pipeline.tasks.classify",
    ):
        assert not [name for name in modules if name.startswith(f"elman.{part}")], part
    assert len(modules) <= MODULES, sorted(modules)


MODULES = 265  # most of them layers and the compiler of cells
