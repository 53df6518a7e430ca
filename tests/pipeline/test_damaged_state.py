"""Whatever stands in the JSON files of a run, loading and resuming it work or end with one sentence of elman."""

import copy
import json
import shutil
from pathlib import Path

import pytest
from whole_runs import run

import elman
from benchmarks.attack.kinds import BRIEF, write_data
from elman.errors import ElmanError
from elman.runs import FileManifest
from elman.runs.manifest import make_manifest

MISSING = object()
WRONG = [None, 2**70, "x", [], {"x": [{}]}]
DAMAGED = ["", "{", "[]", "{}", "3", "\x00", "[" * 100_000]
UNREAD = ("best", "first_loss", "total_steps", 0, 1)  # or of any number: losses
SIDES = {"language_model": ["tokenizer"], "classify": ["labels"], "regress": ["scale"], "tag": ["words", "tags"]}


@pytest.fixture(scope="module")
def kept(tmp_path_factory):
    """Runs of four tasks, with more to train."""
    place = tmp_path_factory.mktemp("kept")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(place)
        write_data()
        for task in SIDES:
            run({**BRIEF[task], "device": "cpu"}, task, until=lambda report: report.kind == "save")
    return place


@pytest.fixture
def place(kept, tmp_path, monkeypatch):
    shutil.copytree(kept, tmp_path, dirs_exist_ok=True)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def paths(content, before=()):
    """The places of all values, of the first two in lists."""
    several = content if isinstance(content, dict) else range(min(2, len(content))) if isinstance(content, list) else ()
    for key in several:
        yield (*before, key)
        yield from paths(content[key], (*before, key))


def damages(content):
    """What was done where, and the content with that one part missing or replaced."""
    for number, path in enumerate(paths(content)):
        for wrong in (MISSING, -1, WRONG[number % len(WRONG)]):
            changed = holder = copy.deepcopy(content)
            for step in path[:-1]:
                holder = holder[step]
            if wrong is MISSING:
                del holder[path[-1]]
            else:
                holder[path[-1]] = wrong
            yield (path, wrong), changed


def works_or_ends_in_one_sentence(use, about):
    """Whether it worked."""
    problem = None
    try:
        use()
    except ElmanError as error:
        problem = str(error)
    except Exception as error:
        raise AssertionError(about) from error
    assert not problem or ("\n" not in problem and len(problem) < 1000), about
    return not problem


@pytest.mark.slow
def test_facts_of_a_checkpoint(kept, place):
    """Seen to fail with KeyError, TypeError and IndexError, and with a negative step that trained on."""
    (folder,) = Path("classify/last").iterdir()
    before = {path.name: path.read_bytes() for path in folder.iterdir() if path.name != "manifest.json"}
    for about, changed in damages(json.loads(before["facts.json"])):
        contents = {**before, "facts.json": json.dumps(changed).encode()}
        (folder / "facts.json").write_bytes(contents["facts.json"])
        (folder / "manifest.json").write_bytes(make_manifest(int(folder.name[-8:]), contents))

        def resume():
            run(None, "classify", until=lambda report: report.kind == "start")

        worked = works_or_ends_in_one_sentence(resume, about)
        path, wrong = about
        assert not worked or path[:2] != ("trainer", "step"), about
        assert not worked or wrong != -1 or path[0] in ("environment", "manifest") or path[-1] in UNREAD, about
        shutil.rmtree("classify")
        shutil.copytree(kept / "classify", "classify")


@pytest.mark.slow
@pytest.mark.parametrize(("task", "name"), [(task, name) for task, names in SIDES.items() for name in names])
def test_files_beside_the_weights(place, task, name):
    """Seen to fail with KeyError, TypeError and RecursionError."""
    path = Path(task) / f"{name}.json"
    cases = [(about, json.dumps(changed)) for about, changed in damages(json.loads(path.read_text()))]
    for about, text in [*cases[:: 1 + len(cases) // 80], *zip(DAMAGED, DAMAGED, strict=True)]:
        path.write_text(text)
        FileManifest(task).accept()

        def use():
            model = elman.load(task)
            _ = next(iter(model.predict(["a cat"]))) if task != "language_model" else model.score("a cat")

        works_or_ends_in_one_sentence(use, about)
