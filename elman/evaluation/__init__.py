"""Evaluation: likelihood, classification, tagging, translation, and their confidence intervals."""

from typing import TYPE_CHECKING

from elman.lazy import lazy_names

if TYPE_CHECKING:
    from elman.evaluation.classification import score_label_sets, score_labels
    from elman.evaluation.likelihood import evaluate
    from elman.evaluation.score import Score
    from elman.evaluation.significance import bootstrap_interval, paired_difference, paired_scores, resample_interval
    from elman.evaluation.tagging import entities, score_tags
    from elman.evaluation.translation import edit_distance, score_translations

__getattr__, __dir__ = lazy_names(__name__, __file__)
