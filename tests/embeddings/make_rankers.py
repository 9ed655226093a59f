"""Make the reference values of cross-encoders: `host/model/tests/reranker.rs` and `tests/http/rerank.rs`.

    pip install torch==2.15.0 transformers==5.23.0 tokenizers==0.23.3 safetensors gguf==0.19.0
    python tests/embeddings/make_rankers.py

Written below `tests/embeddings/data`, with random weights:

    ranker-bert     a BERT with a head for one label, its tokenizer, and `reference.json`: pairs of texts with
                    their tokens, the first token of the second text, and the score before the sigmoid
    ranker-roberta  the same of XLM-RoBERTa, and the mean of the rows of each first text, of length 1
    ranker-modern   the same of ModernBERT
    ranker-qwen3    the same of a decoder with a head for one label, and ranker-llama
    ranker-roberta.gguf  the XLM-RoBERTa as llama.cpp's converter names it, with its tokenizer
    ranker-bert.gguf     the BERT in the same way, which leaves the first layer of the head out; the scores without it are
                         `direct` in ranker-bert/reference.json
    ranker-qwen3.gguf    a decoder of `tests/gguf/data` with the rows of two tokens as its head, those of yes-no.json
    asked.json      pairs of texts, and the probability that the demo model answers yes, with the input of the model card
                    of Qwen3-Reranker; two tasks
    yes-no.json     for decoders of `tests/parity/data`: tokens, and the score of one token over another as
                    the next
"""

import json
import shutil
from pathlib import Path

import gguf
import numpy as np
import torch
import transformers
from tokenizers import Tokenizer, models, normalizers, pre_tokenizers, processors

DATA = Path(__file__).parent / "data"
PARITY = DATA.parent.parent / "parity" / "data"
GGUF = DATA.parent.parent / "gguf" / "data"
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


def write(name, model, tokenizer, body=None, direct=False):
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
        if direct:
            with torch.no_grad():
                row = model.base_model(**encoded).last_hidden_state[:, 0]
                entry["direct"] = round(model.classifier(row)[0, 0].item(), 6)
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
    model = shaken(transformers.BertForSequenceClassification(config))
    write("ranker-bert", model, tokenizer, direct=True)
    tensors = {name.removeprefix("bert."): tensor for name, tensor in model.state_dict().items()}
    tensors = {name: tensor for name, tensor in tensors.items() if not name.startswith("pooler.")}
    tensors = {name.replace("classifier.", "classifier.out_proj."): tensor for name, tensor in tensors.items()}
    pieces = sorted(tokenizer.get_vocab().items(), key=lambda piece: piece[1])
    control = set(tokenizer.all_special_tokens)
    shown = [piece if piece in control else piece[2:] if piece.startswith("##") else "▁" + piece for piece, _ in pieces]
    writer = encoder_writer("ranker-bert.gguf", config, CONTEXT)
    writer.add_tokenizer_model("bert")
    writer.add_token_list(shown)
    writer.add_token_types([3 if piece in control else 1 for piece, _ in pieces])
    for kind, token in [("bos", 2), ("eos", 3), ("sep", 3), ("unk", 1), ("pad", 0)]:
        getattr(writer, f"add_{kind}_token_id")(token)
    finish(writer, tensors, config.num_hidden_layers)


def make_roberta():
    torch.manual_seed(12)
    tokenizer = unigram()
    config = transformers.XLMRobertaConfig(
        max_position_embeddings=CONTEXT + 2, type_vocab_size=1, pad_token_id=1, bos_token_id=0, eos_token_id=2,
        layer_norm_eps=1e-5, **shape(tokenizer))
    model = shaken(transformers.XLMRobertaForSequenceClassification(config))
    write("ranker-roberta", model, tokenizer, model.roberta)
    tensors = {name.removeprefix("roberta."): tensor for name, tensor in model.state_dict().items()}
    positions = "embeddings.position_embeddings.weight"
    tensors[positions] = tensors[positions][2:]
    vocabulary = json.loads(tokenizer.backend_tokenizer.to_str())["model"]["vocab"]
    writer = encoder_writer("ranker-roberta.gguf", config, CONTEXT)
    writer.add_tokenizer_model("t5")
    writer.add_token_list([piece for piece, _ in vocabulary])
    writer.add_token_scores([score for _, score in vocabulary])
    writer.add_token_types([3, 3, 3, 2] + [1] * (len(vocabulary) - 4))
    writer.add_add_space_prefix(True)
    writer.add_remove_extra_whitespaces(True)
    writer.add_add_bos_token(True)
    writer.add_add_eos_token(True)
    for kind, token in [("bos", 0), ("eos", 2), ("sep", 2), ("unk", 3), ("pad", 1)]:
        getattr(writer, f"add_{kind}_token_id")(token)
    finish(writer, tensors, config.num_hidden_layers)


def encoder_writer(name, config, context):
    writer = gguf.GGUFWriter(DATA / name, "bert")
    writer.add_context_length(context)
    writer.add_embedding_length(config.hidden_size)
    writer.add_block_count(config.num_hidden_layers)
    writer.add_feed_forward_length(config.intermediate_size)
    writer.add_head_count(config.num_attention_heads)
    writer.add_layer_norm_eps(config.layer_norm_eps)
    writer.add_causal_attention(False)
    writer.add_pooling_type(gguf.PoolingType.RANK)
    return writer


def finish(writer, tensors, layers):
    known = gguf.get_tensor_name_map(gguf.MODEL_ARCH.BERT, layers)
    for name, tensor in tensors.items():
        if not name.endswith("position_ids") and not name.endswith("token_type_ids"):
            writer.add_tensor(known.get_name(name, try_suffixes=(".weight", ".bias")), tensor.numpy().astype(np.float32))
    close(writer)


def close(writer):
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def make_classifiers():
    for seed, name, config, kind in [
        (13, "ranker-qwen3", transformers.Qwen3Config, transformers.Qwen3ForSequenceClassification),
        (14, "ranker-llama", transformers.LlamaConfig, transformers.LlamaForSequenceClassification),
    ]:
        torch.manual_seed(seed)
        tokenizer = unigram()
        sizes = dict(num_key_value_heads=2, head_dim=16, max_position_embeddings=CONTEXT, pad_token_id=1)
        write(name, shaken(kind(config(**sizes, **shape(tokenizer)))), tokenizer)


def make_modern():
    torch.manual_seed(15)
    tokenizer = unigram()
    config = transformers.ModernBertConfig(
        max_position_embeddings=CONTEXT, local_attention=8, pad_token_id=1, bos_token_id=0, eos_token_id=2, cls_token_id=0,
        sep_token_id=2, **shape(tokenizer) | {"num_hidden_layers": 5})
    model = shaken(transformers.ModernBertForSequenceClassification(config))
    write("ranker-modern", model, tokenizer, model.model)


def make_answering_gguf():
    """A file of `tests/gguf/data` with a head in place of the matrix for tokens."""
    reader = gguf.GGUFReader(GGUF / "qwen3-qk-norm.gguf")
    model = transformers.AutoModelForCausalLM.from_pretrained(PARITY / "qwen3-qk-norm", dtype=torch.float32)
    writer = gguf.GGUFWriter(DATA / "ranker-qwen3.gguf", "qwen3")
    for field in reader.fields.values():
        if field.name.startswith(("qwen3.", "general.name")):
            writer.add_key_value(field.name, field.contents(), field.types[0])
    writer.add_pooling_type(gguf.PoolingType.RANK)
    writer.add_classifier_output_labels(["yes", "no"])
    for tensor in reader.tensors:
        if tensor.name != "output.weight":
            writer.add_tensor(tensor.name, tensor.data, raw_dtype=tensor.tensor_type)
    yes, no = 17, 99
    writer.add_tensor("cls.output.weight", model.lm_head.weight.detach()[[yes, no]].numpy())
    close(writer)


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
    make_classifiers()
    make_modern()
    make_answering_gguf()
    make_asked()
    make_yes_no()
