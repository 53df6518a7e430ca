"""Every task from the command line: train on a file, predict lines of stdin."""

import json

import pytest
import torch

from elman import load
from elman.cli.output import class_table

LABELLED = "label\ttext\n" + "".join(f"{kind}\tthis is {word} .\n" for kind, word in [("a", "x"), ("b", "y")] * 20)
TAGGED = "the\tD\ncat\tN\n\na\tD\ndog\tN\n\n" * 12
PAIRS = "".join(f"{word}\t{word.upper()}\n" for word in ("ab", "ba", "abc", "cab", "bca") * 8)
QUICK = ("--training.max_epochs", "2", "--device", "cpu", "--seed", "1")
NARROW = ("--model.hidden_size", "8")
SIDES = ("--model.encoder.hidden_size", "8", "--model.decoder.hidden_size", "8")


@pytest.fixture
def place(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "l.tsv").write_text(LABELLED)
    (tmp_path / "t.conll").write_text(TAGGED)
    (tmp_path / "p.tsv").write_text(PAIRS)
    (tmp_path / "p.src").write_text("".join(line.split("\t")[0] + "\n" for line in PAIRS.splitlines()))
    (tmp_path / "p.tgt").write_text("".join(line.split("\t")[1] + "\n" for line in PAIRS.splitlines()))
    return tmp_path


@pytest.mark.slow
def test_classifier_from_file_to_prediction(elman, place):
    trained = elman("train", "--task", "classify", "--data", "l.tsv", "--valid", "l.tsv", "--run", "r", *NARROW, *QUICK)
    assert trained.code == 0, trained.err
    assert "labels: a, b" in trained.err
    scores = json.loads(elman("eval", "r", "--data", "l.tsv", "--json").out)
    assert {"accuracy", "macro_f1", "accuracy_interval", "confusion", "calibration_error"} <= set(scores)
    answers = elman("predict", "r", "--json", "--probabilities", stdin="this is x .\nthis is y .\n")
    found = [json.loads(line) for line in answers.out.splitlines()]
    assert [set(answer["probabilities"]) for answer in found] == [{"a", "b"}] * 2
    plain = elman("predict", "r", stdin="this is x .\n").out
    assert plain.rstrip("\n").split("\t")[1] == "this is x ."
    assert "accuracy" in elman("eval", "r", "--data", "l.tsv").out


CLASSES = [
    ("classify", "l.tsv", "label\ttext\n" + "a\tx\n" * 6 + "b\ty\n" * 2, {"a": 6, "b": 2}, []),
    ("classify", "s.tsv", "label\ttext\na,b\tx\n\tx\nb\tx\n", {"a": 1, "b": 2}, ["--data.separator", ","]),
    ("tag", "t.conll", "the\tD\ncat\tN\n\na\tD\n\n", {"D": 2, "N": 1}, []),
]


@pytest.mark.slow
@pytest.mark.parametrize(("task", "name", "text", "expected", "more"), CLASSES)
def test_check_shows_how_often_each_class_occurs(elman, place, task, name, text, expected, more):
    (place / name).write_text(text)
    line = ("check", "--task", task, "--data", name, "--valid", name, *NARROW, "--device", "cpu", *more)
    assert json.loads(elman(*line, "--json").out)["classes"] == {"train": expected, "valid": expected}
    shown = elman(*line).out
    share = max(expected.values()) / sum(expected.values())
    assert f"{max(expected.values())} ({share:.1%})" in shown


def test_describe_counts_classes_and_lengths_of_targets(elman, place):
    (place / "k.tsv").write_text("kind\tbody\n" + "".join(f"a\tone {n:02}\n" for n in range(30)) + "b\tthree\n" * 10)
    line = ("data", "describe", "--task", "classify", "--columns", "kind,body", "k.tsv")
    found = json.loads(elman(*line, "--json").out)["splits"]
    counts = [found[split]["classes"] for split in ("train", "valid")]
    assert [sum(count.get(name, 0) for count in counts) for name in ("a", "b")] == [30, 10]
    assert sum(found[split]["bytes"] for split in found) == 30 * len("one 00\n") + 10 * len("three\n")
    assert "a" in elman(*line).out
    tags = json.loads(elman("data", "describe", "t.conll", "--task", "tag", "--json").out)["splits"]["train"]
    assert set(tags["classes"]) == {"D", "N"}
    pairs = json.loads(elman("data", "describe", "p.tsv", "--task", "translate", "--json").out)["splits"]["train"]
    assert (pairs["mean_target_length"], pairs["longest_target"], pairs["classes"]) == (1, 1, {})
    wrong = elman("data", "describe", "k.tsv", "--task", "classif")
    assert wrong.code == 2
    assert "classify" in wrong.err


def test_many_classes_are_cut_to_the_most_frequent(capsys):
    class_table({"train": {str(number): number for number in range(1, 100)}, "valid": {"7": 1}})
    shown = capsys.readouterr().out
    assert "99 (2.0%)" in shown
    assert "and 79 more" in shown


@pytest.mark.slow
def test_a_label_that_is_never_answered_is_named_with_a_remedy(elman, place):
    (place / "rare.tsv").write_text("label\ttext\n" + "a\tthe cat\n" * 38 + "b\tthe cat\n" * 2)
    files = ("--task", "classify", "--data", "rare.tsv", "--valid", "rare.tsv")
    for more in ([], ["--model.class_weights.b", "0.9"]):
        trained = elman("train", *files, "--run", f"r{len(more)}", *NARROW, *QUICK, *more)
        assert "baseline accuracy" in trained.out, trained.err
        assert "valid: never answered: b (2 of 40)" in trained.out
        assert ("--model.class_weights balanced" in trained.out) == (not more)
    shown = elman("eval", "r0", "--data", "rare.tsv").out
    assert "Note: never answered: b (2 of 40); " in shown


@pytest.mark.slow
def test_tagger_from_file_to_prediction(elman, place):
    trained = elman("train", "--task", "tag", "--data", "t.conll", "--valid", "t.conll", "--run", "r", *NARROW, *QUICK)
    assert trained.code == 0, trained.err
    scores = json.loads(elman("eval", "r", "--data", "t.conll", "--json").out)
    assert 0 <= scores["accuracy"] <= 1
    lines = elman("predict", "r", stdin="the dog\n").out.split("\n")
    assert [line.split("\t")[0] for line in lines[:2]] == ["the", "dog"]


@pytest.mark.slow
def test_a_translator_from_two_columns_or_two_files(elman, place):
    columns = elman("train", "--task", "translate", "--data", "p.tsv", "--valid", "p.tsv", "--run", "c", *SIDES, *QUICK)
    assert columns.code == 0, columns.err
    files = ("--data", "p.src", "--target", "p.tgt", "--valid", "p.src", "--valid-target", "p.tgt")
    both = elman("train", "--task", "translate", *files, "--run", "f", *SIDES, *QUICK)
    assert both.code == 0, both.err
    scores = [json.loads(elman("eval", run, "--data", "p.tsv", "--json").out) for run in ("c",)]
    scores.append(json.loads(elman("eval", "f", "--data", "p.src", "--target", "p.tgt", "--json").out))
    assert scores[0]["loss"] == pytest.approx(scores[1]["loss"])
    assert {"exact_match", "error_rate"} <= set(scores[0])
    assert "bleu" not in scores[0]  # of single words it would be 0, whatever was written
    assert len(elman("predict", "c", stdin="ab\nba\n").out.splitlines()) == 2
    assert elman("predict", "c", "--with", "f", stdin="ab\n").out == elman("predict", "c", stdin="ab\n").out
    both = json.loads(elman("eval", "c", "--with", "f", "--data", "p.tsv", "--json").out)
    assert both["loss"] == pytest.approx(scores[0]["loss"], rel=1e-5)
    compared = json.loads(elman("eval", "c", "f", "--data", "p.tsv", "--json").out)
    assert compared["difference"] == 0


@pytest.mark.slow
def test_distill_trains_a_student_on_the_teachers_translations(elman, place):
    longer = ("--training.max_epochs", "12", "--training.batch_size", "4", "--training.learning_rate", "1e-2")
    elman("train", "--task", "translate", "--data", "p.tsv", "--valid", "p.tsv", "--run", "t", *SIDES, *QUICK, *longer)
    made = elman("distill", "t", "--run", "s", *SIDES, "--training.max_epochs", "1")
    assert made.code == 0, made.err
    distilled = [json.loads(line) for line in (place / "t" / "distilled.jsonl").read_text().splitlines()]
    sources = [line.split("\t")[0] for line in PAIRS.splitlines()]
    assert {pair["source"] for pair in distilled} <= set(sources)
    assert elman("predict", "s", stdin="ab\n").code == 0
    assert elman("distill", "t", "--run", "s").code == 1


@pytest.mark.slow
def test_a_student_starts_from_the_weights_of_a_transformer_teacher(elman, place):
    """Catches: other tokenizers, whose words have other numbers; the encoder's word vectors not taken."""
    sides = (*SIDES, "--model", "attention", "--model.encoder.dropout", "0.1", "--training.learning_rate", "1e-2")
    longer = ("--training.max_epochs", "8", "--training.batch_size", "4")
    elman("train", "--task", "translate", "--data", "p.tsv", "--valid", "p.tsv", "--run", "t", *sides, *QUICK, *longer)
    still = ("--training.max_epochs", "1", "--training.learning_rate", "1e-9", "--training.weight_decay", "0")
    made = elman("distill", "t", "--run", "s", "--model.encoder.dropout", "0.2", *still)
    assert made.code == 0, made.err
    assert "begins with" in made.err
    teacher, student = (load(place / run, "cpu") for run in ("t", "s"))
    assert student.task.source.vocabulary == teacher.task.source.vocabulary
    assert student.recipe.model.encoder.dropout == 0.2
    assert student.recipe.model.encoder.num_layers == teacher.recipe.model.encoder.num_layers
    learnt, begun = teacher.model.state_dict(), student.model.state_dict()
    for name, value in learnt.items():
        torch.testing.assert_close(begun[name][: len(value)], value, atol=1e-4, rtol=0)


def test_invalid_lines_are_named(elman, place):
    elman("train", "--task", "classify", "--data", "l.tsv", "--valid", "l.tsv", "--run", "r", *NARROW, *QUICK)
    ended = elman("predict", "r", "--from", "jsonl", stdin='{"text": "x"}\nnot json\n')
    assert ended.code == 1
    assert "line 2" in ended.err
    ended = elman("predict", "r", "--from", "jsonl", stdin='{"words": "x"}\n')
    assert ended.code == 1
    assert "text" in ended.err
    ended = elman("generate", "r")
    assert ended.code == 2
    assert "elman predict" in ended.err


def test_columns_can_be_named(elman, place):
    ragged = "kind,body\na,one two\nb\n"
    (place / "bad.csv").write_text(ragged)
    given = ("--task", "classify", "--columns", "kind,body", *NARROW, *QUICK)
    (place / "n.csv").write_text("id,body,kind\n" + "1,this is x,a\n2,this is y,b\n" * 10)
    assert elman("train", "--data", "n.csv", "--valid", "n.csv", "--run", "r", *given).code == 0
    ended = elman("train", "--data", "bad.csv", "--valid", "n.csv", "--run", "q", *given)
    assert ended.code == 1
    assert "bad.csv" in ended.err
    assert "line 3" in ended.err


@pytest.mark.slow
def test_existing_translations_are_reused_only_if_from_the_same_teacher(elman, place):
    """Catches: whatever file is there; weights not looked at; the student's folder looked at after translating."""
    data = ("--task", "translate", "--data", "p.tsv", "--valid", "p.tsv", "--run", "t")
    longer = ("--training.batch_size", "4", "--training.learning_rate", "1e-2")
    elman("train", *data, *SIDES, *QUICK, *longer, "--training.max_epochs", "8")
    assert elman("distill", "t").code == 0
    again = elman("distill", "t")
    assert again.code == 0
    assert "using the" in again.err

    (place / "other.txt").write_text("hello\n")
    ended = elman("distill", "t", "--to", "other.txt")
    assert ended.code == 1
    assert "--to" in ended.err
    (place / "other.txt.origin.json").write_text("[" * 100_000)
    assert "cannot be read; remove it" in elman("distill", "t", "--to", "other.txt").err
    written = place / "t" / "distilled.jsonl"
    kept = written.read_text()
    written.write_text(kept + kept)
    assert "changed" in elman("distill", "t").err
    written.write_text(kept)

    recipe = place / "t" / "config.yaml"
    settings = recipe.read_text()
    recipe.write_text(settings.replace("beam_size: 5", "beam_size: 2"))
    assert elman("accept", "t").code == 0
    assert "search.beam_size was 5 and is 2" in elman("distill", "t").err
    recipe.write_text(settings)
    assert elman("accept", "t").code == 0
    further = elman("train", "--run", "t", "--resume", "--training.max_epochs", "30")
    assert further.code == 0, further.err
    ended = elman("distill", "t")
    assert ended.code == 1
    assert "step" in ended.err

    ended = elman("distill", "t", "--to", "new.jsonl", "--run", "t")
    assert ended.code == 1
    assert "elman train --run t --resume" in ended.err
    assert not (place / "new.jsonl").exists()


@pytest.mark.slow
def test_commas_separate_labels_and_an_empty_cell_has_none(elman, place):
    """Catches: a comma read as YAML."""
    (place / "m.tsv").write_text("label\ttext\n" + "red,blue\tone two\n\tthree four\nblue\ttwo\n" * 8)
    given = ("--task", "classify", "--data", "m.tsv", "--valid", "m.tsv", *NARROW, *QUICK)
    ended = elman("train", *given, "--run", "r", "--data.separator", ",")
    assert ended.code == 0, ended.err
    assert "labels: blue, red" in ended.err
    assert json.loads(elman("eval", "r", "--data", "m.tsv", "--json").out)["examples"] == 24
    ended = elman("train", *given, "--run", "q")
    assert ended.code == 1
    assert "m.tsv, line 3, column 'label': missing label" in ended.err
    assert "data.separator" in ended.err


@pytest.mark.slow
def test_eval_of_a_table_with_other_column_names_needs_columns(elman, place):
    """Catches: the run's own names kept; no hint at --columns."""
    (place / "o.tsv").write_text(LABELLED.replace("label\ttext", "mood\treview"))
    trained = elman("train", "--task", "classify", "--data", "l.tsv", "--valid", "l.tsv", "--run", "r", *NARROW, *QUICK)
    assert trained.code == 0, trained.err
    ended = elman("eval", "r", "--data", "o.tsv")
    assert ended.code == 1
    ended = elman("eval", "r", "--data", "o.tsv", "--columns", "mood,review", "--json")
    usual = elman("eval", "r", "--data", "l.tsv", "--json")
    assert json.loads(ended.out)["accuracy"] == json.loads(usual.out)["accuracy"]
    assert elman("eval", "r", "--columns", "mood,review").code == 2
    ended = elman("train", "--task", "classify", "--data", "o.tsv", "--valid", "o.tsv", "--run", "q", *NARROW, *QUICK)
    assert "name its columns with --columns" in " ".join(ended.err.split())


@pytest.mark.slow
def test_tag_columns_can_be_given_by_number(elman, place):
    """Catches: --columns not passed on."""
    elman("train", "--task", "tag", "--data", "t.conll", "--valid", "t.conll", "--run", "r", *NARROW, *QUICK)
    swapped = "".join("\t".join(line.split("\t")[::-1]) + "\n" for line in TAGGED.splitlines())
    (place / "s.conll").write_text(swapped)
    ended = elman("eval", "r", "--data", "s.conll", "--columns", "2,1", "--json")
    assert json.loads(ended.out)["words"] == 48


@pytest.mark.slow
def test_translation_options_are_refused_for_other_tasks(elman, place):
    """Catches: each passed over in silence."""
    elman("train", "--task", "classify", "--data", "l.tsv", "--valid", "l.tsv", "--run", "r", *NARROW, *QUICK)
    for words in (("predict", "r", "--beam-size", "3"), ("eval", "r", "--data", "l.tsv", "--beam-size", "3")):
        ended = elman(*words, stdin="this is x .\n")
        assert (ended.code, ended.out) == (2, "")
        assert "beam_size: only translations are searched for; the run is of task classify" in ended.err
    ended = elman("eval", "r", "--data", "l.tsv", "--target", "p.tgt")
    assert (ended.code, "--target goes with --task translate, not with" in ended.err) == (2, True)
    for verb in ("train", "compare"):
        ended = elman(verb, "--task", "classify", "--data", "l.tsv", "--target", "p.tgt", "--run", "q")
        assert (ended.code, "--target goes with --task translate, not with classify" in ended.err) == (2, True)
