"""Language modelling: the probability of each token, from what stands before it or from both sides of it."""

import json
from collections.abc import Iterable, Iterator, Mapping
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

import numpy as np
import torch

from elman.batches import Documents, ParallelStreams, Stream, TokenStore
from elman.corpus import Corpus, open_corpus
from elman.errors import ConfigError, DataError
from elman.evaluation import Likelihood, compare, evaluate, excess
from elman.evaluation.inference_mode import device_of, inference_mode
from elman.evaluation.jsonable import jsonable
from elman.generation import generate
from elman.inspection.inspected_text import InspectedText, inspect_language_model, text_run
from elman.models import MODELS, StackConfig, prediction_of
from elman.pipeline.tasks.base import Judged, Prepared, Settings, Task, changed
from elman.pipeline.tasks.files import keep_tokenizer
from elman.pipeline.tasks.lines import numbered, text_of
from elman.pipeline.tasks.places import learned_places, longer, told
from elman.registry import Registry
from elman.tokenizers import Tokenizer, load_tokenizer, train_tokenizer
from elman.training import Validation
from elman.training.loop import perplexity

if TYPE_CHECKING:
    from elman.pipeline.recipe import Recipe

SAMPLES = 5
FEW = 20  # cases under which a share says little
SHOWN = 5  # of the likeliest tokens, in a prediction
GAP = "<mask>"


class LanguageModelling(Task):
    """Language modelling: what comes next, from left to right."""

    name, unit, default_model = "language-model", "tokens", "stack"

    def __init__(self, tokenizer: Tokenizer):
        self.tokenizer = tokenizer
        self._long = 0  # lines that had fewer learned positions than tokens
        self._places: int | None = None

    @classmethod
    def models(cls) -> Registry[Any]:
        return MODELS

    @classmethod
    def completed(cls, settings: Settings) -> Settings:
        """Without data, a synthetic language, which has words; of a text nothing is known: characters always work."""
        data = settings.get("data") or {}
        if not isinstance(data, Mapping) or (data.get("train") is None and data.get("language") is None):
            opened = dict(data) if isinstance(data, Mapping) else {}
            settings = {**settings, "data": opened | {"language": {"type": "agreement"}}}
        return {"tokenizer": "character" if isinstance(data, Mapping) and data.get("train") else "word", **settings}

    @classmethod
    def try_building(cls, config: Any) -> None:
        if isinstance(config, StackConfig):
            super().try_building(config)

    @classmethod
    def smallest(cls, config: Any) -> Any:
        return MODELS[config.type](config, 2)

    @classmethod
    def corpus(cls, recipe: "Recipe") -> Corpus:
        return open_corpus(recipe.data, recipe.tokenizer.type)  # type: ignore[attr-defined]

    @classmethod
    def learn(cls, recipe: "Recipe", corpus: Corpus) -> Self:
        texts = (document.text for document in corpus.documents("train"))
        return cls(train_tokenizer(recipe.tokenizer.plain(), texts))

    def save(self, folder: Path) -> None:
        keep_tokenizer(self.tokenizer, folder / "tokenizer.json")

    @classmethod
    def load(cls, folder: Path, recipe: "Recipe") -> Self:
        return cls(load_tokenizer(folder / "tokenizer.json"))

    @classmethod
    def saved(cls, folder: Path) -> bool:
        return (folder / "tokenizer.json").exists()

    def store(self, corpus: Corpus, split: Any, folder: Path) -> TokenStore:
        words = sha256(json.dumps(self.tokenizer.vocabulary, sort_keys=True).encode()).hexdigest()
        fingerprint = f"{corpus.fingerprint(split)}:{words}"
        try:
            store = TokenStore.open(folder, split)
        except DataError:  # not there, or not whole
            store = TokenStore.build(corpus.documents(split), self.tokenizer, folder, split, fingerprint)
        if store.fingerprint != fingerprint:
            raise changed(folder.parent)
        if split == "train" and not store.facts.tokens:
            raise DataError("there is no training text", file=", ".join(corpus.sources("train")))
        return store

    def size(self, store: TokenStore) -> int:
        return store.facts.tokens

    def describe(self, store: TokenStore) -> Settings:
        facts = store.facts
        rate = facts.unknowns / facts.tokens if facts.tokens else 0.0
        return {"documents": facts.documents, "tokens": facts.tokens, "bytes": facts.bytes, "unknown_rate": rate}

    def facts(self) -> Settings:
        return {"vocabulary": self.tokenizer.vocab_size}

    def build(self, config: Any) -> Any:
        return MODELS[config.type](config, self.tokenizer.vocab_size)

    def training_batches(self, prepared: Prepared, recipe: "Recipe") -> Stream | Documents:
        training, store = recipe.training, prepared.stores["train"]
        if not prepared.corpus.carry:
            return Documents(store, training.batch_size, training.sequence_length, recipe.seed)
        fit = max(1, store.facts.tokens // training.sequence_length)  # a short text fills fewer lanes
        lanes = min(training.batch_size, fit)
        return Stream(store, lanes, training.sequence_length, recipe.seed, jitter=training.jitter)

    def notes(self, batches: Any, prepared: Prepared, recipe: "Recipe") -> list[str]:
        training = recipe.training
        if batches.batch_size >= training.batch_size:
            return []
        asked = f"{training.batch_size} lanes of {training.sequence_length} steps"
        tokens = prepared.stores["train"].facts.tokens
        return [f"{tokens:,} tokens do not fill {asked}: training with {batches.batch_size}"]

    def too_long(self, model: Any, prepared: Prepared, recipe: "Recipe") -> list[str]:
        """Of masked models, which read pieces; from left to right, places begin again in any long text."""
        places = learned_places(model) if prediction_of(model) == "masked" else None
        notes: list[str] = []
        for split, store in prepared.stores.items():
            sizes = self._pieces(store, recipe.training.sequence_length, prepared.corpus.carry)
            what = f"of {len(sizes):,} pieces of {split} are"
            notes += told(longer(sizes, places), what, places)
        return notes

    @staticmethod
    def _pieces(store: TokenStore, length: int, carry: bool) -> np.ndarray:
        """How long each is that is read by itself."""
        wholes = np.array([store.facts.tokens]) if carry else np.diff(store.starts)
        ends = wholes % length
        return np.concatenate([np.full(int((wholes // length).sum()), length), ends[ends > 0]])

    def asides(self) -> list[str]:
        long, self._long = self._long, 0
        return told(long, "lines are", self._places)

    def evaluation_batches(
        self, prepared: Prepared, split: str, recipe: "Recipe", quick: bool = False
    ) -> tuple[ParallelStreams | Documents, str]:
        """Every token of a split once, and a sentence on the context it has. `quick` trades context for speed."""
        store, settings, corpus = prepared.stores[split], recipe.evaluation, prepared.corpus
        masked = prediction_of(MODELS[recipe.model.type]) == "masked"  # type: ignore[attr-defined]
        length = recipe.training.sequence_length if masked else settings.sequence_length
        if not corpus.carry:
            batches = Documents(store, settings.batch_size, length, recipe.seed, shuffle=False)
            cut = (
                f", in pieces of at most {length} tokens with both sides in sight" if masked else ", from a fresh state"
            )
            return batches, f"each {corpus.unit} on its own{cut}"
        if masked:
            lanes = max(1, min(settings.batch_size, store.facts.tokens // length))  # changes speed only
            return ParallelStreams(
                store, lanes, length
            ), f"pieces of {length} tokens, each on its own, both sides in sight"
        lanes = settings.lanes
        if quick:
            longest = store.facts.tokens // (8 * recipe.training.sequence_length)
            lanes = max(1, min(recipe.training.batch_size, longest))
        pieces = "" if lanes == 1 else f", cut into {lanes} lanes that each start afresh"
        return ParallelStreams(store, lanes, settings.sequence_length), f"one stream, state carried over{pieces}"

    def validate(self, model: Any, prepared: Prepared, recipe: "Recipe") -> Validation:
        batches, context = self.evaluation_batches(prepared, "valid", recipe, quick=True)
        loss = evaluate(model, batches, prepared.stores["valid"].facts, context, quick=True).loss
        return Validation(loss, loss, {"perplexity": perplexity(loss)})

    def judge(self, model: Any, prepared: Prepared, recipe: "Recipe", split: str) -> Judged:
        """Likelihood of a split; for a synthetic language also the distance to the best possible and the grammar."""
        batches, context = self.evaluation_batches(prepared, split, recipe)
        likelihood = evaluate(model, batches, prepared.stores[split].facts, context)
        scores = likelihood.plain()
        if prepared.corpus.language is not None:
            scores["language"] = self.beside_the_truth(model, prepared, split, likelihood)
        return Judged(scores, "loss", np.zeros(0), np.zeros(0))

    def beside_the_truth(self, model: Any, prepared: Prepared, split: Any, likelihood: Likelihood) -> Settings:
        """Distance to the best possible loss of reading from left to right; with a token for each word the grammar."""
        language: Any = prepared.corpus.language
        documents = prepared.corpus.documents(split)
        if self.tokenizer.name != "word":
            found = excess(likelihood, language, documents) if likelihood.kind == "likelihood" else None
            return {"excess": None if found is None else jsonable(found)}
        compared = compare(model, self.tokenizer, language, documents).plain()
        cases = [entry for entry in (compared["agreement"] or {}).get("by_distance", []) if entry["words"] >= FEW]
        return {**compared, "worst_agreement": min((entry["accuracy"] for entry in cases), default=None)}

    def samples(self, model: Any, prepared: Prepared, recipe: "Recipe") -> list[str]:
        if prediction_of(model) != "left-to-right":
            return []
        settings = recipe.generation.model_copy(update={"seed": recipe.seed})
        return [sample.text for sample in generate(model, self.tokenizer, [""] * SAMPLES, settings)]

    def predict(self, model: Any, lines: Iterable[Any], recipe: "Recipe", probabilities: bool) -> Iterator[Settings]:
        """The likeliest next tokens of each line; of a masked model, what fills its gaps."""
        masked = prediction_of(model) == "masked"
        for text in numbered(lines, _gapped if masked else _text):
            with inference_mode(model):
                yield self._fill(model, text) if masked else self._next(model, text)

    def _next(self, model: Any, text: str) -> Settings:
        ids = torch.tensor([[self.tokenizer.start_id, *self.tokenizer.encode(text)]], device=device_of(model))
        logits, _ = model(ids)
        return {"text": text, "next": self._likeliest(logits[0, -1])}

    def _fill(self, model: Any, text: str) -> Settings:
        """Each gap with the others still open."""
        ids: list[int] = []
        gaps: list[int] = []
        for number, piece in enumerate(text.split(GAP)):
            if number:
                gaps.append(len(ids))
                ids.append(model.mask_id)
            ids += self.tokenizer.encode(piece.strip() if self.tokenizer.name == "word" else piece).tolist()
        tokens = torch.tensor([[*ids, self.tokenizer.eos_id]], device=device_of(model))
        self._places = learned_places(model)
        self._long += longer([tokens.shape[1]], self._places)
        features, _ = model.features(tokens, None, None)
        fillings = [self._likeliest(model.logits(features[0, gap])) for gap in gaps]
        for gap, filling in zip(gaps, fillings, strict=True):
            ids[gap] = filling[0]["id"]
        return {"text": text, "filled": self.tokenizer.decode(ids), "gaps": fillings}

    def reading(self, model: Any, text: str, recipe: "Recipe", target: str | None = None) -> InspectedText:
        """The start, `<eos>` as a rule, stands before the text; for a masked model `<eos>` after it."""
        own, masked = self._numbers(text), prediction_of(model) == "masked"
        if not masked:
            return inspect_language_model(model, own, self.tokenizer.token, self.tokenizer.start_id)
        ids = [*own, self.tokenizer.eos_id]
        tokens = {"": [self.tokenizer.token(id) for id in ids]}
        caution = "The model sees the token whose own score this is: nothing was hidden from it."

        return InspectedText(model, text_run(model, ids), tokens, "own", self.tokenizer.token, ids, caution=caution)

    def _numbers(self, text: str) -> list[int]:
        """Where the end of a line is no token, each line is a document, and `<eos>` stands between two."""
        ends = self.tokenizer.encode("\n").tolist()
        if ends and self.tokenizer.unk_id not in ends:
            return self.tokenizer.encode(text).tolist()
        lines = [self.tokenizer.encode(line).tolist() for line in text.split("\n") if line]
        return [id for number, line in enumerate(lines) for id in ([self.tokenizer.eos_id] * bool(number) + line)]

    def _likeliest(self, logits: torch.Tensor) -> list[Settings]:
        chances, ids = logits.float().softmax(-1).topk(min(SHOWN, logits.shape[-1]))
        pairs = zip(ids.tolist(), chances.tolist(), strict=True)
        return [{"token": self.tokenizer.token(id), "id": id, "probability": chance} for id, chance in pairs]

    def plain(self, answer: Settings) -> str:
        if "filled" in answer:
            return str(answer["filled"])
        return "\t".join(f"{one['token']} {one['probability']:.4f}" for one in answer["next"])


def _text(line: Any) -> str:
    return text_of(line, "text")


def _gapped(line: Any) -> str:
    text = _text(line)
    if GAP not in text:
        raise DataError(f"a masked model fills gaps, but there is none in {text!r}", remedy=f"write {GAP} for each")
    return text


class MaskedModelling(LanguageModelling):
    """Masked language modelling: what was hidden, with both sides in sight."""

    name, default_model = "masked", "masked"

    @classmethod
    def completed(cls, settings: Settings) -> Settings:
        model = settings.get("model") or {}
        kind = model if isinstance(model, str) else model.get("type", cls.default_model)
        if kind in MODELS and prediction_of(MODELS[kind]) != "masked":
            raise ConfigError(f"task masked: a model of type {kind!r} does not see both sides; leave model.type out")
        return super().completed(settings)

    @classmethod
    def of_layer(cls, name: str, settings: Mapping[str, Any]) -> Settings:
        """A causal layer is taken both ways, and stays as wide as its input."""
        return cls.both_ways(super().of_layer(name, settings), join="sum")

    @classmethod
    def transformer(cls, given: Settings) -> Settings:
        return {**given, "type": cls.default_model}
