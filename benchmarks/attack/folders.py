"""Inputs that are files of a folder: of a run, its checkpoints, a race, a Hugging Face model. Their manifests are made
anew, as by someone who changed a file on purpose, so that what reads the file sees it."""

import json
import random
import shutil
from collections.abc import Callable, Iterator
from itertools import islice
from pathlib import Path
from typing import Any

import torch

from benchmarks.attack.inputs import Kind

LINES = [" ".join(random.Random(n).choices(["the", "cat", "saw", "a", "dog"], k=5)) for n in range(60)]
TEXT = "\n".join(LINES) + "\n"
DATA = {
    "a.txt": TEXT,
    "l.tsv": "label\ttext\n" + "".join(f"{'yes' if 'cat' in line else 'no'}\t{line}\n" for line in LINES),
    "n.tsv": "label\ttext\n" + "".join(f"{line.count('a') / 3}\t{line}\n" for line in LINES),
    "p.tsv": "source\ttarget\n" + "".join(f"{line}\t{line[::-1]}\n" for line in LINES),
    "t.conll": "\n".join("".join(f"{word} {word[0].upper()}\n" for word in line.split()) for line in LINES),
}
SMALL = {"type": "gru", "hidden_size": 8}
TRAINING = {"batch_size": 4, "max_steps": 3, "save_every": 1, "log_every": 1, "evaluate_every": 2, "sequence_length": 8}
EXAMPLES = {"valid_fraction": 0.3}
RUNS: dict[str, dict[str, Any]] = {
    "language": {
        "data": {"train": "a.txt"},
        "model": SMALL,
        "tokenizer": "word",
        "training": {**TRAINING, "optimizer": "adamw"},
    },
    "ngrams": {"data": {"train": "a.txt"}, "model": {"type": "ngram", "order": 3}},
    "classify": {"task": "classify", "data": {"train": "l.tsv", **EXAMPLES}, "model": SMALL, "training": TRAINING},
    "regress": {"task": "regress", "data": {"train": "n.tsv", **EXAMPLES}, "model": SMALL, "training": TRAINING},
    "tag": {"task": "tag", "data": {"train": "t.conll", **EXAMPLES}, "model": SMALL, "training": TRAINING},
    "translate": {
        "task": "translate",
        "data": {"train": "p.tsv", **EXAMPLES},
        "model": {"encoder": {"hidden_size": 8}, "decoder": {"hidden_size": 8}},
        "search": {"max_tokens": 4, "beam_size": 2},
        "training": TRAINING,
    },
}
FILES = ("config.yaml", "*.json", "data/*.json", "metrics.jsonl")
HUGGING_FACE: dict[str, dict[str, Any]] = {
    "gpt2": {
        "pattern": [{"attention": {"bias": True, "num_heads": 2}}, {"feedforward": {"activation": "gelu"}}],
        "positions": "learned",
        "max_positions": 20,
    },
    "llama": {
        "pattern": [{"attention": {"positions": "rotary", "context": 20, "num_heads": 2}}, {"swiglu": {}}],
        "norm_type": "rms",
    },
    "mixtral": {
        "pattern": [
            {"attention": {"positions": "rotary", "context": 20, "window": 9, "num_heads": 2}},
            {"experts": {"num_experts": 3}},
        ],
        "norm_type": "rms",
    },
    "mamba": {"pattern": [{"mamba": {"state_size": 3}}], "norm_type": "rms"},
}


def train_all(folder: Path) -> dict[str, Path]:
    """A finished run of every task."""
    import elman

    for name, text in DATA.items():
        (folder / name).write_text(text)
    runs = {}
    for name, recipe in RUNS.items():
        data = {**recipe["data"], "train": str(folder / recipe["data"]["train"])}
        runs[name] = folder / name
        for _ in elman.iterate(
            {"device": "cpu", **recipe, "data": data, "generation": {"max_tokens": 3}}, run=runs[name]
        ):
            pass
    return runs


def copied(runs: dict[str, Path], path: Path) -> tuple[Path, str]:
    """A copy of a run beside a file named `RUN:FOLDER:FILE`, which replaces its own one there; and its name there."""
    name, *parts = path.name.split(":")
    copy = path.parent / "run"
    shutil.rmtree(copy, ignore_errors=True)
    shutil.copytree(runs[name], copy)
    path.rename(copy.joinpath(*parts))
    return copy, "/".join(parts)


def examples(runs: dict[str, Path], *patterns: str) -> dict[str, bytes]:
    """The files of runs that match, by the names that `copied` reads."""
    files = [(name, path) for name, run in runs.items() for one in patterns for path in sorted(run.glob(one))]
    return {":".join([name, *path.relative_to(runs[name]).parts]): path.read_bytes() for name, path in files}


def run_kinds(folder: Path) -> dict[str, Kind]:
    runs = train_all(folder)

    def of_runs(path: Path, dice: random.Random) -> None:
        """Loaded, asked, evaluated or resumed."""
        from elman import load
        from elman.pipeline.evaluate import evaluate_run
        from elman.runs import FileManifest

        run, name = copied(runs, path)
        if name != "manifest.json":
            FileManifest(run).accept()
        choice = dice.randrange(4)
        if choice == 0:
            evaluate_run(run, device="cpu")
        elif choice == 1:
            resume(run)
        else:
            trained = load(run, "cpu")
            if trained.task.generates_text:
                list(islice(trained.stream("the", max_tokens=3), 3))
                trained.score("the cat")
            else:
                list(trained.predict(["the cat", "x"]))

    def of_checkpoints(path: Path, dice: random.Random) -> None:
        """Resumed from facts that are changed, and signed."""
        from elman.runs.manifest import MANIFEST, make_manifest

        run, name = copied(runs, path)
        place = (run / name).parent
        if not name.endswith(MANIFEST):
            contents = {one.name: one.read_bytes() for one in place.iterdir() if one.name != MANIFEST}
            (place / MANIFEST).write_bytes(make_manifest(int(place.name[5:13]), contents))
        resume(run)

    return {
        "run": Kind(examples(runs, *FILES), of_runs, share=0.05),
        "checkpoint": Kind(examples(runs, "last/*/*.json"), of_checkpoints, share=0.05),
    }


def resume(run: Path) -> None:
    import elman

    for _ in elman.iterate(run=run, resume=True, overrides=None):
        pass


def race_kind(folder: Path) -> Kind:
    """Results, classes, speeds and sources of a race, and its table of results."""
    from elman.comparison import RaceRun, compare, gather, read_results
    from elman.comparison.race_figures import race_figures
    from elman.comparison.report import report_page
    from elman.comparison.results import files_of_race
    from elman.runs import FileManifest

    (folder / "a.txt").write_text(TEXT)
    race = {
        "entrants": {"gru": {"hidden_size": 8}, "ngram": {"order": 2}},
        "parameters": 0,
        "tokens": 200,
        "seeds": 2,
        "trials": 1,
        "extra_trials": 0,
        "recipe": {
            "data": {"train": str(folder / "a.txt")},
            "tokenizer": "word",
            "device": "cpu",
            "training": TRAINING,
        },
    }
    home = folder / "race"
    compare(race, home, workers=1)
    files = [*home.glob("*/seed-*/*.json"), *home.glob("*/seed-*/*.jsonl"), *home.glob("*.json*"), *home.glob("*.yaml")]
    given = {":".join(["race", *path.relative_to(home).parts]): path.read_bytes() for path in files}

    def read(path: Path, dice: random.Random) -> None:
        copy, name = copied({"race": home}, path)
        if not name.endswith("manifest.json"):
            FileManifest((copy / name).parent).accept()
        if name == "results.jsonl":
            read_results(copy)
            return
        from elman.comparison.race import read_race

        running = RaceRun(read_race(copy), copy, workers=1, resume=True)
        for event in running.events():
            if event.kind == "started":
                return  # a job without results: its training is not of interest here
        found = gather(running)
        with files_of_race(copy):  # as write_report does, which also draws
            report_page(found, running, race_figures(found, running.jobs), ["elman compare"])

    return Kind(given, read, share=0.02)


def hugging_face_kind(folder: Path) -> Kind:
    """config.json and its neighbours, beside unchanged weights."""
    import safetensors.torch

    from elman.models import MODELS
    from elman.models.hugging_face import export_contents
    from elman.pipeline.importing import import_folder

    homes, given = {}, {}
    shared = {"residual": True, "norm": "pre", "output_bias": False, "hidden_size": 8}
    bert = {
        "type": "masked",
        "residual": True,
        "pattern": [{"two-way-attention": {"bias": True, "num_heads": 2}}, {"feedforward": {}}],
        "hidden_size": 8,
        "positions": "learned",
        "max_positions": 20,
        "norm": "post",
        "embedding_norm": True,
        "output_bias": True,
        "head": "dense",
    }
    for name, settings in {
        **{key: {"type": "stack", **shared, **own} for key, own in HUGGING_FACE.items()},
        "bert": bert,
    }.items():
        kind = MODELS[str(settings["type"])]
        torch.manual_seed(1)
        _, config, tensors = export_contents(kind(kind.Config.make(settings), 20))
        homes[name] = folder / name
        homes[name].mkdir()
        extra: dict[str, Any] = {"eos_token_id": [1, 2], "bos_token_id": 0, "mask_token_id": 3}
        contents = {
            "config.json": {**config, "eos_token_id": 1},
            "generation_config.json": extra,
            "tokenizer_config.json": {"eos_token": {"content": "a"}, "mask_token": "b"},
            "model.safetensors.index.json": {"weight_map": dict.fromkeys(tensors, "model.safetensors")},
        }
        for file, content in contents.items():
            (homes[name] / file).write_text(json.dumps(content))
            given[f"{name}:{file}"] = (homes[name] / file).read_bytes()
        safetensors.torch.save_file(tensors, homes[name] / "model.safetensors", {"format": "pt"})
    given |= {f"{name}:config.json": (home / "config.json").read_bytes() for name, home in homes.items()}
    given |= {"llama:model.safetensors": (homes["llama"] / "model.safetensors").read_bytes()}

    def read(path: Path, dice: random.Random) -> None:
        home, _ = copied(homes, path)
        if dice.random() < 0.2:
            (home / "model.safetensors").rename(home / "shard.safetensors")
        target = home.with_name("imported")
        shutil.rmtree(target, ignore_errors=True)
        import_folder(home, target)

    return Kind(given, read, share=0.4)


def folder_kinds() -> dict[str, Callable[[Path], Kind]]:
    def lazily() -> Iterator[tuple[str, Callable[[Path], Kind]]]:
        for name in ("run", "checkpoint"):
            yield name, lambda folder, name=name: run_kinds(folder)[name]  # type: ignore[misc]
        yield "race", race_kind
        yield "hugging face", hugging_face_kind

    return dict(lazily())
