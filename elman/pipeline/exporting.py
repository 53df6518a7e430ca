"""Exports a trained run to the format of another tool: a folder, or one file."""

import json
from pathlib import Path
from typing import Any

import safetensors.torch
from tokenizers import Tokenizer as Library
from tokenizers import processors
from torch import nn

from elman import files
from elman.errors import ConfigError, RunError, UnknownName
from elman.layers.recurrent import Recurrent
from elman.layers.torch_weights import to_torch
from elman.models import LanguageModel, prediction_of
from elman.models.hugging_face import export_contents
from elman.models.ngram import NGram, write_arpa
from elman.pipeline.trained_model import TrainedModel, load
from elman.tokenizers import IdTokenizer, Imported, Tokenizer

MASK = "<mask>"
FORMAT = "hugging-face"


def export_run(run: str | Path, to: str | Path, format: str = FORMAT) -> list[str]:
    """Write a run's model and tokenizer; returns notes for the user. A folder that is not empty is refused."""
    if format not in FORMATS:
        raise UnknownName("format", format, FORMATS)
    target = Path(to)
    if target.exists() and (not target.is_dir() or any(target.iterdir())):
        raise RunError(f"{target}: is there already; give another --to")
    trained = load(run, "cpu")
    if format == "arpa":
        return export_arpa(trained, target)
    contents, notes = {"hugging-face": hugging_face, "torch": torch_module}[format](trained)
    files.make_folder(target.parent)
    with files.replacing(target) as beside:
        files.make_folder(beside)
        for name, data in contents.items():
            files.write_file(beside / name, data)
        files.sync_folder(beside)
    return [note.format(folder=target) for note in notes]


def hugging_face(trained: TrainedModel) -> tuple[dict[str, bytes], list[str]]:
    """The files that `from_pretrained` of transformers reads, by name; and notes for the user, in which `{folder}`
    stands for the target."""
    family, config, tensors = export_contents(trained.model)
    tokenizer = trained.tokenizer
    marks = {"bos_token_id": tokenizer.start_id, "eos_token_id": tokenizer.eos_id}
    contents = {
        "config.json": _json({**config, **marks}),
        "model.safetensors": safetensors.torch.save(tensors, {"format": "pt"}),
    }
    if prediction_of(trained.model) == "left-to-right":
        contents["generation_config.json"] = _json(marks)
    notes = [f'transformers.{family.loader}.from_pretrained("{{folder}}") loads the model']
    if isinstance(tokenizer, IdTokenizer):
        notes.append(f"there is no tokenizer: texts are ids, the first of them {tokenizer.start_id}")
    else:
        contents |= _tokenizer(tokenizer, getattr(trained.model, "mask_id", None))
        notes.append('transformers.AutoTokenizer.from_pretrained("{folder}") loads its tokenizer')
    return contents, notes


def export_arpa(trained: TrainedModel, target: Path) -> list[str]:
    """An n-gram model as one ARPA file."""
    if not isinstance(trained.model, NGram):
        raise ConfigError("only n-gram models have an ARPA file; export others with --format hugging-face or torch")
    files.make_folder(target.parent)
    tokens = trained.tokenizer
    with files.replacing(target) as beside:
        write_arpa(trained.model, [tokens.token(id) for id in range(tokens.vocab_size)], beside, target.suffix == ".gz")
    back = f"elman import {target} reads it" if tokens.name in ("word", "character") else "kenlm reads it"
    return [f"it is an n-gram model of {tokens.name} tokens; {back}"]


def torch_module(trained: TrainedModel) -> tuple[dict[str, bytes], list[str]]:
    """The weights of torch.nn.Embedding, torch.nn.RNN, GRU or LSTM, and torch.nn.Linear, which make the model."""
    model = trained.model
    blocks = [*model.stack.blocks()] if isinstance(model, LanguageModel) else []
    layers = [block.layer for block in blocks if isinstance(block.layer, Recurrent)]
    around = ("residual", "norm", "embedding_norm", "positions")  # what torch's modules have not
    plain = all(getattr(model.config, name, False) in (False, "none") for name in around)
    if not plain or not layers or len(layers) != len(blocks):
        raise ConfigError(
            "torch has modules for language models of rnn, gru or lstm layers alone, without norms, positions or "
            "residual connections; export others with --format hugging-face"
        )
    module = to_torch(layers)
    tensors = {"embedding.weight": model.embedding.weight * model.scale, "output.weight": model.output_weight}
    tensors |= {} if model.output_bias is None else {"output.bias": model.output_bias}
    tensors |= {f"rnn.{name}": weight for name, weight in module.named_parameters()}
    names = ("input_size", "hidden_size", "num_layers", "bias", "batch_first")
    settings = {name: getattr(module, name) for name in names}
    settings |= {"nonlinearity": module.nonlinearity} if isinstance(module, nn.RNN) else {}
    kind = type(module).__name__
    contents = {
        "config.json": _json({"module": kind, "settings": settings, "start_id": trained.tokenizer.start_id}),
        "model.safetensors": safetensors.torch.save({name: one.detach().clone() for name, one in tensors.items()}),
    }
    notes = [
        f"torch.nn.{kind} with the settings of {{folder}}/config.json takes the tensors rnn.*, between "
        "torch.nn.Embedding (embedding.*) and torch.nn.Linear (output.*); a text begins with the token start_id"
    ]
    if not isinstance(trained.tokenizer, IdTokenizer):
        contents |= _tokenizer(trained.tokenizer, None)
        notes.append('tokenizers.Tokenizer.from_file("{folder}/tokenizer.json") loads its tokenizer')
    return contents, notes


FORMATS = (FORMAT, "torch", "arpa")


def _tokenizer(tokenizer: Tokenizer, mask_id: int | None) -> dict[str, bytes]:
    library = Library.from_str(tokenizer.library.to_str())
    start = tokenizer.token(tokenizer.start_id)
    if not isinstance(tokenizer, Imported):  # whose library adds its own special tokens
        around = f"{start} $A" if mask_id is None else f"$A {start}"  # masked models are trained with the end token
        marks = [(start, tokenizer.start_id)]
        library.post_processor = processors.TemplateProcessing(single=around, special_tokens=marks)
    if mask_id is not None and mask_id >= library.get_vocab_size():
        library.add_special_tokens([MASK])  # the model has added a mask to the vocabulary
    settings = {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "bos_token": start,
        "eos_token": tokenizer.token(tokenizer.eos_id),
        "clean_up_tokenization_spaces": False,
    }
    if mask_id is not None and library.id_to_token(mask_id):
        settings["mask_token"] = library.id_to_token(mask_id)
    if tokenizer.unk_id is not None:
        settings["unk_token"] = tokenizer.token(tokenizer.unk_id)
    return {"tokenizer.json": library.to_str().encode(), "tokenizer_config.json": _json(settings)}


def _json(content: dict[str, Any]) -> bytes:
    return (json.dumps(content, indent=2, sort_keys=True) + "\n").encode()
