"""The settings of a race or a sweep in its folder: written once; a resumed one must have the same."""

from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any, TypeVar

from elman.config import Config, commented_yaml
from elman.errors import ConfigError, RunError, brief
from elman.files import ASIDE, make_folder
from elman.runs import FileManifest
from elman.runs.manifest import MANIFEST
from elman.untrusted import read_yaml

Settings = TypeVar("Settings", bound=Config)


def read_settings(kind: type[Settings], path: Path) -> Settings:
    """The settings in the folder of a race or a sweep."""
    if not path.exists():
        raise RunError(f"{path.parent}: holds no {path.stem}, since it has no {path.name}")
    FileManifest(path.parent).check()
    return kind.make(read_yaml(path))


def keep_settings(settings: Settings, path: Path, resume: bool, may_grow: Collection[str]) -> Settings:
    """Write the settings, or check them against the stored ones when the race or sweep is resumed."""
    folder, what = path.parent, path.stem
    if path.exists():
        if not resume:
            raise RunError(f"{folder}: holds a {what} already; continue it with --resume, or use another --run")
        old, new = _flat(read_settings(type(settings), path).plain()), _flat(settings.plain())
        wrong = [key for key in {**old, **new} if new.get(key) != old.get(key) and key not in may_grow]
        if wrong:
            shown = "; ".join(f"{key} was {brief(old.get(key))}, now {brief(new.get(key))}" for key in wrong[:2])
            raise ConfigError(f"a resumed {what} keeps its settings, but {shown}; leave them out, or use another --run")
    elif folder.is_dir() and any(one.name != MANIFEST and not one.name.startswith(ASIDE) for one in folder.iterdir()):
        raise RunError(f"{folder}: not empty and not a {what}; use another --run")
    make_folder(folder)
    FileManifest(folder).write(path.name, commented_yaml(settings).encode())
    assert read_settings(type(settings), path) == settings, "settings round-trip"
    return settings


def _flat(settings: Mapping[str, Any], path: str = "") -> dict[str, Any]:
    """Settings by their dotted names."""
    found: dict[str, Any] = {}
    for key, value in settings.items():
        found |= _flat(value, f"{path}{key}.") if isinstance(value, Mapping) and value else {f"{path}{key}": value}
    return found
