"""What the documents promise is run: commands, Python, links, the cell to add, and every recipe.

Commands come from the code blocks of the documents themselves, so a changed document is a changed test. They run in a
folder of their own, on small texts made here, with three steps of training instead of all.
"""

import gzip
import json
import os
import random
import re
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import processes
import pytest
import torch
import yaml
from contributed_cell import contributed_cells
from processes import environment, forked_python, run_forked
from safetensors.torch import save_file

from elman.cells import CELLS
from elman.inspection.cost import measure, stated
from elman.layers import LAYERS
from elman.models import LanguageModel, StackConfig
from elman.models.hugging_face import export_contents
from elman.ops.taps import record
from elman.pipeline import iterate, load, read_recipe
from elman.pipeline.names import every_name
from elman.untrusted import read_yaml

ROOT = Path(__file__).parent.parent
DOCUMENTS = sorted(ROOT.glob("*.md")) + sorted((ROOT / "docs").rglob("*.md"))
GUIDES = sorted(f"docs/guides/{path.name}" for path in (ROOT / "docs" / "guides").glob("*.md"))
RECIPES = sorted((ROOT / "recipes").glob("*.yaml"))
BLOCK = re.compile(r"^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
WORDS = ["once", "upon", "a", "time", "the", "wolf", "and", "three", "small", "pigs", "went", "into", "dark", "woods"]


def blocks(document: str) -> list[tuple[str, str]]:
    """Code blocks in their order, as (language, text)."""
    return BLOCK.findall((ROOT / document).read_text())


def commands(document: str) -> list[str]:
    lines = [line for language, text in blocks(document) if language == "" for line in text.splitlines()]
    return [line.partition("  #")[0].strip() for line in lines if line.startswith(("elman ", "make "))]


def sentences(count: int, seed: int) -> str:
    draw = random.Random(seed)
    return "".join(" ".join(draw.choices(WORDS, k=draw.randint(3, 12))).capitalize() + ".\n" for _ in range(count))


def labelled(count: int, seed: int) -> str:
    draw = random.Random(seed)
    return "".join(f"{draw.randint(0, 1)}\t{line}\n" for line in sentences(count, seed).splitlines())


def rated(count: int, seed: int) -> str:
    """A number of each text: its words."""
    return "rating\ttext\n" + "".join(f"{len(line.split())}\t{line}\n" for line in sentences(count, seed).splitlines())


def unlabelled(count: int, seed: int) -> str:
    return "id,text\n" + "".join(f'{n},"{line}"\n' for n, line in enumerate(sentences(count, seed).splitlines()))


def tagged(count: int, seed: int) -> str:
    """In CoNLL-U, or in two columns: words of up to four letters are short."""
    rows = [line.split() for line in sentences(count, seed).splitlines()]
    return "\n".join("".join(f"{word}\t{'SHORT' if len(word) < 5 else 'LONG'}\n" for word in row) for row in rows)


def universal(text: str) -> str:
    """The same as CoNLL-U."""
    numbered = [enumerate(block.splitlines(), start=1) for block in text.strip().split("\n\n")]
    rows = [[(number, *line.split("\t")) for number, line in block] for block in numbered]
    return "\n".join("".join(f"{n}\t{word}\t_\t{tag}" + "\t_" * 6 + "\n" for n, word, tag in row) for row in rows)


def paired(count: int, seed: int) -> str:
    draw = random.Random(seed)
    return "".join(f"{word}\t{word.upper()}\n" for word in draw.choices(WORDS, k=count))


def shrunk(path: Path) -> dict[str, Any]:
    """A recipe with a small model, little data and a few steps; all else as it is written."""
    settings = read_yaml(path)
    if settings.pop("parameters", 0):
        settings["model"]["hidden_size"] = 16
    for part in (settings["model"], settings["model"].get("encoder", {}), settings["model"].get("decoder", {})):
        _shrink(part)
    if settings.get("task") == "translate":
        settings["search"] = {"beam_size": 2, "max_tokens": 8}
    settings["training"] = settings.get("training", {}) | {
        "max_steps": 3,
        "batch_size": 4,
        "log_every": 1,
        "evaluate_every": 2,
    }
    if settings["data"].get("language", {}).get("type") == "reversal":
        settings["data"]["language"] = {"type": "reversal", "words": 100}
    elif "language" in settings["data"]:
        settings["data"]["language"] |= {"train_documents": 300, "valid_documents": 60, "test_documents": 60}
    return settings


def write_gpt2(folder: Path) -> None:
    """A small GPT-2 with random weights, as others would save it."""
    layers = [
        {"attention": {"num_heads": 2, "bias": True, "context": 32}},
        {"feedforward": {"activation": "gelu-tanh"}},
    ]
    stack = {"pattern": layers, "hidden_size": 8, "residual": True, "norm": "pre", "positions": "learned"}
    config = StackConfig.make({**stack, "max_positions": 32, "output_bias": False})
    _, settings, tensors = export_contents(LanguageModel(config, 50))
    folder.mkdir()
    (folder / "config.json").write_text(json.dumps(settings))
    save_file({name: value.contiguous() for name, value in tensors.items()}, folder / "model.safetensors")


def _shrink(part: dict[str, Any]) -> None:
    for entry in part.get("pattern", []):
        for own in entry.values() if isinstance(entry, dict) else []:
            own.update({key: size for key, size in {"hidden_size": 16, "num_heads": 2}.items() if key in own})
    part |= {key: 16 for key in ("hidden_size", "embedding_size") if key in part}


@pytest.fixture
def desk(tmp_path: Path) -> Path:
    """A folder with the texts that the documents speak of, small recipes, and an `elman` that takes three steps."""
    for seed, name in enumerate(["my.txt", "other.txt", "lines.txt"]):
        (tmp_path / name).write_text(sentences(3 if name == "lines.txt" else 150, seed))
    examples = {"labelled.tsv": labelled, "ratings.tsv": rated, "tagged.conll": tagged, "pairs.tsv": paired}
    examples["new.csv"] = unlabelled
    for name, make in examples.items():
        (tmp_path / name).write_text(make(60, 1))
    write_gpt2(tmp_path / "gpt2")
    (tmp_path / "recipes").mkdir()
    for path in RECIPES:
        (tmp_path / "recipes" / path.name).write_text(yaml.safe_dump(shrunk(path)))
    quick = "--training.max_steps 3 --training.log_every 1 --device cpu"
    longer = "--training.max_epochs 30 --training.learning_rate 1e-2 --device cpu"  # or it would write nothing at all
    cases = f'*translate*) set -- "$@" {longer};; train*|distill*|sweep*) set -- "$@" {quick};;'
    cases += ' compare*) set -- "$@" --trials 1;;'
    script = f'#!/bin/sh\ncase "$*" in {cases} esac\nexec {shlex.join(forked_python())} -m elman "$@"\n'
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "elman").write_text(script)
    (tmp_path / "bin" / "elman").chmod(0o755)
    return tmp_path


def run(command: list[str], desk: Path) -> str:
    path = f"{desk / 'bin'}:{os.environ['PATH']}"
    done = processes.run(command, cwd=desk, env=environment(desk, PATH=path))
    assert done.returncode == 0, f"{command[-1]}\n{done.stdout[-2000:]}\n{done.stderr[-4000:]}"
    return done.stdout


@pytest.mark.slow
@pytest.mark.parametrize("document", ["README.md", "docs/index.md", "docs/tour.md", *GUIDES])
def test_every_command_and_program_of_a_document_runs(document: str, desk: Path) -> None:
    """A program that begins with `# file: NAME` is saved under that name. Catches an option that is not
    there, with a wrong site, and with a run that was never trained."""
    ran = 0
    for language, text in blocks(document):
        if name := re.match(r"# file: (\S+)\n", text):
            (desk / name[1]).write_text(text)
        elif language == "python":
            assert run([*forked_python(), "-c", text], desk).strip()
            ran += 1
        for line in text.splitlines() if language == "" else []:
            if line.startswith("elman "):
                assert run(["bash", "-ec", line], desk).strip(), f"{line}: says nothing"
                ran += 1
    assert ran >= (6 if document in ("README.md", "docs/tour.md") else len(commands(document)))


@pytest.mark.parametrize("path", DOCUMENTS, ids=lambda path: path.name)
def test_every_make_target_that_is_named_exists(path: Path) -> None:
    """In blocks and in the text. Catches `make demos`."""
    makefile = (ROOT / "Makefile").read_text()
    for target in re.findall(r"(?:^|`)make (\w+)", path.read_text(), re.MULTILINE):
        assert re.search(rf"^{target}:", makefile, re.MULTILINE), f"{path.name}: no target {target!r} in the Makefile"


def test_the_readme_has_its_two_commands_and_the_tour_its_stations() -> None:
    assert {"make demo", "make test"} <= set(commands("README.md"))
    verbs = {line.split()[1] for document in ("README.md", "docs/tour.md") for line in commands(document)}
    assert {"init", "check", "train", "eval", "generate", "score", "list", "data"} <= verbs


@pytest.mark.parametrize("path", DOCUMENTS, ids=lambda path: path.name)
def test_relative_links_lead_somewhere(path: Path) -> None:
    """Catches a link to a page and to a heading that are not there."""
    text = re.sub(r"```.*?```", "", path.read_text(), flags=re.DOTALL)
    for link in re.findall(r"\]\(([^)\s]+)\)", text):
        if re.match(r"\w+:", link):
            continue
        place, _, heading = link.partition("#")
        target = path.parent / place if place else path
        assert target.exists(), f"{path.name} links to {link}, which is not there"
        assert not heading or heading in _headings(target), f"{path.name}: no heading for {link}"


def _headings(path: Path) -> list[str]:
    """As the web sites that show Markdown name them."""
    titles = re.findall(r"^#+ (.+)$", path.read_text(), re.MULTILINE)
    return [re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-") for title in titles]


@pytest.mark.slow
def test_the_pages_made_from_code_are_what_the_code_says() -> None:
    """In a process of its own, where no test has registered anything. Catches a changed help text, a changed
    formula, and positions taken from attention."""
    code = "import json, runpy; pages = runpy.run_path('docs/build.py')['PAGES']"
    code += "; print(json.dumps({name: page() for name, page in pages.items()}))"
    made = run_forked("-c", code, cwd=ROOT, check=True)
    pages = json.loads(made.stdout)
    assert {"reference.md", "families.md", "positions.md"} <= pages.keys()
    for name, page in pages.items():
        assert page == (ROOT / "docs" / name).read_text(), f"docs/{name} is stale: run make docs"


# Recipes


@pytest.mark.parametrize("path", RECIPES, ids=lambda path: path.stem)
def test_a_recipe_is_sound_and_says_what_it_promises(path: Path) -> None:
    recipe = read_recipe(path)
    assert path.read_text().startswith("# "), "a recipe begins by saying what it is"
    assert recipe.goals
    for goal in recipe.goals:
        assert goal.minutes
        assert (goal.at_most is None) != (goal.at_least is None)
    assert read_recipe(recipe.plain()).plain() == recipe.plain()


@pytest.mark.slow
@pytest.mark.parametrize("path", RECIPES, ids=lambda path: path.stem)
def test_a_recipe_trains(path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """On texts of the same names and forms; the measures of its goals exist. Catches a wrong measure."""
    monkeypatch.chdir(tmp_path)
    settings = shrunk(path)
    for seed, split in enumerate(("train", "valid", "test")):
        for place, text in example_files(settings, split, seed).items():
            _write(Path(place), text)
    reports = list(iterate(settings, run="run", overrides={"device": "cpu"}))
    if settings["model"].get("type") != "ngram":  # counting is a single step without a training loss
        assert len([report.values["loss"] for report in reports if report.kind == "step"]) == 3
    goals = reports[-1].values["goals"]
    assert len(goals) == len(settings["goals"])
    assert all(isinstance(goal["value"], float) for goal in goals), goals
    assert json.loads(Path("run/results.json").read_text())["goals"] == goals


def example_files(settings: dict[str, Any], split: str, seed: int) -> dict[str, str]:
    """What a recipe wants to read for a split, in the form of its task."""
    data, task = settings["data"], settings.get("task", "language-model")
    place = data.get(split)
    if not place:
        return {}
    if f"{split}_target" in data:
        return {place: sentences(60, seed), data[f"{split}_target"]: sentences(60, seed).upper()}
    makers = {"classify": labelled, "translate": paired, "tag": tagged, "language-model": sentences}
    text = makers[task](200 if task == "language-model" else 60, seed)
    return {place: universal(text) if "conllu" in place else text}


def _write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(gzip.compress(text.encode()) if path.suffix == ".gz" else text.encode())


def _reaches_its_goals(name: str) -> None:
    """The whole recipe. How long it takes is measured by benchmarks/recipes.py on a quiet machine."""
    *_, result = iterate(ROOT / "recipes" / f"{name}.yaml", run="run", overrides={"device": "cpu", "threads": 1})
    for goal in result.values["goals"]:
        assert goal["met"], goal


@pytest.mark.slow
def test_the_agreement_recipe_reaches_its_goals(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    _reaches_its_goals("agreement")


@pytest.mark.slow
@pytest.mark.data
def test_the_names_recipe_reaches_its_goal(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    data = Path(os.environ.get("ELMAN_DATA") or ROOT / "data")
    if not (data / "names" / "train.txt").exists():
        pytest.skip("needs the list of names: ELMAN_DATA must point to a folder as docs/data.md describes it")
    (tmp_path / "data").symlink_to(data.resolve())
    monkeypatch.chdir(tmp_path)
    _reaches_its_goals("names-elman")


# The cell of CONTRIBUTING.md, which tests/laws holds to the laws


@pytest.fixture
def added_cell(tmp_path: Path) -> Iterator[None]:
    with contributed_cells(tmp_path):
        yield


@pytest.mark.slow
@pytest.mark.usefixtures("added_cell")
def test_the_added_cell_trains_and_shows_its_gate(tmp_path: Path) -> None:
    """Seen to fail without its tap, and with a name that was misspelt."""
    assert every_name()["cells"]["update-gate"] == "Mixes past and candidate by one gate."
    layer = LAYERS["update-gate"](LAYERS["update-gate"].Config(hidden_size=4), 3)
    x = torch.randn(2, 6, 3)
    outputs, final = layer(x)
    first, state = layer(x[:, :2])
    second, cut = layer(x[:, 2:], state)
    torch.testing.assert_close((torch.cat([first, second], 1), cut), (outputs, final))
    torch.testing.assert_close(layer.step(x[:, 2], state)[0], outputs[:, 2])
    with record("*") as seen:
        layer(x)
    assert set(seen.sites()) == set(CELLS["update-gate"].sites)
    for one in (layer, LAYERS["momentum"](LAYERS["momentum"].Config(hidden_size=4), 3)):
        claimed, counted = stated(one, 6), measure(one, 6)
        assert (claimed.state, claimed.parameters) == (counted.state, counted.parameters)
        assert claimed.stepping == pytest.approx(counted.stepping, rel=0.2)

    training = {"max_steps": 4, "batch_size": 4, "sequence_length": 16, "log_every": 1}
    (tmp_path / "my.txt").write_text(sentences(60, 1))
    recipe = {
        "model": "update-gate",
        "data": {"train": str(tmp_path / "my.txt")},
        "training": training,
        "device": "cpu",
    }
    losses = [r.values["loss"] for r in iterate(recipe, run=tmp_path / "run") if r.kind == "step"]
    assert losses[-1] < losses[0]
    trace = load(tmp_path / "run", "cpu").trace("the wolf", sites=["layers.0.update-gate.gate.*"])
    gate = trace["layers.0.update-gate.gate.update"]
    assert gate.shape == (len(trace.tokens), 256)
    assert 0 < gate.min() < gate.max() < 1
