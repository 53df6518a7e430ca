"""Samples of a model while it learns: `samples/step-00000100.txt` of the run folder."""

from pathlib import Path

from elman.runs import atomic_write

FIRST = 10  # samples that are taken at every validation
APART = 100  # updates between later ones: a sample takes about as long as one update


class Samples:
    """The files decide when the next one is due, so that a resumed run takes the same ones."""

    def __init__(self, folder: Path):
        self.folder = folder
        self._new: list[str] = []

    def due(self, step: int) -> bool:
        steps = [int(file.stem.removeprefix("step-")) for file in self.folder.glob("step-*.txt")]
        earlier = [one for one in steps if one < step]
        return len(earlier) < FIRST or step - max(earlier) >= APART

    def add(self, step: int, texts: list[str]) -> None:
        """Writes texts, if there are any, with a line between two."""
        self._new = texts
        if texts:
            atomic_write(self.folder / f"step-{step:08d}.txt", "\n---\n".join(texts).encode())

    def pop(self) -> list[str]:
        """The texts added since the last call."""
        texts, self._new = self._new, []
        return texts
