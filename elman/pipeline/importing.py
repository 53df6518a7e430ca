"""A run folder made of a Hugging Face folder: model and tokenizer as they came, for every verb but training on."""

from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import tokenizers as hf

from elman.errors import DataError
from elman.models.hugging_face import from_folder, read_json
from elman.models.stack import count_parameters
from elman.pipeline.recipe import Recipe, write_recipe
from elman.runs import Checkpoint, Run, atomic_write, environment
from elman.runs.files import discard
from elman.tokenizers import Imported, Numbers, Tokenizer

NO_DATA: dict[str, Any] = {"train": []}  # an imported run has no text of its own


@dataclass
class Brought:
    """What an import found."""

    run: Path
    architecture: str
    parameters: int
    vocab_size: int
    tokenizer: str
    notes: list[str] = field(default_factory=list)


def import_folder(folder: str | Path, run: str | Path | None = None) -> Brought:
    """Read a folder that `save_pretrained` wrote, and leave a run folder that `load` reads."""
    folder = Path(folder)
    if not folder.is_dir():
        raise DataError("no such folder", file=folder, remedy="download the model first; nothing is fetched here")
    target = Path(run) if run else Path("runs") / folder.resolve().name
    model = from_folder(folder)
    notes: list[str] = []
    if model.config.positions == "learned":
        notes.append(f"it has places for {model.config.max_positions:,} tokens; in a longer text they begin again")
    tokenizer = _tokenizer(folder, model.vocab_size, notes)
    recipe = Recipe.make(
        {
            "name": target.name,
            "data": NO_DATA,
            "tokenizer": {"type": tokenizer.name, **tokenizer.config.plain()},
            "model": model.config.plain(),
        }
    )
    created = Run.create(target, write_recipe(recipe), environment())
    try:
        with created.lock():
            _save(tokenizer, created.tokenizer)
            config = read_json(folder / "config.json")
            created.best.save(Checkpoint(0, model.state_dict(), facts={"imported": config}))
    except BaseException:
        discard(target)  # half a run would be in the way of the next attempt
        raise
    kind = str(config["model_type"])
    return Brought(target, kind, count_parameters(model), model.vocab_size, tokenizer.name, notes)


def _save(tokenizer: Tokenizer, path: Path) -> None:
    with TemporaryDirectory() as aside:
        tokenizer.save(Path(aside) / path.name)
        atomic_write(path, (Path(aside) / path.name).read_bytes())


def _tokenizer(folder: Path, vocab_size: int, notes: list[str]) -> Tokenizer:
    """The folder's own if it has one, with the marks that its files name; else numbers for text."""
    library: hf.Tokenizer | None = None
    path = folder / "tokenizer.json"
    if path.is_file():
        try:
            library = hf.Tokenizer.from_file(str(path))
        except Exception as error:  # the library raises nothing more precise
            raise DataError(f"cannot be read as a tokenizer: {error}", file=path) from None
    marks = {mark: _mark(folder, mark, library, vocab_size, notes) for mark in ("eos", "bos")}
    end = marks["eos"] if marks["eos"] is not None else marks["bos"]
    if end is None and library is not None:
        raise DataError(
            "no file of the folder says which token ends a text",
            file=folder / "config.json",
            remedy="put its number there as eos_token_id",
        )
    if end is None:
        end = 0
        notes.append("no file says which token ends a text: 0 is taken for it")
    given = {"vocab_size": vocab_size, "eos_id": end, "start_id": marks["bos"] if marks["bos"] != end else None}
    if library is None:
        notes.append('there is no tokenizer.json, so texts are ids: "12 7 99"')
        return Numbers.make(**given)
    return Imported(Imported.Config.make(given, where="tokenizer"), library)


def _mark(folder: Path, mark: str, library: hf.Tokenizer | None, vocab_size: int, notes: list[str]) -> int | None:
    """The id of a mark by config.json, else by what comes with the tokenizer, else by what generation ends at."""
    found: list[Any] = []
    for name in ("config.json", "tokenizer_config.json", "generation_config.json"):
        if not (folder / name).is_file():
            continue
        settings = read_json(folder / name)
        number, text = settings.get(f"{mark}_token_id"), settings.get(f"{mark}_token")
        if isinstance(number, list) and number:
            notes.append(f"{name} has several {mark}_token_id, {number}: the first is taken")
            number = number[0]
        text = text.get("content") if isinstance(text, dict) else text
        found += [number, library.token_to_id(text) if library is not None and isinstance(text, str) else None]
    numbers = [number for number in found if isinstance(number, int) and not isinstance(number, bool)]
    for number in numbers:
        if 0 <= number < vocab_size:
            return number
    if numbers:
        notes.append(f"{mark}_token_id is {numbers[0]}, but the model knows {vocab_size} tokens: left out")
    return None
