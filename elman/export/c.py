"""A C library of the run: sources, weights and tokenizer, which need the C and C++ standard libraries alone."""

from functools import partial

from elman.compiler.cpu.standalone import sources, standalone
from elman.compiler.errors import CannotCompile
from elman.errors import ConfigError
from elman.export.base import Export, Weights
from elman.export.check import check
from elman.export.tokenizer import encoder, section
from elman.pipeline.trained_model import TrainedModel


def c_library(trained: TrainedModel, weights: Weights) -> Export:
    """The folder: `make` builds the library and an example."""
    given = trained.task.step_model(trained.model)
    tokenizer = trained.task.tokenizer  # type: ignore[attr-defined]
    encoding = encoder(tokenizer)
    text = section(tokenizer, trained.opening if trained.task.generates_text else ())
    try:
        program = standalone(given, weights, text, separated=bool(tokenizer.separator))
    except CannotCompile as problem:
        raise ConfigError(f"the model has no C library: {problem}") from None
    contents = {name: text.encode() for name, text in sources(encoding.parts).items()}
    contents |= {"model.h": program.header.encode(), "unicode.h": encoding.unicode.encode(), "model.bin": program.blob}
    if program.quantized < (weights == "int8"):
        raise ConfigError("the model has no matrix that is large enough for int8; leave --weights int8 out")
    arguments = "PROMPT 100 1" if given.kind == "TOKENS" else "TEXT"
    notes = [f"cd {{folder}} && make && ./example {arguments}; elman.h has the functions for programs of your own"]
    return Export(contents, notes, partial(check, trained, given, weights))
