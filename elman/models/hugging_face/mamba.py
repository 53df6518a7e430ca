"""Mamba (Gu & Dao, 2023): selective state space layers with RMS norm before each."""

import math
from collections.abc import Iterator
from typing import Any

from elman.layers.mamba import HUGGING_FACE
from elman.models.hugging_face.family import FAMILIES, Family, WeightMapping
from elman.models.hugging_face.folder import ConfigReader


@FAMILIES.register("mamba")
class Mamba(Family):
    """Mamba and compatible models."""

    architecture = "MambaForCausalLM"
    prefix = "backbone."
    block = ("mamba",)

    def settings(self, reader: ConfigReader) -> dict[str, Any]:
        width, layers = reader.integer("hidden_size", 768), reader.integer("num_hidden_layers", 32)
        expand = reader.number("expand", 2.0)
        if expand != int(expand):
            raise reader.refuse("expand", "an integer")
        automatic = reader.get("time_step_rank", "auto") == "auto"
        mamba = {
            "hidden_size": width,
            "expand": int(expand),
            "state_size": reader.integer("state_size", 16),
            "kernel_size": reader.integer("conv_kernel", 4),
            "step_rank": math.ceil(width / 16) if automatic else reader.integer("time_step_rank", 1),
            "bias": reader.boolean("use_bias", False),
            "convolution_bias": reader.boolean("use_conv_bias", True),
            "min_delta": reader.number("time_step_min", 0.001),
            "max_delta": reader.number("time_step_max", 0.1),
        }
        reader.require("hidden_act", "silu", "swish")
        reader.require("intermediate_size", int(expand) * width)
        reader.ignore("residual_in_fp32")  # always float32 here
        reader.ignore("time_step_scale", "time_step_floor", "time_step_init_scheme", "rescale_prenorm_residual")
        reader.ignore("use_mambapy", "use_associative_scan", "fused_add_norm", "pad_vocab_size_multiple")
        reader.require("d_model", width)  # these keys come from the authors' original checkpoints
        reader.require("d_inner", int(expand) * width)
        reader.require("n_layer", layers)
        reader.require("rms_norm", True)
        reader.require("ssm_cfg", {})
        return {
            "pattern": [{"mamba": mamba}],
            "num_layers": layers,
            "hidden_size": width,
            "norm": "pre",
            "norm_type": "rms",
            "norm_epsilon": reader.number("layer_norm_epsilon", 1e-5),
            "residual": True,
            "tied_embeddings": reader.boolean("tie_word_embeddings", True),
            "output_bias": False,
        }

    def describe(self, model: Any) -> dict[str, Any]:
        layer = model.stack.layers[0].layer
        config = layer.config
        return {
            "hidden_size": layer.input_size,
            "num_hidden_layers": len(model.stack.layers),
            "expand": config.expand,
            "intermediate_size": layer.inner,
            "state_size": config.state_size,
            "conv_kernel": config.kernel_size,
            "time_step_rank": layer.rank,
            "use_bias": config.bias,
            "use_conv_bias": config.convolution_bias,
            "time_step_min": config.min_delta,
            "time_step_max": config.max_delta,
            "hidden_act": "silu",
            "layer_norm_epsilon": model.config.norm_epsilon,
            "tie_word_embeddings": model.config.tied_embeddings,
        }

    def rows(self, model: Any) -> Iterator[WeightMapping]:
        yield WeightMapping("embedding.weight", ("backbone.embeddings.weight",))
        theirs_of = {ours: theirs for theirs, ours in HUGGING_FACE.items()}
        for index, block in enumerate(model.stack.layers):
            ours, theirs = f"stack.layers.{index}", f"backbone.layers.{index}"
            yield WeightMapping(f"{ours}.norm.weight", (f"{theirs}.norm.weight",))
            for name, _ in block.layer.named_parameters():
                first, *rest = name.split(".")
                yield WeightMapping(f"{ours}.layer.{name}", (".".join([f"{theirs}.mixer", theirs_of[first], *rest]),))
        yield WeightMapping("stack.top_norm.weight", ("backbone.norm_f.weight",))
        if not model.config.tied_embeddings:
            yield WeightMapping("output.weight", ("lm_head.weight",))
