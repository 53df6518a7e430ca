"""Whole races, small ones: all of it in processes, with a folder that survives everything."""

import json
import re
import signal
import subprocess
from html.parser import HTMLParser
from itertools import pairwise

import pytest
from processes import HANG, environment, forked_python, run_forked, wait_for

from elman.cli.race_table import show_results
from elman.comparison import Race, RaceRun, gather, read_results
from elman.comparison.report import _near, write_report
from elman.comparison.workers import SpawningWorker
from elman.errors import ConfigError, RunError
from elman.files import ASIDE, temporary_path
from elman.runs import FileManifest, read_metrics
from elman.runs.lock import file_lock

pytestmark = pytest.mark.slow


def run(settings, folder, **options):
    running = RaceRun(Race.make(settings), folder, workers=2, **options)
    events = [event for event in running.events() if event.kind in ("done", "failed")]
    return running, events


class Page(HTMLParser):
    """What a reader of the page would stumble over."""

    def __init__(self, text):
        super().__init__()
        self.open, self.tags, self.attributes = [], [], []
        self.feed(text)

    def handle_starttag(self, tag, attributes):
        self.tags.append(tag)
        self.attributes.append((tag, dict(attributes)))


def test_a_race_from_start_to_report(small, tmp_path, capsys):
    running, events = run(small, tmp_path / "race")
    assert [event.kind for event in events] == ["done"] * 6  # two trials and one beyond, two seeds, and one count
    found = gather(running)
    rows = read_results(tmp_path / "race")
    assert {row["entrant"] for row in rows} == {"ngram", "rnn"}
    rnn = next(row for row in rows if row["entrant"] == "rnn")
    assert rnn["learning_rate"] in rnn["rates_tried"]
    assert len(rnn["rates_tried"]) == 3
    assert abs(rnn["parameters"] - 5000) <= 100
    assert len(rnn["by_seed"]) == rnn["seeds"] == 2
    assert rnn["by_seed"][0] != rnn["by_seed"][1]
    for key in ("training_tokens_per_second", "generation_tokens_per_second", "peak_bytes", "training_flops_per_token"):
        assert rnn[key] > 0, key
    assert [layer["layer"] for layer in rnn["layers"]] == ["rnn"]
    for key in ("state_bytes", "staircase", "by_position", "by_frequency", "samples"):
        assert rnn[key], key
    assert rnn["figures"].keys() >= {"loss", "perplexity", "bits_per_byte"}
    assert rnn["relative_excess"] > 0
    path = write_report(found, running, ["compare", "--run", "race"])
    text = path.read_text()
    assert len(text) < 1_000_000
    assert "at most 1 more" in text
    assert (path.parent / "plots" / "staircase.png").exists()
    assert (path.parent / "plots" / "curves.svg").exists()
    _page_stands_alone(text)
    (tmp_path / "race" / "results.parquet").unlink(missing_ok=True)  # as without pyarrow
    show_results(found, running, path)
    said = capsys.readouterr().out
    assert said.splitlines()[-1] == f"Report: {path}"
    assert "pip install" not in said


def _page_stands_alone(text):
    """No request, no script, a heading first, every picture and table with words."""
    page = Page(text)
    assert not {"script", "link", "iframe", "img", "object"} & set(page.tags)
    for tag, attributes in page.attributes:
        for name in ("src", "href", "xlink:href"):
            assert attributes.get(name, "#").startswith("#"), (tag, attributes)
    assert not re.search(r"url\((?!#)|@import", text)
    levels = [int(tag[1]) for tag in page.tags if re.fullmatch(r"h[1-6]", tag)]
    assert levels[0] == 1 == levels.count(1)
    assert all(after - before <= 1 for before, after in pairwise(levels))
    names = [attributes["id"] for _, attributes in page.attributes if "id" in attributes]
    assert len(names) == len(set(names))
    pictures = [attributes for tag, attributes in page.attributes if tag == "svg"]
    assert pictures
    assert all(one.get("role") == "img" and one.get("aria-label") for one in pictures)
    for one in pictures:
        assert one["aria-describedby"] in names
    assert page.tags.count("caption") == page.tags.count("table") > 0
    heads = [attributes for tag, attributes in page.attributes if tag == "th"]
    assert all(one.get("scope") in ("row", "col") for one in heads)
    assert ("html", {"lang": "en"}) in page.attributes


def test_one_that_fails_does_not_stop_the_rest(small, tmp_path):
    """Catches the failure raised."""
    bad = {"pattern": ["rnn"], "embedding_dropout": 0.0}
    small |= {"entrants": {"ngram": {}, "rnn": {}, "lost": bad}, "trials": 1}
    running = RaceRun(Race.make(small), tmp_path / "race", workers=2)
    for job in [*running.plan.runs(running.plan.entrants[2], None, None)]:
        running.plan.make_folder(job)
        FileManifest(job.folder).write("config.yaml", b"model: {type: nonsense}\n")
    events = [event for event in running.events() if event.kind in ("done", "failed")]
    assert sorted(event.kind for event in events) == ["done"] * 3 + ["failed"] * 2
    assert "nonsense" in running.failures["lost"]["seed-1"]
    found = gather(running)
    assert [row["entrant"] for row in found.rows][-1] == "lost"
    assert found.rows[-1]["place"] is None
    assert "nonsense" in write_report(found, running, []).read_text()


def test_a_finished_race_is_not_run_again_and_more_seeds_only_add(small, tmp_path):
    """Nor keeps it the remains of crashes, which a second process leaves alone. Catches: a race had no lock."""
    small |= {"entrants": ["rnn"], "trials": 1, "seeds": 1}
    running, events = run(small, tmp_path / "race")
    assert len(events) == 1
    first = running.jobs["rnn"][0].results
    with pytest.raises(RunError, match="--resume"):
        run(small, tmp_path / "race")
    for place in ("prepared", "rnn/seed-1"):
        temporary_path(tmp_path / "race" / place / "remains").touch()
    with file_lock(tmp_path / "race" / "lock"), pytest.raises(RunError, match="in use by process"):
        run(small, tmp_path / "race", resume=True)
    assert run(small, tmp_path / "race", resume=True)[1] == []
    assert [*tmp_path.rglob(f"{ASIDE}*")] == []
    with pytest.raises(ConfigError, match="keeps its settings, but tokens was"):
        run(small | {"tokens": 3000}, tmp_path / "race", resume=True)
    running, events = run(small | {"seeds": 2}, tmp_path / "race", resume=True)
    assert [event.job.label for event in events] == ["seed-2"]
    assert running.jobs["rnn"][0].results == first


def test_all_run_on_the_same_data_for_the_same_tokens(small, tmp_path):
    small |= {"entrants": ["rnn", "window"], "trials": 1, "seeds": 1}
    running, _ = run(small, tmp_path / "race")
    ends = [read_metrics(jobs[0].folder / "metrics.jsonl")[-1]["tokens"] for jobs in running.jobs.values()]
    assert ends[0] == ends[1] == pytest.approx(1500, rel=0.1)
    tokenizers = {(jobs[0].folder / "tokenizer.json").read_text() for jobs in running.jobs.values()}
    assert len(tokenizers) == 1


def test_an_interrupted_race_goes_on_to_the_same_end(small, tmp_path):
    """Catches children that are not told of the interrupt: their locks were still held."""
    small |= {"entrants": ["rnn"], "trials": 1, "seeds": 1, "tokens": 60_000}
    code = (
        "from elman.cli.main import main\nmain(['compare', 'race.yaml', '--run', 'race', '--resume', '--workers', '1'])"
    )
    (tmp_path / "race.yaml").write_text(json.dumps(small))  # JSON is YAML
    process = subprocess.Popen(
        [*forked_python(), "-c", code], cwd=tmp_path, stderr=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
        env=environment(),
    )  # fmt: skip
    metrics = tmp_path / "race" / "rnn" / "seed-1" / "metrics.jsonl"
    wait_for(lambda: metrics.exists() and metrics.read_bytes(), process)
    process.send_signal(signal.SIGINT)
    _, said = process.communicate(timeout=HANG)
    assert process.returncode == 130, said
    assert "--resume" in said
    assert not (tmp_path / "race" / "rnn" / "seed-1" / "results.json").exists()
    running, _ = run(small, tmp_path / "race", resume=True)
    whole, _ = run(small, tmp_path / "whole")
    cut, uncut = (one.jobs["rnn"][0].results["test"]["loss"] for one in (running, whole))
    assert cut == uncut


@pytest.mark.parametrize("budget", [{"minutes": 0.02}, {"flops": "1e8"}], ids=str)
def test_other_budgets_give_each_its_own_steps(small, tmp_path, budget):
    small |= {"entrants": ["rnn", "attention"], "trials": 1, "seeds": 1, "tokens": 0, "parameters": "20k", **budget}
    running, events = run(small, tmp_path / "race")
    assert {event.kind for event in events} == {"done"}
    jobs = {name: own[0] for name, own in running.jobs.items()}
    steps = {name: job.recipe.training.max_steps for name, job in jobs.items()}
    if "minutes" in budget:
        assert running.speeds.keys() == steps.keys()
        for name, speed in running.speeds.items():
            assert steps[name] == max(1, round(speed * 60 * budget["minutes"] / running.plan.per_step))
    else:
        spent = [steps[one.name] * running.plan.per_step * one.flops for one in running.plan.entrants]
        assert spent == pytest.approx([1e8, 1e8], rel=0.15)


def test_a_race_of_classifiers(small, labelled, tmp_path):
    """Metric by task: accuracy, and more of it is better."""
    small |= {"entrants": ["rnn", "gru"], "trials": 1, "tokens": 600, "parameters": "12k"}
    small["recipe"] = {"device": "cpu", "task": "classify", "data": {"train": str(labelled), "valid_fraction": 0.3}}
    small["recipe"]["training"] = {"batch_size": 8, "learning_rate": 0.01}
    running, events = run(small, tmp_path / "race")
    assert [event.kind for event in events] == ["done"] * 4, running.failures
    found = gather(running)
    assert found.measure.key == "accuracy"
    assert not found.measure.lower_is_better
    assert found.rows[0]["score"] >= found.rows[1]["score"]
    _page_stands_alone(write_report(found, running, []).read_text())


def test_where_nothing_can_be_forked_a_process_is_started(small, tmp_path):
    """The same numbers either way. Catches another seed for the second."""
    small |= {"entrants": ["rnn"], "trials": 1, "seeds": 1}
    forked, _ = run(small, tmp_path / "forked")
    started = RaceRun(Race.make(small), tmp_path / "started", workers=1)
    (job,) = started.plan.runs(started.plan.entrants[0], None, None)
    started.plan.make_folder(job)
    ended = SpawningWorker({"OMP_NUM_THREADS": "1"}).train(job.folder)
    assert ended["code"] == 0
    assert ended["peak_bytes"] > 0
    assert job.results["test"] == forked.jobs["rnn"][0].results["test"]


CELL = """
from elman.cells import CELLS
from elman.cells.rnn import RNN


@CELLS.register("my-cell")
class MyCell(RNN):
    'An own cell.'
"""


def test_an_own_cell_takes_part_and_can_be_looked_into(small, tmp_path):
    """Registered in a file that every worker reads; in a process, so that no other test sees the cell.

    Catches modules kept under the names of their files: Python has a json already, so this one was not read;
    and with workers that look for Python's own in the working folder.
    """
    (tmp_path / "json.py").write_text(CELL)
    small |= {"entrants": ["my-cell"], "trials": 1, "seeds": 1}
    (tmp_path / "race.yaml").write_text(json.dumps(small))
    ended = _elman(tmp_path, "compare", "race.yaml", "--run", "race", "--workers", "1", "--json", *OWN)
    assert ended.returncode == 0, ended.stderr
    assert json.loads(ended.stdout)["entrants"][0]["entrant"] == "my-cell"
    again = "elman train race/my-cell/seed-1/config.yaml --run race-my-cell --module json.py"
    assert again in (tmp_path / "race" / "report.html").read_text()
    assert "elman compare race.yaml" in (tmp_path / "race" / "plots" / "curves.svg").read_text()
    look = ["inspect", "sites", "race/my-cell/seed-1", "--json"]
    unknown = _elman(tmp_path, *look)
    assert (unknown.returncode, "--module" in unknown.stderr) == (2, True)
    sites = _elman(tmp_path, *look, *OWN)
    assert "layers.0.my-cell.hidden" in [one["site"] for one in json.loads(sites.stdout)], sites.stderr
    (tmp_path / "json.py").write_text(CELL.replace("An own", "Another"))
    more = _elman(tmp_path, "compare", "race.yaml", "--run", "race", "--seeds", "2", "--resume", *OWN)
    assert more.returncode == 2
    assert "json.py: not the same as when the race began" in more.stderr.replace("\n", " ")


FUTURE = """
from elman.cells import CELLS
from elman.cells.rnn import RNN


@CELLS.register("seer")
class Seer(RNN):
    'It sees what comes.'

    def drive(self, x):
        return super().drive(x).flip(-2)
"""


def test_a_cell_that_sees_the_future_neither_races_nor_trains(small, tmp_path):
    """Catches laws tried on nobody: it won, with a loss below the entropy of the text."""
    (tmp_path / "json.py").write_text(FUTURE)
    small |= {"entrants": ["rnn", "seer"], "trials": 1, "seeds": 1}
    (tmp_path / "race.yaml").write_text(json.dumps(small))
    raced = _elman(tmp_path, "compare", "race.yaml", "--run", "race", "--workers", "1", *OWN)
    trained = _elman(tmp_path, "train", "--model", "seer", "--training.max_steps", "1", *OWN)
    for ended in (raced, trained):
        assert ended.returncode == 2
        assert "'seer' breaks the law of causality" in " ".join(ended.stderr.split())
        assert "it sees the future" in " ".join(ended.stderr.split())
    assert not (tmp_path / "race").exists()
    (tmp_path / "json.py").write_text(CELL)
    checked = _elman(tmp_path, "check", "--model", "my-cell", "--training.max_steps", "1", *OWN)
    assert "my-cell keeps all laws of layers" in checked.stdout


def test_who_came_near_the_best_with_some_seeds_is_not_said_to_have_never():
    assert _near({"seconds_to_near_loss": 1.25, "seeds_near_loss": 3, "seeds": 3}) == "1.25"
    assert _near({"seconds_to_near_loss": None, "seeds_near_loss": 1, "seeds": 3}) == "1 of 3 seeds"
    assert _near({"seconds_to_near_loss": None, "seeds_near_loss": 0, "seeds": 3}) == "never"


OWN = ("--module", "json.py")


def _elman(folder, *words):
    return run_forked("-P", "-m", "elman", *words, cwd=folder)
