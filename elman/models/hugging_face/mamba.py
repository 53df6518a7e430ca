"""Mamba (Gu & Dao, 2023): selective state space layers with RMS norm before each."""

import math
from collections.abc import Iterator
from typing import Any, ClassVar

from elman.layers.mamba import HUGGING_FACE
from elman.models.hugging_face.family import FAMILIES, Family, Key, WeightMapping
from elman.models.hugging_face.folder import ConfigReader


@FAMILIES.register("mamba")
class Mamba(Family):
    """Mamba and compatible models."""

    architecture = "MambaForCausalLM"
    prefix = "backbone."
    block = ("mamba",)

    keys = (
        Key("hidden_size", "hidden_size", 768),
        Key("num_hidden_layers", "blocks", 32),
        Key("expand", "0.expand", 2.0),
        Key("state_size", "0.state_size", 16),
        Key("conv_kernel", "0.kernel_size", 4),
        Key("use_bias", "0.bias", False),
        Key("use_conv_bias", "0.convolution_bias", True),
        Key("time_step_min", "0.min_delta", 0.001),
        Key("time_step_max", "0.max_delta", 0.1),
        Key("layer_norm_epsilon", "norm_epsilon", 1e-5),
        Key("tie_word_embeddings", "tied_embeddings", True),
    )
    fixed: ClassVar = {"norm": "pre", "norm_type": "rms", "residual": True, "output_bias": False}

    def check(self, reader: ConfigReader, found: dict[str, Any]) -> dict[str, Any]:
        width, expand = found["hidden_size"], int(found["0.expand"])
        if expand != found["0.expand"]:
            raise reader.refuse("expand", "an integer")
        automatic = reader.get("time_step_rank", "auto") == "auto"
        reader.require("hidden_act", "silu", "swish")
        reader.require("intermediate_size", expand * width)
        reader.ignore("residual_in_fp32")  # always float32 here
        reader.ignore("time_step_scale", "time_step_floor", "time_step_init_scheme", "rescale_prenorm_residual")
        reader.ignore("use_mambapy", "use_associative_scan", "fused_add_norm", "pad_vocab_size_multiple")
        reader.require("d_model", width)  # these keys come from the authors' original checkpoints
        reader.require("d_inner", expand * width)
        reader.require("n_layer", found["blocks"])
        reader.require("rms_norm", True)
        reader.require("ssm_cfg", {})
        rank = math.ceil(width / 16) if automatic else reader.value("time_step_rank", 1)
        return {"0.expand": expand, "0.step_rank": rank}

    def describe_rest(self, model: Any, found: dict[str, Any]) -> dict[str, Any]:
        inner = model.stack.layers[0].layer.inner
        return {"intermediate_size": inner, "time_step_rank": found["0.step_rank"], "hidden_act": "silu"}

    def body(self, model: Any) -> Iterator[WeightMapping]:
        yield WeightMapping("embedding.weight", ("backbone.embeddings.weight",))
        theirs_of = {ours: theirs for theirs, ours in HUGGING_FACE.items()}
        for index, block in enumerate(model.stack.layers):
            ours, theirs = f"stack.layers.{index}", f"backbone.layers.{index}"
            yield WeightMapping(f"{ours}.norm.weight", (f"{theirs}.norm.weight",))
            for name, _ in block.layer.named_parameters():
                first, *rest = name.split(".")
                yield WeightMapping(f"{ours}.layer.{name}", (".".join([f"{theirs}.mixer", theirs_of[first], *rest]),))
        yield WeightMapping("stack.top_norm.weight", ("backbone.norm_f.weight",))
