"""Mamba (Gu & Dao, 2023): one selective state space after the other, root-mean-square norm before each."""

import math
from collections.abc import Iterator
from typing import Any

from elman.layers.mamba import HUGGING_FACE
from elman.models.hugging_face.config_reader import Given
from elman.models.hugging_face.family import FAMILIES, Family
from elman.models.hugging_face.weight_map import Row


@FAMILIES.register("mamba")
class Mamba(Family):
    """Mamba and what has its shape."""

    architecture = "MambaForCausalLM"
    prefix = "backbone."
    block = ("mamba",)

    def settings(self, given: Given) -> dict[str, Any]:
        width, layers = given.whole("hidden_size", 768), given.whole("num_hidden_layers", 32)
        expand = given.number("expand", 2.0)
        if expand != int(expand):
            raise given.refuse("expand", "a whole number")
        automatic = given.take("time_step_rank", "auto") == "auto"
        mamba = {
            "hidden_size": width,
            "expand": int(expand),
            "state_size": given.whole("state_size", 16),
            "kernel_size": given.whole("conv_kernel", 4),
            "step_rank": math.ceil(width / 16) if automatic else given.whole("time_step_rank", 1),
            "bias": given.flag("use_bias", False),
            "convolution_bias": given.flag("use_conv_bias", True),
            "min_delta": given.number("time_step_min", 0.001),
            "max_delta": given.number("time_step_max", 0.1),
        }
        given.must("hidden_act", "silu", "swish")
        given.must("intermediate_size", int(expand) * width)
        given.ignore("residual_in_fp32")  # it always is, here
        given.ignore("time_step_scale", "time_step_floor", "time_step_init_scheme", "rescale_prenorm_residual")
        given.ignore("use_mambapy", "use_associative_scan", "fused_add_norm", "pad_vocab_size_multiple")
        given.must("d_model", width)  # these four stand in folders made of the authors' own
        given.must("d_inner", int(expand) * width)
        given.must("n_layer", layers)
        given.must("rms_norm", True)
        given.must("ssm_cfg", {})
        return {
            "pattern": [{"mamba": mamba}],
            "num_layers": layers,
            "hidden_size": width,
            "norm": "pre",
            "norm_type": "rms",
            "norm_epsilon": given.number("layer_norm_epsilon", 1e-5),
            "residual": True,
            "tied_embeddings": given.flag("tie_word_embeddings", True),
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

    def rows(self, model: Any) -> Iterator[Row]:
        yield Row("embedding.weight", ("backbone.embeddings.weight",))
        theirs_of = {ours: theirs for theirs, ours in HUGGING_FACE.items()}
        for index, block in enumerate(model.stack.layers):
            ours, theirs = f"stack.layers.{index}", f"backbone.layers.{index}"
            yield Row(f"{ours}.norm.weight", (f"{theirs}.norm.weight",))
            for name, _ in block.layer.named_parameters():
                first, *rest = name.split(".")
                yield Row(f"{ours}.layer.{name}", (".".join([f"{theirs}.mixer", theirs_of[first], *rest]),))
        yield Row("stack.top_norm.weight", ("backbone.norm_f.weight",))
        if not model.config.tied_embeddings:
            yield Row("output.weight", ("lm_head.weight",))
