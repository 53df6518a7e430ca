"""Every verb on a small run: tables, JSON, options and errors."""

import io
import json
import shlex

import pytest
import yaml

VERBS = [
    "init",
    "check",
    "train",
    "eval",
    "generate",
    "score",
    "import",
    "export",
    "tasks",
    "list",
    "data",
    "data describe",
    "inspect",
    "inspect bottleneck",
    "inspect permutation",
    "inspect word-order",
    "inspect sites",
    "inspect trace",
    "inspect gradients",
    "inspect predictions",
    "inspect attention",
    "inspect padding",
    "inspect units",
    "lab",
    "lab list",
    "lab run",
]
TINY = ["--device", "cpu", "--model.hidden_size", "16", "--training.max_steps", "8", "--training.sequence_length", "16"]


def type_in(monkeypatch, text):
    monkeypatch.setattr("sys.stdin", io.StringIO(text))


@pytest.mark.parametrize("verb", ["", *VERBS])
@pytest.mark.parametrize("word", ["-h", "--help"])
def test_every_verb_has_help(elman, verb, word):
    ended = elman(*verb.split(), word)
    assert ended.code == 0
    assert "Usage: elman" in ended.out
    assert not ended.err
    assert max(map(len, ended.out.splitlines())) <= 80


def test_help_shows_defaults(elman):
    shown = " ".join(elman("train", "-h").out.split())
    for default in ["lstm", "auto", "runs/<data>-<model>", "held out", "(1)"]:
        assert default in shown
    assert "[default: 1]" in elman("generate", "-h").out


def test_train_without_a_recipe_prints_tables(elman, text):
    ended = elman("train", "--data", text, "--model", "gru", *TINY)
    assert ended.code == 0
    assert (text.parent / "runs" / "text-gru" / "results.json").exists()
    assert "bits per byte" in ended.out
    assert "Evaluated as one stream, state carried over.\nValidation during training uses parallel streams" in ended.out
    assert "elman generate runs/text-gru" in ended.out
    assert "validation loss" in ended.err
    assert max(map(len, ended.out.splitlines())) <= 80


def test_train_json_keeps_stdout_for_json_and_stderr_for_progress(elman, text):
    ended = elman("train", "--data", text, "--run", "r", "--json", *TINY)
    results = json.loads(ended.out)
    assert results["run"] == "r"
    assert {"loss", "perplexity", "bits_per_byte", "tokens"} <= results["valid"].keys()
    assert results["valid"] == json.loads((text.parent / "r" / "results.json").read_text())["valid"]
    assert "validation loss" in ended.err


def test_train_takes_a_recipe_and_overrides_in_every_form(elman, text):
    recipe = {"data": {"train": "text.txt"}, "model": "lstm", "training": {"max_steps": 3, "batch_size": 4}}
    (text.parent / "recipe.yaml").write_text(yaml.safe_dump(recipe))
    words = [
        "--training.learning_rate",
        "3e-4",
        "--training.max-steps=5",
        "training.batch_size=7",
        "--model.dropout",
        "0.25",
    ]
    ended = elman(
        "train", "recipe.yaml", *words, "--print-config", "--seed", "9", "--model.pattern", "[gru, {lstm: {}}]"
    )
    assert ended.code == 0
    shown = yaml.safe_load(ended.out)
    training = shown["training"]
    assert (float(training["learning_rate"]), training["max_steps"], training["batch_size"]) == (3e-4, 5, 7)
    assert (shown["model"]["dropout"], shown["seed"]) == (0.25, 9)
    assert shown["model"]["pattern"] == [{"gru": {}}, {"lstm": {}}]
    assert not (text.parent / "runs").exists()


def test_print_config_round_trips(elman, text):
    first = elman("train", "--data", text, "--size", "medium", "--print-config").out
    (text.parent / "again.yaml").write_text(first)
    assert elman("train", "again.yaml", "--print-config").out == first


@pytest.mark.parametrize(("size", "width"), [("tiny", 64), ("small", 256), ("medium", 512), ("large", 1024)])
def test_size_sets_the_width_and_a_dotted_setting_wins(elman, text, size, width):
    words = ["train", "--data", text, "--size", size, "--print-config"]
    assert yaml.safe_load(elman(*words).out)["model"]["hidden_size"] == width
    assert yaml.safe_load(elman(*words, "--model.hidden_size", "40").out)["model"]["hidden_size"] == 40


@pytest.mark.slow
@pytest.mark.parametrize("asked", ["20k", "100000", "1.5M"])
def test_params_come_within_five_percent(elman, text, asked):
    found = json.loads(elman("check", "--data", text, "--params", asked, "--device", "cpu", "--json").out)
    wanted = {"20k": 20e3, "100000": 1e5, "1.5M": 1.5e6}[asked]
    assert found["parameters"] == pytest.approx(wanted, rel=0.05)


@pytest.mark.slow
def test_a_short_text_trains_with_a_smaller_batch_and_a_note(elman, text):
    text.write_text(text.read_text()[:300])
    ended = elman("train", "--data", text, "--tokenizer", "word", "--run", "r", "--device", "cpu", "--size", "tiny")
    assert ended.code == 0
    assert "tokens do not fill 32 parallel streams of 64 steps: training with 1" in " ".join(ended.err.split())


def test_eval_scores_a_split_or_other_data(elman, trained, text):
    own = json.loads(elman("eval", trained, "--json").out)
    assert {"loss", "perplexity", "bits_per_byte", "tokens", "context"} <= own.keys()
    assert json.loads(elman("eval", trained, "--split", "valid", "--json").out) == own
    other = json.loads(elman("eval", trained, "--data", text, "--json", "--lanes", "2").out)
    assert other["tokens"] > own["tokens"]
    shown = elman("eval", trained).out
    assert "Context: one stream" in shown
    assert max(map(len, shown.splitlines())) <= 80


def test_generate_repeats_with_its_seed_and_ends_at_a_stop_sequence(elman, trained):
    words = ["generate", trained, "--prompt", "the cat", "--max-tokens", "40", "--seed", "3"]
    first = elman(*words).out
    assert first.startswith("the cat")
    assert elman(*words).out == first
    assert elman(*words[:-1], "4").out != first
    made = json.loads(elman(*words, "--json").out)
    assert made["prompt"] + made["text"] + "\n" == first
    assert made["finished"] in ("end", "length")
    letter = made["text"][3]
    stopped = json.loads(elman(*words, "--stop", letter, "--json").out)
    assert stopped["finished"] == "stop"
    assert made["text"].startswith(stopped["text"] + letter)


def test_generate_writes_several_texts_and_reads_the_prompt_from_stdin(elman, trained, monkeypatch):
    words = ["generate", trained, "--max-tokens", "10", "--seed", "1", "--count", "3"]
    made = json.loads(elman(*words, "--json").out)
    assert len(made["texts"]) == 3
    assert elman(*words).out == "\n---\n".join(one["text"] for one in made["texts"]) + "\n"
    type_in(monkeypatch, "the dog\n")
    assert elman("generate", trained, "--prompt", "-", "--max-tokens", "3").out.startswith("the dog")


def test_score_prints_one_line_per_input_line(elman, trained, monkeypatch):
    lines = ["the cat sat", "", "größe ❤ \t x", "the cat sat"]
    type_in(monkeypatch, "\n".join(lines) + "\n")
    plain = elman("score", trained)
    assert plain.code == 0
    rows = [line.split("\t", 2) for line in plain.out.splitlines()]
    assert [row[2] for row in rows] == lines
    assert rows[0] == rows[3]
    assert all(float(row[0]) < 0 < float(row[1]) for row in rows)
    type_in(monkeypatch, "\n".join(lines))
    found = [json.loads(line) for line in elman("score", trained, "--json").out.splitlines()]
    assert [one["text"] for one in found] == lines
    assert [f"{one['log_prob']:.4f}" for one in found] == [row[0] for row in rows]
    assert found[2]["unknowns"] > 0


@pytest.mark.parametrize("engine", ["auto", "native", "torch"])
def test_streaming_scores_are_equal_and_name_the_engine(elman, trained, engine):
    lines = "the cat sat\n\ngröße ❤ \t x\nthe cat sat\n"
    plain = [json.loads(line) for line in elman("score", trained, "--json", stdin=lines).out.splitlines()]
    ended = elman("score", trained, "--json", "--stream", "--engine", engine, stdin=lines)
    found = [json.loads(line) for line in ended.out.splitlines()]
    assert [one.pop("log_prob") for one in found] == pytest.approx([one.pop("log_prob") for one in plain], rel=1e-5)
    assert [one["text"] for one in found] == lines.splitlines()
    why = {"auto": "torch: compilation does not pay off", "native": "native: ", "torch": "torch: as requested"}
    assert ended.err.startswith(f"note: engine {why[engine]}")
    refused = elman("score", trained, "--engine", engine, stdin=lines)
    assert refused.code == 2
    assert "add --stream" in refused.err


def test_score_of_empty_input_is_empty(elman, trained, monkeypatch):
    type_in(monkeypatch, "")
    assert elman("score", trained) == (0, "", "")


def test_data_describe_counts_documents_and_tokens(elman, text):
    found = json.loads(elman("data", "describe", text, "--json").out)
    assert found["splits"]["train"]["documents"] + found["splits"]["valid"]["documents"] == 100
    shown = elman("data", "describe", text).out
    assert "distinct words" in shown
    assert "train: from" in shown


def test_list_names_everything(elman):
    names = json.loads(elman("list", "--json").out)
    assert {"lstm", "gru", "rnn"} <= names["layers"].keys()
    assert all(text for kind in names.values() for text in kind.values())
    shown = elman("list").out
    assert all(name in shown for kind in names.values() for name in kind)
    assert max(map(len, shown.splitlines())) <= 80


def test_init_writes_what_train_reads_and_refuses_to_overwrite(elman, text):
    ended = elman("init", "recipe.yaml", "--data", text, "--model", "gru", "--training.max_steps", "3")
    assert ended.code == 0
    assert "elman train recipe.yaml" in ended.out
    before = (text.parent / "recipe.yaml").read_text()
    assert "# Peak learning rate; " in before
    assert elman("train", "recipe.yaml", "--print-config").out == before
    again = elman("init", "recipe.yaml")
    assert (again.code, "--force" in again.err) == (1, True)
    assert (text.parent / "recipe.yaml").read_text() == before
    assert elman("init", "recipe.yaml", "--force").code == 0
    assert elman("init").out == (text.parent / "recipe.yaml").read_text()


def test_check_estimates_cost_and_writes_no_files(elman, text):
    found = json.loads(elman("check", "--data", text, *TINY, "--json").out)
    assert found["steps"] == 8
    assert found["splits"]["train"]["tokens"] > 1000
    assert found["seconds_per_step"] > 0
    shown = elman("check", "--data", text, *TINY).out
    assert "parameters" in shown
    assert max(map(len, shown.splitlines())) <= 80
    assert not (text.parent / "runs").exists()


def test_suggested_commands_include_module_files(elman, text):
    """A run of an own cell cannot be loaded without them. Catches the files forgotten."""
    module = text.parent / "my cells.py"
    module.write_text("")
    ended = elman("train", "--data", text, "--run", "run", "--module", module, *TINY)
    (line,) = [line for line in ended.out.splitlines() if line.startswith("Try: ")]
    words = shlex.split(line.removeprefix("Try: "))
    assert words == ["elman", "generate", "run", "--module", str(module)]
    assert elman(*words[1:], "--max-tokens", "3").code == 0
