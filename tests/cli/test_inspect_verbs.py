"""elman inspect and elman lab from the command line."""

import json

import pytest

GATE = "layers.0.lstm.gate.forget"


def test_sites_are_listed_with_shape_and_meaning(elman, trained):
    shown = elman("inspect", "sites", trained).out
    assert f"{GATE}  16" in shown
    assert "share of the memory that is kept" in shown
    found = {one["site"]: one for one in json.loads(elman("inspect", "sites", trained, "--json").out)}
    assert found[GATE] == {"site": GATE, "shape": [16], "meaning": "forget gate: share of the memory that is kept (f)"}


@pytest.mark.slow
def test_a_trace_goes_to_the_terminal_or_a_file(elman, trained, tmp_path):
    shown = elman("inspect", "trace", trained, "--text", "the cat", "--sites", "*.gate.*")
    assert shown.code == 0
    assert GATE in shown.out
    assert max(map(len, shown.out.splitlines())) <= 80 + len(str(trained))
    page = tmp_path / "new" / "t.html"
    assert "Wrote" in elman("inspect", "trace", trained, "--text", "the cat", "--to", page).out
    assert "elman inspect trace" in page.read_text()
    found = json.loads(elman("inspect", "trace", trained, "--text", "the cat", "--sites", GATE, "--json").out)
    assert found["panels"][0]["columns"] == ["<eos>", *"the cat"]
    kept = elman("inspect", "trace", trained, "--text", "the cat", "--to", tmp_path / "t.safetensors")
    assert kept.code == 0


def test_an_edit_changes_the_figure_and_an_invalid_one_is_an_error(elman, trained):
    words = ["inspect", "trace", trained, "--text", "the cat", "--sites", GATE, "--json", "--edit"]
    found = json.loads(elman(*words, f"{GATE}=0.25").out)
    assert {value for row in found["panels"][0]["maps"][""] for value in row} == {0.25}
    missed = elman(*words, "layers.0.lstm.gate.forgot=1")
    assert (missed.code, "did you mean" in missed.err) == (1, True)
    odd = elman(*words, "nonsense")
    assert (odd.code, "SITE=NUMBER" in odd.err) == (2, True)


def test_gradients_need_no_data_and_no_run(elman, tmp_path):
    words = [
        "inspect",
        "gradients",
        "--model",
        "lstm:forget_bias=3",
        "--model",
        "rnn",
        "--hidden",
        "8",
        "--length",
        "30",
    ]
    shown = elman(*words)
    assert shown.code == 0
    assert "rnn: vanishes" in " ".join(shown.out.split())
    assert elman(*words, "--to", tmp_path / "g.csv").code == 0
    lines = (tmp_path / "g.csv").read_text().splitlines()
    assert lines[1] == "line,distance in steps,norm of the gradient"
    unknown = elman("inspect", "gradients", "--model", "lstn")
    assert (unknown.code, "did you mean 'lstm'" in unknown.err) == (2, True)


@pytest.mark.slow
def test_gradients_predictions_and_units_of_a_run(elman, trained, tmp_path):
    assert elman("inspect", "gradients", trained, "--text", "the cat sat").code == 0
    words = ["inspect", "gradients", trained, "--text", "the cat " * 6, "--json", "--precision"]
    single, double = (json.loads(elman(*words, kind).out) for kind in ("float32", "float64"))
    assert double["of"].endswith("float64")
    assert double["panels"] != single["panels"]
    half = elman(*words, "half")
    assert (half.code, "float32, float64" in half.err) == (2, True)
    asked = elman("inspect", "gradients", trained)
    assert (asked.code, "--text" in asked.err) == (2, True)
    words = ["inspect", "predictions", trained, "--text", "the cat", "--contrast", "a,t", "--edit", f"{GATE}@2=0"]
    found = json.loads(elman(*words, "--json").out)
    assert found["panels"][0]["title"] == "Surprisal of each token"
    assert elman(*words[:-4], "--contrast", "a").code == 2
    (tmp_path / "long.txt").write_text('he said "the cat" and (sat)\n' * 30)
    units = elman("inspect", "units", trained, "--data", tmp_path / "long.txt")
    assert units.code == 0
    assert "held-out" in units.out
    figure = elman("inspect", "ribbons", trained, "--text", "the cat", "--unit", "3", "--to", tmp_path / "r.png")
    assert (figure.code, (tmp_path / "r.png").exists()) == (0, True)
    assert elman("inspect", "timelines", trained, "--text", "the cat", "--layer", "9").code == 2
    missing = elman("inspect", "units", trained, "--data", tmp_path / "none.txt")
    assert (missing.code, "cannot be read" in missing.err) == (1, True)


def test_padding_view_of_a_run(elman, trained):
    words = ["inspect", "padding", trained, "--text", "the cat"]
    assert "Padding changes no score" in elman(*words).out
    found = json.loads(elman(*words, "--pads", "3", "--precision", "float64", "--json").out)
    assert found["panels"][0]["lines"]["change"][0] == [3]
    none = elman(*words, "--pads", "0")
    assert (none.code, "from 1 on" in none.err) == (2, True)


def test_attention_view_of_a_model_without_attention_is_an_error(elman, trained):
    ended = elman("inspect", "attention", trained, "--text", "the cat")
    assert (ended.code, "no layer of this model has attention" in ended.err) == (2, True)


def test_an_unknown_figure_format_is_refused(elman, trained, tmp_path):
    ended = elman("inspect", "trace", trained, "--text", "a", "--to", tmp_path / "t.gif")
    assert (ended.code, ".html" in ended.err) == (2, True)


@pytest.mark.slow
def test_labs_are_listed_and_run(elman, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    names = [one["name"] for one in json.loads(elman("lab", "list", "--json").out)]
    assert {"hidden-state", "gradient-distance", "n-grams", "permutation", "bottleneck", "word-order"} <= set(names)
    assert {"who-remembers", "agreement", "padding", "selection", "decoding"} <= set(names)
    assert "elman lab run NAME" in elman("lab", "list").out
    ended = elman("lab", "run", "permutation", "--check")
    assert ended.code == 0
    page = (tmp_path / "runs" / "labs" / "permutation.html").read_text()
    assert "Question." in page
    assert "elman lab run permutation" in page
    assert elman("lab", "run", "permutatoin").code == 2
    changed = elman("lab", "run", "permutation", "--set", "time=8", "--set", "width=8", "--json")
    assert json.loads(changed.out)["settings"] == {"width": 8, "time": 8}
    for wrong in ("time", "tiem=8", "time=long"):
        refused = elman("lab", "run", "permutation", "--set", wrong)
        assert (refused.code, refused.out) == (2, "")


@pytest.mark.parametrize("verb", ["trace", "predictions", "attention"])
def test_a_text_can_come_from_standard_input(elman, trained, verb, monkeypatch):
    import io

    monkeypatch.setattr("sys.stdin", io.StringIO("the cat\n"))
    assert elman("inspect", verb, trained, "--text", "-").code in (0, 2)


def test_figures_made_in_python_carry_their_call(trained):
    """Catches the command of an unedited trace below an edited one."""
    import elman
    from elman.inspection.predictions import prediction_figure

    model = elman.load(trained)
    figure = prediction_figure(model.reading("the cat", precision="float64"), position=1)
    call = f"elman.load({str(trained)!r}).reading('the cat', precision='float64')"
    assert figure.command == f"elman.inspection.predictions.prediction_figure({call}, position=1)"
    assert model.trace("the cat").figure().command.startswith("elman inspect trace")
    with model.edit({GATE: 0.5}):
        assert model.trace("the cat").figure().command == ""
