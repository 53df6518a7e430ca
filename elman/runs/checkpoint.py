"""Atomic checkpoints: a save is all or nothing, and a load takes the newest checkpoint that verifies.

last/step-00000100/    weights.safetensors  training.safetensors  facts.json  manifest.json
last/step-00000100.1/  the same step saved again with other contents
"""

import json
import os
import re
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import safetensors.torch
import torch
from pydantic import ValidationError
from torch import Tensor

from elman import files
from elman.config import first_problem
from elman.errors import CheckpointError, ConfigError, RunError
from elman.files import RunWarning
from elman.runs.manifest import MANIFEST, NewerSchema, make_manifest, read_verified

WEIGHTS, TRAINING, FACTS = "weights.safetensors", "training.safetensors", "facts.json"
ALLOWED = {WEIGHTS, TRAINING, FACTS}
NAME = re.compile(r"step-(\d{8,})(?:\.(\d+))?")
MAX_LISTINGS = 100  # before giving up on a folder that changes during reading


@dataclass
class Checkpoint:
    step: int
    weights: dict[str, Tensor]
    training: dict[str, Tensor] = field(default_factory=dict)
    """State for resuming only: optimizer, random generators, carried state."""
    facts: dict[str, Any] = field(default_factory=dict)
    """Counters and positions as JSON types: text keys, lists, finite numbers."""

    def load_into(self, model: Any, run: str | Path) -> None:
        """Sets the weights of a model; CheckpointError if they do not fit it. On the meta device it only checks."""
        for name, own in model.state_dict().items():
            if name in self.weights and self.weights[name].is_floating_point() != own.is_floating_point():
                raise CheckpointError(
                    f"{run}: the weights do not fit the model in config.yaml: {name} has another type"
                )
        meta = any(weight.is_meta for weight in model.parameters())
        try:
            model.load_state_dict({name: one.to("meta") if meta else one for name, one in self.weights.items()})
        except (RuntimeError, ValueError) as error:  # of torch, which reports on many lines
            reason = " ".join(str(error).split())[:300]
            raise CheckpointError(f"{run}: the weights do not fit the model in config.yaml: {reason}") from None


class CheckpointFolder:
    """A folder of checkpoints with one writer (the holder of the run's lock) and any number of readers.

    The newest is the one saved last. A completed save removes all but the `keep - 1` valid ones before it, and later
    steps, which a resumed run abandoned. Damaged checkpoints are skipped with a `RunWarning`.
    """

    def __init__(self, folder: str | Path, keep: int = 2):
        assert keep >= 1, "at least one checkpoint is kept"
        self.folder, self.keep = Path(folder), keep

    def save(self, checkpoint: Checkpoint) -> Path:
        """Durable on return; after an error, the previous checkpoints are unchanged."""
        try:
            contents = _encode(checkpoint)
            files.make_folder(self.folder)
            same = [folder for folder in self._folders() if _step_and_version(folder)[0] == checkpoint.step]
            if same and _equals(same[0], contents):
                files.sync_folder(self.folder)  # an earlier save may have missed this
                target = same[0]
            else:
                generation = _step_and_version(same[0])[1] + 1 if same else 0
                target = self.folder / (f"step-{checkpoint.step:08d}" + (f".{generation}" if generation else ""))
                self._write(target, contents)
            self._remove_old(target)
        except RunError as error:
            raise CheckpointError(f"step {checkpoint.step} was not saved: {error}") from error
        return target

    @property
    def empty(self) -> bool:
        """Whether there is no checkpoint, valid or not; reads none."""
        # a listing can miss checkpoints that are being replaced
        return not any(self._folders() for _ in range(MAX_LISTINGS))

    def newest(self) -> Path | None:
        """The newest valid one; None if there is none; CheckpointError if all are damaged."""
        found = self._search()
        return found[0] if found else None

    def load(self, device: str | torch.device = "cpu", training: bool = True, only: Path | None = None) -> Checkpoint:
        """The newest valid one, or `only` the one in this folder; RunError if there is none, CheckpointError if all are
        damaged."""
        checkpoint = _read(only, _step_and_version(only)[0]) if only else self._required()[1]
        if not training:
            checkpoint.training = {}
        for tensors in (checkpoint.weights, checkpoint.training):
            tensors.update({name: tensor.to(device) for name, tensor in tensors.items()})
        return checkpoint

    def fingerprint(self) -> str:
        """SHA-256 of the newest weights."""
        newest, _ = self._required()
        return json.loads((newest / MANIFEST).read_bytes())["files"][WEIGHTS]["sha256"]

    def _required(self) -> tuple[Path, Checkpoint]:
        if found := self._search():
            return found
        raise RunError(f"{self.folder}: no checkpoint has been saved here")

    def _write(self, target: Path, contents: dict[str, bytes]) -> None:
        files.require_space(self.folder, sum(map(len, contents.values())))
        with files.replacing(target) as temporary:
            files.make_folder(temporary)
            for name, data in contents.items():
                files.write_file(temporary / name, data)
            files.sync_folder(temporary)
            _read(temporary, _step_and_version(target)[0])  # verify before it gets its final name

    def _remove_old(self, target: Path) -> None:
        kept, went_back = 1, False
        for folder in self._folders():
            ahead = _step_and_version(folder) > _step_and_version(target)
            if folder == target:
                continue
            if not ahead and kept < self.keep and _is_valid(folder):
                kept += 1
                continue
            trash = files.temporary_path(folder)
            try:
                files.rename(folder, trash)  # atomic for readers
                files.remove(trash)
            except RunError as error:
                if ahead and os.path.lexists(folder):
                    raise  # it would be loaded instead of the new one
                warnings.warn(f"{target} is saved, but cannot remove an older one: {error}", RunWarning, stacklevel=3)
            if ahead:
                went_back = True
                warnings.warn(f"{folder}: removed: the run went back to {target.name}", RunWarning, stacklevel=3)
        if went_back:
            files.sync_folder(self.folder)  # else a power cut could restore abandoned checkpoints

    def _search(self) -> tuple[Path, Checkpoint] | None:
        vanished = False
        for _ in range(MAX_LISTINGS):  # a writer may replace them meanwhile
            vanished, skipped = False, []
            for folder in self._folders():
                try:
                    checkpoint = _read(folder, _step_and_version(folder)[0])
                except NewerSchema:
                    raise
                except CheckpointError as error:
                    vanished = not os.path.lexists(folder)
                    if vanished:
                        break
                    skipped.append(str(error))
                else:
                    if skipped:
                        reason = f"newer ones are damaged: {'; '.join(skipped)}"
                        warnings.warn(f"using {folder}, because {reason}", RunWarning, stacklevel=3)
                    return folder, checkpoint
            if skipped and not vanished:
                raise CheckpointError(f"{self.folder}: no checkpoint is valid: {'; '.join(skipped)}")
        if vanished:
            raise CheckpointError(f"{self.folder}: checkpoints are replaced faster than they can be read")
        return None

    def _folders(self) -> list[Path]:
        """Newest first, including damaged ones."""
        try:
            names = os.listdir(self.folder)
        except FileNotFoundError:
            return []
        except OSError as error:
            raise RunError(f"{self.folder}: cannot list the checkpoints: {error.strerror}") from error
        folders = [self.folder / name for name in names if NAME.fullmatch(name)]
        return sorted(folders, key=_step_and_version, reverse=True)


@contextmanager
def usable_facts(folder: Path) -> Iterator[None]:
    """CheckpointError where the block stumbles over facts or training tensors that are missing or of a wrong type."""
    try:
        yield
    except (ConfigError, LookupError, TypeError, ValueError, AttributeError, RuntimeError, OverflowError) as error:
        reason = first_problem(error) if isinstance(error, ValidationError) else " ".join(str(error).split())[:300]
        reason += " is missing" * isinstance(error, LookupError)
        raise CheckpointError(f"{folder}: the run cannot go on from its checkpoint: {reason}") from error


def _step_and_version(folder: Path) -> tuple[int, int]:
    match = NAME.fullmatch(folder.name)
    assert match, folder
    return int(match[1]), int(match[2] or 0)


def _encode(checkpoint: Checkpoint) -> dict[str, bytes]:
    """The contents of each file, manifest last."""
    _check_finite(checkpoint.weights)
    contents = {WEIGHTS: _pack(checkpoint.weights)}
    if checkpoint.training:
        contents[TRAINING] = _pack(checkpoint.training)
    try:
        facts = json.dumps(checkpoint.facts, indent=1, sort_keys=True, allow_nan=False)
        same = json.loads(facts) == checkpoint.facts
    except (TypeError, ValueError) as error:
        raise CheckpointError(f"the facts cannot be written as JSON: {error}") from error
    if not same:
        raise CheckpointError("the facts do not survive JSON: use text keys, and lists, not tuples")
    contents[FACTS] = facts.encode()
    return contents | {MANIFEST: make_manifest(checkpoint.step, contents)}


def _check_finite(weights: dict[str, Tensor], where: str = "") -> None:
    for name, tensor in weights.items():
        values = tensor.float() if tensor.is_floating_point() else tensor  # isfinite does not support 8-bit floats
        if not torch.isfinite(values).all():
            raise CheckpointError(f"{where}weight {name!r} has a value that is not finite")


def _pack(tensors: dict[str, Tensor]) -> bytes:
    try:
        layout: dict[str, Any] = {"copy": True, "memory_format": torch.contiguous_format}
        return safetensors.torch.save({name: tensor.detach().to("cpu", **layout) for name, tensor in tensors.items()})
    except (ValueError, KeyError, RuntimeError) as error:
        raise CheckpointError(f"tensors not supported by safetensors: {error}") from error


def _read(folder: Path, step: int) -> Checkpoint:
    contents = read_verified(folder, step, ALLOWED)
    try:
        facts = json.loads(contents[FACTS])
        weights = safetensors.torch.load(contents[WEIGHTS])
        training = safetensors.torch.load(contents[TRAINING]) if TRAINING in contents else {}
    except Exception as error:  # any parser error means damage
        raise CheckpointError(f"{folder}: cannot be parsed: {type(error).__name__}: {error}") from error
    if not isinstance(facts, dict):
        raise CheckpointError(f"{folder / FACTS}: not a JSON object")
    _check_finite(weights, where=f"{folder}: ")
    return Checkpoint(step, weights, training, facts)


def _equals(folder: Path, contents: dict[str, bytes]) -> bool:
    try:
        return read_verified(folder, _step_and_version(folder)[0], ALLOWED) == contents
    except CheckpointError:
        return False


def _is_valid(folder: Path) -> bool:
    try:
        _read(folder, _step_and_version(folder)[0])
    except CheckpointError:
        return False
    return True
