"""Small models with texts that they read, for tests that look inside."""

from typing import Any

import torch

from elman.inspection.inspected_text import InspectedText, inspect_classifier, inspect_language_model
from elman.models import Classifier, ClassifierConfig, LanguageModel, StackConfig

WORDS = ["<eos>", "the", "cat", "dog", "sat", "was", "were", "not", "good", "bad"]


def language(
    pattern: list[Any] | str = "lstm", ids: tuple[int, ...] = (1, 2, 4, 1, 3, 5), **settings: Any
) -> InspectedText:
    torch.manual_seed(0)
    model = LanguageModel(StackConfig.make({"pattern": pattern, "hidden_size": 8, **settings}), len(WORDS))
    return inspect_language_model(model, ids, WORDS.__getitem__, 0)


def classifier(
    pattern: list[Any] | str = "lstm", ids: tuple[int, ...] = (1, 2, 5, 7, 8), **settings: Any
) -> InspectedText:
    torch.manual_seed(0)
    model = Classifier(ClassifierConfig.make({"pattern": pattern, "hidden_size": 8, **settings}), len(WORDS), 3)
    return inspect_classifier(model, ids, [WORDS[id] for id in ids], ["x", "y", "z"])
