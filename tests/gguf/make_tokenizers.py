"""Make the vocabularies and token ids that `host/tokenizer/src/gguf/tests.rs` checks.

    pip install transformers==5.23.0 sentencepiece==0.2.3
    python tests/gguf/make_tokenizers.py

Small vocabularies are trained on the text below, written as llama.cpp's converter writes them into
GGUF files, and `tests/gguf/data/tokenizers.json` gets what the reference makes of hard texts: the
`sentencepiece` library for the models `llama` and `t5`, `transformers` for `gpt2` and `bert`.
"""

import base64
import io
import json
from pathlib import Path

import sentencepiece
from sentencepiece import sentencepiece_model_pb2
from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import BertTokenizer, GPT2Tokenizer, Qwen2Tokenizer
from transformers.models.qwen3_5.tokenization_qwen3_5 import Qwen3_5Tokenizer
from transformers.integrations.gguf import gguf_tokenizer_mapping as mapping

OUT = Path(__file__).parent / "data" / "tokenizers.json"

TRAINING = [
    "The quick brown fox jumps over the lazy dog, doesn't it? They'll say we've seen it all before.",
    "fn main() {\n    let numbers = vec![1, 22, 333, 4444, 55555];\n\tprintln!(\"{:?}\", numbers);\n}\n",
    "def add(a, b):\n    return a + b  # 3.14159 == 2.71828\n\n\nclass Point:\n        pass\n",
    "Größe naïve façade Ærøskøbing übermäßig, Ελληνικά και Русский текст, 日本語の文章です。中文字符测试。",
    "한국어 문장입니다. العربية لغة جميلة. עברית שפה יפה. हिन्दी भाषा है। ไทยเป็นภาษา",
    "I'm sure you're right; he'd rather not. WE'RE HERE! HTTPServer parseJSON camelCase snake_case",
    "emoji 😀 😃 👍🏽 👨‍👩‍👧 🇩🇪 and symbols ∑∫√∞ ≠ ≤ → ← “quotes” – dashes — … €100 £5 ¥300",
] * 4

HARD = [
    "", " ", "  ", "a", " a", "a ", "  two  leading and trailing  ", "\n", "\n\n\n", "\t\tindented\n",
    "The dog's fox, doesn't IT'S? they'LL", "numbers 1 12 123 1234 12345 3.14 1,000,000 ²³ ½ ١٢٣",
    "naïve é e\u0301 ﬁ ﬀ Å A\u030a \u1e9b\u0323", "日本語と中文 mixed 한국어 ไทย हिन्दी", "👨‍👩‍👧🇩🇪👍🏽 😀😀", "zero\u200bwidth\u200djoin\ufeff",
    "line\r\nbreaks\rand\u2028more\u0085x", "tabs\t\tand    spaces   \n   \n  x", "fn f(x: &str) -> Vec<u8> { x.bytes() }",
    "CamelCaseHTTPServer ALLCAPS lower", "!!!???...---===", "(a)[b]{c}<d>|e|", "𝔘𝔫𝔦𝔠𝔬𝔡𝔢 𐍈 🜁", "a\u00a0b\u3000c",
    "العربية مُشَكَّلة", "￿\U0010ffff", "\x00\x01\x7f", "▁ literal ▁▁ blocks", "<s>not a token</s> <unk> <0x41>",
    "don't DON'T I’m we’ve", "1a2b3c 4D5E", "x" * 70, "ABCdef123ÄÖÜßéÈ ǅ ǆ", "[CLS] [MASK] ##ing",
]


def sentence_piece(kind, architecture, **options):
    """A model trained by `sentencepiece`, as GGUF has it."""
    model = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(TRAINING), model_writer=model, model_type=kind, minloglevel=2,
        user_defined_symbols=["<tool>"], **options)
    processor = sentencepiece.SentencePieceProcessor(model_proto=model.getvalue())
    proto = sentencepiece_model_pb2.ModelProto.FromString(model.getvalue())
    normalizer = proto.normalizer_spec
    vocabulary = {
        "architecture": architecture,
        "model": "llama" if kind == "bpe" else "t5",
        "tokens": [piece.piece for piece in proto.pieces],
        "scores": [piece.score for piece in proto.pieces],
        "types": [piece.type for piece in proto.pieces],
        "bos": processor.bos_id(), "eos": processor.eos_id(), "unknown": processor.unk_id(),
        "add_space_prefix": normalizer.add_dummy_prefix,
        "remove_extra_whitespaces": normalizer.remove_extra_whitespaces,
    }
    if kind == "unigram":
        vocabulary["character_map"] = base64.b64encode(normalizer.precompiled_charsmap).decode()
    return vocabulary, lambda text: processor.encode(text), lambda ids: processor.decode(ids)


def byte_level(pre, reference):
    """A byte-level vocabulary trained with the reference's own cutting of words."""
    trained = Tokenizer(models.BPE())
    trained.pre_tokenizer = reference({}, []).backend_tokenizer.pre_tokenizer
    trained.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=600, initial_alphabet=pre_tokenizers.ByteLevel.alphabet(), show_progress=False)
    trained.train_from_iterator(TRAINING, trainer)
    model = json.loads(trained.to_str())["model"]
    tokens = sorted(model["vocab"], key=model["vocab"].get)
    merges = [tuple(merge) for merge in model["merges"]]
    tokenizer = reference(dict(model["vocab"]), merges)
    tokenizer = tokenizer.backend_tokenizer
    control, defined = ["<|endoftext|>", "<|im_start|>"], ["<tool>"]
    tokenizer.add_special_tokens([AddedToken(token, special=True) for token in control])
    tokenizer.add_tokens([AddedToken(token, normalized=False) for token in defined])
    vocabulary = {
        "architecture": "llama",
        "model": "gpt2", "pre": pre,
        "tokens": tokens + control + defined,
        "types": [1] * len(tokens) + [3] * len(control) + [4] * len(defined),
        "merges": [" ".join(merge) for merge in merges],
        "eos": len(tokens),
        "add_bos": False,
    }
    return (vocabulary, lambda text: tokenizer.encode(text, add_special_tokens=False).ids,
            lambda ids: tokenizer.decode(ids, skip_special_tokens=False))


def split(pre):
    """GPT-2 with the expression that `transformers` gives a GGUF file's pre-tokenizer."""
    def make(vocab, merges):
        tokenizer = GPT2Tokenizer(vocab=vocab or {"<|endoftext|>": 0}, merges=merges, unk_token=None, bos_token=None,
                                  eos_token=None)
        return mapping.set_split_regex(tokenizer, {"pre_tokenizer_type": pre})
    return make


def qwen(family):
    return lambda vocab, merges: family(vocab=vocab or None, merges=merges, unk_token=None, eos_token=None,
                                        pad_token=None)


def digits(vocab, merges):
    tokenizer = GPT2Tokenizer(vocab=vocab or {"<|endoftext|>": 0}, merges=merges, unk_token=None, bos_token=None, eos_token=None)
    tokenizer.backend_tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [pre_tokenizers.Digits(individual_digits=True), pre_tokenizers.ByteLevel(add_prefix_space=False)])
    return tokenizer


def word_piece(lowered):
    trained = Tokenizer(models.WordPiece(unk_token="[UNK]"))
    special = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
    trained.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    trainer = trainers.WordPieceTrainer(vocab_size=500, special_tokens=special, show_progress=False)
    texts = [text.lower() for text in TRAINING] if lowered else TRAINING
    trained.train_from_iterator(texts, trainer)
    vocab = trained.get_vocab()
    tokenizer = BertTokenizer(vocab=vocab, do_lower_case=lowered)
    tokens = sorted(vocab, key=vocab.get)

    def spelled(token):
        if token in special:
            return token
        return token[2:] if token.startswith("##") else "▁" + token
    vocabulary = {
        "architecture": "bert",
        "model": "bert", "tokens": [spelled(token) for token in tokens],
        "types": [3 if token in special else 1 for token in tokens],
        "bos": vocab["[CLS]"], "separator": vocab["[SEP]"], "unknown": vocab["[UNK]"],
    }
    return vocabulary, lambda text: tokenizer(text)["input_ids"], None


def main():
    merging = dict(vocab_size=700, byte_fallback=True, normalization_rule_name="identity",
                   remove_extra_whitespaces=False, character_coverage=0.98)
    made = {
        "llama": sentence_piece("bpe", "llama", **merging),
        "llama without a space before": sentence_piece("bpe", "llama", add_dummy_prefix=False, **merging),
        "t5": sentence_piece("unigram", "t5", vocab_size=400, character_coverage=0.98,
                             hard_vocab_limit=False),
        "t5 with bytes": sentence_piece("unigram", "t5", vocab_size=700, byte_fallback=True,
                                        character_coverage=0.98, hard_vocab_limit=False,
                                        normalization_rule_name="identity"),
        "bert": word_piece(True),
        "bert cased": word_piece(False),
        "qwen2": byte_level("qwen2", qwen(Qwen2Tokenizer)),
        "qwen35": byte_level("qwen35", qwen(Qwen3_5Tokenizer)),
        "gpt-2": byte_level("gpt-2", split("gpt-2")),
        "smollm": byte_level("smollm", digits),
    }
    for pre in ["llama-bpe", "tekken", "gpt-4o"]:
        made[pre] = byte_level(pre, split(pre))
    out = []
    for name, (vocabulary, encode, decode) in made.items():
        cases = []
        for text in HARD:
            # References that recognise control tokens in any text are none for texts that spell them.
            # The `tokenizers` library takes `<unk>` and `<0x41>` in a text for tokens of a unigram
            # vocabulary; so does everybody who uses it.
            if vocabulary["model"] == "bert" and "[CLS]" in text or vocabulary["model"] == "t5" and "<unk>" in text:
                continue
            ids = encode(text)
            # `sentencepiece` writes a surface of its own for unknown tokens.
            known = decode and vocabulary.get("unknown") not in ids
            cases.append({"text": text, "ids": ids, "decoded": decode(ids) if known else None})
        out.append({"name": name, "vocabulary": vocabulary, "cases": cases})
    OUT.write_text("[\n" + ",\n".join(json.dumps(entry, ensure_ascii=True) for entry in out) + "\n]\n")


if __name__ == "__main__":
    main()
