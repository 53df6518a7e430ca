"""The decoder: a language model of the target that has the source in its state."""

from collections.abc import Iterable
from typing import ClassVar, NamedTuple

import torch
from torch import Tensor, nn

from elman.errors import ConfigError
from elman.layers.cross_attention import CrossAttention
from elman.models.encoder_decoder.config import DecoderConfig
from elman.models.encoder_decoder.encoder import ends
from elman.models.language_model import LanguageModel
from elman.models.stack import Block
from elman.ops.state import choose, map_state, tensors
from elman.ops.taps import scope, stepping, tap
from elman.shapes import Lengths, Sequence, State, Step, Token, Tokens


class DecoderState(NamedTuple):
    """All that the next word depends on; rows can be taken like those of any state."""

    layers: State  # of the stack, with the source that its layers look at
    source: State  # what the top looks at, or nothing
    summary: Tensor  # of the source (batch, width); of width 0 where no step needs it
    fed: Tensor  # what the output layer made of the last step (batch, width); of width 0 without input feeding


class Decoder(LanguageModel):
    """Word vectors, a causal stack, a look at the source, and a distribution over the next word.

    ```
    word ─┬─► join ─► stack ─► h ─┬─► tanh(W [h; c; s]) ─► logits
    s ────┤                       └─► look at the source ─► c
    last tanh(…) (input feeding)
    ```
    """

    Config = DecoderConfig
    sites: ClassVar = {
        **LanguageModel.sites,
        "readout": "top of the stack and what was read of the source, mixed: what the vocabulary is compared with",
        "cross-attention.weights": "share of each place of the source in what is read: (time, heads, places) (α)",
    }
    config: DecoderConfig

    def __init__(self, config: DecoderConfig, vocab_size: int, source_size: int):
        super().__init__(config, vocab_size)
        self.source_size, ways = source_size, config.context
        width, top = self.embedding.embedding_dim, self.stack.output_size
        self.looking = {i: block.layer for i, block in self._numbered() if isinstance(block.layer, CrossAttention)}
        for layer in self.looking.values():
            if layer.input_size != top:
                raise ConfigError(
                    f"cross-attention needs layers of one width, but it is {layer.input_size} wide and the top {top}"
                )
        self.attention = CrossAttention(config.attention, top) if config.attention else None
        looks = self.attention is not None or bool(self.looking)
        self.adapt = nn.Linear(source_size, top, bias=False) if looks and source_size != top else None
        summary = 2 * source_size
        joined = width + summary * ("input" in ways) + top * config.input_feeding
        self.join = nn.Linear(joined, width) if joined > width else None
        read = top + top * (self.attention is not None) + summary * ("output" in ways)
        self.readout = nn.Linear(read, top) if read > top else None
        self.bridge = self._bridge(summary) if "state" in ways else nn.ModuleDict()

    def initial_state(self, batch: int) -> DecoderState:
        """Before a source without any word."""
        empty = self.embedding.weight.new_zeros(batch, 0, self.source_size)
        return self.begin(empty, torch.zeros(batch, dtype=torch.long, device=empty.device))

    def begin(self, source: Sequence, lengths: Lengths) -> DecoderState:
        """The state before the first word, with all of the source that will be needed."""
        ways, batch = self.config.context, len(source)
        summary = ends(source, lengths)
        places = source if self.adapt is None else self.adapt(source)
        states = list(self.stack.initial_state(batch))
        first = len(states) - len(self.stack.layers)
        for index, layer in self.looking.items():
            with scope(f"layers.{index}.{layer.name}"):
                states[first + index] = layer.read(places, lengths)
        for name, bridge in self.bridge.items():
            place = first + int(name)
            numbers = iter(torch.tanh(bridge(summary)).split(_widths(states[place]), -1))
            states[place] = map_state(lambda part, new=numbers: next(new).to(part.dtype), states[place])
        seen: State = ()
        if self.attention is not None:
            with scope(CrossAttention.name):
                seen = self.attention.read(places, lengths)
        kept = summary if {"input", "output"} & {*ways} else summary[:, :0]
        fed = summary.new_zeros(batch, self.stack.output_size * self.config.input_feeding)
        return DecoderState(tuple(states), seen, kept, fed)

    def step(self, token: Token, state: DecoderState) -> tuple[Tensor, DecoderState]:
        """Logits (batch, vocabulary) after one more word, and the new state."""
        with stepping():
            x = self._joined(tap("embedding", self.embedding(token) * self.scale), state)
            top, layers = self.stack.step(x, state.layers)
            with stepping(False):
                features = self._read(top.unsqueeze(1), state).squeeze(1)
            return tap("output.logits", self.logits(features)), self._after(state, layers, features)

    def features(
        self, tokens: Tokens, state: DecoderState | None, lengths: Lengths | None
    ) -> tuple[Tensor, DecoderState]:
        """What the vocabulary is compared with, at each position of a target that is known."""
        config, stack = self.config, self.stack
        state = self.initial_state(len(tokens)) if state is None else state
        drawn = config.scheduled_sampling if self.training else 0.0
        if config.input_feeding or drawn:
            features, state = self._one_by_one(tokens, state, lengths, drawn)
        else:
            top, layers = stack(self._joined(self._given(tokens), state), state.layers, lengths)
            features, state = self._read(top, state), state._replace(layers=layers)
        return stack.drop(features, config.dropout if config.output_dropout is None else config.output_dropout), state

    def _one_by_one(
        self, tokens: Tokens, state: DecoderState, lengths: Lengths | None, drawn: float
    ) -> tuple[Tensor, DecoderState]:
        """Each step needs what the last one gave: the output layer's mix, or a word drawn from its distribution."""
        found: list[Tensor] = []
        for time in range(tokens.shape[1]):
            given = tokens[:, time]
            if drawn and found:
                own = torch.multinomial(self.logits(found[-1].detach()).float().softmax(-1), 1).squeeze(1)
                given = torch.where(torch.rand(len(given), device=given.device) < drawn, own, given)
            x = self._joined(self._given(given.unsqueeze(1)), state)
            top, layers = self.stack(x, state.layers)
            features = self._read(top, state).squeeze(1)
            after = self._after(state, layers, features)
            state = after if lengths is None else choose(lengths.to(given.device) > time, after, state)
            found.append(features)
        if not found:
            return self.embedding.weight.new_zeros(*tokens.shape, self.stack.output_size), state
        return torch.stack(found, 1), state

    def _given(self, tokens: Tokens) -> Sequence:
        x = tap("embedding", self._embed(tokens))
        return self.stack.drop(
            x, self.config.dropout if self.config.input_dropout is None else self.config.input_dropout
        )

    def _joined(self, x: Tensor, state: DecoderState) -> Tensor:
        """Word vectors of a sequence or a step with what else comes in at every step."""
        if self.join is None:
            return x
        parts = [state.summary] if "input" in self.config.context else []
        parts += [state.fed] if self.config.input_feeding else []
        return self.join(torch.cat([x, *(_beside(part, x) for part in parts)], -1))

    def _read(self, top: Sequence, state: DecoderState) -> Sequence:
        """The top of the stack, with what it finds in the source."""
        parts = [top]
        if self.attention is not None:
            with scope(CrossAttention.name):
                parts.append(self.attention(top, state.source)[0])
        if "output" in self.config.context:
            parts.append(_beside(state.summary, top))
        return top if self.readout is None else tap("readout", torch.tanh(self.readout(torch.cat(parts, -1))))

    def _after(self, state: DecoderState, layers: State, features: Step) -> DecoderState:
        return state._replace(layers=layers, fed=features if self.config.input_feeding else state.fed)

    def _bridge(self, summary: int) -> nn.ModuleDict:
        """For each layer whose state is vectors, what makes its first state of the summary."""
        widths = {str(i): _widths(block.layer.initial_state(1)) for i, block in self._numbered()}
        bridges = {name: nn.Linear(summary, sum(found)) for name, found in widths.items() if sum(found)}
        if not bridges:
            raise ConfigError(
                "decoder.context: state gives the source to recurrent layers, and the decoder has none; "
                "take lstm or gru, or give it as input, as output, or by attention"
            )
        return nn.ModuleDict(bridges)

    def _numbered(self) -> Iterable[tuple[int, Block]]:
        return enumerate(self.stack.blocks())


def _widths(state: State) -> list[int]:
    """Of each part, if the state is vectors of numbers and nothing else; nothing for caches, windows and counters."""
    parts = [part for _, part in tensors(state)]
    return [part.shape[1] for part in parts] if all(p.dim() == 2 and p.is_floating_point() for p in parts) else []


def _beside(part: Step, x: Tensor) -> Tensor:
    return part.to(x.dtype) if x.dim() == 2 else part.to(x.dtype).unsqueeze(1).expand(-1, x.shape[1], -1)
