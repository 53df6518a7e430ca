"""Names of a package that are imported on first use (PEP 562), so that importing one of its modules stays light.

if TYPE_CHECKING:                                  # what type checkers read, and `lazy_names` too
    from package.module import name
__getattr__, __dir__ = lazy_names(__name__, __file__)
"""

import ast
import sys
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import Any


def lazy_names(package: str, file: str) -> tuple[Callable[[str], Any], Callable[[], list[str]]]:
    """`__getattr__` (of `__all__` too) and `__dir__` of a package, from the imports `if TYPE_CHECKING` in its file."""
    blocks = [node for node in ast.parse(Path(file).read_text("utf-8")).body if isinstance(node, ast.If)]
    imports = [node for block in blocks for node in block.body if isinstance(node, ast.ImportFrom)]
    modules = {alias.name: node.module for node in imports for alias in node.names if node.module}

    def get(name: str) -> Any:
        if name == "__all__":
            return sorted(modules)
        if name not in modules:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        value = getattr(import_module(modules[name]), name)
        setattr(sys.modules[package], name, value)
        return value

    return get, lambda: sorted([*vars(sys.modules[package]), *modules])
