"""A Hugging Face folder on disk: config.json and safetensors, single or sharded; pickled weights are rejected."""

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from safetensors import SafetensorError, safe_open
from torch import Tensor

from elman.errors import DataError
from elman.layers.base import at_least_float32

CONFIG, WEIGHTS = "config.json", "model.safetensors"
INDEX = f"{WEIGHTS}.index.json"


def is_hugging_face(folder: str | Path) -> bool:
    """Whether a folder looks like a Hugging Face model."""
    return (Path(folder) / CONFIG).is_file() and not (Path(folder) / "config.yaml").exists()


def read_json(path: Path) -> dict[str, Any]:
    """Reads a JSON object; a missing file is a readable error."""
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise DataError(
            "no such file", file=path, remedy="a Hugging Face folder has a config.json and a model.safetensors"
        ) from None
    except (OSError, ValueError, RecursionError) as error:
        raise DataError(f"cannot be read as JSON: {error}", file=path) from None
    if not isinstance(content, dict):
        raise DataError(f"is a {type(content).__name__}, not an object", file=path)
    return content


class Weights(Mapping[str, Tensor]):
    """Lazy mapping from names to the tensors of a folder, in at least float32."""

    def __init__(self, folder: Path):
        self.files: dict[str, Path] = {}
        for path in _weight_files(folder):
            with _open(path) as file:
                self.files.update(dict.fromkeys(file.keys(), path))

    def __getitem__(self, name: str) -> Tensor:
        with _open(self.files[name]) as file:
            tensor = file.get_tensor(name)
        if not tensor.is_floating_point():
            raise DataError(f"{name} has dtype {tensor.dtype}, not a floating-point one", file=self.files[name])
        return at_least_float32(tensor)

    def __iter__(self) -> Iterator[str]:
        return iter(self.files)

    def __len__(self) -> int:
        return len(self.files)


def _weight_files(folder: Path) -> list[Path]:
    if (folder / WEIGHTS).is_file():
        return [folder / WEIGHTS]
    if (folder / INDEX).is_file():
        listed = read_json(folder / INDEX).get("weight_map")
        names = sorted({str(name) for name in listed.values()}) if isinstance(listed, dict) else []
        for name in names:
            if Path(name).name != name:
                raise DataError(f"refers to {name!r}, which is not a file in the same folder", file=folder / INDEX)
            if not (folder / name).is_file():
                raise DataError("missing, but listed in the index", file=folder / name, remedy="copy all shards")
        if names:
            return [folder / name for name in names]
    pickled = sorted(path.name for pattern in ("*.bin", "*.pt", "*.pth") for path in folder.glob(pattern))
    if pickled:
        raise DataError(
            f"has its weights in {pickled[0]}, a pickle file, which can run arbitrary code when loaded",
            file=folder,
            remedy="save it again as safetensors: transformers' from_pretrained, then save_pretrained",
        )
    raise DataError(f"has neither {WEIGHTS} nor {INDEX}", file=folder)


def _open(path: Path) -> Any:
    try:
        return safe_open(path, framework="pt")
    except (OSError, SafetensorError) as error:
        raise DataError(f"cannot be read as safetensors: {error}", file=path) from None
