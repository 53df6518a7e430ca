"""Invalid input: one sentence on stderr with a remedy, and the right exit code."""

import shutil
import sys

import pytest
from processes import run, run_elman

WRONG = {
    "missing file": (1, "train --data texd.txt", "texd.txt: no such file or folder (did you mean 'text.txt'?)"),
    "empty file": (1, "train --data empty.txt", "empty.txt"),
    "blank file": (1, "train --data blank.txt", "blank.txt"),
    "folder without text": (1, "train --data nothing", "nothing: the folder contains no readable file"),
    "missing column": (1, "train --data table.csv --data.column story", "did you mean"),
    "one line": (1, "train --data one.txt", "data.valid"),
    "unknown model": (2, "train --model lstn", "unknown model 'lstn' (did you mean 'lstm'?)"),
    "unknown tokenizer": (2, "train --tokenizer wird", "did you mean 'word'?"),
    "unknown size": (2, "train --size smal", "did you mean 'small'?"),
    "unknown number of parameters": (2, "train --data text.txt --params many", "write 250k, 5M or 12000"),
    "unknown setting": (2, "train --training.learning_rat 1", "did you mean 'learning_rate'?"),
    "unknown section": (2, "train --traning.learning_rate 1", "did you mean 'training'?"),
    "wrong value": (2, "train --training.max_steps soon", "training.max_steps"),
    "no value": (2, "train --training.max_steps", "training.max_steps"),
    "broken value": (2, "train --model.pattern [lstm", "not valid YAML"),
    "unknown device": (2, "eval {run} --device gpu", "'gpu' is none of auto, cpu, cuda, mps"),
    "no such run": (1, "eval nowhere", "nowhere: no such run folder"),
    "not a run": (1, "generate nothing", "nothing: not a run folder: it has no config.yaml"),
    "a run in the way": (1, "train --data text.txt --run {run}", "contains a run already; continue it with --resume"),
    "things in the way": (1, "train --data text.txt --run full", "full: not empty (thesis.txt) and not a run"),
    "unreadable recipe": (2, "train text.txt", "a recipe consists of `key: value` lines"),
    "missing recipe": (2, "train nowhere.yaml", "nowhere.yaml: no such recipe"),
    "broken recipe": (2, "check broken.yaml", "broken.yaml: not valid YAML"),
    "recipe is a folder": (2, "train nothing", "nothing: cannot be read as a recipe"),
    "settings where none go": (2, "score {run} --training.max_steps 3", "go with init, check, train"),
    "data and split": (2, "eval {run} --data text.txt --split valid", "either --data or --split"),
    "unknown split": (2, "eval {run} --split test", "it has train, valid"),
    "wrong temperature": (2, "generate {run} --temperature -1", "generation.temperature"),
    "no place to write": (1, "init nowhere/recipe.yaml", "nowhere/recipe.yaml: cannot be written"),
    "layers that do not fit": (2, "train --data text.txt --model.embedding_size 8", "tied embeddings"),
    "no wandb": (1, "train --data text.txt --wandb", "pip install 'elman[tracking]'"),
}
USAGE = ["train --nope", "nope", "generate", "generate {run} --count many", "generate {run} --count 0", "data nope"]


@pytest.fixture
def things(text, monkeypatch):
    folder = text.parent
    (folder / "empty.txt").write_text("")
    (folder / "blank.txt").write_text("\n \n\n")
    (folder / "one.txt").write_text("only one line\n")
    (folder / "table.csv").write_text("id,stories\n1,once upon\n2,a time\n")
    (folder / "broken.yaml").write_text("data: [\n")
    (folder / "nothing").mkdir()
    (folder / "full").mkdir()
    (folder / "full" / "thesis.txt").write_text("precious")
    monkeypatch.setitem(sys.modules, "wandb", None)
    return folder


@pytest.mark.parametrize("name", WRONG)
def test_invalid_input_is_one_sentence_on_stderr(elman, trained, things, name):
    code, words, told = WRONG[name]
    ended = elman(*words.format(run=trained).split())
    assert told in ended.err
    assert ended.code == code
    assert ended.err.startswith("elman: ")
    assert ended.err.count("\n") == 1
    assert not ended.out
    assert not (things / "runs").is_dir() or not any((things / "runs").iterdir())
    assert (things / "full" / "thesis.txt").read_text() == "precious"


@pytest.mark.parametrize("words", USAGE)
def test_usage_errors_exit_with_code_two(elman, trained, words):
    ended = elman(*words.format(run=trained).split())
    assert ended.code == 2
    assert "Usage: elman" in ended.err
    assert not ended.out


def test_no_arguments_show_the_help(elman):
    ended = elman()
    assert ended.code == 2
    assert "Usage: elman" in ended.out + ended.err


@pytest.fixture
def copy(trained, tmp_path):
    shutil.copytree(trained, tmp_path / "copy")
    return tmp_path / "copy"


def test_a_run_without_a_checkpoint(elman, copy):
    shutil.rmtree(copy / "best")
    shutil.rmtree(copy / "last")
    ended = elman("generate", copy)
    assert (ended.code, "has no checkpoint yet" in ended.err) == (1, True)


@pytest.mark.parametrize("verb", ["eval", "generate", "score"])
def test_a_damaged_checkpoint(elman, copy, verb):
    for file in copy.glob("best/*/weights.safetensors"):
        file.write_bytes(file.read_bytes()[:-1] + b"?")
    ended = elman(verb, copy)
    assert (ended.code, "no checkpoint is valid" in ended.err) == (1, True)
    assert ended.err.count("\n") == 1


@pytest.mark.parametrize("damage", ["", "{", "[]"])
def test_a_damaged_tokenizer(elman, copy, damage):
    (copy / "tokenizer.json").write_text(damage)
    ended = elman("generate", copy)
    assert ended.code == 1
    assert ended.err.startswith("elman: ")
    assert "tokenizer.json" in ended.err


def test_a_prepared_run_that_never_began_training(elman, copy):
    for name in ("tokenizer.json", "best", "last"):
        path = copy / name
        path.unlink() if path.is_file() else shutil.rmtree(path)
    ended = elman("generate", copy)
    assert ended.code == 1
    assert ended.err.startswith("elman: ")


@pytest.mark.slow
def test_an_interrupt_during_preparation_prints_how_to_continue(elman, text, monkeypatch):
    from elman.pipeline.tasks.language_model import data

    def interrupted(*arguments):
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(data, "train_tokenizer", interrupted)
        ended = elman("train", "--data", text, "--run", "r", "--training.max_steps", "2", "--device", "cpu")
    assert ended.code == 130
    assert "elman train --run r --resume" in ended.err
    assert "Traceback" not in ended.err
    assert elman("train", "--run", "r", "--resume").code == 0


@pytest.mark.slow
def test_invalid_utf8_does_not_end_a_stream_and_a_closed_pipe_is_no_error(trained):
    ended = run_elman("score", str(trained), input=b"gr\xf6\xdfe\nthe cat\n", text=False, check=True)
    assert len(ended.stdout.splitlines()) == 2
    pipe = f"{sys.executable} -m elman generate {trained} --max-tokens 100000 2>&1 | head -c 1"
    left = run(["sh", "-c", pipe], text=False, check=True)
    assert len(left.stdout) == 1


def test_a_model_larger_than_its_weights_is_rejected_before_it_takes_memory(elman, copy, monkeypatch):
    """Catches: 16 GB taken before the error."""
    from elman.pipeline.tasks.language_model.task import LanguageModelling

    config = copy / "config.yaml"
    config.write_text(config.read_text().replace("hidden_size: 16", "hidden_size: 4096"))
    elman("accept", copy)
    build, built = LanguageModelling.build, []

    def watched(self, settings):
        model = build(self, settings)
        built.append(next(model.parameters()).device.type)
        return model

    monkeypatch.setattr(LanguageModelling, "build", watched)
    ended = elman("generate", copy)
    assert (ended.code, ended.err.count("\n")) == (1, 1)
    assert "the weights do not fit the model in config.yaml" in ended.err
    assert built == ["meta"]
    monkeypatch.setenv("ELMAN_LIMITS", "memory=1e6")
    ended = elman("generate", copy)
    assert (ended.code, ended.err.count("\n")) == (2, 1)
    assert "bytes, but at most 1000000 is allowed" in ended.err
