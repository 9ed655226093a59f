"""Make the reference values of cross-encoders: `host/model/tests/reranker.rs` and `tests/http/rerank.rs`.

    pip install torch==2.15.0 transformers==5.23.0 tokenizers==0.23.3 safetensors
    python tests/embeddings/make_rankers.py

Written below `tests/embeddings/data`, with random weights:

    ranker-bert     a BERT with a head for one label, its tokenizer, and `reference.json`: pairs of texts with
                    their tokens, the first token of the second text, and the score before the sigmoid
    ranker-roberta  the same of XLM-RoBERTa, and the mean of the rows of each first text, of length 1
    asked.json      pairs of texts, and the probability that the demo model answers yes, with the input of the model card
                    of Qwen3-Reranker; two tasks
    yes-no.json     for decoders of `tests/parity/data`: tokens, and the score of one token over another as
                    the next
"""

import json
import shutil
from pathlib import Path

import torch
import transformers
from tokenizers import Tokenizer, models, normalizers, pre_tokenizers, processors

DATA = Path(__file__).parent / "data"
PARITY = DATA.parent.parent / "parity" / "data"
DEMO = DATA.parent.parent.parent / "examples" / "demo-model" / "model"
CONTEXT = 48
WORDS = "zebra horse heron contract clause price year paris banana the is a of in what term".split()
PAIRS = [
    ("what is the price", "the price of a zebra is in the contract"),
    ("what is the price", "a heron"),
    ("zebra", "banana banana banana"),
    ("paris", "x"),
    ("the term of the contract in paris", "clause of the year " * 20),
    ("a horse of the year " * 20, "what is a horse"),
    ("horse zebra heron " * 20, "clause contract term " * 20),
]


def word_piece():
    pieces = ["[PAD]", "[UNK]", "[CLS]", "[SEP]"] + WORDS
    letters = "abcdefghijklmnopqrstuvwxyz"
    pieces += [c for c in letters if c not in pieces] + ["##" + c for c in letters]
    vocabulary = {piece: number for number, piece in enumerate(pieces)}
    tokenizer = Tokenizer(models.WordPiece(vocabulary, unk_token="[UNK]"))
    tokenizer.normalizer = normalizers.BertNormalizer(lowercase=True)
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    tokenizer.post_processor = processors.TemplateProcessing(
        single="[CLS] $A [SEP]", pair="[CLS] $A [SEP] $B:1 [SEP]:1", special_tokens=[("[CLS]", 2), ("[SEP]", 3)])
    tokenizer.add_special_tokens(["[PAD]", "[UNK]", "[CLS]", "[SEP]"])
    special = dict(pad_token="[PAD]", unk_token="[UNK]", cls_token="[CLS]", sep_token="[SEP]")
    return transformers.PreTrainedTokenizerFast(
        tokenizer_object=tokenizer, model_input_names=["input_ids", "token_type_ids", "attention_mask"], **special)


def unigram():
    pieces = [("<s>", 0.0), ("<pad>", 0.0), ("</s>", 0.0), ("<unk>", 0.0), ("▁", -2.0)]
    pieces += [("▁" + word, -3.0) for word in WORDS] + [(c, -5.0) for c in "abcdefghijklmnopqrstuvwxyz"]
    tokenizer = Tokenizer(models.Unigram(pieces, unk_id=3))
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace()
    tokenizer.post_processor = processors.TemplateProcessing(
        single="<s> $A </s>", pair="<s> $A </s> </s> $B </s>", special_tokens=[("<s>", 0), ("</s>", 2)])
    tokenizer.add_special_tokens(["<s>", "<pad>", "</s>", "<unk>"])
    special = dict(pad_token="<pad>", unk_token="<unk>", cls_token="<s>", sep_token="</s>", bos_token="<s>", eos_token="</s>")
    return transformers.PreTrainedTokenizerFast(
        tokenizer_object=tokenizer, model_input_names=["input_ids", "attention_mask"], **special)


def shaken(model):
    for name, parameter in model.named_parameters():
        if name.endswith("bias") or "LayerNorm" in name:
            parameter.data += torch.randn_like(parameter) * 0.1
    return model.eval()


def write(name, model, tokenizer, body=None):
    folder = DATA / name
    shutil.rmtree(folder, ignore_errors=True)
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    entries = []
    for query, text in PAIRS:
        encoded = tokenizer(query, text, truncation=True, max_length=CONTEXT, return_tensors="pt")
        tokens = encoded["input_ids"][0].tolist()
        types = encoded.get("token_type_ids", torch.zeros(1, len(tokens)))[0].tolist()
        with torch.no_grad():
            logit = model(**encoded).logits[0, 0].item()
        entry = {"query": query, "text": text, "tokens": tokens,
                 "second": types.index(1) if 1 in types else len(tokens), "logit": round(logit, 6)}
        if body is not None:
            single = tokenizer(query, truncation=True, max_length=CONTEXT, return_tensors="pt")
            with torch.no_grad():
                mean = body(**single).last_hidden_state[0].mean(0)
            vector = torch.nn.functional.normalize(mean, dim=0).tolist()
            entry["single"] = single["input_ids"][0].tolist()
            entry["vector"] = [round(value, 6) for value in vector]
        entries.append(entry)
    lines = ",\n".join(json.dumps(entry) for entry in entries)
    (folder / "reference.json").write_text(f"[\n{lines}\n]\n")


def shape(tokenizer):
    return dict(
        vocab_size=len(tokenizer), hidden_size=32, intermediate_size=48, num_hidden_layers=2, num_attention_heads=4,
        initializer_range=0.4, num_labels=1)


def make_bert():
    torch.manual_seed(11)
    tokenizer = word_piece()
    config = transformers.BertConfig(max_position_embeddings=CONTEXT, **shape(tokenizer))
    write("ranker-bert", shaken(transformers.BertForSequenceClassification(config)), tokenizer)


def make_roberta():
    torch.manual_seed(12)
    tokenizer = unigram()
    config = transformers.XLMRobertaConfig(
        max_position_embeddings=CONTEXT + 2, type_vocab_size=1, pad_token_id=1, bos_token_id=0, eos_token_id=2,
        layer_norm_eps=1e-5, **shape(tokenizer))
    model = shaken(transformers.XLMRobertaForSequenceClassification(config))
    write("ranker-roberta", model, tokenizer, model.roberta)


def asked(tokenizer, model, task, query, text):
    """As the model card of Qwen3-Reranker computes it."""
    prefix = (
        "<|im_start|>system\nJudge whether the Document meets the requirements based on the Query and the Instruct "
        'provided. Note that the answer can only be "yes" or "no".<|im_end|>\n<|im_start|>user\n')
    suffix = "<|im_end|>\n<|im_start|>assistant\n<think>\n\n</think>\n\n"
    pair = f"<Instruct>: {task}\n<Query>: {query}\n<Document>: {text}"
    tokens = []
    for part in (prefix, pair, suffix):
        tokens += tokenizer(part, add_special_tokens=False)["input_ids"]
    with torch.no_grad():
        logits = model(torch.tensor([tokens])).logits[0, -1]
    answers = [logits[tokenizer.convert_tokens_to_ids(answer)] for answer in ("no", "yes")]
    return torch.nn.functional.log_softmax(torch.stack(answers), dim=0)[1].exp().item()


def make_asked():
    tokenizer = transformers.AutoTokenizer.from_pretrained(DEMO)
    model = transformers.AutoModelForCausalLM.from_pretrained(DEMO, dtype=torch.float32).eval()
    usual = "Given a web search query, retrieve relevant passages that answer the query"
    entries = []
    for task in (usual, "Find texts about animals"):
        for query, text in [("What is mortise?", "mortise is a server."), ("a zebra", "It rains in Paris."), ("x", "x")]:
            score = asked(tokenizer, model, task, query, text)
            entries.append({"task": task, "query": query, "text": text, "score": round(score, 6)})
    lines = ",\n".join(json.dumps(entry) for entry in entries)
    (DATA / "asked.json").write_text(f"[\n{lines}\n]\n")


def make_yes_no():
    """The last rows of decoders with tied and with own heads."""
    entries = []
    for name in ["qwen3-qk-norm", "mistral-window"]:
        model = transformers.AutoModelForCausalLM.from_pretrained(PARITY / name, dtype=torch.float32).eval()
        for length in [1, 7, 40]:
            tokens = [(11 * k + length) % 140 for k in range(length)]
            with torch.no_grad():
                logits = model(torch.tensor([tokens])).logits[0, -1]
            yes, no = 17, 99
            entries.append({"model": name, "tied": model.config.tie_word_embeddings, "tokens": tokens,
                            "yes": yes, "no": no, "logit": round((logits[yes] - logits[no]).item(), 6)})
    lines = ",\n".join(json.dumps(entry) for entry in entries)
    (DATA / "yes-no.json").write_text(f"[\n{lines}\n]\n")


if __name__ == "__main__":
    make_bert()
    make_roberta()
    make_asked()
    make_yes_no()
