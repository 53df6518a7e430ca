"""English-like sentences with long-distance subject-verb agreement.

"the old farmer behind the dogs that chase the cat was hungry": the subject decides the form of the main verb. A verb in
a relative clause agrees with the noun before "that", or with the clause's own subject. Each stage of a sentence has a
grammar rule: the possible next words and the following states.
"""

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from pydantic import Field

from elman.corpus.document import Mark
from elman.corpus.synthetic import language
from elman.corpus.synthetic.language import END, LANGUAGES, Language, Transition

Pairs = tuple[tuple[str, str], ...]  # singular and plural

# Zipfian: the n-th word of a class is n times rarer than the first.
DETERMINERS = ("the", "my", "our", "your")
ADJECTIVES = ("old", "happy", "hungry", "small", "quiet", "young", "tired", "brave", "clever", "proud", "lazy", "shy")
ADVERBS = ("today", "again", "now", "alone", "outside", "anyway")
PREPOSITIONS = ("near", "behind", "with", "beside", "before", "above", "among", "without")
NOUNS: Pairs = (
    *(("cat", "cats"), ("dog", "dogs"), ("girl", "girls"), ("boy", "boys"), ("child", "children")),
    *(("farmer", "farmers"), ("bird", "birds"), ("teacher", "teachers"), ("man", "men"), ("woman", "women")),
    *(("horse", "horses"), ("mouse", "mice"), ("doctor", "doctors"), ("goose", "geese"), ("student", "students")),
    *(("fox", "foxes"), ("king", "kings"), ("wolf", "wolves"), ("lady", "ladies"), ("spider", "spiders")),
)
COPULAS: Pairs = (("was", "were"), ("is", "are"), ("seems", "seem"), ("looks", "look"))
INTRANSITIVES: Pairs = (
    *(("sleeps", "sleep"), ("runs", "run"), ("waits", "wait")),
    *(("sings", "sing"), ("smiles", "smile"), ("dances", "dance")),
)
TRANSITIVES: Pairs = (
    *(("sees", "see"), ("likes", "like"), ("chases", "chase"), ("knows", "know")),
    *(("hears", "hear"), ("follows", "follow"), ("fears", "fear"), ("watches", "watch")),
)

DECIDES = {"phrase": "subject", "relative": "head", "inner": "inner", "clause_end": "inner"}  # verb's noun


class State(NamedTuple):
    """Everything the rest of a sentence depends on; irrelevant fields are 0 or empty."""

    stage: str
    role: str = ""  # of the next noun: subject, near, inner, deep or object
    phrases: int = 0  # so far, between subject and verb
    subject: int = 0  # number of the subject: 0 singular, 1 plural
    head: int = 0  # number of the noun that a relative clause would modify
    inner: int = 0  # number of the subject of a relative clause


@LANGUAGES.register("agreement")
class Agreement(Language):
    """English-like sentences with long-distance agreement: needs memory."""

    start = State("determiner", role="subject")

    class Config(Language.Config):
        max_phrases: int = Field(default=4, ge=0, le=16)
        """Maximum number of phrases and clauses between the subject and its verb."""
        phrase_ratio: float = Field(default=1.0, ge=0, le=10)
        """Ratio of the probabilities of n + 1 and n of them; 1: uniform from 0 to max_phrases."""
        attractors: float = Field(default=0.5, ge=0, le=1)
        """Probability that a noun in between has another number than the noun that decides the pending verb."""
        nesting: float = Field(default=0.25, ge=0, le=1)
        """Probability that the subject of a relative clause is separated from its verb by a phrase."""
        words_per_class: int = Field(default=20, ge=1, le=20)
        """Maximum number of words per word class."""

    config: Config

    def __init__(self, config: Config):
        super().__init__(config)
        weights = [config.phrase_ratio**count for count in range(config.max_phrases + 1)]
        self.more = [sum(weights[count + 1 :]) / (sum(weights[count:]) or 1) for count in range(len(weights))]
        self.number = {form: number for pair in NOUNS for number, form in enumerate(pair)}
        verbs = (*COPULAS, *INTRANSITIVES, *TRANSITIVES)
        self.other_form = {form: other for pair in verbs for form, other in zip(pair, reversed(pair), strict=True)}

    def transitions(self, state: language.State) -> Iterator[Transition]:
        assert isinstance(state, State)
        match state.stage:
            case "determiner":
                yield from self._any(DETERMINERS, 1, state._replace(stage="noun"))
            case "noun":
                yield from self._any(ADJECTIVES, 0.25, state._replace(stage="bare_noun"))
                yield from self._noun(state, 0.75)
            case "bare_noun":
                yield from self._noun(state, 1)
            case "phrase":  # after the subject or a phrase: another phrase, or the main verb
                more = self.more[state.phrases]
                yield from self._any(PREPOSITIONS, more / 2, state._replace(stage="determiner", role="near"))
                yield "that", more / 2, state._replace(stage="relative")
                yield from self._verb(COPULAS, state.subject, 0.4 * (1 - more), State("predicate"))
                yield from self._verb(INTRANSITIVES, state.subject, 0.3 * (1 - more), State("close"))
                yield from self._verb(TRANSITIVES, state.subject, 0.3 * (1 - more), State("determiner", role="object"))
            case "relative":  # after "that": a verb ("that sees the cat"), or a subject ("that the cat sees")
                yield from self._verb(TRANSITIVES, state.head, 0.5, state._replace(stage="determiner", role="near"))
                yield from self._any(DETERMINERS, 0.5, state._replace(stage="noun", role="inner"))
            case "inner" | "clause_end":
                nesting = self.config.nesting if state.stage == "inner" else 0.0
                after = state._replace(stage="phrase", phrases=state.phrases + 1, inner=0)
                yield from self._any(PREPOSITIONS, nesting, state._replace(stage="determiner", role="deep"))
                yield from self._verb(TRANSITIVES, state.inner, 1 - nesting, after)
            case "predicate":
                yield from self._any(ADJECTIVES, 1, State("close"))
            case "close":
                yield from self._any(ADVERBS, 0.3, State("finish"))
                yield END, 0.7, state
            case "finish":
                yield END, 1, state

    def _noun(self, state: State, chance: float) -> Iterator[Transition]:
        waiting = {"near": state.subject, "inner": state.subject, "deep": state.inner}.get(state.role)
        for number in (0, 1):
            after = {
                "subject": State("phrase", subject=number, head=number),
                "near": state._replace(stage="phrase", role="", phrases=state.phrases + 1, head=number),
                "inner": state._replace(stage="inner", role="", inner=number),
                "deep": state._replace(stage="clause_end", role=""),
                "object": State("close"),
            }[state.role]
            attracts = self.config.attractors if number != waiting else 1 - self.config.attractors
            share = 0.5 if waiting is None else attracts
            yield from self._any([pair[number] for pair in NOUNS], chance * share, after)

    def _verb(self, pairs: Pairs, number: int, chance: float, after: State) -> Iterator[Transition]:
        return self._any([pair[number] for pair in pairs], chance, after)

    def _any(self, words: Sequence[str], chance: float, after: State) -> Iterator[Transition]:
        words = words[: self.config.words_per_class]
        total = sum(1 / rank for rank in range(1, len(words) + 1))
        for rank, word in enumerate(words, start=1):
            yield word, chance / (rank * total), after

    def marks(self, words: Sequence[str], states: Sequence[language.State]) -> tuple[Mark, ...]:
        """Each verb with the noun that decides it: the stage says whose verb it is, the role which noun it was."""
        marks: list[Mark] = []
        nouns: list[tuple[int, int]] = []  # place and number
        places = {"subject": 0, "head": 0, "inner": 0}
        for place, (word, state) in enumerate(zip(words, states, strict=True)):
            assert isinstance(state, State)
            if word in self.number:
                nouns.append((place, self.number[word]))
                if state.role in ("subject", "inner"):
                    places[state.role] = place
                if state.role in ("subject", "near"):
                    places["head"] = place
            elif word in self.other_form:
                begin = places[DECIDES[state.stage]]
                number = self.number[words[begin]]
                attractors = sum(begin < between and other != number for between, other in nouns)
                marks.append(Mark(place, place - begin - 1, self.other_form[word], attractors))
        return tuple(marks)
