"""The folder that `from_pretrained` of transformers reads."""

import safetensors.torch
from tokenizers import Tokenizer as Library
from tokenizers import processors

from elman.export.base import Export, Weights, json_bytes, only_fp32
from elman.models import prediction_of
from elman.models.hugging_face import export_contents
from elman.pipeline.trained_model import TrainedModel
from elman.tokenizers import IdTokenizer, Imported, Tokenizer

MASK = "<mask>"


def hugging_face(trained: TrainedModel, weights: Weights) -> Export:
    """Model, settings and tokenizer."""
    only_fp32("hugging-face", weights)
    family, config, tensors = export_contents(trained.model)
    tokenizer = trained.tokenizer
    marks = {"bos_token_id": tokenizer.start_id, "eos_token_id": tokenizer.eos_id}
    contents = {
        "config.json": json_bytes({**config, **marks}),
        "model.safetensors": safetensors.torch.save(tensors, {"format": "pt"}),
    }
    if prediction_of(trained.model) == "left-to-right":
        contents["generation_config.json"] = json_bytes(marks)
    notes = [f'transformers.{family.loader}.from_pretrained("{{folder}}") loads the model']
    if isinstance(tokenizer, IdTokenizer):
        notes.append(f"there is no tokenizer: texts are ids, the first of them {tokenizer.start_id}")
    else:
        contents |= tokenizer_files(tokenizer, getattr(trained.model, "mask_id", None))
        notes.append('transformers.AutoTokenizer.from_pretrained("{folder}") loads its tokenizer')
    return Export(contents, notes)


def tokenizer_files(tokenizer: Tokenizer, mask_id: int | None) -> dict[str, bytes]:
    """What AutoTokenizer reads, by name."""
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
    return {"tokenizer.json": library.to_str().encode(), "tokenizer_config.json": json_bytes(settings)}
