"""Trains the byte-level BPE tokenizer on generated text.

Words never carry their leading space, and every digit stands alone: a name or
a number is the same tokens wherever it occurs, which makes copying easy.
Quotes, braces, colons and commas may join, so that JSON stays short.
"""

import sys

from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, pre_tokenizers, trainers

import generate
from words import Dice

SPLIT = r"""\p{L}+|\p{N}|["{}\[\]:,]+ ?["{}\[\]]*| ["{}\[\]]+|[^\s\p{L}\p{N}"{}\[\]:,]|\s*[\r\n]+|\s"""
SPECIAL = ["<|endoftext|>", "<|im_start|>", "<|im_end|>"]
ADDED = ["<think>", "</think>", "<tool_call>", "</tool_call>", "<tool_response>", "</tool_response>"]
SIZE = 2048


def build(samples=20000, seed=7):
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence([
        pre_tokenizers.Split(Regex(SPLIT), "isolated"), pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)])
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(vocab_size=SIZE - len(SPECIAL) - len(ADDED), initial_alphabet=sorted(pre_tokenizers.ByteLevel.alphabet()),
                                  show_progress=False)

    def texts():
        for i in range(samples):
            for text, _ in generate.segments(generate.sample(seed, i)):
                for mark in SPECIAL + ADDED:
                    text = text.replace(mark, "\n")
                yield text
        d = Dice(seed)
        for _ in range(samples):  # the syllables of made-up words
            yield " ".join((d.made_up(), d.made_up().capitalize(), d.made_up().upper()))

    tokenizer.train_from_iterator(texts(), trainer)
    tokenizer.add_special_tokens(SPECIAL)
    tokenizer.add_tokens([AddedToken(t, special=False, normalized=False) for t in ADDED])
    return tokenizer


if __name__ == "__main__":
    build().save(sys.argv[1])
