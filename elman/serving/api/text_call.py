"""What all routes for text share: checks against the server's limits, sessions and states, and the collected texts."""

import base64
import binascii
import random
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

from elman.errors import ElmanError
from elman.generation.sampling import GenerationConfig
from elman.serving.errors import ApiError
from elman.serving.generation import Failed, Finished, Generation, Output, Piece, Scored, Snapshot
from elman.serving.sessions import NoSession, SessionBusy, TooManySessions
from elman.serving.settings import ServeConfig
from elman.serving.signed_state import InvalidState, OtherModel
from elman.serving.text_model import Prompt, TextModel


def check_count(given: int, most: int, name: str) -> None:
    if given > most:
        raise ApiError(400, f"{name} is {given}, but at most {most} is allowed", name)


def check_prompt(prompt: str | Sequence[int], model: TextModel, config: ServeConfig, param: str = "prompt") -> None:
    if isinstance(prompt, str):
        try:
            size = len(prompt.encode())
        except UnicodeEncodeError:
            raise ApiError(400, f"{param} has an unpaired surrogate, which is not valid Unicode", param) from None
        if size > config.prompt_bytes:
            raise ApiError(400, f"{param} has {size:,} bytes, but at most {config.prompt_bytes:,} are allowed", param)
    else:
        check_count(len(prompt), config.prompt_bytes, param)
        check_tokens(prompt, model, param)


def check_tokens(tokens: Iterable[int], model: TextModel, param: str) -> None:
    size = model.tokenizer.vocab_size
    if (wrong := next((token for token in tokens if token >= size), None)) is not None:
        raise ApiError(400, f"{param} has token {wrong}, but the model has {size} (0 to {size - 1})", param)


@dataclass
class Text:
    """A text as it has come so far."""

    generation: Generation
    prompt: Prompt
    text: str = ""
    pieces: list[Piece] = field(default_factory=list)
    scored: list[Scored] = field(default_factory=list)
    finish_reason: str | None = None
    snapshot: Snapshot | None = None

    def add(self, output: Output) -> str:
        """Notes an output; returns the new text."""
        new = ""
        match output:
            case Piece():
                self.pieces.append(output)
                new = output.text
            case Scored():
                self.scored.append(output)
            case Finished(reason, new, snapshot):
                self.finish_reason, self.snapshot = reason, snapshot
            case Failed(problem):
                raise failure(problem)
        self.text += new
        return new


def all_finished(texts: Sequence[Text]) -> bool:
    return all(text.finish_reason for text in texts)


def joined(batch: Sequence[tuple[Text, Output]]) -> list[tuple[Text, list[Output]]]:
    """Outputs by texts, the tokens of a text that came together as one."""
    groups: list[tuple[Text, list[Output]]] = []
    for text, output in batch:
        if groups and groups[-1][0] is text and isinstance(output, Piece) and isinstance(groups[-1][1][-1], Piece):
            groups[-1][1].append(output)
        else:
            groups.append((text, [output]))
    return groups


def failure(problem: Exception) -> Exception:
    if isinstance(problem, ElmanError):
        return ApiError(400, str(problem))
    failed = RuntimeError("a step of the model failed")
    failed.__cause__ = problem  # of any type: a StopIteration would end the generator that raises it
    return failed


def usage(texts: Sequence[Text]) -> dict[str, Any]:
    """Token counts; a prompt of several texts counts once, as it is read once."""
    first = {id(text.prompt): text for text in reversed(texts)}.values()
    read = sum(len(text.prompt.tokens) for text in first)
    cached = sum(cached_tokens(text) for text in first)
    drawn = sum(len(text.pieces) for text in texts)
    return {
        "prompt_tokens": read,
        "completion_tokens": drawn,
        "total_tokens": read + drawn,
        "prompt_tokens_details": {"cached_tokens": cached},
    }


def cached_tokens(text: Text) -> int:
    """Tokens of the prompt whose state was known; the start of a text is not counted as one."""
    implied = len(text.prompt.known) - len(text.prompt.tokens)
    return min(max(text.generation.cached - implied, 0), len(text.prompt.tokens))


def random_id() -> str:
    """Names an answer; it opens nothing, so that it need not be hard to guess."""
    return f"{random.getrandbits(96):024x}"


def make_texts(
    model: TextModel, prompt: Prompt, settings: GenerationConfig, limit: int, count: int, **options: Any
) -> list[Text]:
    made = model.generations(prompt, settings, limit=limit, count=count, **options)
    return [Text(generation, prompt) for generation in made]


class session_errors:
    """Turns what sessions and states raise into answers."""

    def __enter__(self) -> None:
        pass

    def __exit__(self, _: Any, problem: BaseException | None, __: Any) -> None:
        match problem:
            case NoSession():
                raise ApiError(404, str(problem), "session", "session_not_found") from None
            case SessionBusy():
                raise ApiError(409, str(problem), "session", "session_busy") from None
            case TooManySessions():
                raise ApiError(429, str(problem), code="too_many_sessions", headers={"Retry-After": "60"}) from None
            case OtherModel():
                raise ApiError(409, str(problem), "state", "other_model") from None
            case InvalidState():
                raise ApiError(400, str(problem), "state", "invalid_state") from None


def decode_state(text: str) -> bytes:
    try:
        return base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError):
        raise ApiError(400, "state is no base64", "state", "invalid_state") from None


def encode_state(data: bytes) -> str:
    return base64.b64encode(data).decode()
