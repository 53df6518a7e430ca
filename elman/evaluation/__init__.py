"""Judging models: likelihood, scores of single texts, distance to the truth, intervals."""

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
    from elman.evaluation.tagging import TaggingScore, entities, judge_tags
    from elman.evaluation.translation import Measure, edit_distance, judge_translations, paired_bleu, why_no_bleu

__all__ = [
    "Agreement",
    "Classification",
    "Comparison",
    "Difference",
    "EvaluationConfig",
    "Excess",
    "Likelihood",
    "Measure",
    "MultiLabel",
    "PerLabel",
    "Score",
    "TaggingScore",
    "agreement",
    "bootstrap_interval",
    "compare",
    "edit_distance",
    "entities",
    "evaluate",
    "excess",
    "judge_tags",
    "judge_translations",
    "paired_bleu",
    "paired_difference",
    "paired_scores",
    "resample_interval",
    "score_label_sets",
    "score_labels",
    "score_texts",
    "why_no_bleu",
]

__getattr__, __dir__ = lazy_names(__name__, __file__)
