"""What to try next: every combination of a small space, random draws, or the tree-structured Parzen estimator (TPE).

A proposal is a pure function of the random seed, its number, and the outcomes of the trials that it is told of.
"""

import itertools
import math
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from elman.comparison.spaces import Choice, Interval, Space
from elman.errors import ConfigError, MissingExtra, brief

STARTUP = 10  # random trials before TPE has something to learn from
ATTEMPTS = 200  # draws until one is valid and new

Settings = dict[str, Any]


class Outcome(NamedTuple):
    """A trial that TPE learns from: its score, lower is better; none while it is not known."""

    settings: Settings
    score: float | None
    pruned_at: int = 0  # the step


def combinations(spaces: Mapping[str, Space]) -> float:
    """The number of different settings; infinite with an interval."""
    return math.prod(len(one.values) if isinstance(one, Choice) else math.inf for one in spaces.values())


class Search:
    """Proposes settings. `invalid` tells what is wrong with some, or is empty."""

    def __init__(self, kind: str, spaces: Mapping[str, Space], seed: int, invalid: Callable[[Settings], str]):
        self.kind, self.spaces, self.seed, self.invalid = kind, spaces, seed, invalid
        if kind == "tpe":
            _optuna()
        self._check()

    def propose(self, earlier: Sequence[Outcome]) -> Settings | None:
        """Settings of the next trial, different from all earlier ones; None where there are no others."""
        tried = [one.settings for one in earlier]
        if self.kind == "grid":
            return next((one for one in self._grid() if one not in tried and not self.invalid(one)), None)
        guided = [one for one in earlier if one.score is not None]
        if self.kind == "tpe" and len(guided) >= STARTUP:
            found = self._guided(earlier)
            if found not in tried and not self.invalid(found):
                return found
        return self._drawn(tried)

    def _check(self) -> None:
        """Every end of every space must be valid, with some settings of the others."""
        for key, space in self.spaces.items():
            for value in space.ends():
                dice = np.random.default_rng([self.seed, 0])
                problem = self.invalid({key: value})
                for _ in range(ATTEMPTS // 10 if problem and len(self.spaces) > 1 else 0):
                    others = {name: value if name == key else one.draw(dice) for name, one in self.spaces.items()}
                    if not self.invalid(others):
                        break
                else:
                    if problem:
                        raise ConfigError(f"--set {key}: {brief(value)} cannot be tried: {problem}")

    def _grid(self) -> Iterator[Settings]:
        values = [one.ends() for one in self.spaces.values()]
        return (dict(zip(self.spaces, one, strict=True)) for one in itertools.product(*values))

    def _drawn(self, tried: Sequence[Settings]) -> Settings | None:
        dice = np.random.default_rng([self.seed, len(tried)])
        for _ in range(ATTEMPTS):
            found = {key: space.draw(dice) for key, space in self.spaces.items()}
            if found not in tried and not self.invalid(found):
                return found
        return None

    def _guided(self, earlier: Sequence[Outcome]) -> Settings:
        """By Optuna; values of a choice go as their places, since it takes numbers and texts only."""
        optuna = _optuna()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", optuna.exceptions.ExperimentalWarning)
            sampler = optuna.samplers.TPESampler(
                seed=int(np.random.default_rng([self.seed, len(earlier)]).integers(2**31)),
                n_startup_trials=STARTUP,
                multivariate=True,
                constant_liar=True,
            )
        study = optuna.create_study(sampler=sampler)
        kinds = {key: _distribution(optuna, space) for key, space in self.spaces.items()}
        for one in earlier:
            params = {key: _parameter(space, one.settings[key]) for key, space in self.spaces.items()}
            study.add_trial(_trial(optuna, one, params, kinds))
        found = study.ask(kinds).params
        return {key: _value(space, found[key]) for key, space in self.spaces.items()}


def has_optuna() -> bool:
    try:
        _optuna()
    except MissingExtra:
        return False
    return True


def _optuna() -> Any:
    try:
        import optuna
    except ImportError:
        raise MissingExtra("a search by TPE", "optuna", "sweep") from None
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    return optuna


def _trial(optuna: Any, one: Outcome, params: Settings, kinds: Mapping[str, Any]) -> Any:
    """Of Optuna: complete, pruned or running."""
    state: dict[str, Any] = {"state": optuna.trial.TrialState.RUNNING}
    if one.score is not None and one.pruned_at:
        state = {"state": optuna.trial.TrialState.PRUNED, "intermediate_values": {one.pruned_at: one.score}}
    elif one.score is not None:
        state = {"state": optuna.trial.TrialState.COMPLETE, "value": one.score}
    return optuna.trial.create_trial(params=params, distributions=kinds, **state)


def _distribution(optuna: Any, space: Space) -> Any:
    if isinstance(space, Interval):
        kind = "IntDistribution" if space.whole else "FloatDistribution"
        return getattr(optuna.distributions, kind)(space.low, space.high, log=space.log)
    return optuna.distributions.CategoricalDistribution(range(len(space.ends())))


def _parameter(space: Space, value: Any) -> Any:
    return value if isinstance(space, Interval) else space.ends().index(value)


def _value(space: Space, parameter: Any) -> Any:
    return space.rounded(parameter) if isinstance(space, Interval) else space.ends()[parameter]
