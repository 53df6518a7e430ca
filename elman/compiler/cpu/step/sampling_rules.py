"""Sampling settings and histories of texts as C structs (sampling.h)."""

import ctypes
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

NO_TOKEN = -1  # padding of the window of recent tokens


class Rules(ctypes.Structure):
    """Sampling settings; see `elman.generation.sampling` for their meaning."""

    _fields_ = [
        *((name, ctypes.c_int64) for name in ("vocab", "top_k", "window", "end", "start", "stops", "excluded")),
        *((name, ctypes.c_double) for name in ("temperature", "top_p", "penalty", "min_p", "presence", "frequency")),
        ("biases", ctypes.c_int64),
        *((name, ctypes.c_void_p) for name in ("biased", "bias")),
    ]

    def __init__(self, vocab: int, logit_bias: Mapping[int, float] | None = None, **settings: Any):
        """Settings that are not given change nothing."""
        neutral = {"window": 1, "excluded": NO_TOKEN, "temperature": 1.0, "top_p": 1.0, "penalty": 1.0}
        super().__init__(vocab, **{**neutral, **settings})
        tokens = [*(logit_bias or {})]
        if wrong := [token for token in tokens if not 0 <= token < vocab]:
            raise ValueError(f"logit_bias: token {wrong[0]} is not among the {vocab} tokens")
        self._tokens, self._values = np.array(tokens, np.int64), np.array([*(logit_bias or {}).values()], np.float64)
        self.biases, self.biased, self.bias = len(tokens), self._tokens.ctypes.data, self._values.ctypes.data


class History(ctypes.Structure):
    """What the penalties of these rules know of a text: its last tokens, and how often each was generated."""

    _fields_ = [("recent", ctypes.c_void_p), ("counts", ctypes.c_void_p)]

    def __init__(self, rules: Rules, known: Sequence[int] = ()):
        """`known`: the text so far, of which nothing was generated."""
        super().__init__()
        last = list(known)[-rules.window :]
        self._recent = np.array([NO_TOKEN] * (rules.window - len(last)) + last, np.int64)
        self.recent = self._recent.ctypes.data
        self._counts = np.zeros(rules.vocab if rules.presence or rules.frequency else 0, np.int32)
        self.counts = self._counts.ctypes.data if len(self._counts) else None

    def count(self, token: int) -> None:
        """Counts a token as generated, as sampling does with those that it draws."""
        if len(self._counts):
            self._counts[token] += 1
