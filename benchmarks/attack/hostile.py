"""Open hostile folders: runs, races, Hugging Face folders and recipes as an attacker would write them.

    python -m benchmarks.attack.hostile                the whole list
    python -m benchmarks.attack.hostile --list         names and expected answers
    python -m benchmarks.attack.hostile --again        violations on record, which count as mended if they are none now

Every command runs in a child that an audit hook watches. It must not run code of the folder, open a socket, start a
program, write outside of its folder, read a file of others, take more than 1 GB or 10 seconds, or show a traceback; and
it refuses what the list says it must refuse, in one sentence.
"""

import os
import random
import re
import shutil
import sys
import tempfile
from collections.abc import Sequence
from hashlib import sha256
from pathlib import Path
from typing import Any

import elman
from benchmarks.attack import hostile_contents, hostile_others, hostile_runs
from benchmarks.attack.attempts import shown
from benchmarks.attack.campaign import Campaign, parser
from benchmarks.attack.children import Outcome, command, import_everything, in_child
from benchmarks.attack.corruption import RECIPES, build_several, in_one_process, write_data
from benchmarks.attack.hostile_runs import HARMLESS, REFUSED, Case, outside
from elman.figures.figure import Figure

SECONDS, BYTES = 10.0, 10**9
DENIED: tuple[str, ...] = (
    "socket.",
    "subprocess.",
    "os.system",
    "os.exec",
    "os.posix_spawn",
    "os.spawn",
    "pty.",
    "pickle.find_class",
)
DENIED += ("os.startfile", "webbrowser.", "ftplib.", "http.", "urllib.", "smtplib.")
ALLOWED = ("socket.gethostname",)
COMPILER = ("c++", "uname")  # of the native engine, for code of our own
CHANGES: tuple[str, ...] = (
    "os.remove",
    "os.rename",
    "os.mkdir",
    "os.rmdir",
    "os.link",
    "os.symlink",
    "os.truncate",
    "os.chmod",
)
CHANGES += ("os.chown", "os.utime", "shutil.rmtree", "shutil.move")
WRITING = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND
HUGGING_FACE: dict[str, dict[str, Any]] = {
    "hf gpt2": {
        "pattern": [{"attention": {"num_heads": 2, "bias": True}}, {"feedforward": {"activation": "gelu"}}],
        "positions": "learned",
        "max_positions": 32,
    },
    "hf llama": {
        "pattern": [{"attention": {"positions": "rotary", "num_heads": 2}}, {"swiglu": {}}],
        "norm_type": "rms",
    },
    "hf mamba": {"pattern": [{"mamba": {"state_size": 3}}], "norm_type": "rms"},
}
SHARED = {"hidden_size": 8, "residual": True, "norm": "pre", "output_bias": False}


class Watch:
    """An audit hook that writes what must not happen to a file that was opened before the attack."""

    def __init__(self, work: Path):
        self.allowed = [os.path.realpath(place) for place in (work, os.environ.get("ELMAN_CACHE", work))]
        self.secret = os.path.realpath(outside(work))
        self.log = os.open(work.with_name("violations"), os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
        self.busy = False

    def __call__(self, event: str, arguments: tuple[Any, ...]) -> None:
        if self.busy:  # the check itself opens nothing, but asks where links lead
            return
        self.busy = True
        try:
            if found := self._violation(event, arguments):
                os.write(self.log, f"{event}: {found}"[:500].replace("\n", " ").encode(errors="replace") + b"\n")
        finally:
            self.busy = False

    def _violation(self, event: str, arguments: tuple[Any, ...]) -> str:
        if event == "subprocess.Popen" and arguments[0] in COMPILER:
            return ""
        if event.startswith(DENIED) and event not in ALLOWED:
            return repr(arguments)
        if event == "exec" and self._inside(getattr(arguments[0], "co_filename", "").partition("<")[0]):
            return "code of the folder"
        if event == "ctypes.dlopen" and arguments[0] and self._inside(arguments[0]):
            return f"library {arguments[0]}"
        if event == "open" and not isinstance(arguments[0], int):
            return self._opened(arguments[0], arguments[2] or 0)
        return self._changed(event, arguments) if event in CHANGES and not isinstance(arguments[0], int) else ""

    def _opened(self, path: Any, flags: int) -> str:
        where = self._real(path, followed=not flags & getattr(os, "O_NOFOLLOW", 0))
        if flags & WRITING and not self._allowed(where):
            return f"writes {where}"
        return f"reads {where}" if self._of_others(where) else ""

    def _changed(self, event: str, arguments: tuple[Any, ...]) -> str:
        places = [one for one in arguments[:2] if isinstance(one, (str, bytes, os.PathLike))]
        folder = next((one for one in arguments[1:] if isinstance(one, int) and one >= 0), None)
        for one in places if event in ("os.rename", "os.link") else places[:1]:
            where = self._real(one, followed=False, folder=folder)
            if not self._allowed(where):
                return f"changes {where}"
        return ""

    def _real(self, path: Any, followed: bool, folder: int | None = None) -> str:
        text = os.fsdecode(path)
        if folder is not None and not os.path.isabs(text):
            text = os.path.join(os.readlink(f"/proc/self/fd/{folder}"), text)
        if followed:
            return os.path.realpath(text)
        return os.path.join(os.path.realpath(os.path.dirname(text) or "."), os.path.basename(text))

    def _allowed(self, where: str) -> bool:
        inside = any(where == place or where.startswith(place + os.sep) for place in self.allowed)
        device = where.startswith("/dev/") and not where.startswith("/dev/shm/")  # where the attack itself may be
        return inside or device or where.endswith((".out", ".err"))

    def _of_others(self, where: str) -> bool:
        """The secret, and what a config would have us read; a link that the case placed in the run may be read
        through, and what is no regular file is opened to find that out."""
        return where in (f"{self.secret}/secret.txt", f"{self.secret}/pipe", "/etc/passwd")

    def _inside(self, path: Any) -> bool:
        return os.path.realpath(os.fsdecode(path)).startswith(self.allowed[0] + os.sep) if path else False


def build_bases(place: Path, wanted: Sequence[str]) -> dict[str, Path]:
    """A small run of every task, a race, and Hugging Face folders."""
    write_data(place, random.Random(0))
    os.chdir(place)
    for kind, recipe in _chosen(RECIPES, wanted).items():
        list(elman.iterate({**recipe, "device": "cpu", "generation": {"max_tokens": 5}}, run=kind))
    for kind, model in _chosen(HUGGING_FACE, wanted).items():
        training = {"max_steps": 1, "batch_size": 4, "sequence_length": 8}
        recipe = {**RECIPES["language model"], "model": {**SHARED, **model}, "training": training}
        list(elman.iterate({**recipe, "device": "cpu"}, run=f"{kind} run"))
        ended = in_child(command("export", f"{kind} run", "--to", kind), place, 60)
        assert not ended.code, ended.err
    if "race" in wanted:
        build_several("race", place)
    return {kind: place / kind for kind in wanted}


def _chosen(known: dict[str, Any], wanted: Sequence[str]) -> dict[str, Any]:
    return {name: value for name, value in known.items() if name in wanted}


def cases(bases: dict[str, Path]) -> list[Case]:
    """Those of all classes whose folder is there."""
    runs = {name: path for name, path in bases.items() if name in RECIPES}
    of_runs = (*hostile_runs.CLASSES, *hostile_contents.CLASSES)
    made = [*(make(runs) for make in of_runs), *(make(bases) for make in hostile_others.CLASSES)]
    return [case._replace(name=f"{case.base}: {case.name}") for found in made for case in found if case.base in bases]


def prepare(case: Case, bases: dict[str, Path], work: Path) -> None:
    """The working folder with the run, and a folder of somebody else beside it."""
    for place in (work, outside(work)):
        shutil.rmtree(place, ignore_errors=True)
        place.mkdir()
    (outside(work) / "secret.txt").write_text("the secret of somebody else\n" * 50)
    os.mkfifo(outside(work) / "pipe")
    for path in bases[case.base].parent.iterdir():
        if path.is_file():
            shutil.copyfile(path, work / path.name)
    shutil.copytree(bases[case.base], work / "run")
    (work / "tmp").mkdir()
    case.build(work)


def attack(case: Case, bases: dict[str, Path], work: Path) -> tuple[Outcome, list[str]]:
    """The outcome of a case, and what it did that it must not."""
    prepare(case, bases, work)
    before = _contents(outside(work))

    def work_in_child() -> int | None:
        os.environ |= {"TMPDIR": str(work / "tmp"), "ELMAN_CANARY": str(work.with_name("canary"))}
        tempfile.tempdir = None
        sys.addaudithook(Watch(work))
        return in_one_process(list(case.command))

    work.with_name("violations").unlink(missing_ok=True)
    ended = in_child(work_in_child, work, 6 * SECONDS)
    wrong = work.with_name("violations").read_text().splitlines()
    if work.with_name("canary").exists():
        wrong.append("code of the folder ran")
        work.with_name("canary").unlink()
    if _contents(outside(work)) != before:
        wrong.append("a file outside was changed")
    if ended.fault:
        wrong.append(ended.fault)
    if ended.seconds > SECONDS:
        wrong.append(f"took {ended.seconds:.1f} s")
    if ended.memory > BYTES:
        wrong.append(f"took {ended.memory / 1e6:.0f} MB")
    if case.expected != HARMLESS and not ended.code:
        wrong.append("accepted")
    elif case.expected not in (HARMLESS, REFUSED) and not re.search(case.expected, ended.err):
        wrong.append(f"refused, but not with {case.expected!r}")
    return ended, wrong


def _contents(folder: Path) -> dict[str, str]:
    found = {}
    for path in sorted(folder.rglob("*")):
        small = path.is_file() and path.stat().st_size < 2**24
        found[str(path)] = sha256(path.read_bytes()).hexdigest() if small else ""
    return found


def main() -> None:
    reader = parser("hostile", __doc__, count=10**6, seed=1, repeats=True)
    reader.add_argument("--list", action="store_true", help="print the cases and their expected answers, and exit")
    reader.add_argument("--every", type=int, default=1, help="take each so many-th case only (default: %(default)s)")
    reader.add_argument("--only", default="", help="take cases whose name has this in it")
    known = [*RECIPES, *HUGGING_FACE, "race"]
    reader.add_argument("--bases", nargs="+", default=known, choices=known, help="kinds of folders (default: all)")
    options = reader.parse_args()
    import_everything()
    with tempfile.TemporaryDirectory(dir="/dev/shm" if Path("/dev/shm").is_dir() else None) as place:
        home = Path(place) / "bases"
        home.mkdir()
        Figure.image = shown  # type: ignore[method-assign, assignment]
        os.environ["ELMAN_CACHE"] = str(Path(place) / "cache")
        bases = build_bases(home, options.bases)
        chosen = [case for case in cases(bases) if options.only in case.name][:: options.every]
        if options.list:
            for case in chosen:
                print(f"{case.name!a} ({' '.join(case.command)}): {case.expected}")
            return
        options.count = min(options.count, len(chosen))
        campaign, work = Campaign(options), Path(place) / "work"
        if options.again:
            named = {case.name[:200]: case for case in cases(bases)}
            campaign.repeat(lambda one: not attack(named[one["case"]], bases, work)[1])
            os.chdir("/")
            return
        campaign.dice.shuffle(chosen)  # so that one that runs out of time has seen every class
        most = campaign.facts
        for number in campaign.numbers():
            case = chosen[number]
            ended, wrong = attack(case, bases, work)
            outcome = "wrong" if wrong else "refused" if ended.code else "harmless"
            most["note"] = f"{number + 1:,} of the {len(chosen):,} cases of the list, in a random order"
            most["seconds of the slowest"] = max(most.get("seconds of the slowest", 0), round(ended.seconds, 2))
            most["megabytes of the largest"] = max(most.get("megabytes of the largest", 0), ended.memory // 10**6)
            failure = {"case": case.name[:200], "wrong": wrong, "code": ended.code, "said": ended.err[-400:]}
            campaign.tally(outcome, *([failure] if wrong else []))
        os.chdir("/")
    campaign.end()


if __name__ == "__main__":
    main()
