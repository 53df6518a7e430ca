"""The cache folder of compiled code: in the user's cache, never in the repository or a run folder."""

import errno
import os
import stat
from pathlib import Path


def cache_folder(name: str) -> Path:
    """`name` in $ELMAN_CACHE, or in elman in the user's cache folder (XDG_CACHE_HOME)."""
    user_cache = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(os.environ.get("ELMAN_CACHE") or Path(user_cache) / "elman") / name


def private_folder(name: str) -> Path:
    """The same folder, created for this user alone, since its contents are run; OSError where it is another's."""
    folder = cache_folder(name)
    folder.mkdir(0o700, parents=True, exist_ok=True)
    if not stat.S_ISDIR(folder.lstat().st_mode) or not is_own(folder):
        raise PermissionError(errno.EPERM, "it belongs to another user; set ELMAN_CACHE to a folder of your own")
    if os.name != "nt" and folder.stat().st_mode & 0o077:
        folder.chmod(0o700)
    return folder


def is_own(path: Path) -> bool:
    """Whether a file or folder, and not a link's target, belongs to this user. Windows has no such owners."""
    return not hasattr(os, "geteuid") or path.lstat().st_uid == os.geteuid()
