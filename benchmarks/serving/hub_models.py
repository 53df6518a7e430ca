"""Small Hugging Face models with random weights, written by transformers, with a tokenizer trained here."""

import random
from pathlib import Path
from typing import Any

WORDS = ["the", "a", "cat", "dog", "house", "tree", "river", "sun", "moon", "is", "was", "sat", "ran", "saw", "and"]
WORDS += ["or", "but", "not", "with", "under", "over", "old", "small", "red"]
VOCABULARY, WIDTH, HEADS, LAYERS, POSITIONS = 300, 64, 4, 3, 512


def sentences(count: int, seed: int) -> list[str]:
    draw = random.Random(seed)
    return [f"{' '.join(draw.choices(WORDS, k=draw.randint(3, 12))).capitalize()}." for _ in range(count)]


def make_tokenizer() -> Any:
    """Byte-level BPE, as GPT-2 has it."""
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
    from transformers import PreTrainedTokenizerFast

    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(vocab_size=VOCABULARY, special_tokens=["<|endoftext|>"], initial_alphabet=alphabet)
    tokenizer.train_from_iterator(sentences(500, seed=1), trainer)
    end = "<|endoftext|>"
    return PreTrainedTokenizerFast(tokenizer_object=tokenizer, bos_token=end, eos_token=end, unk_token=end)


def write_model(kind: str, folder: Path) -> Path:
    """`gpt2` or `llama`; its weights are wide enough apart for texts of several likely tokens."""
    import torch
    from transformers import GPT2Config, GPT2LMHeadModel, LlamaConfig, LlamaForCausalLM

    tokenizer = make_tokenizer()
    ends = {"bos_token_id": tokenizer.bos_token_id, "eos_token_id": tokenizer.eos_token_id}
    torch.manual_seed(0)
    if kind == "gpt2":
        sizes = {"n_embd": WIDTH, "n_head": HEADS, "n_layer": LAYERS, "n_positions": POSITIONS}
        model: Any = GPT2LMHeadModel(GPT2Config(vocab_size=len(tokenizer), initializer_range=0.2, **sizes, **ends))
    else:
        sizes = {"hidden_size": WIDTH, "num_attention_heads": HEADS, "num_key_value_heads": HEADS // 2}
        sizes |= {"num_hidden_layers": LAYERS, "intermediate_size": 2 * WIDTH, "max_position_embeddings": POSITIONS}
        model = LlamaForCausalLM(LlamaConfig(vocab_size=len(tokenizer), initializer_range=0.2, **sizes, **ends))
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder
