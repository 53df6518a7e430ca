"""Why a step cannot be compiled."""

from elman.errors import ElmanError


class CannotCompile(ElmanError):
    """The step contains something the compiler has no code for; the message names it."""


class NoCompiler(CannotCompile):
    """This machine has no working C++ compiler."""
