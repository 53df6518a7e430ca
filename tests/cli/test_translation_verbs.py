"""Translation from the command line: search settings, sampling and scoring."""

import json
from types import SimpleNamespace

import pytest

from elman import load
from elman.cli.main import main
from elman.errors import ConfigError
from elman.generation import Hypothesis
from elman.pipeline.tasks.search import SearchConfig, _ranked

WORDS = ("ab", "ba", "abc", "cab", "bca")
PAIRS = "source\ttarget\n" + "".join(f"{word}\t{word.upper()}\n" for word in WORDS * 8)
TINY = ("--device", "cpu", "--model.encoder.hidden_size", "8", "--model.decoder.hidden_size", "8")
TINY += ("--training.max_epochs", "4", "--training.batch_size", "4", "--training.learning_rate", "1e-2")
LINES = "ab\ncab\nbca\n"


@pytest.fixture(scope="module")
def translator(tmp_path_factory):
    """A run folder; tests only read it."""
    folder = tmp_path_factory.mktemp("translator")
    data = folder / "p.tsv"
    data.write_text(PAIRS)
    words = ["train", "--task", "translate", "--data", data, "--valid", data, "--run", folder / "r", *TINY]
    with pytest.raises(SystemExit):
        main([str(word) for word in words])
    return folder / "r"


def answers(ended):
    assert ended.code == 0, ended.err
    return [json.loads(line) for line in ended.out.splitlines()]


@pytest.mark.slow
def test_search_settings_are_given_as_in_a_recipe(elman, translator):
    """Catches: settings that were read and not handed on."""
    ask = ("predict", translator, "--json", "--probabilities")
    plain, wide = (answers(elman(*ask, *more, stdin=LINES)) for more in ((), ("--search.beam_size", "2")))
    assert {len(answer["candidates"]) for answer in plain} == {5}
    assert {len(answer["candidates"]) for answer in wide} == {2}
    penalized = answers(elman(*ask, "search.length_penalty=1", stdin=LINES))
    for answer in penalized:
        assert answer["candidates"][0]["score"] > answer["candidates"][0]["log_prob"]
    one = json.loads(elman("eval", translator, "--json", "--search.max_tokens", "1").out)
    assert one["exact_match"] == 0  # one token is never enough


def test_other_settings_and_other_tasks_are_refused(elman, translator, trained):
    ended = elman("predict", translator, "--training.max_epochs", "1", stdin="ab\n")
    assert ended.code == 2
    assert "--search." in ended.err
    ended = elman("predict", translator, "--search.beams", "1", stdin="ab\n")
    assert ended.code == 2
    assert "beam_size" in ended.err
    ended = elman("predict", trained, "--search.beam_size", "1", stdin="ab\n")
    assert ended.code == 2
    assert "language-model" in ended.err
    assert "predict" in elman("score", translator, "--search.beam_size", "1", stdin="ab\n").err


@pytest.mark.slow
def test_translations_can_be_sampled(elman, translator):
    """Catches: one stream of random numbers for all rows; streams by the place in a batch, not by the line."""
    ask = ("predict", translator, "--json", "--search.choose", "sample", "--search.seed", "3")
    lines = "ab\nab\nbca\nab\n"
    drawn = [answer["target"] for answer in answers(elman(*ask, stdin=lines))]
    assert len(set(drawn)) > 2  # a model that knows little
    assert [answer["target"] for answer in answers(elman(*ask, stdin=lines))] == drawn
    assert [answer["target"] for answer in answers(elman(*ask, stdin=lines[:3]))] == drawn[:1]


def test_given_targets_are_scored(elman, translator):
    """Catches: scores in the order of batches; the end not counted."""
    found = answers(elman("predict", translator, "--json", stdin=LINES))
    odd = [{"source": "ab", "target": target} for target in ("C", "CABABACA", "CC")]
    columns = "".join(f"{one['source']}\t{one['target']}\n" for one in [*odd, *found])
    scores = answers(elman("score", translator, "--json", stdin=columns))
    assert [score["log_prob"] for score in scores[3:]] == pytest.approx([one["log_prob"] for one in found], abs=1e-4)
    assert [score["tokens"] for score in scores] == [len(one["target"]) + 1 for one in scores]
    assert all(score["log_prob_per_token"] == score["log_prob"] / score["tokens"] for score in scores)
    lines = elman("score", translator, stdin=columns).out.splitlines()
    assert lines[0].split("\t")[2:] == ["ab", "C"]
    assert float(lines[0].split("\t")[0]) == pytest.approx(scores[0]["log_prob"], abs=1e-4)

    objects = "".join(json.dumps({"source": one["source"], "target": one["target"]}) + "\n" for one in scores)
    assert answers(elman("score", translator, "--json", "--from", "jsonl", stdin=objects)) == scores
    both = answers(elman("predict", translator, "--json", "--from", "jsonl", stdin='{"source": "ab"}\n' + objects))
    assert "given" not in both[0]
    assert [one["given"]["log_prob"] for one in both[1:]] == pytest.approx([one["log_prob"] for one in scores])
    assert both[1]["predicted_target"] == found[0]["target"]  # the model's own
    assert load(translator).score("ab", "C").log_prob == pytest.approx(scores[0]["log_prob"], abs=1e-5)


def test_a_line_without_a_target_is_named(elman, translator, trained):
    ended = elman("score", translator, stdin="ab\tAB\nab\n")
    assert ended.code == 1
    assert "line 2" in ended.err
    assert len(ended.out.splitlines()) == 1
    assert "leave --stream out" in elman("score", translator, "--stream", stdin="ab\tAB\n").err
    with pytest.raises(ConfigError, match="language-model"):
        load(trained).score("a", "b")


@pytest.mark.slow
def test_a_mask_predict_model_reports_lengths_and_no_target_score(elman, tmp_path):
    """Catches: lengths as they were tried, not by their scores."""
    data = tmp_path / "p.tsv"
    data.write_text(PAIRS)
    layers = ("--model.encoder.num_layers", "1", "--model.decoder.num_layers", "3", "--training.max_steps", "2")
    layers += ("--model.encoder.hidden_size", "8", "--model.decoder.hidden_size", "8")
    words = ("--task", "translate", "--data", data, "--valid", data, "--run", tmp_path / "r", "--model", "mask-predict")
    made = elman("train", *words, "--device", "cpu", *layers)
    assert made.code == 0, made.err
    ended = elman("score", tmp_path / "r", stdin="ab\tAB\n")
    assert ended.code == 2
    assert "all words at once" in ended.err
    line = '{"source": "ab", "target": "A"}\n'
    assert "given" not in answers(elman("predict", tmp_path / "r", "--json", "--from", "jsonl", stdin=line))[0]
    found = answers(elman("predict", tmp_path / "r", "--json", "--probabilities", "--search.lengths", "4", stdin=LINES))
    for answer in found:
        scores = [one["score"] for one in answer["candidates"]]
        assert 1 < len(scores) <= 4
        assert scores == sorted(scores, reverse=True)
        assert len({len(one["target"]) for one in answer["candidates"]}) == len(scores)  # one of each length
        assert answer["target"] == answer["candidates"][0]["target"]
    ended = elman("predict", tmp_path / "r", "--search.choose", "sample", stdin="ab\n")
    assert ended.code == 2
    assert "word after word" in ended.err


@pytest.mark.parametrize("more", [(), ("--search.choose", "least-risk"), ("--search.choose", "sample")], ids=str)
def test_candidates_have_line_rank_score_and_log_probability(elman, translator, more):
    """The answer stands first. Catches: candidates as they were found, whichever was chosen; lines counted from 0."""
    ask = ("predict", translator, "--search.length_penalty", "0.5", "--search.seed", "1", *more)
    found = answers(elman(*ask, "--json", "--probabilities", stdin=LINES))
    alone = answers(elman(*ask, "--json", stdin=LINES))
    assert [one["number"] for one in found] == [1, 2, 3]
    for answer, chosen in zip(found, alone, strict=True):
        first, *others = answer["candidates"]
        assert first["target"] == answer["target"] == chosen["target"]
        assert [one["rank"] for one in answer["candidates"]] == [1, 2, 3, 4, 5]
        if "sample" not in more:
            scores = [one["score"] for one in others]
            assert scores == sorted(scores, reverse=True)
    plain = [line.split("\t") for line in elman(*ask, "--probabilities", stdin=LINES).out.splitlines()]
    expected = [(answer["number"], one) for answer in found for one in answer["candidates"]]
    for line, (number, one) in zip(plain, expected, strict=True):
        assert line == [
            str(number), str(one["rank"]), f"{one['score']:.4f}", f"{one['log_prob']:.4f}", one["target"]
        ]  # fmt: skip


def test_minimum_bayes_risk_may_choose_another_candidate(monkeypatch):
    """Catches: the chosen one at its own place."""
    found = [Hypothesis([number], -1.0 - number, -1.0 - number) for number in range(3)]
    monkeypatch.setattr("elman.pipeline.tasks.search.minimum_bayes_risk", lambda texts, log_probs: 1)
    letters = SimpleNamespace(decode=lambda tokens: "abc"[tokens[0]])
    ranked = _ranked(found, letters, SearchConfig(choose="least-risk"))
    assert [(one["rank"], one["target"]) for one in ranked] == [(1, "b"), (2, "a"), (3, "c")]
