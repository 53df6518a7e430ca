"""Single-step compiler: the step of any model as one C++ program, generated from its trace (the native engine)."""

from elman.compiler.cpu.build import vectors
from elman.compiler.cpu.step.compile import CompiledStep, compile_step
from elman.compiler.cpu.step.row_runner import Choice, RowRunner, Turn
from elman.compiler.cpu.step.runner import Runner
from elman.compiler.cpu.step.sampling_rules import History, Rules
from elman.compiler.errors import CannotCompile, NoCompiler
