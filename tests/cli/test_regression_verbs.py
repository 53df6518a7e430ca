"""Text regression, from a file to numbers; and the task of CONTRIBUTING.md from a file of one's own."""

import json
import random
import re
import sys
from pathlib import Path

import pytest

from elman import load
from elman.comparison.user_modules import read_modules
from elman.errors import ConfigError, DataError
from elman.pipeline import read_recipe, train
from elman.pipeline.tasks import TASKS

ROOT = Path(__file__).parents[2]
QUICK = ("--training.max_epochs", "3", "--training.batch_size", "16", "--training.learning_rate", "1e-2")
QUICK += ("--model.hidden_size", "12", "--device", "cpu")
RACE = ("--models", "rnn,gru", "--params", "6k", "--tokens", "300", "--seeds", "2", "--trials", "1", "--workers", "1")


def reviews(count: int = 160, seed: int = 1) -> list[tuple[float, str]]:
    """Stars by the words of a text."""
    dice = random.Random(seed)
    found = []
    for _ in range(count):
        words = dice.choices(["good", "great", "bad", "awful", "the", "cat"], k=dice.randint(2, 6))
        stars = 3 + sum(word in ("good", "great") for word in words) - sum(word in ("bad", "awful") for word in words)
        found.append((stars + 0.25, " ".join(words)))
    return found


def table(rows) -> str:
    return "stars\ttext\n" + "".join(f"{stars}\t{text}\n" for stars, text in rows)


@pytest.fixture
def place(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "reviews.tsv").write_text(table(reviews()))
    (tmp_path / "test.tsv").write_text(table(reviews(40, 2)))
    return tmp_path


DATA = ("--data", "reviews.tsv", "--columns", "stars,text")


@pytest.mark.slow
def test_from_a_table_to_numbers_with_their_baseline(elman, place):
    trained = elman("train", "--task", "regress", *DATA, "--test", "test.tsv", "--run", "r", *QUICK)
    assert trained.code == 0, trained.err
    assert "baseline mse" in trained.out
    scores = json.loads(elman("eval", "r", "--data", "test.tsv", "--json").out)
    truth = [stars for stars, _ in reviews(40, 2)]
    answers = elman("predict", "r", "--json", stdin="".join(f"{text}\n" for _, text in reviews(40, 2)))
    numbers = [json.loads(line)["number"] for line in answers.out.splitlines()]
    squares = [(one - other) ** 2 for one, other in zip(numbers, truth, strict=True)]
    assert scores["mse"] == pytest.approx(sum(squares) / 40, rel=1e-4)
    mean = json.loads((place / "r" / "scale.json").read_text())["mean"]
    assert scores["baseline_mse"] == pytest.approx(sum((mean - one) ** 2 for one in truth) / 40, rel=1e-4)
    assert scores["mse"] < scores["baseline_mse"]
    for name in ("mse", "mae", "pearson", "spearman", "r2"):
        low, high = scores[f"{name}_interval"]
        assert low <= scores[name] <= high
    assert re.fullmatch(r"-?[\d.]+\tgood cat\n", elman("predict", "r", stdin="good cat\n").out)
    refused = elman("predict", "r", "--probabilities", stdin="good cat\n")
    assert (refused.code, refused.out, refused.err.count("\n")) == (2, "", 1)
    assert "predictions of task regress have no probabilities" in refused.err


@pytest.mark.slow
def test_two_runs_are_compared_in_pairs(elman, place):
    for name, epochs in (("a", "1"), ("b", "4")):
        elman("train", "--task", "regress", *DATA, "--run", name, *QUICK, "--training.max_epochs", epochs)
    found = json.loads(elman("eval", "a", "b", "--data", "test.tsv", "--json").out)
    first, second = (found["runs"][name] for name in "ab")
    assert found["measure"] == "mse"
    assert found["difference"] == pytest.approx(second["mse"] - first["mse"])
    for name in ("mae", "pearson", "r2"):
        assert found["others"][name]["difference"] == pytest.approx(second[name] - first[name], abs=1e-9)
    assert found["p_value"] < 0.05
    assert "mse, second minus first" in elman("eval", "a", "b", "--data", "test.tsv").out


@pytest.mark.parametrize(
    ("rows", "told"),
    [
        ("1.5\tgood\nmuch\tbad\n", r"r\.tsv.*3.*'much' is not a finite number"),
        ("1.5\tgood\nnan\tbad\n", r"r\.tsv.*3.*'nan' is not a finite number"),
        ("1.5\tgood\n1e200\tbad\n", r"r\.tsv: the targets reach from 1.5 to 1e\+200: their variance is no number"),
        ("1.5\tgood\n-inf\tbad\n", r"r\.tsv.*3.*'-inf' is not a finite number"),
        ("1.5\tgood\n\tbad\n", r"r\.tsv.*3.*a number is missing"),
        ("2\tgood\n2\tbad\n", r"only the number 2 in 2 texts"),
    ],
)
def test_what_is_no_number_is_named_with_file_and_line(place, rows, told):
    """Catches float() alone, which takes nan and inf."""
    (place / "r.tsv").write_text("stars\ttext\n" + rows)
    settings = {"task": "regress", "data": {"train": "r.tsv", "columns": ["stars", "text"], "valid_fraction": 0.0}}
    with pytest.raises(DataError) as raised:
        train(settings, run=place / "run")
    assert re.search(told, str(raised.value).replace("\n", " ")), raised.value
    assert not (place / "run").exists()


def test_numbers_come_from_csv_json_lines_and_parquet_alike(place):
    """Catches numbers of JSON read as labels, which must be text."""
    arrow, parquet = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
    rows = reviews(60)
    (place / "a.csv").write_text("stars,text\n" + "".join(f"{stars},{text}\n" for stars, text in rows))
    (place / "a.jsonl").write_text("".join(json.dumps({"stars": s, "text": t}) + "\n" for s, t in rows))
    columns = {"stars": [stars for stars, _ in rows], "text": [text for _, text in rows]}
    parquet.write_table(arrow.table(columns), place / "a.parquet")
    found = []
    for end in ("csv", "jsonl", "parquet"):
        data = {"train": f"a.{end}", "columns": ["stars", "text"]}
        recipe = read_recipe({"task": "regress", "data": data})
        corpus = recipe.task_class.corpus(recipe)
        learned = recipe.task_class.learn(recipe, corpus)
        numbers = [learned.target.target(text) for text in corpus.texts("train")]
        found.append((vars(learned.target), numbers))
    assert found[0] == found[1] == found[2]
    assert sum(found[0][1]) == pytest.approx(0, abs=1e-9)


@pytest.mark.slow
def test_it_begins_with_a_language_model_and_follows_every_token(elman, place):
    (place / "text.txt").write_text("".join(f"{text}\n" for _, text in reviews()))
    small = ("--model.hidden_size", "12", "--training.max_epochs", "1", "--training.sequence_length", "8")
    elman("train", "--data", "text.txt", "--tokenizer", "word", "--run", "lm", *small, "--device", "cpu")
    last = ("--model.every_token", "true", "--training.max_epochs", "2", "--device", "cpu")
    begun = elman("train", "--task", "regress", *DATA, "--start-from", "lm", "--run", "r", *last)
    assert begun.code == 0, begun.err
    assert "begins with" in begun.err
    assert load("r").model.embedding.weight.shape == load("lm").model.embedding.weight.shape


def test_check_and_init_know_it(elman, place):
    checked = elman("check", "--task", "regress", *DATA, "--model.hidden_size", "12", "--device", "cpu")
    assert checked.code == 0, checked.err
    written = elman("init", "r.yaml", "--task", "regress", *DATA)
    assert written.code == 0, written.err
    recipe = read_recipe("r.yaml")
    assert (recipe.task, recipe.model.type) == ("regress", "regressor")
    assert read_recipe(recipe.plain()) == recipe


@pytest.mark.slow
def test_it_can_be_looked_into(elman, place):
    elman("train", "--task", "regress", *DATA, "--run", "r", *QUICK)
    text = ("--text", "good cat and bad dog")
    for verb in ("predictions", "gradients", "padding", "sites", "trace", "ribbons"):
        shown = elman("inspect", verb, "r", *(() if verb == "sites" else text))
        assert shown.code == 0, shown.err
        assert verb != "predictions" or "number after each token" in shown.out
    edited = elman("inspect", "predictions", "r", *text, "--edit", "layers.0.lstm.gate.forget=1")
    assert edited.code == 0, edited.err
    refused = elman("inspect", "predictions", "r", *text, "--contrast", "a,b")
    assert (refused.code, "no outcomes to contrast" in refused.err) == (2, True)


@pytest.mark.slow
def test_a_race_is_won_by_the_least_squared_error(elman, place):
    raced = elman("compare", "--task", "regress", *DATA, "--test", "test.tsv", *RACE, "--run", "race", "--json")
    assert raced.code == 0, raced.err
    rows = json.loads(raced.out)["entrants"]
    assert rows[0]["score"] == min(row["score"] for row in rows)
    for row in rows:
        assert row["score"] == pytest.approx(row["figures"]["mse"])
        by_length = row["by_length"]
        mean = sum(one["mse"] * one["tokens"] for one in by_length) / sum(one["tokens"] for one in by_length)
        assert mean == pytest.approx(row["score"])
        assert row["answers_per_second"] > 0
        assert row["state_bytes"]
    assert rows[1]["against_best"]["by_document"] is not None
    page = (place / "race" / "report.html").read_text()
    assert "training texts" in page
    assert "Squared error by the first seeds" in page
    examples = [json.loads(line) for line in (place / "race" / "examples.jsonl").read_text().splitlines()]
    assert len(examples) == 40
    assert all(score <= 0 for one in examples for score in one["scores"].values())


# The task of CONTRIBUTING.md, from a file of one's own


@pytest.fixture
def own_task(place):
    text = (ROOT / "CONTRIBUTING.md").read_text()
    [code] = [block for block in re.findall(r"```python\n(.*?)```", text, re.DOTALL) if "TASKS.register" in block]
    (place / "rate.py").write_text(code)
    yield "--module", "rate.py"
    TASKS._items.pop("rate", None)
    for name in [name for name in sys.modules if name.endswith("rate.py")]:
        del sys.modules[name]


@pytest.mark.slow
def test_a_task_of_ones_own_trains_judges_answers_races_and_is_looked_into(elman, place, own_task):
    """The commands of CONTRIBUTING.md, and its numbers those of the built-in task."""
    trained = elman("train", *own_task, "--task", "rate", *DATA, *QUICK)
    assert trained.code == 0, trained.err
    run = "runs/reviews-lstm"
    assert f"elman predict {run} --module rate.py" in trained.out
    judged = elman("eval", run, *own_task, "--json")
    scores = json.loads(judged.out)
    assert scores["mse"] < scores["baseline_mse"]
    answers = elman("predict", run, *own_task, stdin="good good\nbad bad\n").out.splitlines()
    good, bad = (float(line.split("\t")[0]) for line in answers)
    assert good > bad
    looked = elman("inspect", "predictions", run, *own_task, "--text", "not bad at all")
    assert looked.code == 0, looked.err
    assert '"rate"' in elman("list", *own_task, "--json").out
    raced = elman("compare", *own_task, "--task", "rate", *DATA, *RACE, "--run", "race", "--json")
    assert raced.code == 0, raced.err
    assert {row["entrant"] for row in json.loads(raced.out)["entrants"]} == {"rnn", "gru"}


@pytest.mark.parametrize("method", ["build", "build_smallest", "grade", "inspect"])
def test_a_task_that_lacks_a_method_is_refused_when_its_file_is_read(elman, place, own_task, method):
    """Catches a bare NotImplementedError after the data was read, or after the training."""
    path = place / "rate.py"
    path.write_text(path.read_text().replace(f"def {method}(", f"def other_{method}("))
    ended = elman("train", *own_task, "--task", "rate", *DATA, *QUICK)
    assert (ended.code, ended.err.count("\n")) == (2, 1), ended.err
    assert f"task 'rate': class Rate has no {method};" in ended.err


def test_a_task_without_grades_needs_parts_of_answers(place, own_task):
    path = place / "rate.py"
    path.write_text(path.read_text().replace("    graded =", "    entrants ="))
    with pytest.raises(ConfigError, match="class Rate has no answer_parts;"):
        read_modules([path])


def test_a_task_that_nobody_has_registered_asks_for_its_file(place):
    with pytest.raises(ConfigError, match=r"unknown task 'rate'.*--module"):
        read_recipe({"task": "rate", "data": {"train": "reviews.tsv"}})
