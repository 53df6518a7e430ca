"""Imports weights of plain torch as a run: an embedding, torch.nn.RNN, GRU or LSTM, and a linear layer over words."""

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import safetensors.torch
import torch
from safetensors import SafetensorError
from torch import Tensor, nn

from elman.errors import DataError, first_line
from elman.layers.base import at_least_float32
from elman.layers.torch_weights import from_torch
from elman.limits import check_limit
from elman.models import LanguageModel
from elman.models.hugging_face import read_json
from elman.models.stack import StackConfig, count_parameters, on_meta
from elman.pipeline.importing import NO_DATA, ImportedRun, library_of, tokenizer_of, write_run
from elman.pipeline.recipe import Recipe
from elman.tokenizers import IdTokenizer, Tokenizer

KINDS: dict[int, Any] = {4: nn.LSTM, 3: nn.GRU, 1: nn.RNN}  # by matrices of a layer
PART = re.compile(r"(?P<before>.*?)(?P<part>(weight|bias)_(ih|hh|hr)_l(?P<layer>\d+)(?P<back>_reverse)?)")
FORMS = (".pt", ".pth", ".bin", ".safetensors")
SAVED = "save it again: safetensors.torch.save_file(torch.load(FILE, weights_only=True), 'model.safetensors')"


def import_torch(
    weights: str | Path | Mapping[str, Tensor], run: str | Path | None = None, nonlinearity: str = "tanh"
) -> ImportedRun:
    """A run folder from a state dict, or a file or exported folder of one.

    A config.json and a tokenizer.json beside the file are those of `elman export --format torch`; without them texts
    are ids. `nonlinearity` is that of torch.nn.RNN, which its weights do not say.
    """
    place = None if isinstance(weights, Mapping) else Path(weights)
    if place is not None and place.is_dir():
        place /= "model.safetensors"
    folder = place.parent if place is not None else None
    exported = read_json(folder / "config.json") if folder and is_exported(folder) else {}
    settings = exported.get("settings")
    said = settings.get("nonlinearity") if isinstance(settings, dict) else None
    where = place or Path("state dict")
    module, embedding, output, bias = _parts(
        weights if isinstance(weights, Mapping) else _read(where),
        where,
        said or nonlinearity,
    )
    vocab_size = len(embedding)
    notes = []
    if isinstance(module, nn.RNN) and not said:
        notes.append(f"its weights do not say the nonlinearity of torch.nn.RNN: {nonlinearity} is taken")
    tokenizer = _tokenizer(folder if exported else None, vocab_size, exported.get("start_id"), notes)
    model = _model(module, embedding, output, bias)
    target = Path(run) if run else Path("runs") / (folder.resolve().name if exported and folder else where.stem)
    recipe = Recipe.make(
        {
            "name": target.name,
            "data": NO_DATA,
            "tokenizer": {"type": tokenizer.name, **tokenizer.config.plain()},
            "model": model.config.plain(),
        }
    )
    kind = type(module).__name__
    write_run(target, recipe, tokenizer, model, {"torch": f"torch.nn.{kind}"})
    return ImportedRun(target, kind, count_parameters(model), vocab_size, tokenizer.name, False, notes)


def _tokenizer(folder: Path | None, vocab_size: int, start: Any, notes: list[str]) -> Tokenizer:
    """That of an exported folder; else ids as texts."""
    if folder is None:
        notes.append('texts are ids, "12 7 99", and 0 ends them; the state dict has no tokenizer')
        return IdTokenizer.make(vocab_size=vocab_size, eos_id=0)
    return tokenizer_of(folder, library_of(folder), vocab_size, False, notes, 0, start if type(start) is int else None)


def is_exported(folder: Path) -> bool:
    """Whether `elman export --format torch` wrote this folder."""
    path = folder / "config.json"
    return path.is_file() and isinstance(read_json(path).get("module"), str)


def _read(path: Path) -> Mapping[str, Tensor]:
    """The tensors of a file; pickles are not read, not even restricted ones."""
    if not path.is_file():
        raise DataError("no such file", file=path)
    if path.suffix != ".safetensors":
        raise DataError("is a pickle, which elman never reads", file=path, remedy=SAVED)
    check_limit("memory", path.stat().st_size, f"{path}: holds {path.stat().st_size:,} bytes", DataError)
    try:
        return safetensors.torch.load_file(path)
    except (OSError, ValueError, KeyError, SafetensorError) as error:
        raise DataError(f"cannot be read as safetensors: {first_line(error)[:200]}", file=path) from None


def _parts(
    tensors: Mapping[str, Tensor], file: Path, nonlinearity: str
) -> tuple[nn.RNNBase, Tensor, Tensor | None, Tensor | None]:
    """The recurrent module, the embedding, and weight and bias of the output; without a weight it is the embedding."""
    matched = {name: PART.fullmatch(name) for name in tensors}
    own = {found["part"]: at_least_float32(tensors[name]) for name, found in matched.items() if found}
    modules = {found["before"] for found in matched.values() if found}
    backward = [name for name, found in matched.items() if found and (found["back"] or "_hr_" in name)]
    if len(modules) != 1 or backward:
        reason = (
            f"has {backward[0]}: two directions, or a projection"
            if backward
            else f"has {len(modules)} recurrent modules"
        )
        raise DataError(reason, file=file, remedy="one torch.nn.RNN, GRU or LSTM of plain layers can be imported")
    layers = 1 + max(int(found["layer"]) for found in matched.values() if found)
    try:
        hidden, width = own["weight_hh_l0"].shape[1], own["weight_ih_l0"].shape[1]
        kind, options = KINDS[len(own["weight_hh_l0"]) // hidden], {"bias": "bias_ih_l0" in own}
        more = {"nonlinearity": nonlinearity} if kind is nn.RNN else {}
        with torch.device("meta"):
            module = kind(width, hidden, layers, batch_first=True, dtype=own["weight_hh_l0"].dtype, **options, **more)
        module.load_state_dict(own, assign=True)
    except (KeyError, IndexError, RuntimeError, ZeroDivisionError) as error:
        reason = f"has no complete torch.nn.RNN, GRU or LSTM: {' '.join(str(error).split())[:200]}"
        raise DataError(reason, file=file) from None
    rest = {name: at_least_float32(one) for name, one in tensors.items() if not matched[name]}
    matrices = {name: one for name, one in rest.items() if one.dim() == 2}
    vectors = {name: one for name, one in rest.items() if one.dim() == 1}
    fits = [
        (name, other)
        for name, one in matrices.items()
        for other, shape in ((other, two.shape) for other, two in matrices.items())
        if one.shape[1] == width and shape == (len(one), hidden) and (name != other or len(matrices) == 1)
    ]
    if len(rest) != len(matrices) + len(vectors) or not fits or len(matrices) > 2 or len(vectors) > 1:
        shown = ", ".join(f"{name} {tuple(one.shape)}" for name, one in [*rest.items()][:8]) or "nothing"
        raise DataError(
            f"beside torch.nn.{kind.__name__} ({width} to {hidden}) an embedding (words, {width}) and a linear layer "
            f"(words, {hidden}) are needed, but there is {shown}",
            file=file,
            remedy="elman.layers.torch_weights.from_torch(module) converts the recurrent module alone",
        )
    if len(fits) > 1:  # both of one shape
        fits = [pair for pair in fits if _named(*pair, [*vectors])] or fits
    if len(fits) > 1:
        reason = f"does not say which of {' and '.join(fits[0])} is the embedding"
        raise DataError(reason, file=file, remedy="name it embedding.weight")
    embedding, output = (matrices[name] for name in fits[0])
    bias = next(iter(vectors.values()), None)
    if bias is not None and len(bias) != len(embedding):
        raise DataError(f"has a bias of {len(bias)} for {len(embedding)} words", file=file)
    tied = output is embedding or torch.equal(output, embedding)
    return module, embedding, None if tied else output, bias


def _named(embedding: str, output: str, biases: list[str]) -> bool:
    """Whether the second name is that of the matrix with the bias, or without one the first is an embedding's."""
    owners = [bias.rpartition(".")[0] for bias in biases]
    return output.rpartition(".")[0] in owners if owners else "emb" in embedding.lower()


def _model(module: nn.RNNBase, embedding: Tensor, output: Tensor | None, bias: Tensor | None) -> LanguageModel:
    layers = from_torch(module)
    own = {} if module.bias else {"bias": False}
    own |= {"nonlinearity": module.nonlinearity} if isinstance(module, nn.RNN) else {}
    settings = {
        "pattern": [{type(module).__name__.lower(): own}],
        "num_layers": len(layers),
        "hidden_size": module.hidden_size,
        "embedding_size": embedding.shape[1],
        "tied_embeddings": output is None,
        "output_bias": bias is not None,
    }
    config = StackConfig.make(settings, where="model")
    model: LanguageModel = on_meta(lambda: LanguageModel(config, len(embedding)))
    tensors = {"embedding.weight": embedding, "output.weight": output, "output_bias": bias}
    for place, layer in enumerate(layers):
        tensors |= {f"stack.layers.{place}.layer.{name}": one for name, one in layer.state_dict().items()}
    model.load_state_dict({name: one for name, one in tensors.items() if one is not None}, assign=True)
    return model
