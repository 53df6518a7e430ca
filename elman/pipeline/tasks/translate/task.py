"""Translation: tokenizers of both sides, translators, and targets by search or given."""

import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from hashlib import sha256
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Self, cast

import numpy as np

from elman.batches import ExampleStore, collate
from elman.batches.groups import groups
from elman.config import Config, unknown_key
from elman.corpus import Corpus, PairCorpus, PairsConfig, Repairs
from elman.corpus.stored_corpus import keep_pairs
from elman.errors import ConfigError
from elman.evaluation.inference_mode import device_of
from elman.inspection.inspected_text import InspectedText
from elman.layers import LAYERS
from elman.models import TRANSLATORS
from elman.models.encoder_decoder.config import DecoderConfig, EncoderDecoderConfig, parallel_settings
from elman.pipeline.tasks import TASKS, Measure, PreparedData
from elman.pipeline.tasks.examples import CHUNK, max_tokens
from elman.pipeline.tasks.forced_scoring import ForcedScorer, PairScore, has_log_probs
from elman.pipeline.tasks.lines import numbered, text_of
from elman.pipeline.tasks.position_checks import learned_positions
from elman.pipeline.tasks.pretrained_vectors import Vocabulary, without_vectors, words_of_ids
from elman.pipeline.tasks.race import InferenceWork
from elman.pipeline.tasks.search import format_candidates, search_targets
from elman.pipeline.tasks.settings import Settings, in_layers
from elman.pipeline.tasks.translate.evaluation import TranslationScores
from elman.pipeline.tasks.translate.race import translation_work
from elman.pipeline.tasks.translate.tokenizers import PairTokenizers, suggest_tokenizer
from elman.runs import Run
from elman.tokenizers import Tokenizer, load_tokenizer, train_tokenizer

if TYPE_CHECKING:
    from elman.pipeline.recipe import Recipe
    from elman.pipeline.trained_model import TrainedModel

SAMPLED = 1000  # texts that decide on a tokenizer, where none is named
LONG = "pair left out: longer than data.max_tokens"
TRANSFORMER_SIDES: Settings = {
    "encoder": {"pattern": ["two-way-attention", "feedforward"], "num_layers": 6, "positions": "sinusoidal"},
    "decoder": {
        "pattern": ["attention", "cross-attention", "feedforward"],
        "num_layers": 9,
        "positions": "sinusoidal",
        "context": [],
        "attention": None,
    },
}


@TASKS.register("translate")
class Translate(TranslationScores):
    """Translate: any sequence from any other, word after word or all words at once."""

    data_config, models, default_model = PairsConfig, TRANSLATORS, "encoder-decoder"
    default_tokenizer: ClassVar[Settings] = {}
    metrics = (
        "exact_match", "error_rate", "word_error_rate", "character_error_rate", "bleu", "chrf", "attention_hits",
    )  # fmt: skip
    has_targets = searches = synthetic = starts_from = True
    inputs = ("source", "text")
    endpoint = "translate"
    saved_files = ("source.json", "target.json")
    unit, by = "pairs", ("source", "target")
    race_unit = "target tokens"
    entrants = ("rnn", "gru", "lstm", "attention")
    measures = (
        Measure("bleu", False, "BLEU", digits=2),
        Measure("exact_match", False, "of the targets right", percent=True),
    )
    shown_scores = ("loss", "bleu", "chrf", "exact_match")
    paired_measure = "exact_match"
    cost_note = (
        "Decoding is greedy, one text at a time. The time includes encoding the source; all models generate as many "
        "tokens as the true target has. State bytes are the size of the decoder state after that many source tokens "
        "and as many target tokens, including the encoded source if there is attention over it; a model that decodes "
        "in parallel has no state."
    )

    def __init__(self, source: Tokenizer, target: Tokenizer, max_tokens: int = 0):
        self.source, self.target, self.max_tokens = source, target, max_tokens

    @classmethod
    def typed_tokenizer(cls, settings: Any) -> Config:
        """One for both sides, or one for each: {source: character, target: word}."""
        if isinstance(settings, Config):
            return settings
        both = isinstance(settings, str) or (isinstance(settings, Mapping) and settings.get("type", "pair") != "pair")
        return PairTokenizers.make({"source": settings, "target": settings} if both else settings, where="tokenizer")

    @classmethod
    def of_layer(cls, name: str, settings: Mapping[str, Any]) -> Settings:
        """Both stacks of one layer, the encoder bidirectional; attention makes a Transformer."""
        made = {key: value for key, value in settings.items() if key != "type"}
        if name == "attention":
            both: Settings = {"residual": True, "norm": "pre", "embedding_scale": 0}
            parts = {side: both | TRANSFORMER_SIDES[side] for side in ("encoder", "decoder")}
        else:
            causal = LAYERS[name].causal
            parts = {"encoder": {"pattern": [{"bidirectional": {"layer": name}} if causal else name]}}
            parts |= {"decoder": {"pattern": [name]}}
        own = {key: made.pop(key) for key in [*made] if key not in EncoderDecoderConfig.model_fields}
        unknown = {*own}
        for (side, part), known in zip(parts.items(), (LAYERS, DecoderConfig.known), strict=True):
            pattern, left = in_layers(part["pattern"], name, own, known)
            made[side] = part | {"pattern": pattern} | dict(made.get(side) or {})
            unknown &= {*left}
        if unknown:
            raise ConfigError(unknown_key(min(unknown), "model", [*EncoderDecoderConfig.model_fields]))
        return {**made, "type": cls.default_model}

    @classmethod
    def transformer(cls, settings: Settings) -> Settings:
        return cls.of_layer("attention", settings)

    @classmethod
    def starting_body(cls, run: str, stored: Settings, asked: Mapping[str, Any]) -> Settings:
        if stored.get("task") != cls.name:
            raise ConfigError(f"start_from: {run} is no model that translates")
        body = parallel_settings(stored["model"]) if asked.get("type") == "mask-predict" else stored["model"]
        return without_vectors(body)

    @classmethod
    def build_smallest(cls, config: Any) -> Any:
        return TRANSLATORS[config.type](config, 2, 2, 0)

    def build(self, config: Any) -> Any:
        return TRANSLATORS[config.type](config, self.source.vocab_size, self.target.vocab_size, self.target.eos_id)

    def vocabularies(self, model: Any) -> list[Vocabulary]:
        sides = ("encoder", self.source, "source"), ("decoder", self.target, "target")
        return [Vocabulary(getattr(model, part), words_of_ids(one), field) for part, one, field in sides]

    # Data

    @classmethod
    def corpus(cls, recipe: "Recipe") -> PairCorpus:
        return PairCorpus(recipe.data)  # type: ignore[arg-type]

    @classmethod
    def learn(cls, recipe: "Recipe", corpus: PairCorpus) -> Self:
        if recipe.start_from:
            return cls.load(Run.open(recipe.start_from).folder, recipe)
        config: Any = recipe.tokenizer

        def texts(side: str) -> Iterator[str]:
            for pair in corpus.pairs("train"):
                yield pair.text if side == "source" else pair.target

        def settings(side: str) -> Settings:
            chosen = getattr(config, side).plain()
            return {"type": suggest_tokenizer(islice(texts(side), SAMPLED))} if chosen["type"] == "auto" else chosen

        if config.shared:
            both = (text for side in ("source", "target") for text in texts(side))
            one = train_tokenizer(settings("target"), both)
            return cls(one, one, max_tokens(recipe))
        source, target = (train_tokenizer(settings(side), texts(side)) for side in ("source", "target"))
        return cls(source, target, max_tokens(recipe))

    def save(self, folder: Path) -> None:
        self.source.save(folder / "source.json")
        self.target.save(folder / "target.json")

    @classmethod
    def load(cls, folder: Path, recipe: "Recipe") -> Self:
        return cls(load_tokenizer(folder / "source.json"), load_tokenizer(folder / "target.json"), max_tokens(recipe))

    def rows(self, corpus: PairCorpus, split: Any, repairs: Repairs) -> Iterator[Settings]:
        """Ids of both sides, targets with their end. A pair that is too long is left out of training, and counted."""
        end = np.array([self.target.eos_id])
        for some in groups(corpus.pairs(split), CHUNK):
            sources = self.source.encode_batch([pair.text for pair in some])
            targets = self.target.encode_batch([pair.target for pair in some])
            for pair, source, target in zip(some, sources, targets, strict=True):
                if self.max_tokens and split == "train" and max(len(source), len(target)) > self.max_tokens:
                    repairs.add(LONG, pair.source, pair.line)
                else:
                    yield {"source": source, "target": np.concatenate([target, end])}

    def store(self, corpus: Corpus, split: Any, folder: Path) -> ExampleStore:
        """Beside ids, the texts of held-out pairs, by which translations are judged."""
        store = super().store(corpus, split, folder)
        if split != "train":
            keep_pairs(cast(PairCorpus, corpus).pairs(split), folder, split)
        return store

    def questions(self, corpus: PairCorpus, split: Any) -> Iterator[tuple[str, list[str]]]:
        return ((pair.text, [pair.target.strip()]) for pair in corpus.pairs(split))

    def answer_parts(self, answer: Settings) -> list[str]:
        return [str(answer["target"]).strip()]

    def fingerprint(self) -> str:
        decisive = [self.source.vocabulary, self.target.vocabulary, self.max_tokens]
        return sha256(json.dumps(decisive, sort_keys=True).encode()).hexdigest()

    def describe_vocabulary(self) -> Settings:
        sides = {"source": self.source, "target": self.target}
        names = {side: f"{one.name}, {one.vocab_size:,}" for side, one in sides.items()}
        return {"vocabulary": self.target.vocab_size, "tokenizers": names}

    def learned_positions(self, model: Any) -> dict[str, int | None]:
        return {"source": learned_positions(model, "encoder"), "target": learned_positions(model, "decoder")}

    def loss_field(self, recipe: "Recipe") -> str:
        return "target"

    # Prediction

    def predict(self, model: Any, lines: Iterable[Any], recipe: "Recipe", probabilities: bool) -> Iterator[Settings]:
        search = recipe.search.with_seed()
        first = search.first_line

        def run(numbers: list[int], batch: Any, indices: list[int]) -> Iterator[Settings]:
            own = [numbers[index] for index in indices]
            return search_targets(model, batch.ragged("source"), self.target, search, probabilities, own)

        for some in groups(numbered(lines, _source_and_target), CHUNK):
            texts = [source for source, _ in some]
            scores = self._scores_of_given(model, some, recipe)
            asked = [place for place, text in enumerate(texts) if text.strip()]  # no model was trained on empty sources
            rows = [{"source": np.asarray(ids)} for ids in self.source.encode_batch([texts[place] for place in asked])]
            numbers = [first + place for place in asked]
            answers = [format_candidates([], probabilities)] * len(texts)
            for place, answer in zip(asked, self.run_rows(model, rows, recipe, partial(run, numbers)), strict=True):
                answers[place] = answer
            for number, (text, answer, score) in enumerate(zip(texts, answers, scores, strict=True), start=first + 1):
                numbering = {"number": number} if probabilities else {}
                yield {**numbering, "source": text, **answer, **({"given": score.plain()} if score else {})}
            first += len(some)

    def _scores_of_given(
        self, model: Any, lines: Sequence[tuple[str, str | None]], recipe: "Recipe"
    ) -> list[PairScore | None]:
        """Scores of targets given with their sources, if the model defines them."""
        pairs = [(source, target) for source, target in lines if target is not None and has_log_probs(model)]
        if not pairs:
            return [None] * len(lines)
        scores = iter(self._scorer(model, recipe).score_batch(pairs))
        return [None if target is None else next(scores) for _, target in lines]

    def _scorer(self, model: Any, recipe: "Recipe") -> ForcedScorer:
        return ForcedScorer(model, self.source, self.target, recipe.evaluation.batch_size)

    def score(self, model: Any, texts: Iterable[Any], recipe: "Recipe") -> Iterator[PairScore]:
        return self._scorer(model, recipe).scores(texts)

    def stream_scores(
        self, model: Any, texts: Iterable[Any], recipe: "Recipe", config: Any, listen: Callable[[str], None]
    ) -> Iterator[PairScore]:
        raise ConfigError("pairs are scored many together, not as they come: leave --stream out, or use .score()")

    def answer_columns(self, answer: Settings) -> Settings:
        return super().answer_columns({name: value for name, value in answer.items() if name != "number"})

    def served(self, answer: Settings) -> Settings:
        return {name: value for name, value in super().served(answer).items() if name != "number"}

    def count_tokens(self, answer: Settings) -> tuple[int, int]:
        return len(self.source.encode(answer["source"])), len(self.target.encode(answer["target"]))

    def format(self, answer: Settings) -> str:
        if "candidates" in answer:
            return "\n".join(
                f"{answer['number']}\t{one['rank']}\t{one['score']:.4f}\t{one['log_prob']:.4f}\t{one['target']}"
                for one in answer["candidates"]
            )
        return str(answer["target"])

    # Inspection

    def inspect(self, model: Any, text: str, recipe: "Recipe", target: str | None = None) -> InspectedText:
        """Each score is shown at the token before the scored one; the default target is the model's output."""
        if target is None:
            target = str(next(self.predict(model, [text], recipe, False))["target"])
        tokenizer, source = self.target, np.asarray(self.source.encode(text))
        if not len(source):
            raise ConfigError(f"{text!r}: has no tokens")
        written = np.concatenate([tokenizer.encode(target), [tokenizer.eos_id]])
        tokens = {
            "decoder": [tokenizer.token(int(id)) for id in (tokenizer.eos_id, *written[:-1])],
            "encoder": [self.source.token(int(id)) for id in source],
        }

        def run(copies: int, pads: int = 0) -> Any:
            batch = collate([{"source": source, "target": written}] * copies).padded(pads).to(device_of(model))
            return model(batch.ragged("source"), batch.ragged("target"))

        return InspectedText(model, run, tokens, "next", tokenizer.token, written.tolist(), "encoder.embedding")

    # Races

    def inference_work(self, trained: "TrainedModel", prepared: PreparedData, split: str) -> InferenceWork:
        return translation_work(trained, prepared.stores[split])


def _source_and_target(line: Any) -> tuple[str, str | None]:
    """A source, and its optional target."""
    target = line.get("target") if isinstance(line, dict) else None
    return text_of(line, *Translate.inputs), target if isinstance(target, str) else None
