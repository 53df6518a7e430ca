"""The cache folder of compiled code: in the user's cache, never in the repository or a run folder."""

import os
from pathlib import Path


def cache_folder(name: str) -> Path:
    """`name` in $ELMAN_CACHE, or in elman in the user's cache folder (XDG_CACHE_HOME)."""
    user_cache = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(os.environ.get("ELMAN_CACHE") or Path(user_cache) / "elman") / name
