"""The files that every exported library has: its interface and example, and the kernels of the native engine."""

from pathlib import Path

HERE = Path(__file__).parent
CPU = HERE.parent
KERNELS = [CPU / "scalar_math.h", *(CPU / "step" / f"{name}.h" for name in ("row", "products", "sampling", "kernels"))]
OWN = ("elman.h", "elman.cpp", "Makefile", "alone.h", "blob.h", "random.h", "state.h", "text.h", "utf8.h", "writer.h")
EXAMPLE = "example.c"


def sources(parts: list[str]) -> dict[str, str]:
    """The text of each file by its name; `parts` are headers of the tokenizer, in the order of their includes."""
    files = {name: (HERE / name).read_text() for name in (*OWN, EXAMPLE, *parts)}
    files |= {f"kernels/{path.name}": path.read_text() for path in KERNELS}
    files["encode.h"] = "".join(f'#include "{name}"\n' for name in parts)
    return files
