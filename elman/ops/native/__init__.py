"""The native engine: the step of any model as one function in machine code, generated from its trace."""

from elman.ops.native.build import use_threads, vectors
from elman.ops.native.memory import CannotCompile, NoCompiler
from elman.ops.native.program import Program
from elman.ops.native.runner import Rules, Runner
from elman.ops.native.stepping import compile_step

__all__ = ["CannotCompile", "NoCompiler", "Program", "Rules", "Runner", "compile_step", "use_threads", "vectors"]
