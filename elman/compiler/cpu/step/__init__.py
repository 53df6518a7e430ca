"""The native engine: the step of any model as one function in machine code, generated from its trace."""

from elman.compiler.cpu.build import use_threads, vectors
from elman.compiler.cpu.step.compile import compile_step
from elman.compiler.cpu.step.program import Program
from elman.compiler.cpu.step.runner import Rules, Runner
from elman.compiler.errors import CannotCompile, NoCompiler

__all__ = ["CannotCompile", "NoCompiler", "Program", "Rules", "Runner", "compile_step", "use_threads", "vectors"]
