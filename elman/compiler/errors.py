"""Why a step cannot be compiled."""

from elman.errors import ElmanError


class CannotCompile(ElmanError):
    """The step uses an operation or pattern that the compiler does not support; the message names it."""


class NoCompiler(CannotCompile):
    """This machine has no working C++ compiler."""
