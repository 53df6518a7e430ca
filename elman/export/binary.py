"""One file that runs: a statically linked program of the run, with its weights and tokenizer."""

import shlex
import subprocess
import sys
import tempfile
from pathlib import Path

from elman import files
from elman.compiler.cpu.standalone.sources import HERE
from elman.compiler.errors import NoCompiler
from elman.errors import ConfigError, RunError
from elman.export.base import Weights
from elman.export.c import c_library
from elman.export.check import SEED, sample_texts
from elman.export.library import FAST, compiler_command
from elman.pipeline.trained_model import TrainedModel

OWN = ("program.c", "data.S")
WRITTEN = 60  # tokens to compare


def write_binary(trained: TrainedModel, weights: Weights, target: Path) -> list[str]:
    """Compiles the program, compares it with the run, and only then gives it its name."""
    try:
        command = compiler_command()
    except NoCompiler as problem:
        raise ConfigError(f"a program has to be compiled: {problem}") from None
    export = c_library(trained, weights)
    assert export.check is not None
    with tempfile.TemporaryDirectory() as aside:
        folder = Path(aside)
        for name, data in {**export.contents, **{name: (HERE / name).read_bytes() for name in OWN}}.items():
            (folder / name).parent.mkdir(exist_ok=True)
            (folder / name).write_bytes(data)
        notes = export.check(folder)
        program = _linked(folder, command)
        if weights == "fp32":
            _check(trained, program)
        files.make_folder(target.parent)
        with files.replacing(target) as beside:
            files.write_file(beside, program.read_bytes())
            beside.chmod(0o755)
        size = target.stat().st_size
    usage = f"{shlex.quote(str(target))} PROMPT" if trained.task.generates_text else f"{target} < lines.txt"
    return [f"{usage} runs it, on processors with the instructions of this one ({size:,} bytes)", *notes]


def _linked(folder: Path, command: list[str]) -> Path:
    static = ["-static"] if sys.platform == "linux" else []
    native = [*FAST, "-march=native"]
    for words in (
        ["-std=c++17", "-fno-exceptions", "-fno-rtti", *native, "-c", "elman.cpp"],
        ["-x", "c", "-std=c99", "-O2", "-c", "program.c"],
        ["-c", "data.S"],
        [*static, "elman.o", "program.o", "data.o", "-s", "-o", "program"],
    ):
        found = subprocess.run([*command, *words], cwd=folder, capture_output=True, text=True, check=False)
        if found.returncode:
            raise RunError(f"the program cannot be built: {found.stderr.strip()[:2000]}")
    return folder / "program"


def _check(trained: TrainedModel, program: Path) -> None:
    """The program's text, or its answers, are those of the run."""
    if trained.task.generates_text:
        words = ["--max-tokens", str(WRITTEN), "--seed", str(SEED), ""]
        right = trained.generate("", max_tokens=WRITTEN, seed=SEED, engine="torch") + "\n"
        given = ""
    else:
        lines = [" ".join(text.split()) for text in sample_texts(trained)]
        lines = [line for line in lines if line and "\0" not in line]
        words, given = [], "".join(f"{line}\n" for line in lines)
        right = "".join(f"{trained.task.format(answer)}\n" for answer in trained.predict(lines))
    found = subprocess.run(
        [str(program), *words], input=given.encode(), capture_output=True, check=False, cwd=program.parent
    )
    if found.returncode or found.stdout != right.encode():
        raise RunError("the program does not answer as the run does: export it with --format c and compare the two")
