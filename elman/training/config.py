"""How a model is trained: every setting once, with its help text."""

from typing import Literal

from pydantic import Field

from elman.config import Config


class TrainingConfig(Config):
    """Maximum likelihood by stochastic gradient descent, with a validation stop."""

    batch_size: int = Field(32, ge=1)
    """Rows trained together, over all processes: lanes of a stream, or documents."""
    sequence_length: int = Field(64, ge=1)
    """Steps of truncated backpropagation through time; the state is carried on, the gradient is not."""
    carry_state: bool = True
    """Begin each batch of a stream with the state that the one before it left; false lets each begin anew."""
    jitter: bool = False
    """Vary the sequence length from batch to batch (streams only), so that cuts fall elsewhere each time."""
    micro_batches: int = Field(1, ge=1)
    """Pieces in which a batch is computed, to save memory; the result equals that of the whole batch."""
    max_epochs: int = Field(10, ge=1)
    """Passes over the training data at the most."""
    max_steps: int = Field(0, ge=0)
    """Updates at the most; 0 leaves it to max_epochs."""
    max_minutes: float = Field(0.0, ge=0)
    """Wall-clock limit; 0 sets none. A run that ends by the clock cannot be repeated exactly."""
    optimizer: Literal["sgd", "adam", "adamw"] = "adamw"
    """Update rule."""
    learning_rate: float | None = Field(None, gt=0)
    """Peak step size; null takes 2e-3 or, of adam and adamw, what parts of the model bear if that is less: 0.128 /
    width of self-attention, 1.024 / width of an LSTM, 0.512 / width of other cells."""
    weight_decay: float = Field(0.0, ge=0)
    """Pull of the matrices towards zero (decoupled for adamw); biases, norms and rates are left alone."""
    momentum: float = Field(0.0, ge=0, lt=1)
    """Of sgd."""
    betas: tuple[float, float] = (0.9, 0.999)
    """Of adam and adamw."""
    schedule: Literal["constant", "cosine", "plateau"] = "constant"
    """Rate over time: as it is, falling to final_fraction along a cosine, or divided when validation stalls."""
    warmup_steps: int | None = Field(None, ge=0)
    """Steps over which the learning rate rises from zero; null takes none, with self-attention 100, or a tenth of all
    steps if that is less."""
    final_fraction: float = Field(0.05, ge=0, le=1)
    """Share of the learning rate left at the end of a cosine."""
    plateau_divide: float = Field(4.0, gt=1)
    """What the learning rate is divided by when validation stalls."""
    plateau_patience: int = Field(0, ge=0)
    """Validations without improvement that are tolerated before dividing."""
    averaging: Literal["none", "triggered", "moving"] = "none"
    """Keep a mean of the weights: triggered, of all since validation stopped improving (with sgd: NT-ASGD, Merity et
    al., 2018); moving, of the last averaging_steps or so, all along."""
    averaging_window: int = Field(5, ge=1)
    """A triggered average starts when no validation of the last so many beat the best one before them."""
    averaging_steps: int = Field(500, ge=1)
    """Updates over which a moving average forgets: each new one counts for 1 part in so many."""
    clip_grad_norm: float = Field(1.0, ge=0)
    """Longest gradient allowed; longer ones are shortened to it. 0 clips nothing."""
    evaluate_every: int = Field(0, ge=0)
    """Steps between validations; 0 validates after each epoch."""
    patience: int = Field(0, ge=0)
    """Validations without improvement before training stops; 0 never stops early."""
    tolerance: float = Field(0.0, ge=0)
    """Smallest fall of the validation loss (nats) that counts as improvement."""
    precision: Literal["fp32", "tf32", "bf16", "fp16"] = "fp32"
    """Arithmetic of matrix products; weights and states stay in single precision."""
    captured: bool | None = None
    """Repeat updates on one GPU as captured graphs, one for each length of batches: the host then launches one thing
    instead of hundreds. The learning rate is rounded to single precision. The WikiText-2 LSTM on one H200 trains nearly
    twice as fast. null does so where there is memory for it, twice what was taken so far, and all layers are of this
    package: of others, a graph would repeat what Python did once, numbers drawn or counted there included."""
    non_finite: Literal["skip", "stop"] = "skip"
    """What to do when loss or gradient is not a finite number: leave that update out, or stop."""
    max_skips: int = Field(3, ge=1)
    """Updates left out in a row before training stops after all."""
    log_every: int = Field(20, ge=1)
    """Steps between two entries of the log."""
    save_minutes: float = Field(5.0, ge=0)
    """Minutes between checkpoints at the most; there is also one after each validation that can afford it."""
    save_every: int = Field(0, ge=0)
    """Steps between checkpoints; 0 leaves it to the clock and the validations."""
