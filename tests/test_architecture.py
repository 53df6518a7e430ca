"""Architecture: layered imports, light start-up, no unsafe calls, no task named outside of its folder."""

import ast
from functools import cache
from pathlib import Path

import pytest
from processes import run_python

ROOT = Path(__file__).parent.parent
PACKAGE = ROOT / "elman"
TOP = ["errors", "lazy", "registry", "plain_yaml", "config", "jsonable", "shapes", "files", "limits", "untrusted"]
TOP += ["memory", "processes", "ray_cluster"]
PACKAGES = ["corpus", "tokenizers", "batches", "ops", "compiler", "recurrence", "cells", "layers", "models", "training"]
PACKAGES += [
    "runs",
    "evaluation",
    "generation",
    "figures",
    "inspection",
    "pipeline",
    "export",
    "comparison",
    "serving",
    "studio",
]
PACKAGES += ["bench", "cli"]
FILES = sorted(PACKAGE.rglob("*.py"))


def package_of(module: str) -> str | None:
    parts = module.split(".")
    return parts[1] if parts[0] == "elman" and len(parts) > 1 else None


@cache
def parsed(path: Path) -> ast.Module:
    return ast.parse(path.read_text())


def imports(path: Path) -> list[str]:
    names = []
    for node in ast.walk(parsed(path)):
        if isinstance(node, ast.ImportFrom) and node.module:
            if node.module == "elman":
                names += [f"elman.{alias.name}" for alias in node.names]
            else:
                names.append(node.module)
        elif isinstance(node, ast.Import):
            names += [alias.name for alias in node.names]
    return names


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(ROOT)))
def test_package_imports_only_from_earlier_packages(path):
    here = path.relative_to(PACKAGE).parts
    if len(here) == 1:
        allowed = set(TOP) if path.stem not in ("__main__",) else {*TOP, "cli"}
    else:
        allowed = {*TOP, *PACKAGES[: PACKAGES.index(here[0]) + 1]}
    wrong = [name for name in imports(path) if package_of(name) is not None and package_of(name) not in allowed]
    assert not wrong, f"{path.relative_to(ROOT)} imports {wrong} from later packages"


def test_every_package_is_ordered_and_documented_in_design():
    folders = {path.name for path in PACKAGE.iterdir() if path.is_dir() and path.name != "__pycache__"}
    assert folders <= set(PACKAGES)
    design = (ROOT / "docs" / "design.md").read_text()
    assert all(f"  {folder}/" in design for folder in folders)


def test_importing_the_package_loads_nothing_heavy():
    code = "import sys, elman, elman.cli.main; print([m for m in ('torch', 'numpy', 'matplotlib') if m in sys.modules])"
    found = run_python("-c", code, check=True)
    assert found.stdout.strip() == "[]"


def test_every_public_name_can_be_imported():
    import elman

    assert all(getattr(elman, name) is not None for name in elman.__all__)


TASKS = PACKAGE / "pipeline" / "tasks"
TASK_FOLDERS = sorted(path.parent for path in TASKS.glob("*/task.py"))


@cache
def task_names() -> tuple[set[str], set[str]]:
    """Names of tasks, and classes of their folders."""
    names, classes = set(), set()
    for path in TASK_FOLDERS:
        for file in path.glob("*.py"):
            for node in parsed(file).body:
                if isinstance(node, ast.ClassDef):
                    classes.add(node.name)
                    calls = [one for one in node.decorator_list if isinstance(one, ast.Call)]
                    names |= {one.args[0].value for one in calls if ast.unparse(one.func) == "TASKS.register"}
    return names, classes


def mentions(path: Path) -> set[str]:
    """Tasks that a module refers to: by their folders or classes, or from the pipeline on by their names."""
    (names, classes), tree, found = task_names(), parsed(path), set()
    folders = tuple(f"elman.pipeline.tasks.{folder.name}" for folder in TASK_FOLDERS)
    found |= {name for name in imports(path) if name.startswith(folders)}
    package = path.relative_to(PACKAGE).parts[0]
    later = package in PACKAGES[PACKAGES.index("pipeline") :]  # earlier ones have masked models and tags of their own
    for node in ast.walk(tree):
        if isinstance(node, ast.Name) and node.id in classes:
            found.add(node.id)
        if isinstance(node, ast.Constant) and node.value in names and later:
            found.add(node.value)
    return found


def test_task_names_and_classes_are_found():
    assert len(TASK_FOLDERS) >= 6
    names, classes = task_names()
    assert {"classify", "regress"} <= names
    assert {"Classify", "Regressor"} <= classes


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(ROOT)))
def test_tasks_are_named_only_in_their_own_folder(path):
    """Catches `if task == "tag"` in the recipe, and with an import of a task's class in a race."""
    if path == TASKS / "__init__.py" or any(folder in path.parents for folder in TASK_FOLDERS):
        return
    assert not mentions(path), f"{path.relative_to(ROOT)} knows of {sorted(mentions(path))}"


FORBIDDEN = {"pickle", "dill", "joblib", "marshal", "shelve"}


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(ROOT)))
def test_nothing_in_the_package_can_run_code_from_data(path):
    """The list of exceptions is empty."""
    tree = parsed(path)
    assert not FORBIDDEN & {name.split(".")[0] for name in imports(path)}
    for node in ast.walk(tree):
        if isinstance(node, ast.Call):
            called = ast.unparse(node.func)
            assert called not in ("eval", "exec", "torch.load", "yaml.load", "os.system"), f"{called} in {path}"
            for keyword in node.keywords:
                bad = keyword.arg in ("shell", "allow_pickle", "trust_remote_code")
                assert not (bad and ast.unparse(keyword.value) == "True"), f"{keyword.arg} in {path}"
