"""A compiled step as a C++ library of its own, with its tokenizer: the sources, what is written for one model, and
model.bin with its weights."""

from elman.compiler.cpu.standalone.program import Program, StepModel, standalone
from elman.compiler.cpu.standalone.sources import sources
