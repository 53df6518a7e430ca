"""Checkpoints that are whole or absent: saving is all or nothing, loading takes the newest that proves itself.

last/step-00000100/    weights.safetensors  training.safetensors  facts.json  manifest.json
last/step-00000100.1/  the same step saved again with other contents
"""

import json
import os
import re
import warnings
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import safetensors.torch
import torch
from torch import Tensor

from elman.errors import CheckpointError, RunError
from elman.runs import files
from elman.runs.files import RunWarning
from elman.runs.manifest import MANIFEST, NewerSchema, seal, verified

WEIGHTS, TRAINING, FACTS = "weights.safetensors", "training.safetensors", "facts.json"
ALLOWED = {WEIGHTS, TRAINING, FACTS}
NAME = re.compile(r"step-(\d{8,})(?:\.(\d+))?")
LOOKS = 100  # listings before giving up on a shelf that changes under the reader


@dataclass
class Checkpoint:
    step: int
    weights: dict[str, Tensor]
    training: dict[str, Tensor] = field(default_factory=dict)
    """What only resuming needs: optimizer, random generators, carried state."""
    facts: dict[str, Any] = field(default_factory=dict)
    """Counters and places, as JSON knows them: text keys, lists, finite numbers."""


class Shelf:
    """A folder of checkpoints with one writer (the holder of the run's lock) and any number of readers.

    The newest is the one saved last: a save removes, once it is safe, all but the `keep - 1` good ones before it,
    and steps ahead of it, which a resumed run has left behind. Damaged checkpoints are skipped with a `RunWarning`.
    """

    def __init__(self, folder: str | Path, keep: int = 2):
        assert keep >= 1, "a shelf keeps at least what was saved last"
        self.folder, self.keep = Path(folder), keep

    def save(self, checkpoint: Checkpoint) -> Path:
        """On the disk when this returns; after an error, what was there before is still there and loads."""
        try:
            contents = _encode(checkpoint)
            files.make_folder(self.folder)
            same = [folder for folder in self._folders() if _place(folder)[0] == checkpoint.step]
            if same and _holds(same[0], contents):
                files.sync_folder(self.folder)  # an earlier save may have ended right before this
                target = same[0]
            else:
                generation = _place(same[0])[1] + 1 if same else 0
                target = self.folder / (f"step-{checkpoint.step:08d}" + (f".{generation}" if generation else ""))
                self._write(target, contents)
            self._tidy(target)
        except RunError as error:
            raise CheckpointError(f"step {checkpoint.step} was not saved: {error}") from error
        return target

    @property
    def empty(self) -> bool:
        """Whether there is no checkpoint, whole or not: a look that reads none and warns of none."""
        return not any(self._folders() for _ in range(LOOKS))  # a listing may miss what a save replaces

    def newest(self) -> Path | None:
        """The newest that verifies; None on an empty shelf; CheckpointError where there are some but none is whole."""
        found = self._search()
        return found[0] if found else None

    def load(self, device: str | torch.device = "cpu", training: bool = True) -> Checkpoint:
        """The newest that verifies. An empty shelf is a RunError, one without a whole checkpoint a CheckpointError."""
        found = self._search()
        if not found:
            raise RunError(f"{self.folder}: no checkpoint has been saved here")
        checkpoint = found[1]
        if not training:
            checkpoint.training = {}
        for tensors in (checkpoint.weights, checkpoint.training):
            tensors.update({name: tensor.to(device) for name, tensor in tensors.items()})
        return checkpoint

    def fingerprint(self) -> str:
        """SHA-256 of the newest weights."""
        newest = self.newest()
        if newest is None:
            raise RunError(f"{self.folder}: no checkpoint has been saved here")
        return json.loads((newest / MANIFEST).read_bytes())["files"][WEIGHTS]["sha256"]

    def _write(self, target: Path, contents: dict[str, bytes]) -> None:
        files.require_space(self.folder, sum(map(len, contents.values())))
        beside = files.aside(target)
        try:
            files.make_folder(beside)
            for name, data in contents.items():
                files.write_file(beside / name, data)
            files.sync_folder(beside)
            _read(beside, _place(target)[0])  # nothing gets its name that could not be loaded
            files.rename(beside, target)
        except BaseException:
            files.discard(beside)
            raise
        files.sync_folder(self.folder)

    def _tidy(self, target: Path) -> None:
        kept, went_back = 1, False
        for folder in self._folders():
            ahead = _place(folder) > _place(target)
            if folder == target:
                continue
            if not ahead and kept < self.keep and _whole(folder):
                kept += 1
                continue
            away = files.aside(folder)
            try:
                files.rename(folder, away)  # readers must find all of it or nothing
                files.remove(away)
            except RunError as error:
                if ahead and os.path.lexists(folder):
                    raise  # it would be loaded in place of what was just saved
                warnings.warn(f"{target} is saved, but an older one stays: {error}", RunWarning, stacklevel=3)
            if ahead:
                went_back = True
                warnings.warn(f"{folder}: removed, since the run went back to {target.name}", RunWarning, stacklevel=3)
        if went_back:
            files.sync_folder(self.folder)  # else a power cut could bring the abandoned future back

    def _search(self) -> tuple[Path, Checkpoint] | None:
        vanished = False
        for _ in range(LOOKS):  # a save may replace what was listed, and a listing may miss both old and new
            vanished, skipped = False, []
            for folder in self._folders():
                try:
                    checkpoint = _read(folder, _place(folder)[0])
                except NewerSchema:
                    raise
                except CheckpointError as error:
                    vanished = not os.path.lexists(folder)
                    if vanished:
                        break
                    skipped.append(str(error))
                else:
                    if skipped:
                        passed = "; ".join(skipped)
                        warnings.warn(
                            f"took {folder}, since newer ones are damaged: {passed}", RunWarning, stacklevel=3
                        )
                    return folder, checkpoint
            if skipped and not vanished:
                raise CheckpointError(f"{self.folder}: no checkpoint is whole: {'; '.join(skipped)}")
        if vanished:
            raise CheckpointError(f"{self.folder}: checkpoints are replaced faster than they can be read")
        return None

    def _folders(self) -> list[Path]:
        """Newest first; damaged ones too."""
        try:
            names = os.listdir(self.folder)
        except FileNotFoundError:
            return []
        except OSError as error:
            raise RunError(f"{self.folder}: cannot list the checkpoints: {error.strerror}") from error
        return sorted((self.folder / name for name in names if NAME.fullmatch(name)), key=_place, reverse=True)


def _place(folder: Path) -> tuple[int, int]:
    match = NAME.fullmatch(folder.name)
    assert match, folder
    return int(match[1]), int(match[2] or 0)


def _encode(checkpoint: Checkpoint) -> dict[str, bytes]:
    """Each file as bytes, the manifest last."""
    for name, tensor in checkpoint.weights.items():
        values = tensor.float() if tensor.is_floating_point() else tensor  # 8-bit floats cannot be asked
        if not torch.isfinite(values).all():
            raise CheckpointError(f"weight {name!r} holds a value that is not finite")
    contents = {WEIGHTS: _pack(checkpoint.weights)}
    if checkpoint.training:
        contents[TRAINING] = _pack(checkpoint.training)
    try:
        facts = json.dumps(checkpoint.facts, indent=1, sort_keys=True, allow_nan=False)
        same = json.loads(facts) == checkpoint.facts
    except (TypeError, ValueError) as error:
        raise CheckpointError(f"the facts cannot be written as JSON: {error}") from error
    if not same:
        raise CheckpointError("the facts would not come back from JSON unchanged: use text keys, and lists, not tuples")
    contents[FACTS] = facts.encode()
    return contents | {MANIFEST: seal(checkpoint.step, contents)}


def _pack(tensors: dict[str, Tensor]) -> bytes:
    try:
        own = {
            name: tensor.detach().to("cpu", copy=True, memory_format=torch.contiguous_format)
            for name, tensor in tensors.items()
        }
        return safetensors.torch.save(own)
    except (ValueError, KeyError, RuntimeError) as error:
        raise CheckpointError(f"tensors that safetensors cannot hold: {error}") from error


def _read(folder: Path, step: int) -> Checkpoint:
    contents = verified(folder, step, ALLOWED)
    try:
        facts = json.loads(contents[FACTS])
        weights = safetensors.torch.load(contents[WEIGHTS])
        training = safetensors.torch.load(contents[TRAINING]) if TRAINING in contents else {}
    except Exception as error:  # whatever the parsers say, this is not a checkpoint
        raise CheckpointError(f"{folder}: cannot be parsed: {type(error).__name__}: {error}") from error
    if not isinstance(facts, dict):
        raise CheckpointError(f"{folder / FACTS}: not a JSON object")
    return Checkpoint(step, weights, training, facts)


def _holds(folder: Path, contents: dict[str, bytes]) -> bool:
    try:
        return verified(folder, _place(folder)[0], ALLOWED) == contents
    except CheckpointError:
        return False


def _whole(folder: Path) -> bool:
    try:
        _read(folder, _place(folder)[0])
    except CheckpointError:
        return False
    return True
