"""An imported BERT gives the numbers of `transformers` for texts, not only for ids."""

import os
from typing import Any

import pytest
import torch

from elman.pipeline import load
from elman.pipeline.evaluate import evaluate_run
from elman.pipeline.importing import import_folder

WORDS = "[PAD] [UNK] [CLS] [SEP] [MASK] the cat sat on a mat ##s ##ting dog ."
TEXTS = ["the cats sat on a mat .", "a dog", "sitting cats .", ""]


@pytest.fixture(scope="module")
def bert(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """Their model and tokenizer, and the run that their folder was imported as."""
    os.environ["TRANSFORMERS_VERBOSITY"] = "error"
    transformers = pytest.importorskip("transformers")
    transformers.utils.logging.disable_progress_bar()
    folder = tmp_path_factory.mktemp("bert")
    tokenizer = transformers.BertTokenizer(vocab={word: number for number, word in enumerate(WORDS.split())})
    sizes = {"hidden_size": 16, "intermediate_size": 20, "num_hidden_layers": 2, "num_attention_heads": 2}
    torch.manual_seed(3)
    model = transformers.BertForMaskedLM(transformers.BertConfig(vocab_size=15, max_position_embeddings=24, **sizes))
    for parameter in model.parameters():
        torch.nn.init.normal_(parameter, 0, 0.4)
    for part in (tokenizer, model.eval()):
        part.save_pretrained(folder / "theirs")
    import_folder(folder / "theirs", folder / "run")
    return model, tokenizer, load(folder / "run", "cpu")


@torch.no_grad()
def pseudo_log_likelihood(model: Any, tokenizer: Any, text: str) -> tuple[float, int]:
    """Salazar et al. (2020): each token of the text masked in turn, between [CLS] and [SEP]."""
    ids = tokenizer(text, return_tensors="pt").input_ids
    total = 0.0
    for place in range(1, ids.shape[1] - 1):
        given = ids.clone()
        given[0, place] = tokenizer.mask_token_id
        total += float(model(given).logits[0, place].log_softmax(-1)[ids[0, place]])
    return total, ids.shape[1] - 2


def test_scores_are_pseudo_likelihoods_between_cls_and_sep(bert):
    """Catches: [CLS] left out; [SEP] predicted; positions moved by one."""
    model, tokenizer, ours = bert
    for score, text in zip(ours.score(TEXTS), TEXTS, strict=True):
        expected, tokens = pseudo_log_likelihood(model, tokenizer, text)
        assert score.tokens == tokens
        assert score.log_prob == pytest.approx(expected, abs=1e-4)


def test_eval_sums_the_scores(bert, tmp_path):
    model, tokenizer, ours = bert
    (tmp_path / "text.txt").write_text("the cats sat on a mat .")
    found = evaluate_run(ours.run, data=[str(tmp_path / "text.txt")])
    expected, tokens = pseudo_log_likelihood(model, tokenizer, "the cats sat on a mat .")
    assert found["tokens"] == tokens
    assert found["loss"] * tokens == pytest.approx(-expected, abs=1e-4)
    assert -expected < found["nats"] < -expected + 2  # spacing and capitals, as is usual in a text


def test_gaps_are_filled_as_by_transformers(bert):
    model, tokenizer, ours = bert
    (answer,) = ours.predict(["the <mask> sat on a <mask>"])
    ids = tokenizer("the [MASK] sat on a [MASK]", return_tensors="pt").input_ids
    with torch.no_grad():
        expected = model(ids).logits[ids == tokenizer.mask_token_id].softmax(-1)
    for gap, chances in zip(answer["gaps"], expected, strict=True):
        for one in gap:
            assert one["probability"] == pytest.approx(float(chances[one["id"]]), abs=1e-5)
    assert answer["filled"].startswith("the ")


def test_inspection_reads_the_text_in_its_frame(bert):
    model, tokenizer, ours = bert
    reading, ids = ours.reading("a dog sat"), tokenizer("a dog sat", return_tensors="pt").input_ids
    assert reading.main == tokenizer.convert_ids_to_tokens(ids[0])
    with torch.no_grad():
        torch.testing.assert_close(reading.scores(), model(ids).logits[0], rtol=0, atol=1e-4)


def test_training_and_quick_losses_read_the_frame_too(bert):
    """The frame is neither masked nor predicted, wherever a chunk of text ends."""
    _, tokenizer, ours = bert
    ids = tokenizer(TEXTS[0]).input_ids[1:]
    ended, cut = torch.tensor([ids]), torch.tensor([ids[:-1]])
    nats, whole = ours.model.losses(ended, ended)[0], ours.model.losses(cut, cut)[0]
    assert nats[0, -1] == 0
    torch.testing.assert_close(nats[:, :-1], whole)
    quick = ours.model.quick_losses(ended, ended)[0]
    assert (quick[0, :-1] > 0).all()
    assert quick[0, -1] == 0
    framed, _, predicted = ours.model._framed(ended, None)
    assert framed[0].tolist()[: len(ids) + 1] == [2, *ids]
    assert predicted[0].tolist() == [False, *[True] * (len(ids) - 1), False, False]
