"""What the spine promises holds for every task: results, resuming to the bit, judging, answering, refusing."""

import json
import shutil

import pytest
import torch
from inference_tensors import none_kept
from task_data import ENDS, TEXTS, settings_of

from elman.corpus import PairCorpus, Repairs
from elman.corpus.labelled_corpus import CUT
from elman.errors import ConfigError, DataError
from elman.inspection.padding import padding
from elman.pipeline import iterate, load, read_recipe, train
from elman.pipeline.evaluate import compare_runs, evaluate_run
from elman.pipeline.prepare import prepare
from elman.pipeline.tasks import TASKS
from elman.training.loop import INTERRUPTED

every_task = pytest.mark.parametrize("task", TEXTS)
MEASURE = {"classify": "accuracy", "tag": "accuracy", "translate": "exact_match", "regress": "r2"}
LINES = {
    "classify": ["the cat is lovely", "", "the dog is awful"],
    "tag": ["the cat sees the dog", "", "bird"],
    "translate": ["abc", "", "dcba"],
    "regress": ["good cat", "", "bad dull dog"],
}


@every_task
def test_a_model_can_be_trained_after_it_has_answered(runs, data, task):
    """Catches a tensor of inference mode that the model, or a cache, keeps."""
    with none_kept():
        trained = load(runs[task])
        list(trained.predict(LINES[task]))
        prepared = prepare(trained.recipe, runs[task])
        trained.task.validate(trained.model, prepared, trained.recipe)
        batch = next(iter(trained.task.training_batches(prepared, trained.recipe).epoch(0)))
        model = trained.model.train()
        model.batch_loss(batch)[0].backward()
        assert all(parameter.grad is not None for parameter in model.parameters())


def scores_of(run):
    return json.loads((run / "results.json").read_text())


@pytest.mark.slow
@every_task
def test_a_run_ends_with_the_measures_of_its_task_and_their_intervals(runs, task):
    found = scores_of(runs[task])
    for split in ("valid", "test"):
        value = found[split][MEASURE[task]]
        low, high = found[split][f"{MEASURE[task]}_interval"]
        assert 0 <= low <= value <= high <= 1
    if task != "translate":
        assert found["test"][MEASURE[task]] > 0.9


@every_task
def test_judging_the_run_again_gives_its_results(runs, data, task):
    again = evaluate_run(runs[task], data=[data[task]["test"]])
    assert again[MEASURE[task]] == scores_of(runs[task])["test"][MEASURE[task]]
    assert again["loss"] == pytest.approx(scores_of(runs[task])["test"]["loss"], rel=1e-5)


@every_task
def test_every_line_gets_one_answer_in_its_order_and_none_depends_on_its_neighbours(runs, task):
    model = load(runs[task])
    together = list(model.predict(LINES[task]))
    alone = [model.predict(line) for line in LINES[task]]
    keys = {"classify": "label", "tag": "tags", "translate": "target", "regress": "number"}
    found, again = ([answer[keys[task]] for answer in answers] for answers in (together, alone))
    if task == "regress":  # an empty text has no number
        assert [number is None for number in found] == [number is None for number in again]
        found, again = ([number for number in numbers if number is not None] for numbers in (found, again))
    assert found == (pytest.approx(again, rel=1e-5) if task == "regress" else again)
    assert all(isinstance(model.task.format(answer), str) for answer in together)


@pytest.mark.slow
@every_task
def test_an_interrupted_run_goes_on_to_the_same_weights(runs, data, task, tmp_path):
    cut = tmp_path / "cut"
    session = iterate(overrides=settings_of(task, data, **{"training.log_every": 1}), run=cut)
    for report in session:
        if report.kind == "step" and report.step == 7:
            session_of(session).trainer.stop()
        if report.kind == "end":
            assert report.values["reason"] == INTERRUPTED
    train(run=cut, resume=True)
    whole, pieces = load(runs[task]).model.state_dict(), load(cut).model.state_dict()
    assert all(torch.equal(whole[name], pieces[name]) for name in whole)


def session_of(generator):
    return generator.gi_frame.f_locals["session"]


@pytest.mark.slow
@every_task
def test_a_changed_file_is_noticed_when_a_run_is_resumed(data, task, tmp_path):
    train_file = tmp_path / f"t.{ENDS[task]}"
    train_file.write_text(TEXTS[task](60, 5))
    settings = settings_of(task, data, **{"data.train": str(train_file), "training.max_epochs": 1})
    train(overrides=settings, run=tmp_path / "run")
    train_file.write_text(TEXTS[task](60, 6))
    with pytest.raises(DataError, match="changed"):
        train(run=tmp_path / "run", resume=True, overrides={"training.max_epochs": 2})


@every_task
def test_a_run_of_a_solved_size_is_resumed_by_the_command_that_began_it(data, task, tmp_path):
    """Catches: the solved width of an encoder and a decoder taken for a changed setting."""
    settings = settings_of(task, data, **{"parameters": "9k", "training.max_steps": 1})
    for resume in (False, True):
        *_, result = iterate(overrides=settings, run=tmp_path / "run", resume=resume)
        assert result.kind == "result"
    with pytest.raises(ConfigError, match="parameters was '9k', now '4k'"):
        train(overrides=settings | {"parameters": "4k"}, run=tmp_path / "run", resume=True)


@every_task
def test_a_written_recipe_reads_back_the_same(data, task):
    recipe = read_recipe(overrides=settings_of(task, data))
    assert read_recipe(recipe.plain()) == recipe


@every_task
def test_the_speed_names_what_it_counts(runs, data, task):
    """Catches texts that are counted and called tokens."""
    unit = scores_of(runs[task])["speed_unit"]
    assert unit == {"classify": "texts", "regress": "texts", "tag": "words", "translate": "target tokens"}[task]
    if unit == "texts":
        lines = (runs[task] / "metrics.jsonl").read_text().splitlines()
        assert json.loads(lines[-1])["tokens"] == 200 * 3  # texts and epochs


@every_task
def test_samples_of_every_validation_show_the_truth(runs, task):
    files = sorted((runs[task] / "samples").glob("step-*.txt"))
    assert len(files) == 3
    texts = [text for file in files for text in file.read_text().split("\n---\n")]
    assert all(" → " in text and text.endswith((" ✓", ")")) for text in texts)
    assert any(text.endswith(" ✓") for text in texts) or task in ("regress", "translate")


def test_two_runs_are_compared_on_the_same_examples(runs, data, tmp_path):
    shutil.copytree(runs["classify"], tmp_path / "copy")
    found = compare_runs(runs["classify"], tmp_path / "copy", data=[data["classify"]["test"]])
    for change in (found, found["others"]["macro_f1"]):
        assert change["difference"] == 0
        assert change["p_value"] == 1


@pytest.mark.slow
def test_taggers_of_entities_are_compared_by_their_f1(tmp_path):
    """Catches: the first minus the second."""
    (tmp_path / "a.conll").write_text("the\tO\nold\tB-X\ncat\tI-X\n\na\tO\ndog\tB-Y\n\n" * 12)
    places = {f"data.{split}": str(tmp_path / "a.conll") for split in ("train", "valid")}
    for name, rate in (("a", 1e-9), ("b", 3e-2)):
        settings = {"task": "tag", **places, "model.hidden_size": 12, "training.max_epochs": 4, "device": "cpu"}
        train(overrides={**settings, "training.learning_rate": rate}, run=tmp_path / name)
    found = compare_runs(tmp_path / "a", tmp_path / "b", data=[str(tmp_path / "a.conll")])
    scores = [found["runs"][str(tmp_path / name)]["f1"] for name in "ab"]
    assert scores[1] > scores[0]
    assert found["others"]["f1"]["difference"] == pytest.approx(scores[1] - scores[0])
    assert 0 < found["others"]["f1"]["p_value"] < 0.05


def test_what_does_not_compare_is_told_at_once(runs, data):
    """Catches: neither asked before reading the data."""
    with pytest.raises(ConfigError, match=r"different tasks: .*classify is of task classify, .*translate of translate"):
        compare_runs(runs["classify"], runs["translate"], data=[data["classify"]["test"]])
    with pytest.raises(ConfigError, match="are the same run; give two to compare, or one to judge"):
        compare_runs(runs["tag"], runs["tag"].parent / "tag")


def test_a_label_unseen_in_training_is_an_error_with_file_and_line(runs, tmp_path):
    path = tmp_path / "odd.tsv"
    path.write_text("label\ttext\nkind\tthe cat is good\nkindd\tthe cat is fine\n")
    with pytest.raises(DataError, match=r"odd\.tsv.*3.*kindd|kindd.*odd\.tsv"):
        evaluate_run(runs["classify"], data=[str(path)])


def test_files_of_different_length_are_refused_with_the_line(tmp_path):
    (tmp_path / "a").write_text("x\ny\nz\n")
    (tmp_path / "b").write_text("x\ny\n")
    settings = {"task": "translate", "data.train": str(tmp_path / "a"), "data.train_target": str(tmp_path / "b")}
    with pytest.raises(DataError, match="3 lines, but 2 targets"):
        train(overrides={**settings, "data.valid_fraction": 0.0}, run=tmp_path / "run")
    assert not (tmp_path / "run").exists()


def test_pairs_with_an_empty_side_are_left_out_and_counted(tmp_path):
    (tmp_path / "a.tsv").write_text("source\ttarget\nab\tba\ncd\t\nef\tfe\n")
    settings = {"task": "translate", "data.train": str(tmp_path / "a.tsv"), "data.valid_fraction": 0.0}
    settings |= {"training.max_epochs": 1, "model.encoder.hidden_size": 8, "model.decoder.hidden_size": 8}
    reports = list(iterate(overrides=settings, run=tmp_path / "run"))
    start = next(report for report in reports if report.kind == "start")
    assert start.values["sizes"] == {"train": 2}
    assert any("empty target" in repair for repair in start.values["repairs"])


def test_targets_end_with_the_end_token(data):
    recipe = read_recipe(None, settings_of("translate", data))
    corpus = recipe.task_class.corpus(recipe)
    data = recipe.task_class.learn(recipe, corpus)
    row, pair = next(data.rows(corpus, "train", Repairs())), next(corpus.pairs("train"))
    assert row["target"].tolist() == [*data.target.encode(pair.target), data.target.eos_id]
    assert row["source"].tolist() == data.source.encode(pair.text).tolist()


def test_a_changed_file_of_targets_changes_the_fingerprint(tmp_path):
    (tmp_path / "a").write_text("x\ny\n")
    marks = []
    for text in ("x\ny\n", "x\nz\n"):
        (tmp_path / "b").write_text(text)
        corpus = PairCorpus.open(train=str(tmp_path / "a"), train_target=str(tmp_path / "b"), valid_fraction=0.0)
        marks.append(corpus.fingerprint("train"))
    assert marks[0] != marks[1]


def test_an_empty_file_of_tags_is_refused(tmp_path):
    (tmp_path / "a.conll").write_text("")
    with pytest.raises(DataError, match=r"a\.conll"):
        train(overrides={"task": "tag", "data.train": str(tmp_path / "a.conll")}, run=tmp_path / "run")


def test_every_task_needs_data_and_says_so():
    for task in TEXTS:
        with pytest.raises(ConfigError, match="needs data"):
            read_recipe({"task": task})


def test_an_unknown_task_is_refused_with_the_nearest():
    with pytest.raises(ConfigError, match="classify"):
        read_recipe({"task": "clasify", "data": {"train": "x"}})


def test_a_layer_by_name_makes_a_model_of_the_task():
    assert set(TASKS) >= {"language-model", "classify", "tag", "translate", "masked", "regress"}
    data = {"train": "x.tsv"}
    assert read_recipe({"task": "classify", "data": data, "model": "gru"}).model.pattern == [{"gru": {}}]
    tagger = read_recipe({"task": "tag", "data": data, "model": "gru"}).model
    assert tagger.pattern == [{"bidirectional": {"layer": {"gru": {}}}}]
    pair = read_recipe({"task": "translate", "data": data, "model": "gru"}).model
    assert pair.encoder.pattern == [{"bidirectional": {"layer": {"gru": {}}}}]
    assert pair.decoder.pattern == [{"gru": {}}]
    assert read_recipe({"task": "translate", "data": data, "model": "attention"}).model.decoder.num_layers == 9
    masked = read_recipe({"task": "masked", "model": "gru"}).model
    assert (masked.type, masked.pattern) == ("masked", [{"bidirectional": {"layer": {"gru": {}}, "join": "sum"}}])
    with pytest.raises(ConfigError, match="both sides"):
        read_recipe({"task": "masked", "model": "ngram"})


def test_a_masked_model_by_name_is_the_task_of_that_name():
    assert read_recipe({"model": "masked"}).task == "masked"


@pytest.mark.slow
def test_the_best_weights_can_be_chosen_by_a_measure(data, tmp_path):
    slowly = {"training.learning_rate": 2e-3, "training.evaluate_every": 2}
    settings = settings_of("classify", data, **slowly, **{"evaluation.choose_by": "accuracy"})
    seen = [report.values for report in iterate(overrides=settings, run=tmp_path / "a") if report.kind == "validation"]
    assert all("valid_accuracy" in values for values in seen)
    best = -1.0
    for values in seen:
        assert values["improved"] == (values["valid_accuracy"] > best)
        best = max(best, values["valid_accuracy"])
    assert seen[0]["valid_accuracy"] < best  # else nothing was tested


@pytest.mark.parametrize(
    ("task", "figure", "told"),
    [
        (
            "classify",
            "acuracy",
            r"no 'acuracy' of task classify .did you mean 'accuracy'..; one of loss, accuracy, m",
        ),
        (
            "classify",
            "micro_f1",
            r"no 'micro_f1' of this data, since .*; one of loss, accuracy, macro_f1, calibration_error$",
        ),
        ("tag", "f1", "no 'f1' of this data, since its tags mark no entities; one of loss, accuracy$"),
        ("translate", "f1", "no 'f1' of task translate; one of loss, exact_match"),
        ("translate", "bleu", "no 'bleu' of this data, since no target has 4 words; one of loss, exact_match"),
        ("translate", "attention_hits", "no 'attention_hits' of this data, since no attention has a true alignment"),
    ],
)
def test_a_wrong_measure_to_choose_by_is_told_before_training_and_leaves_no_run(data, tmp_path, task, figure, told):
    """Catches: asked for at the first validation, when the run folder is there."""
    settings = settings_of(task, data, **{"evaluation.choose_by": figure})
    with pytest.raises(ConfigError, match=told):
        train(overrides=settings, run=tmp_path / "run")
    assert not (tmp_path / "run").exists()


@every_task
def test_a_model_can_be_chosen_by_every_measure_that_is_named(runs, data, task, tmp_path):
    """Catches: a figure named that is not judged."""
    scores, trained = scores_of(runs[task])["valid"], load(runs[task], "cpu")
    prepared, metrics = prepare(trained.recipe, runs[task]), trained.task.metrics
    unavailable = trained.task.unavailable_metrics(trained.model, prepared)
    scored = {name for name in metrics if isinstance(scores.get(name), float)}
    assert scored == {name for name in metrics if name not in unavailable}


@pytest.mark.slow
def test_a_classifier_can_begin_with_a_language_model(data, tmp_path):
    text = tmp_path / "text.txt"
    text.write_text("\n".join(line.split("\t")[1] for line in TEXTS["classify"](300, 9).splitlines()[1:]))
    lm = {"data.train": str(text), "tokenizer": "word", "model.hidden_size": 20, "training.max_epochs": 1}
    train(overrides={**lm, "training.sequence_length": 8, "device": "cpu"}, run=tmp_path / "lm")
    settings = settings_of("classify", data, start_from=str(tmp_path / "lm"))
    del settings["model.hidden_size"]
    reports = list(iterate(overrides=settings | {"training.max_epochs": 1}, run=tmp_path / "run"))
    assert any("begins with" in report.values.get("text", "") for report in reports if report.kind == "note")
    began, body = load(tmp_path / "run"), load(tmp_path / "lm")
    assert began.task.tokenizer.vocabulary == body.tokenizer.vocabulary
    assert began.model.embedding.weight.shape == body.model.embedding.weight.shape
    with pytest.raises(ConfigError, match="no language model"):
        read_recipe(None, {**settings, "start_from": str(tmp_path / "run")})
    for wrong, told in (({"model": "gru"}, "are lstm, not gru"), ({"tokenizer": "byte"}, "comes along")):
        with pytest.raises(ConfigError, match=told):
            read_recipe(None, {**settings, **wrong})
    assert read_recipe(None, {**settings, "model": "lstm"}).model.pattern == [{"lstm": {}}]


@pytest.mark.slow
def test_a_classifier_and_a_tagger_can_begin_with_a_masked_model(data, tmp_path):
    """At a learning rate of almost nothing, the body is still that of the masked model. Catches: a tagger with layers
    of its own; a count of all words, though few are shared."""
    text = tmp_path / "text.txt"
    text.write_text("\n".join(line.split("\t")[1] for line in TEXTS["classify"](300, 9).splitlines()[1:]))
    masked = {"task": "masked", "data.train": str(text), "tokenizer": "word", "model.hidden_size": 16}
    small = {"training.max_epochs": 1, "training.sequence_length": 8, "device": "cpu"}
    train(overrides={**masked, **small}, run=tmp_path / "m")
    body = load(tmp_path / "m").model.state_dict()
    frozen = {"start_from": str(tmp_path / "m"), "training.learning_rate": 1e-12, "training.max_epochs": 1}
    notes = {}
    for task in ("classify", "tag"):
        settings = {key: value for key, value in settings_of(task, data).items() if not key.startswith("model.")}
        reports = list(iterate(overrides={**settings, **frozen}, run=tmp_path / task))
        (notes[task],) = [one.values["text"] for one in reports if "begins" in str(one.values.get("text"))]
        own = load(tmp_path / task).model.state_dict()
        shared = [name for name in own if name.startswith(("stack.", "embedding.")[: 2 if task == "classify" else 1])]
        assert len(shared) > 5
        for name in shared:
            torch.testing.assert_close(own[name], body[name][: len(own[name])], atol=1e-6, rtol=0)
    tagger, words = load(tmp_path / "tag"), load(tmp_path / "m").tokenizer.vocabulary
    known = sum(word in words for word in tagger.task.table.words)
    assert 0 < known < len(tagger.task.table.words)
    taken = sum(part.numel() for name, part in body.items() if name.startswith("stack.")) + 16 * known
    assert notes["tag"].startswith(f"begins with {taken:,} numbers")
    row = tagger.task.table.words.index("cat") + 1
    torch.testing.assert_close(
        tagger.model.embedding.weight[row], body["embedding.weight"][words["cat"]], atol=1e-6, rtol=0
    )


def test_language_verbs_refuse_other_tasks_and_say_what_works(runs):
    for use in (lambda model: model.generate(""), lambda model: model.score("x")):
        with pytest.raises(ConfigError, match="elman predict"):
            use(load(runs["classify"]))


@pytest.mark.slow
def test_a_masked_model_fills_gaps(tmp_path):
    settings = {"task": "masked", "model.hidden_size": 16, "training.max_steps": 3, "device": "cpu"}
    train(overrides=settings, run=tmp_path / "m")
    model = load(tmp_path / "m")
    answer = model.predict("the <mask> of the <mask>")
    assert len(answer["gaps"]) == 2
    assert "<mask>" not in answer["filled"]
    with pytest.raises(DataError, match="there is none"):
        model.predict("nothing to fill")


SEEN = {
    "classify": ("the cat is lovely", "layers.0.lstm.gate.forget", 4),
    "tag": ("the cat sees that dog", "layers.0.bidirectional.backward.lstm.memory", 5),
    "regress": ("good cat and dog", "layers.0.lstm.memory", 4),
    "translate": ("abcd", "encoder.layers.0.bidirectional.forward.lstm.hidden", 4),
}


@every_task
def test_no_task_sees_padding_beside_a_text(runs, task):
    """Catches a source whose padding counts as places."""
    for one in padding(load(runs[task]).reading(SEEN[task][0]), (1, 8)):
        assert not one.seen, one
        assert all(share == 0 for share in one.mass.values())
        assert (task == "translate") == ("decoder.cross-attention.weights" in one.mass)


@every_task
def test_a_model_of_any_task_can_be_looked_into_and_changed(runs, task):
    """Catches the characters of words in groups, whose rows differ, and with the source's tokens beside what
    is written."""
    model, (text, site, size) = load(runs[task]), SEEN[task]
    sites = model.sites()
    assert site in sites
    trace = model.trace(text)
    assert set(trace) >= set(sites)
    assert trace[site].shape[0] == len(trace.tokens_of(site)) == size
    greedy = {"beam_size": 1} if task == "translate" else {}  # a recording holds one batch; a beam changes its rows
    with model.record("*.gate.*") as seen:
        model.predict(text, **greedy)
    assert seen.sites()
    scores = next(name for name in sites if name.removeprefix("decoder.").startswith("output."))
    with model.edit({site: 0.0}):
        changed = model.trace(text, [scores], target="dcba")[scores]
    assert not torch.equal(changed, model.trace(text, [scores], target="dcba")[scores])
    assert trace.figure(site).panels[0].maps[""].shape[1] == size


def test_what_befalls_texts_after_reading_is_counted_in_every_split(data, tmp_path):
    """Catches: counted with what reading took, where splits of one file count once: only those of valid left."""
    settings = settings_of("classify", data, **{"data.valid": None, "data.test": None, "data.max_tokens": 2})
    prepared = prepare(read_recipe(overrides=settings), tmp_path)
    assert f"200 × {CUT}" in " ".join(prepared.repairs())
