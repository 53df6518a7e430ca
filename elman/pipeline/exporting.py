"""Exports a trained run to the folder format of another tool."""

import json
from pathlib import Path
from typing import Any

import safetensors.torch
from tokenizers import Tokenizer as Library
from tokenizers import processors

from elman import files
from elman.errors import RunError, UnknownName
from elman.models import prediction_of
from elman.models.hugging_face import export_contents
from elman.pipeline.trained_model import TrainedModel, load
from elman.tokenizers import IdTokenizer, Imported, Tokenizer

MASK = "<mask>"
FORMAT = "hugging-face"


def export_run(run: str | Path, to: str | Path, format: str = FORMAT) -> list[str]:
    """Write a run's model and tokenizer; returns notes for the user. A folder that is not empty is refused."""
    if format != FORMAT:
        raise UnknownName("format", format, [FORMAT])
    target = Path(to)
    if target.exists() and (not target.is_dir() or any(target.iterdir())):
        raise RunError(f"{target}: is there already; give another --to")
    contents, notes = hugging_face(load(run, "cpu"))
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
