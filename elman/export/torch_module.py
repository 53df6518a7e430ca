"""The weights of torch.nn.RNN, GRU or LSTM, for plain torch."""

import safetensors.torch
from torch import nn

from elman.errors import ConfigError
from elman.export.base import Export, Weights, json_bytes, only_fp32
from elman.export.hugging_face import tokenizer_files
from elman.layers.recurrent import Recurrent
from elman.layers.torch_weights import to_torch
from elman.models import LanguageModel
from elman.pipeline.trained_model import TrainedModel
from elman.tokenizers import IdTokenizer


def torch_module(trained: TrainedModel, weights: Weights) -> Export:
    """The weights of torch.nn.Embedding, torch.nn.RNN, GRU or LSTM, and torch.nn.Linear, which make the model."""
    only_fp32("torch", weights)
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
        "config.json": json_bytes({"module": kind, "settings": settings, "start_id": trained.tokenizer.start_id}),
        "model.safetensors": safetensors.torch.save({name: one.detach().clone() for name, one in tensors.items()}),
    }
    notes = [
        f"torch.nn.{kind} with the settings of {{folder}}/config.json takes the tensors rnn.*, between "
        "torch.nn.Embedding (embedding.*) and torch.nn.Linear (output.*); a text begins with the token start_id"
    ]
    if not isinstance(trained.tokenizer, IdTokenizer):
        contents |= tokenizer_files(trained.tokenizer, None)
        notes.append('tokenizers.Tokenizer.from_file("{folder}/tokenizer.json") loads its tokenizer')
    return Export(contents, notes)
