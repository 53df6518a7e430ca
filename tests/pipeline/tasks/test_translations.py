"""What holds of translations, whatever model writes them."""

import pytest
import torch

from elman.models import TRANSLATORS
from elman.pipeline.recipe import read_recipe
from elman.pipeline.tasks import TASKS
from elman.tokenizers import train_tokenizer

DRAWS = {"choose": "sample", "seed": 1}
WAYS = [(kind, {}) for kind in TRANSLATORS] + [("encoder-decoder", DRAWS), ("transducer", DRAWS)]


@pytest.mark.parametrize(("kind", "search"), WAYS, ids=str)
def test_nothing_is_written_for_an_empty_line_and_its_neighbours_do_not_notice(kind, search):
    """Training leaves pairs with an empty side out. Catches: words that every kind of model made of nothing; draws
    that depend on the lines which were asked."""
    settings = {"model": {"type": kind}, "data": {"train": "x.tsv"}, "search": search | {"max_tokens": 9}}
    recipe = read_recipe({"task": "translate", **settings})
    torch.manual_seed(0)
    tokens = train_tokenizer({"type": "character"}, ["abc "])
    translate = TASKS["translate"]
    task = translate(tokens, tokens)
    model = task.build(recipe.model)
    lines = ["ab", "", "cab", "  ", "ab"]
    found = list(task.predict(model, lines, recipe, True))
    assert [found[place]["target"] for place in (1, 3)] == ["", ""]
    assert [found[place]["candidates"] for place in (1, 3)] == [[], []]
    others = list(task.predict(model, ["ab", "c", "cab", "c", "ab"], recipe, True))
    for place in (0, 2, 4):
        texts = [[one["target"] for one in answers[place]["candidates"]] for answers in (found, others)]
        assert texts[0] == texts[1] != []
