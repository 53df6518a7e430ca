"""Evaluation: likelihood, classification, tagging, translation, and their confidence intervals."""

from typing import TYPE_CHECKING

from elman.lazy import lazy_names

if TYPE_CHECKING:
    from elman.evaluation.classification import Classification, MultiLabel, PerLabel, score_label_sets, score_labels
    from elman.evaluation.config import EvaluationConfig
    from elman.evaluation.likelihood import Likelihood, evaluate
    from elman.evaluation.score import Score, score_texts
    from elman.evaluation.significance import (
        Difference,
        bootstrap_interval,
        paired_difference,
        paired_scores,
        resample_interval,
    )
    from elman.evaluation.synthetic import Agreement, Comparison, Excess, agreement, compare, excess
    from elman.evaluation.tagging import TaggingScore, entities, score_tags
    from elman.evaluation.translation import Metric, edit_distance, paired_bleu, score_translations, why_no_bleu

__getattr__, __dir__ = lazy_names(__name__, __file__)
