"""Single-step compiler: the step of any model as one C++ function, generated from its trace (the native engine)."""

from elman.compiler.cpu.build import vectors
from elman.compiler.cpu.step.compile import CompiledStep, Rules, Runner, compile_step
from elman.compiler.errors import CannotCompile, NoCompiler
