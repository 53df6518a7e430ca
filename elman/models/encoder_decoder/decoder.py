"""The decoder: a conditional language model with the source in its state."""

from typing import ClassVar, NamedTuple

import torch
from torch import Tensor, nn

from elman.errors import ConfigError
from elman.layers.cross_attention import CrossAttention
from elman.models.encoder_decoder.config import DecoderConfig
from elman.models.language_model import LanguageModel
from elman.ops.state import choose, map_state, tensors
from elman.ops.taps import scope, stepping, tap
from elman.shapes import Lengths, Sequence, State, Step, Token, Tokens


class DecoderState(NamedTuple):
    """Everything the next token depends on; rows can be selected as in any state."""

    layers: State  # of the stack, including the encoded source of its cross-attention layers
    source: State  # encoded source of the top attention, or empty
    summary: Tensor  # of the source (batch, width); width 0 if unused
    fed: Tensor  # last output vector (batch, width); width 0 without input feeding


class Decoder(LanguageModel):
    """Token embeddings, a causal stack, cross-attention, and a softmax over the next token.

    ```
    token ─┬─► join ─► stack ─► h ─┬─► tanh(W [h; c; s]) ─► logits
    s ─────┤                       └─► attention to the source ─► c
    last tanh(…) (input feeding)
    ```
    """

    Config = DecoderConfig
    sites: ClassVar = {
        **LanguageModel.sites,
        "readout": "output vector: top of the stack mixed with the attention context",
        "cross-attention.weights": "attention weight of each source position: (time, heads, places) (α)",
    }
    config: DecoderConfig

    def __init__(self, config: DecoderConfig, vocab_size: int, source_size: int):
        super().__init__(config, vocab_size)
        self.source_size, ways = source_size, config.context
        width, top = self.embedding.embedding_dim, self.stack.output_size
        layers = [block.layer for block in self.stack.blocks()]
        self.cross_attention = {i: layer for i, layer in enumerate(layers) if isinstance(layer, CrossAttention)}
        for layer in self.cross_attention.values():
            if layer.input_size != top:
                raise ConfigError(
                    f"cross-attention needs layers of equal width, but it is {layer.input_size} wide and the top {top}"
                )
        self.attention = CrossAttention(config.attention, top) if config.attention else None
        attends = self.attention is not None or bool(self.cross_attention)
        self.adapt = nn.Linear(source_size, top, bias=False) if attends and source_size != top else None
        summary = 2 * source_size
        joined = width + summary * ("input" in ways) + top * config.input_feeding
        self.join = nn.Linear(joined, width) if joined > width else None
        read = top + top * (self.attention is not None) + summary * ("output" in ways)
        self.readout = nn.Linear(read, top) if read > top else None
        self.bridge = self._bridge(summary) if "state" in ways else nn.ModuleDict()

    def initial_state(self, batch: int) -> DecoderState:
        """The state for an empty source."""
        empty = self.embedding.weight.new_zeros(batch, 0, self.source_size)
        return self.begin(empty, torch.zeros(batch, dtype=torch.long, device=empty.device))

    def begin(self, source: Sequence, lengths: Lengths) -> DecoderState:
        """The state before the first token, with everything that is needed of the source."""
        ways, batch = self.config.context, len(source)
        summary = ends(source, lengths)
        places = source if self.adapt is None else self.adapt(source)
        states = list(self.stack.initial_state(batch))
        first = len(states) - len(self.stack.layers)
        for index, layer in self.cross_attention.items():
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
        """Logits (batch, vocabulary) after one more token, and the new state."""
        with stepping():
            x = self._joined(tap("embedding", self.embedding(token) * self.scale), state)
            top, layers = self.stack.step(x, state.layers)
            with stepping(False):
                features = self._read(top.unsqueeze(1), state).squeeze(1)
            return tap("output.logits", self.logits(features)), self._after(state, layers, features)

    def features(
        self, tokens: Tokens, state: DecoderState | None, lengths: Lengths | None
    ) -> tuple[Tensor, DecoderState]:
        """The input of the output projection at each position, under teacher forcing."""
        state = self.initial_state(len(tokens)) if state is None else state
        sampled = self.config.scheduled_sampling if self.training else 0.0
        if self.config.input_feeding or sampled:
            features, state = self._one_by_one(tokens, state, lengths, sampled)
        else:
            top, layers = self.stack(self._joined(self._embedded(tokens), state), state.layers, lengths)
            features, state = self._read(top, state), state._replace(layers=layers)
        return self.stack.drop_output(features), state

    def _one_by_one(
        self, tokens: Tokens, state: DecoderState, lengths: Lengths | None, sampled: float
    ) -> tuple[Tensor, DecoderState]:
        """Step-by-step decoding for input feeding (needs the last output vector) and scheduled sampling (a sampled
        token)."""
        outputs: list[Tensor] = []
        for time in range(tokens.shape[1]):
            token = tokens[:, time]
            if sampled and outputs:
                own = torch.multinomial(self.logits(outputs[-1].detach()).float().softmax(-1), 1).squeeze(1)
                token = torch.where(torch.rand(len(token), device=token.device) < sampled, own, token)
            x = self._joined(self._embedded(token.unsqueeze(1)), state)
            top, layers = self.stack(x, state.layers)
            features = self._read(top, state).squeeze(1)
            after = self._after(state, layers, features)
            state = after if lengths is None else choose(lengths.to(token.device) > time, after, state)
            outputs.append(features)
        if not outputs:
            return self.embedding.weight.new_zeros(*tokens.shape, self.stack.output_size), state
        return torch.stack(outputs, 1), state

    def _joined(self, x: Tensor, state: DecoderState) -> Tensor:
        """Concatenates embeddings of a sequence or a step with source summary and fed-back output, and projects
        them."""
        if self.join is None:
            return x
        parts = [state.summary] if "input" in self.config.context else []
        parts += [state.fed] if self.config.input_feeding else []
        return self.join(torch.cat([x, *(_beside(part, x) for part in parts)], -1))

    def _read(self, top: Sequence, state: DecoderState) -> Sequence:
        """The output vector: top of the stack, attention context and source summary, mixed by a tanh layer."""
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
        """Linear maps from the source summary to the initial state of each recurrent layer."""
        widths = {str(i): _widths(block.layer.initial_state(1)) for i, block in enumerate(self.stack.blocks())}
        bridges = {name: nn.Linear(summary, sum(found)) for name, found in widths.items() if sum(found)}
        if not bridges:
            raise ConfigError(
                "decoder.context: state initializes recurrent layers, but the decoder has none; use lstm or gru, or "
                "context input or output, or attention"
            )
        return nn.ModuleDict(bridges)


def ends(source: Sequence, lengths: Lengths) -> Step:
    """A summary of each row (batch, 2 · width): its first and last real position, where the backward and forward layers
    have read the whole row; zeros for an empty row."""
    if source.shape[1] == 0:
        return source.new_zeros(len(source), 2 * source.shape[2])
    rows = torch.arange(len(source), device=source.device)
    both: Tensor = torch.cat([source[:, 0], source[rows, lengths.clamp(min=1) - 1]], -1)
    return both.masked_fill((lengths == 0).unsqueeze(1), 0)


def _widths(state: State) -> list[int]:
    """Widths of the parts of a state, if all are vectors of floats; empty for caches, windows and counters."""
    parts = [part for _, part in tensors(state)]
    return [part.shape[1] for part in parts] if all(p.dim() == 2 and p.is_floating_point() for p in parts) else []


def _beside(part: Step, x: Tensor) -> Tensor:
    return part.to(x.dtype) if x.dim() == 2 else part.to(x.dtype).unsqueeze(1).expand(-1, x.shape[1], -1)
