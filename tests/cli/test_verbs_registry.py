"""What a new verb or option takes: one file and one name for a verb, one entry for an option of all recipe verbs."""

import re
import sys

from typer.testing import CliRunner

from elman.cli import main, recipe_options
from elman.cli.recipe_options import RECIPE_OPTIONS
from elman.cli.verbs import VERBS

VERB = '''
"""elman shout: a verb."""

from elman.cli.verbs import verb


@verb("shout")
def shout(text: str) -> None:
    """Print a text in capitals."""
    print(text.upper())
'''


def help_of(verb, app=None):
    return CliRunner().invoke(app or main.app, [verb, "--help"], env={"COLUMNS": "200"}).output


def test_a_new_verb_is_a_module_and_its_name_in_main(tmp_path, monkeypatch):
    (tmp_path / "shout.py").write_text(VERB)
    monkeypatch.setattr("elman.cli.__path__", [*sys.modules["elman.cli"].__path__, str(tmp_path)])
    try:
        app = main.build_app([*main.MODULES, "shout"])
    finally:
        VERBS.pop("shout", None)
        sys.modules.pop("elman.cli.shout", None)
    assert CliRunner().invoke(app, ["shout", "hello"]).output == "HELLO\n"
    assert "Print a text in capitals" in CliRunner().invoke(app, ["--help"]).output


def test_verbs_are_listed_in_the_order_of_their_modules():
    assert list(VERBS)[:6] == ["init", "check", "train", "compare", "sweep", "eval"]
    assert len(VERBS) == len(main.MODULES)


def test_verbs_of_recipes_have_the_same_options_with_the_same_help():
    for verb in ("train", "check", "init", "compare"):
        shown = help_of(verb)
        for name in RECIPE_OPTIONS:
            if verb != "compare" or name not in ("model", "start_from", "size", "params", "seed"):
                assert re.search(rf"--{name.replace('_', '-')}[ ,]", shown)
                assert RECIPE_OPTIONS[name].option.help[:40] in " ".join(shown.split())


def test_a_new_option_is_one_entry(monkeypatch, tmp_path):
    """Catches: an option whose setting is left out."""
    entry = recipe_options._option(int, "training.batch_size", help="Sequences per update.", default="32")
    monkeypatch.setitem(recipe_options.RECIPE_OPTIONS, "batch_size", entry)
    before = dict(VERBS)
    try:
        for name in ("init", "check", "train"):
            monkeypatch.delitem(sys.modules, f"elman.cli.{name}")
        app = main.build_app()
    finally:
        VERBS.update(before)
    for verb in ("init", "check", "train"):
        assert "Sequences per update." in help_of(verb, app)
    path = tmp_path / "recipe.yaml"
    made = CliRunner().invoke(app, ["init", str(path), "--batch-size", "7"], obj=[])
    assert made.exit_code == 0, made.output
    assert "batch_size: 7" in path.read_text()


def test_every_option_of_every_verb_has_a_help_text():
    from typer.main import get_command

    def commands(command, path):
        yield path, command
        for name, inner in getattr(command, "commands", {}).items():
            yield from commands(inner, [*path, name])

    missing = [
        " ".join([*path, parameter.name])
        for path, command in commands(get_command(main.app), [])
        for parameter in command.params
        if not getattr(parameter, "help", None)
    ]
    assert not missing
