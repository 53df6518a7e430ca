"""Training settings; attribute docstrings are their help texts."""

from typing import Literal

from pydantic import Field

from elman.config import Config


class TrainingConfig(Config):
    """Maximum likelihood training with a stochastic gradient method and early stopping."""

    batch_size: int = Field(32, ge=1)
    """Sequences per update, over all processes: parallel streams of a text, or documents."""
    sequence_length: int = Field(64, ge=1)
    """Steps of truncated backpropagation through time: the state is carried over, the gradient is not."""
    carry_state: bool = True
    """Start each batch of a stream with the final state of the previous batch; false starts with a zero state."""
    jitter: bool = False
    """Vary the sequence length randomly from batch to batch (streams only), as AWD-LSTM does."""
    micro_batches: int = Field(1, ge=1)
    """Gradient accumulation: micro-batches per update, to save memory; the gradient equals that of the whole batch."""
    max_epochs: int = Field(10, ge=1)
    """Maximum number of passes over the training data."""
    max_steps: int = Field(0, ge=0)
    """Maximum number of updates; 0: limited by max_epochs only."""
    max_minutes: float = Field(0.0, ge=0)
    """Wall-clock limit in minutes; 0: none. A run that a time limit ended is not exactly reproducible."""
    optimizer: Literal["sgd", "adam", "adamw"] = "adamw"
    """Optimizer."""
    learning_rate: float | None = Field(None, gt=0)
    """Peak learning rate; null: 2e-3 (recurrent models: 1e-2 for fewer than 1000 updates) or, with adam and adamw, the
    smallest of 0.128 / width of self-attention, 1.024 / width of an LSTM and 0.512 / width of other cells, where that
    is less."""
    weight_decay: float = Field(0.0, ge=0)
    """Weight decay of matrices (decoupled with adamw); biases, normalization gains and decay rates are exempt."""
    momentum: float = Field(0.0, ge=0, lt=1)
    """Momentum of sgd."""
    betas: tuple[float, float] = (0.9, 0.999)
    """Betas of adam and adamw."""
    schedule: Literal["constant", "cosine", "plateau"] = "constant"
    """Learning rate schedule: constant, cosine decay to final_fraction, or division when validation plateaus."""
    warmup_steps: int | None = Field(None, ge=0)
    """Steps of linear warm-up; null: none, or with self-attention 100, but at most a tenth of all steps."""
    final_fraction: float = Field(0.05, ge=0, le=1)
    """Share of the peak learning rate that is left at the end of the cosine schedule."""
    plateau_divide: float = Field(4.0, gt=1)
    """Divisor of the learning rate when the validation loss plateaus."""
    plateau_patience: int = Field(0, ge=0)
    """Validations without improvement before the learning rate is divided."""
    averaging: Literal["none", "triggered", "moving"] = "none"
    """Weight averaging. moving: an exponential moving average (EMA) over about averaging_steps updates; triggered: the
    mean since the validation loss stopped improving (with sgd: NT-ASGD, Merity et al., 2018)."""
    averaging_window: int = Field(5, ge=1)
    """A triggered average starts when a loss is above the best one before the last averaging_window validations."""
    averaging_steps: int = Field(500, ge=1)
    """Time constant of the exponential moving average: each update has weight 1 / averaging_steps."""
    clip_grad_norm: float = Field(1.0, ge=0)
    """Maximum norm of the gradient; longer gradients are scaled down to it. 0: no clipping."""
    evaluate_every: int = Field(0, ge=0)
    """Steps between validations; 0: validate after each epoch."""
    patience: int = Field(0, ge=0)
    """Early stopping: validations without improvement before training stops; 0: no early stopping."""
    tolerance: float = Field(0.0, ge=0)
    """Smallest decrease of the validation loss (nats) that counts as an improvement."""
    milestones: list[tuple[int, float]] = Field(default_factory=list)
    """Losses that a validation must have reached by then, as pairs [step, loss], or training stops there; with another
    evaluation.choose_by that score, negative where higher is better. `elman sweep` stops hopeless trials with it."""
    precision: Literal["fp32", "tf32", "bf16", "fp16"] = "fp32"
    """Precision of matrix products; weights and states stay in fp32."""
    captured: bool | None = None
    """Replay updates on one GPU as CUDA graphs, one per batch shape, which saves the launches of hundreds of kernels.
    The learning rate is rounded to single precision. The WikiText-2 LSTM on one H200 trains nearly twice as fast.
    null: only where memory allows (free memory twice the peak so far) and all layers are elman's own: a graph of
    other layers would replay what Python computed once, random numbers and counters included."""
    non_finite: Literal["skip", "stop"] = "skip"
    """Reaction to a loss or gradient that is not finite: skip the update, or stop training."""
    max_skips: int = Field(3, ge=1)
    """Consecutive skipped updates before training stops."""
    log_every: int = Field(20, ge=1)
    """Steps between log entries."""
    save_minutes: float = Field(5.0, ge=0)
    """Maximum minutes between checkpoints; validations also save one, unless saving takes too much of the time."""
    save_every: int = Field(0, ge=0)
    """Steps between checkpoints; 0: by time and validations."""
