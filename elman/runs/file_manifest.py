"""The manifest of a run or race folder: SHA-256 of every file that answers, training or a verdict depend on.

A file is listed before it is written, and has two hashes while it is replaced, so that a kill at any time leaves a
valid folder.
"""

import re
from collections.abc import Mapping
from hashlib import sha256
from pathlib import Path

from elman import files
from elman.errors import RunError, brief
from elman.limits import limits
from elman.runs.manifest import MANIFEST, parse_signed, signed
from elman.untrusted import read_bytes

PATTERNS = ("*.yaml", "*.json", "*.npy", "data/*.json")
UNLISTED = {MANIFEST, "environment.json"}  # nothing depends on these
LOG = "metrics.jsonl"  # listed once the run has ended
INSIDE = re.compile(r"(data/)?\w[\w.-]{0,200}")  # names that may be listed
REBUILT = "data/"  # encoded again from the data where they were changed
Hashes = Mapping[str, list[str]]


class FileManifest:
    """`manifest.json` of a folder. Folders of earlier versions have none; their files are not checked."""

    def __init__(self, folder: str | Path):
        self.folder = Path(folder)
        self.path = self.folder / MANIFEST

    @property
    def exists(self) -> bool:
        return self.path.exists()

    def names(self) -> set[str]:
        """All files that it lists, whether they are there or not."""
        return {*self._hashes()}

    def unchanged(self, name: str) -> bool:
        """Whether a file is there, listed, and as it was written."""
        return self._hash(name) in self._hashes().get(name, [])

    def check(self, data: bool = False) -> None:
        """RunError if a file is not as it was written; with `data`, also of the encoded data."""
        hashes, wrong = None, ""
        while hashes != (hashes := self._hashes()) and (wrong := self._first_changed(hashes, data)):
            pass  # again, where a writer has replaced the manifest meanwhile
        if wrong:
            raise RunError(
                f"{self.folder / wrong}: changed since it was written; restore it, or accept all changes with: "
                f"elman accept {self.folder}"
            )

    def record(self, *names: str) -> bool:
        """Lists files that have just been written; False if another content of one of them was listed before."""
        before = self._hashes()
        now = {name: [self._hash(name)] for name in names}
        if any(before.get(name, hashes)[-1:] != hashes for name, hashes in now.items()):
            return False
        if not now.keys() <= before.keys():
            self._save({**before, **now})
        return True

    def forget(self, name: str) -> None:
        """Lists a file no more, before it changes."""
        before = self._hashes()
        if name in before:
            self._save({one: hashes for one, hashes in before.items() if one != name})

    def write(self, name: str, data: bytes) -> None:
        """Writes or replaces a file, atomically with its hash."""
        before, new, present = self._hashes(), sha256(data).hexdigest(), self._hash(name)
        if before.get(name) == [new] and present == new:
            return
        self._save({**before, name: [present, new] if present else [new]})
        if present != new:
            files.atomic_write(self.folder / name, data)
        if present:
            self._save({**before, name: [new]})

    def accept(self) -> list[str]:
        """Lists all files as they are now; returns the names of those that were not listed so."""
        try:
            before = self._hashes()
        except RunError:
            before = {}
        names = sorted({str(path.relative_to(self.folder)) for one in PATTERNS for path in self.folder.glob(one)})
        names += [LOG] * (LOG in before and (self.folder / LOG).exists())
        now = {name: [self._hash(name)] for name in names if name not in UNLISTED}
        if before != now or not self.exists:
            self._save(now)
        return sorted(name for name in before.keys() | now.keys() if before.get(name) != now.get(name))

    def _first_changed(self, hashes: Hashes, data: bool) -> str:
        """A file that is there but has another hash; a missing one is missed by its reader."""
        present = (name for name in hashes if (data or not name.startswith(REBUILT)) and (self.folder / name).exists())
        return next((name for name in present if self._hash(name) not in hashes[name]), "")

    def _hash(self, name: str) -> str:
        path = self.folder / name
        return sha256(read_bytes(path, limits().json_bytes, follow_links=True)).hexdigest() if path.exists() else ""

    def _hashes(self) -> dict[str, list[str]]:
        if not self.exists:
            return {}
        try:
            found = parse_signed(read_bytes(self.path, limits().json_bytes), self.path)["files"]
            if elsewhere := next((name for name in found if not INSIDE.fullmatch(name)), None):
                raise RunError(f"{self.path}: lists {brief(elsewhere)}, which is no file of a run")
            return {str(name): [str(one) for one in hashes] for name, hashes in found.items()}
        except (RunError, KeyError, AttributeError, TypeError) as error:
            reason = str(error) if isinstance(error, RunError) else f"{self.path}: lists no files"
            remedy = f"restore it, or accept the files as they are with: elman accept {self.folder}"
            raise RunError(f"{reason}; {remedy}") from None

    def _save(self, hashes: Hashes) -> None:
        files.atomic_write(self.path, signed({"files": hashes}))
