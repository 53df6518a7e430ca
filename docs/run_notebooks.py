"""Runs the notebooks in docs/notebooks and keeps their outputs: `python docs/run_notebooks.py [NAME ...]`."""

import sys
from pathlib import Path

import nbformat
from nbclient import NotebookClient

NOTEBOOKS = Path(__file__).parent / "notebooks"
KEPT = ("text/html", "image/svg+xml", "text/plain")
TIMEOUT = 3600  # seconds for one cell: ends one that hangs; on a quiet machine a whole notebook takes less than 20


def execute(path: Path, kernel: str = "python3") -> nbformat.NotebookNode:
    """The notebook with the outputs of a fresh kernel. Of an output in several formats one is kept."""
    book = nbformat.read(path, as_version=4)
    NotebookClient(book, timeout=TIMEOUT, kernel_name=kernel, record_timing=False).execute()
    for cell in book.cells:
        for output in cell.get("outputs", ()):
            if formats := output.get("data"):
                kept = next((name for name in KEPT if name in formats), None)
                output["data"] = {kept: formats[kept]} if kept else formats
    book.metadata["language_info"] = {"name": "python"}
    return book


if __name__ == "__main__":
    for path in sorted(NOTEBOOKS.glob("*.ipynb")):
        if not sys.argv[1:] or path.stem in sys.argv[1:]:
            nbformat.write(execute(path), path)
            print(f"ran {path}, {path.stat().st_size / 1000:.0f} kB")
