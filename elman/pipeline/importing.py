"""Imports a Hugging Face folder or an ARPA file as a run folder, which all verbs accept, except for resuming."""

from dataclasses import dataclass, field
from itertools import product
from pathlib import Path
from typing import Any

import tokenizers as hf

from elman.errors import DataError
from elman.files import discard
from elman.models import is_masked
from elman.models.hugging_face import from_folder, read_json
from elman.models.ngram import read_arpa
from elman.models.stack import count_parameters
from elman.pipeline.recipe import Recipe, write_recipe
from elman.runs import Checkpoint, Run, environment
from elman.runs.run import HAS_MANIFEST
from elman.tokenizers import EOS, IdTokenizer, Imported, Tokenizer, train_tokenizer
from elman.tokenizers.base import UNK
from elman.tokenizers.library_file import make_library, read_content

PIECE = 128  # tokens per piece on which a masked model is evaluated, if it has that many positions
NO_DATA: dict[str, Any] = {"train": []}  # an imported run has no training text


@dataclass
class ImportedRun:
    """The run folder that an import made, and what was in the imported one."""

    run: Path
    architecture: str
    parameters: int
    vocab_size: int
    tokenizer: str
    masked: bool
    notes: list[str] = field(default_factory=list)


def import_folder(folder: str | Path, run: str | Path | None = None) -> ImportedRun:
    """Convert a folder that `save_pretrained` wrote to a run folder that `load` reads."""
    folder = Path(folder)
    if not folder.is_dir():
        raise DataError("no such folder", file=folder, remedy="download the model first; nothing is fetched here")
    target = Path(run) if run else Path("runs") / folder.resolve().name
    notes: list[str] = []
    library = library_of(folder)
    mask = _mark(folder, ("mask",), library, None, notes)
    model = from_folder(folder, mask, notes)
    config = read_json(folder / "config.json")
    masked = is_masked(model)
    if masked and model.config.mask_id is None:
        notes.append("no file says which token is the mask: one is added that the model has never seen")
    positions = _positions(model)
    if positions:
        beyond = "they start again" if model.config.positions == "learned" else "attention reaches back as far only"
        notes.append(f"it has {positions:,} positions; in a longer text {beyond}, unlike in transformers")
    tokenizer = tokenizer_of(folder, library, model.vocab_size, masked, notes, 0 if masked else positions)
    if masked and tokenizer.start_id != tokenizer.eos_id:
        model.config = model.config.model_copy(update={"frame": (tokenizer.start_id, tokenizer.eos_id)})
    recipe = Recipe.make(
        {
            "name": target.name,
            "data": NO_DATA,
            "tokenizer": {"type": tokenizer.name, **tokenizer.config.plain()},
            "model": model.config.plain(),
            "training": {"sequence_length": max(min(PIECE, model.config.max_positions - 2), 1)} if masked else {},
        }
    )
    write_run(target, recipe, tokenizer, model, config)
    kind = str(config["model_type"])
    return ImportedRun(target, kind, count_parameters(model), model.vocab_size, tokenizer.name, masked, notes)


def import_arpa(path: str | Path, run: str | Path | None = None) -> ImportedRun:
    """Convert an ARPA file to a run folder: an n-gram model of words, or of characters if all its words are."""
    path = Path(path)
    target = Path(run) if run else Path("runs") / path.name.partition(".")[0]
    words = [word for word in read_arpa(path)[1] if word not in (EOS, UNK)]
    kind = "character" if all(len(word) == 1 for word in words) else "word"
    tokenizer = train_tokenizer({"type": kind}, ["".join(words) if kind == "character" else " ".join(words)])
    model, _ = read_arpa(path, [tokenizer.token(id) for id in range(tokenizer.vocab_size)])
    recipe = Recipe.make(
        {
            "name": target.name,
            "data": NO_DATA,
            "tokenizer": {"type": tokenizer.name},
            "model": {"type": "ngram", "order": model.order},
        }
    )
    write_run(target, recipe, tokenizer, model, {"arpa": path.name})
    size = sum(len(table.log_prob) for table in model.tables)
    notes = ["a text is split at spaces" if tokenizer.name == "word" else "each character is a token"]
    return ImportedRun(target, "n-gram", size, model.vocab_size, tokenizer.name, False, notes)


def write_run(target: Path, recipe: Recipe, tokenizer: Tokenizer, model: Any, source: dict[str, Any]) -> None:
    created = Run.create(target, write_recipe(recipe), environment())
    try:
        with created.lock():
            tokenizer.save(created.tokenizer)
            created.manifest.record(created.tokenizer.name)
            created.best.save(Checkpoint(0, model.state_dict(), facts={"imported": source, **HAS_MANIFEST}))
    except BaseException:
        discard(target)  # leave no incomplete run in the way of the next attempt
        raise


def _positions(model: Any) -> int:
    """How many positions a model has; 0: any number, as sliding windows and recurrent layers have."""
    if model.config.positions == "learned":
        return model.config.max_positions
    contexts = [layer.context for name, layer in model.config.layers() if name == "attention" and not layer.window]
    return min(contexts, default=0)


def library_of(folder: Path) -> hf.Tokenizer | None:
    path = folder / "tokenizer.json"
    return make_library(read_content(path), path) if path.is_file() else None


def tokenizer_of(
    folder: Path,
    library: hf.Tokenizer | None,
    vocab_size: int,
    masked: bool,
    notes: list[str],
    positions: int,
    start_id: int | None = None,
) -> Tokenizer:
    """The folder's tokenizer, with the special tokens that its files name; else token ids as text.

    A masked model's are those that its tokenizer puts around a text.
    """
    names = (("sep", "eos"), ("cls", "bos")) if masked else (("eos", "sep"), ("bos", "cls"))
    end, start = (_mark(folder, either, library, vocab_size, notes) for either in names)
    around = library.encode("").ids if masked and library is not None else []
    if len(around) == 2 and max(around) < vocab_size:
        start, end = around
    start = start_id if start is None else start
    end = start if end is None else end
    if end is None and library is not None:
        raise DataError(
            "no file of the folder says which token ends a text",
            file=folder / "config.json",
            remedy="put its number there as eos_token_id",
        )
    if end is None:
        end = 0
        notes.append("no file says which token ends a text: 0 is taken for it")
    given = {"vocab_size": vocab_size, "eos_id": end, "start_id": start if start != end else None}
    given |= {"model_max_length": positions}
    if library is None:
        notes.append('there is no tokenizer.json, so texts are ids: "12 7 99"')
        return IdTokenizer.make(**given)
    return Imported(Imported.Config.make(given, where="tokenizer"), library)


def _mark(
    folder: Path, marks: tuple[str, ...], library: hf.Tokenizer | None, vocab_size: int | None, notes: list[str]
) -> int | None:
    """The id of a special token by config.json, else by the tokenizer's or the generation settings."""
    found: list[Any] = []
    files = ("config.json", "tokenizer_config.json", "generation_config.json")
    present = {name: read_json(folder / name) for name in files if (folder / name).is_file()}
    for mark, (name, settings) in product(marks, present.items()):
        number, text = settings.get(f"{mark}_token_id"), settings.get(f"{mark}_token")
        if isinstance(number, list) and number:
            notes.append(f"{name} has several {mark}_token_id, {number}: the first is taken")
            number = number[0]
        text = text.get("content") if isinstance(text, dict) else text
        found += [number, library.token_to_id(text) if library is not None and isinstance(text, str) else None]
    numbers = [number for number in found if isinstance(number, int) and not isinstance(number, bool)]
    for number in numbers:
        if vocab_size is None or 0 <= number < vocab_size:
            return number
    if numbers:
        notes.append(f"{marks[0]}_token_id is {numbers[0]}, but the model knows {vocab_size} tokens: left out")
    return None
