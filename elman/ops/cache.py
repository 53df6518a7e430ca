"""Where generated code is kept between runs: a folder of the user's cache, never the repository or a run folder."""

import os
from pathlib import Path


def cache_folder(name: str) -> Path:
    """ELMAN_CACHE, or elman in the user's folder for caches; below it, `name`."""
    usual = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(os.environ.get("ELMAN_CACHE") or Path(usual) / "elman") / name
