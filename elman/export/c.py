"""A C library of the run: sources, weights and tokenizer, which need the C and C++ standard libraries alone."""

from collections.abc import Sequence
from functools import partial

from elman.compiler.cpu.standalone import StepModel, sources, standalone
from elman.compiler.errors import CannotCompile
from elman.errors import ConfigError
from elman.export.base import Export, Weights
from elman.export.check import check
from elman.export.tokenizer import encoder, section
from elman.pipeline.trained_model import TrainedModel
from elman.tokenizers import Tokenizer


def c_library(trained: TrainedModel, weights: Weights) -> Export:
    """The folder: `make` builds the library and an example."""
    given = trained.task.step_model(trained.model)
    opening = trained.opening if trained.task.generates_text else ()
    contents = library_files(given, trained.task.tokenizer, weights, opening)  # type: ignore[attr-defined]
    arguments = "PROMPT 100 1" if given.kind == "tokens" else "TEXT"
    notes = [f"cd {{folder}} && make && ./example {arguments}; elman.h has the functions for programs of your own"]
    return Export(contents, notes, partial(check, trained, given, weights))


def library_files(
    given: StepModel, tokenizer: Tokenizer, weights: Weights = "fp32", opening: Sequence[int] = ()
) -> dict[str, bytes]:
    """Its files by name."""
    encoding, text = encoder(tokenizer), section(tokenizer, opening)
    try:
        code = " ".join(encoding.parts) + encoding.unicode
        program = standalone(given, weights, text, code, separated=bool(tokenizer.separator))
    except CannotCompile as problem:
        raise ConfigError(f"the model has no C library: {problem}") from None
    if weights == "int8" and not program.quantized:
        raise ConfigError("the model has no matrix that is large enough for int8; leave --weights int8 out")
    files = {name: text.encode() for name, text in sources(encoding.parts).items()}
    return files | {
        "model.h": program.header.encode(),
        "unicode.h": encoding.unicode.encode(),
        "model.bin": program.blob,
    }
