"""Lab: n-gram models, sparsity and back-off."""

import math
import tempfile
from pathlib import Path

import torch

from elman.batches import TokenStore
from elman.corpus import Document
from elman.corpus.synthetic import make_language
from elman.evaluation.inference_mode import inference_mode
from elman.figures.figure import Figure
from elman.figures.panels import Lines
from elman.inspection.inspected_text import inspect_language_model
from elman.inspection.labs.lab import Lab, Progress, Result
from elman.inspection.predictions import ngram_order_panels, predictions, surprisal_panels
from elman.models import MODELS, NGram
from elman.tokenizers import Tokenizer, train_tokenizer

TEXT = "the cat near the dogs that the farmers see was happy today"


def experiment(seed: int, progress: Progress, *, longest: int = 6, sentences: int = 8000, text: str = TEXT) -> Result:
    orders, sizes = range(1, longest + 1), [max(1, sentences // 16), max(1, sentences // 4), sentences]
    settings = {"type": "agreement", "train_documents": sentences, "test_documents": 500, "seed": seed}
    language = make_language(settings)
    train, test = list(language.split("train")), list(language.split("test"))
    tokenizer = train_tokenizer("word", [document.text for document in train])
    found = {}
    for size in sizes:
        models = {order: fitted(train[:size], tokenizer, order) for order in orders}
        found[size] = {order: perplexity(model, tokenizer, test) for order, model in models.items()}
        progress(f"{size} sentences", 1, 1, math.log(min(found[size].values())))
    curves = {f"{size:,} sentences": (orders, [*by_order.values()]) for size, by_order in found.items()}
    best = math.exp(language.entropy)
    curves["perplexity of the language"] = (orders, [best] * longest)
    order = min(5, longest)
    inspected = inspect_language_model(
        models[order], tokenizer.encode(text).tolist(), tokenizer.token, tokenizer.eos_id
    )
    panels = [*surprisal_panels(predictions(inspected))[:1], *ngram_order_panels(inspected)]
    measured = {
        "perplexity of order 2, most text": found[sizes[-1]][min(2, longest)],
        "perplexity of order 5, most text": found[sizes[-1]][order],
        "perplexity of order 5, least text": found[sizes[0]][order],
        "perplexity of the language": best,
    }
    figures = [
        Figure("Perplexity by n-gram order", [Lines(curves, "n-gram order", "test perplexity")]),
        Figure(f"Orders that a model of order {order} uses", panels),
    ]
    return Result(figures, measured)


def fitted(documents: list[Document], tokenizer: Tokenizer, order: int) -> NGram:
    model = NGram(MODELS["ngram"].Config.make({"order": order}), tokenizer.vocab_size)
    with tempfile.TemporaryDirectory() as folder:
        store = TokenStore.build(documents, tokenizer, Path(folder), "train", "lab")
        for _ in model.fit(store):
            pass
    return model


def perplexity(model: NGram, tokenizer: Tokenizer, documents: list[Document]) -> float:
    """All documents as one stream: n-grams do not cross the end of a document."""
    ids = [tokenizer.eos_id]
    for document in documents:
        ids += [*tokenizer.encode(document.text).tolist(), tokenizer.eos_id]
    tokens = torch.tensor([ids])
    with inference_mode(model):
        return math.exp(float(model.losses(tokens[:, :-1], tokens[:, 1:])[0].mean()))


LAB = Lab(
    "n-grams",
    "n-gram language models",
    "Why are longer n-grams not simply better, and what does back-off do?",
    "Perplexity falls a lot from unigrams to bigrams, and hardly beyond. With little text, higher orders are "
    "worse: most long n-grams of a new sentence are unseen, and the model backs off to shorter ones. More text "
    "helps, but all orders stay far above the entropy of the language: a distant subject lies outside their "
    "context.",
    {
        "perplexity of order 2, most text": (14.5, 16.2),
        "perplexity of order 5, most text": (14.3, 16.2),
        "perplexity of order 5, least text": (18.5, 21.5),
        "perplexity of the language": (10.1, 10.3),
    },
    experiment,
    try_next={
        "sentences=32000": "How far does four times as much text lower the perplexity of order 5?",
        "longest=9": "Do still longer n-grams help at all?",
    },
)
