"""Renews constraints.txt: the newest versions of all packages that elman and its extras need, without installing them.

    make lock

Lines of the first block are held as they are; everything below is what pip resolves today. Versions only, no hashes:
torch's builds differ between machines.
"""

import json
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).parents[1]
LOCK = ROOT / "constraints.txt"
EXTRAS = "dev,ray"  # what the tests use; kenlm, which is built from source, is held by hand
RESOLVED = "# Resolved by `make lock`:"


def main() -> None:
    held = LOCK.read_text().partition(RESOLVED)[0].rstrip()
    pinned = {line.partition("==")[0].lower() for line in held.splitlines() if "==" in line}
    with tempfile.TemporaryDirectory() as folder:
        constraints, report = Path(folder, "held.txt"), Path(folder, "report.json")
        constraints.write_text(held + "\n")
        command = [sys.executable, "-m", "pip", "install", "--quiet", "--dry-run", "--ignore-installed"]
        command += ["-c", str(constraints), "--report", str(report), f"{ROOT}[{EXTRAS}]"]
        subprocess.run(command, check=True)
        found = json.loads(report.read_text())["install"]
    versions = {one["metadata"]["name"].lower(): one["metadata"]["version"].partition("+")[0] for one in found}
    lines = [f"{name}=={versions[name]}" for name in sorted(versions) if name not in {"elman", *pinned}]
    LOCK.write_text("\n".join([held, "", RESOLVED, *lines]) + "\n")
    print(f"{LOCK.name}: {len(lines)} resolved, {len(pinned)} held")


if __name__ == "__main__":
    main()
