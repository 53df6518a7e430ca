"""What every language model offers, counted or trained, and the names they go by."""

from typing import Any, ClassVar, Protocol, runtime_checkable

from torch import Tensor

from elman.config import Config
from elman.registry import Registry
from elman.shapes import Lengths, State, Token, Tokens


@runtime_checkable
class SequenceModel(Protocol):
    """A distribution over the next token that carries its past as a value."""

    vocab_size: int

    def initial_state(self, batch: int) -> State: ...

    def forward(
        self, tokens: Tokens, state: State | None = None, lengths: Lengths | None = None
    ) -> tuple[Tensor, State]: ...

    def step(self, token: Token, state: State) -> tuple[Tensor, State]: ...

    def losses(
        self, inputs: Tokens, targets: Tokens, state: State | None = None, lengths: Lengths | None = None
    ) -> tuple[Tensor, State]: ...


class ModelClass(Protocol):
    """Built as `Model(config, vocab_size)`; its `Config` holds every default."""

    name: ClassVar[str]
    Config: ClassVar[type[Config]]

    def __call__(self, config: Any, vocab_size: int) -> SequenceModel: ...


MODELS: Registry[Any] = Registry("model")
