"""Translation: any sequence from any other, by an encoder-decoder or all words at once."""

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from hashlib import sha256
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, Self

import numpy as np
from pydantic import BeforeValidator, SerializeAsAny
from torch import Tensor

from elman.batches import collate
from elman.config import Config
from elman.corpus import Corpus, PairCorpus, PairDocument, PairsConfig, Repairs
from elman.errors import ConfigError
from elman.evaluation import score_translations, why_no_bleu
from elman.evaluation.inference_mode import device_of, inference_mode
from elman.inspection.attention_map import alignment, attention_hits, draw_map
from elman.inspection.inspected_text import InspectedText
from elman.models import EncoderDecoder
from elman.pipeline.tasks.base import Judged, Prepared, Settings, Task
from elman.pipeline.tasks.examples import ExampleTask, chunks, longest, similar
from elman.pipeline.tasks.files import keep_tokenizer
from elman.pipeline.tasks.forcing import Forcing, PairScore, can_be_forced
from elman.pipeline.tasks.lines import numbered, text_of
from elman.pipeline.tasks.places import learned_places
from elman.pipeline.tasks.searching import SearchConfig, answer_of, answers
from elman.runs import Run
from elman.tokenizers import Tokenizer, load_tokenizer, train_tokenizer

if TYPE_CHECKING:
    from elman.pipeline.recipe import Recipe

HEADS = 8  # that are drawn; more would be too small to see
LOOKED_AT = 1000  # texts that decide on a tokenizer, where none is named
LONG = "pair left out: longer than data.max_tokens"
ATTENTION: Settings = {
    "encoder": {"pattern": ["two-way-attention", "feedforward"], "num_layers": 6, "positions": "sinusoidal"},
    "decoder": {
        "pattern": ["attention", "cross-attention", "feedforward"],
        "num_layers": 9,
        "positions": "sinusoidal",
        "context": [],
        "attention": None,
    },
}


class Auto(Config):
    """Found out from the data: characters for texts of one word, else pieces of words."""

    type: Literal["auto"] = "auto"


def _side(settings: Any) -> Config:
    settings = {"type": settings} if isinstance(settings, str) else settings
    if isinstance(settings, Mapping) and settings.get("type") == "auto":
        return Auto.make(settings, "tokenizer")
    return Task.tokenizer_config(settings)


Side = Annotated[SerializeAsAny[Config], BeforeValidator(_side)]


class PairTokenizers(Config):
    """How sources and targets become tokens."""

    type: Literal["pair"] = "pair"
    source: Side = Auto()
    """Of what is read: the name of a tokenizer, or its settings; auto takes characters where most texts are one word,
    words where texts are single signs apart, else bpe."""
    target: Side = Auto()
    """Of what is written."""
    shared: bool = False
    """One tokenizer, learnt from both; needed for model.shared_embeddings."""


class Translate(ExampleTask):
    """Translate: any sequence from any other, word after word or all words at once."""

    name, unit, default_model, by = "translate", "pairs", "encoder-decoder", ("source", "target")
    figures = ("exact_match", "error_rate", "word_error_rate", "character_error_rate", "bleu", "chrf", "attention_hits")
    Data, can_be_made = PairsConfig, True

    def __init__(self, source: Tokenizer, target: Tokenizer, max_tokens: int = 0):
        self.source, self.target, self.max_tokens = source, target, max_tokens

    @classmethod
    def completed(cls, settings: Settings) -> Settings:
        return {"tokenizer": {}, **super().completed(settings)}

    @classmethod
    def tokenizer_config(cls, settings: Any) -> Config:
        """One for both sides, or one for each: {source: character, target: word}."""
        if isinstance(settings, Config):
            return settings
        both = isinstance(settings, str) or (isinstance(settings, Mapping) and settings.get("type", "pair") != "pair")
        return PairTokenizers.make({"source": settings, "target": settings} if both else settings, where="tokenizer")

    @classmethod
    def of_layer(cls, name: str, settings: Mapping[str, Any]) -> Settings:
        """Both stacks of one layer, the encoder in both directions; attention makes a Transformer."""
        given = {key: value for key, value in settings.items() if key != "type"}
        if name == "attention":
            both: Settings = {"residual": True, "norm": "pre", "embedding_scale": 0}
            parts = {side: both | ATTENTION[side] for side in ("encoder", "decoder")}
        else:
            one_way = cls.reads_one_way(name)
            parts = {"encoder": {"pattern": [{"bidirectional": {"layer": name}} if one_way else name]}}
            parts |= {"decoder": {"pattern": [name]}}
        for side, part in parts.items():
            given[side] = part | dict(given.get(side) or {})
        return {**given, "type": cls.default_model}

    @classmethod
    def transformer(cls, given: Settings) -> Settings:
        return cls.of_layer("attention", given)

    @classmethod
    def smallest(cls, config: Any) -> Any:
        return cls.models()[config.type](config, 2, 2, 0)

    @classmethod
    def corpus(cls, recipe: "Recipe") -> PairCorpus:
        return PairCorpus(recipe.data)  # type: ignore[arg-type]

    @classmethod
    def learn(cls, recipe: "Recipe", corpus: Corpus) -> Self:
        assert isinstance(corpus, PairCorpus)
        if recipe.start_from:
            return cls.load(Run.open(recipe.start_from).folder, recipe)
        config: Any = recipe.tokenizer

        def texts(side: str) -> Iterator[str]:
            for pair in corpus.pairs("train"):
                yield pair.text if side == "source" else pair.target

        def settings(side: str) -> Settings:
            chosen = getattr(config, side).plain()
            return {"type": _suited(islice(texts(side), LOOKED_AT))} if chosen["type"] == "auto" else chosen

        if config.shared:
            both = (text for side in ("source", "target") for text in texts(side))
            one = train_tokenizer(settings("target"), both)
            return cls(one, one, longest(recipe))
        source, target = (train_tokenizer(settings(side), texts(side)) for side in ("source", "target"))
        return cls(source, target, longest(recipe))

    def save(self, folder: Path) -> None:
        keep_tokenizer(self.source, folder / "source.json")
        keep_tokenizer(self.target, folder / "target.json")

    @classmethod
    def load(cls, folder: Path, recipe: "Recipe") -> Self:
        return cls(load_tokenizer(folder / "source.json"), load_tokenizer(folder / "target.json"), longest(recipe))

    @classmethod
    def saved(cls, folder: Path) -> bool:
        return (folder / "source.json").exists() and (folder / "target.json").exists()

    def rows(self, corpus: Corpus, split: Any, repairs: Repairs) -> Iterator[Settings]:
        """Ids of both sides, targets with their end. A pair that is too long is left out of training, and counted."""
        assert isinstance(corpus, PairCorpus)
        end = np.array([self.target.eos_id])
        for some in chunks(corpus.pairs(split)):
            sources = self.source.encode_batch([pair.text for pair in some])
            targets = self.target.encode_batch([pair.target for pair in some])
            for pair, source, target in zip(some, sources, targets, strict=True):
                if self.max_tokens and split == "train" and max(len(source), len(target)) > self.max_tokens:
                    repairs.add(LONG, pair.source, pair.line)
                else:
                    yield {"source": source, "target": np.concatenate([target, end])}

    def questions(self, corpus: Corpus, split: Any) -> Iterator[tuple[str, list[str]]]:
        assert isinstance(corpus, PairCorpus)
        return ((pair.text, [pair.target.strip()]) for pair in corpus.pairs(split))

    def parts(self, answer: Settings) -> list[str]:
        return [str(answer["target"]).strip()]

    def fingerprint(self) -> str:
        facts = [self.source.vocabulary, self.target.vocabulary, self.max_tokens]
        return sha256(json.dumps(facts, sort_keys=True).encode()).hexdigest()

    def facts(self) -> Settings:
        kinds = {"source": self.source, "target": self.target}
        sizes = {side: f"{one.name}, {one.vocab_size:,}" for side, one in kinds.items()}
        return {"vocabulary": self.target.vocab_size, "tokenizers": sizes}

    def build(self, config: Any) -> Any:
        return self.models()[config.type](config, self.source.vocab_size, self.target.vocab_size, self.target.eos_id)

    def places(self, model: Any) -> dict[str, int | None]:
        return {"source": learned_places(model, "encoder"), "target": learned_places(model, "decoder")}

    def unit_of(self, model: Any) -> str:
        return "target"

    def lacking(self, model: Any, prepared: Prepared) -> dict[str, str]:
        corpus = prepared.corpus
        assert isinstance(corpus, PairCorpus)
        if "valid" not in prepared.stores:  # nothing is chosen
            return {}
        why = why_no_bleu(pair.target for pair in corpus.pairs("valid"))
        found = {"bleu": why, "chrf": why} if why else {}
        if not self._placed(model, corpus, "valid"):
            found["attention_hits"] = "no attention is told where to look: that needs made pairs, read by character"
        return found

    def judge(self, model: Any, prepared: Prepared, recipe: "Recipe", split: str) -> Judged:
        return self._judge(model, prepared, recipe, split, recipe.search)

    def quick_judge(self, model: Any, prepared: Prepared, recipe: "Recipe") -> Judged:
        greedy = recipe.search.model_copy(update={"beam_size": 1, "num_best": 0, "choose": "probability"})
        return self._judge(model, prepared, recipe, "valid", greedy, samples=1)

    def _judge(
        self, model: Any, prepared: Prepared, recipe: "Recipe", split: Any, search: SearchConfig, samples: int = 1000
    ) -> Judged:
        corpus, store = prepared.corpus, prepared.stores[split]
        assert isinstance(corpus, PairCorpus)
        pairs = [(pair.text, pair.target) for pair in corpus.pairs(split)]
        changed = recipe.model_copy(update={"search": search})
        given = self.predict(model, (source for source, _ in pairs), changed, False)
        written = [answer["target"] for answer in given]
        references = [target for _, target in pairs]
        found = score_translations(written, references, bleu=not why_no_bleu(references), samples=samples)
        scores: Settings = {}
        for name, measure in found.items():
            scores |= {name: measure.value, f"{name}_interval": measure.interval}
            scores |= {f"{name}_signature": measure.signature} if measure.signature else {}
        low, high = scores["exact_match_interval"]
        scores |= {"error_rate": 1 - scores["exact_match"], "error_rate_interval": (1 - high, 1 - low)}
        scores |= self._looks(model, corpus, split)
        scores |= {"loss": self.loss(model, store, recipe), "pairs": len(pairs)}
        exact = np.array([a.strip() == b.strip() for a, b in zip(written, references, strict=True)], dtype=np.float64)
        return Judged(scores, "exact_match", exact, np.ones(len(exact)), written, references)

    def _looks(self, model: Any, corpus: PairCorpus, split: Any) -> Settings:
        """How often attention is where it must be, where the data knows that."""
        pairs = self._placed(model, corpus, split)
        if not pairs:
            return {}
        return {"attention_hits": attention_hits(self._alignment(model, pairs), [pair.places for pair in pairs])}

    def _placed(self, model: Any, corpus: PairCorpus, split: Any) -> list[PairDocument]:
        """Some pairs of which it is known, and of the model can be seen, where to look."""
        if not _attends(model) or self.source.name != "character":
            return []
        return list(islice((pair for pair in corpus.pairs(split) if pair.places), LOOKED_AT))

    def _alignment(self, model: Any, pairs: Sequence[PairDocument]) -> Tensor:
        end = [self.target.eos_id]
        rows = [
            {"source": self.source.encode(pair.text), "target": np.append(self.target.encode(pair.target), end)}
            for pair in pairs
        ]
        batch = collate(rows).to(device_of(model))
        return alignment(model, batch.ragged("source"), batch.ragged("target"))

    def pictures(self, model: Any, prepared: Prepared, recipe: "Recipe", folder: Path) -> None:
        """Where the decoder looks while it writes a target of the validation data."""
        corpus = prepared.corpus
        assert isinstance(corpus, PairCorpus)
        if not _attends(model) or "valid" not in prepared.stores:
            return
        pair = next(corpus.pairs("valid"))
        source = [self.source.token(int(id)) for id in self.source.encode(pair.text)]
        target = [self.target.token(int(id)) for id in self.target.encode(pair.target)]
        if source and target:
            weights = self._alignment(model, [pair])[0]
            draw_map(weights[: len(target), :HEADS], source, target, folder / "attention", title=recipe.name)

    def samples(self, model: Any, prepared: Prepared, recipe: "Recipe") -> list[str]:
        corpus = prepared.corpus
        assert isinstance(corpus, PairCorpus)
        pairs = list(islice(corpus.pairs("valid" if "valid" in prepared.stores else "train"), 5))
        given = self.predict(model, [pair.text for pair in pairs], recipe, False)
        return [f"{pair.text} → {answer['target']}" for pair, answer in zip(pairs, given, strict=True)]

    def predict(self, model: Any, lines: Iterable[Any], recipe: "Recipe", probabilities: bool) -> Iterator[Settings]:
        search, first = recipe.search.settled(), 0
        for some in chunks(numbered(lines, _question)):
            texts = [source for source, _ in some]
            scores = self._given(model, some, recipe)
            rows = [{"source": np.asarray(ids)} for ids in self.source.encode_batch(texts)]
            self.watch(model, rows)
            given = [answer_of([], probabilities)] * len(rows)
            asked = [place for place, text in enumerate(texts) if text.strip()]  # no model has learnt from empty ones
            with inference_mode(model):
                size = recipe.evaluation.batch_size
                for places, batch in similar([rows[place] for place in asked], "source", size, model):
                    numbers = [first + asked[place] for place in places]
                    found = answers(model, batch.ragged("source"), self.target, search, probabilities, numbers)
                    for place, answer in zip(places, found, strict=True):
                        given[asked[place]] = answer
            for number, (text, answer, score) in enumerate(zip(texts, given, scores, strict=True), start=first + 1):
                told = {"number": number} if probabilities else {}
                yield {**told, "source": text, **answer, **({"given": score.plain()} if score else {})}
            first += len(some)

    def _given(self, model: Any, asked: Sequence[tuple[str, str | None]], recipe: "Recipe") -> list[PairScore | None]:
        """The scores of targets that stand beside their sources, where the model can tell them."""
        pairs = [(source, target) for source, target in asked if target is not None and can_be_forced(model)]
        if not pairs:
            return [None] * len(asked)
        scores = iter(self.forcing(model, recipe).together(pairs))
        return [None if target is None else next(scores) for _, target in asked]

    def forcing(self, model: Any, recipe: "Recipe") -> Forcing:
        """What scores targets that are given."""
        return Forcing(model, self.source, self.target, recipe.evaluation.batch_size)

    def reading(self, model: Any, text: str, recipe: "Recipe", target: str | None = None) -> InspectedText:
        """Beside each written token's scores stands what it follows; without a target, the model's own answer."""
        if target is None:
            target = str(next(self.predict(model, [text], recipe, False))["target"])
        eos, read = self.target.eos_id, np.asarray(self.source.encode(text))
        if not len(read):
            raise ConfigError(f"{text!r}: has no token to look at")
        written = np.concatenate([self.target.encode(target), [eos]])
        tokens = {
            "decoder": [self.target.token(int(id)) for id in (eos, *written[:-1])],
            "encoder": [self.source.token(int(id)) for id in read],
        }

        def run(copies: int, pads: int = 0) -> Any:
            batch = collate([{"source": read, "target": written}] * copies).padded(pads).to(device_of(model))
            return model(batch.ragged("source"), batch.ragged("target"))

        return InspectedText(model, run, tokens, "next", self.target.token, written.tolist(), "encoder.embedding")

    def plain(self, answer: Settings) -> str:
        if "candidates" in answer:
            return "\n".join(
                f"{answer['number']}\t{one['rank']}\t{one['score']:.4f}\t{one['log_prob']:.4f}\t{one['target']}"
                for one in answer["candidates"]
            )
        return str(answer["target"])


def _attends(model: Any) -> bool:
    """Whether it writes word after word and looks at the source meanwhile."""
    decoder = model.decoder if isinstance(model, EncoderDecoder) else None
    return getattr(decoder, "attention", None) is not None or bool(getattr(decoder, "looking", None))


def _suited(texts: Iterable[str]) -> str:
    """Characters for texts of one word; words for single signs apart, as phones are written; else pieces of words."""
    counts = [text.split() for text in texts]
    if sum(len(words) <= 1 for words in counts) * 2 > len(counts):
        return "character"
    words = [word for text in counts for word in text]
    return "word" if sum(map(len, words)) < 2 * len(words) else "bpe"


def _question(line: Any) -> tuple[str, str | None]:
    """A source, and the target that may stand beside it."""
    target = line.get("target") if isinstance(line, dict) else None
    return text_of(line, "source", "text"), target if isinstance(target, str) else None
