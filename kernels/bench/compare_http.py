#!/usr/bin/env python3
"""mortise against llama-server over HTTP: the same client, the same files, by turns, medians, ratios.

    python3 kernels/bench/compare_http.py [--models demo qwen2.5-0.5b] [--clients 1,4,8,16] [--rounds 3]

llama-server is built from the sources that llama-cpp-python brings (as `compare_llama_cpp.py` does), in
`--folder`. Both servers hold the same GGUF file, compute with two threads and AVX2, keep keys and values
in f16, take up to 16 sequences at once and reuse prefixes; everything else is their default. The client is
`mortise bench --serve`: streamed chat answers of `--generate` tokens, prompts that no server has seen.
Only one server works at a time; the order changes from round to round.
"""

import argparse
import json
import os
import pathlib
import socket
import statistics
import subprocess
import sys
import tarfile
import time
import urllib.request

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parent.parent
VERSION = "0.3.36"
CMAKE = ("-DCMAKE_BUILD_TYPE=Release -DBUILD_SHARED_LIBS=OFF -DGGML_NATIVE=OFF -DGGML_SSE42=ON -DGGML_AVX=ON "
         "-DGGML_AVX2=ON -DGGML_FMA=ON -DGGML_F16C=ON -DGGML_BMI2=ON -DLLAMA_CURL=OFF -DLLAMA_OPENSSL=OFF "
         "-DLLAMA_BUILD_TESTS=OFF -DLLAMA_BUILD_EXAMPLES=OFF -DLLAMA_BUILD_TOOLS=ON -DLLAMA_BUILD_SERVER=ON "
         "-DLLAMA_BUILD_UI=OFF -DLLAMA_USE_PREBUILT_UI=OFF").split()
SEQUENCES = 16
CONTEXT = 1024
FIGURES = [("requests_per_second", "requests/s", True), ("tokens_per_second", "tokens/s", True),
           ("first_token_p50", "first token, ms", False), ("between_tokens_p50", "between tokens, ms", False),
           ("between_p99", "between tokens, 99 %, ms", False)]


def environment(folder):
    """A Python with what writes models and builds llama-server."""
    import venv
    python = folder / "venv-http" / "bin" / "python"
    if not python.exists():
        venv.create(folder / "venv-http", with_pip=True)
    packages = ["gguf", "numpy", "safetensors", "ml_dtypes", "cmake", "ninja"]
    if subprocess.run([python, "-c", "import gguf, safetensors, ml_dtypes, cmake, ninja"],
                      capture_output=True).returncode:
        subprocess.run([python, "-m", "pip", "install", "-q", *packages], check=True)
    return python


def llama_server(folder, python):
    """llama-server, built when it is not there."""
    binary = folder / "server-build" / "bin" / "llama-server"
    if binary.exists():
        return binary
    subprocess.run([python, "-m", "pip", "download", "-q", "--no-deps", "--no-binary", ":all:", "-d", folder,
                    f"llama-cpp-python=={VERSION}"], check=True)
    source = folder / f"llama_cpp_python-{VERSION}"
    with tarfile.open(folder / f"{source.name}.tar.gz") as archive:
        archive.extractall(folder, filter="data")
    tools = python.parent
    build = binary.parent.parent
    subprocess.run([tools / "cmake", "-G", "Ninja", f"-DCMAKE_MAKE_PROGRAM={tools / 'ninja'}", *CMAKE,
                    "-S", source / "vendor" / "llama.cpp", "-B", build], check=True)
    subprocess.run([tools / "ninja", "-C", build, "llama-server"], check=True)
    return binary


def mortise():
    """Our server and the client."""
    subprocess.run(["cargo", "build", "--release"], check=True, cwd=ROOT)
    return pathlib.Path(os.environ.get("CARGO_TARGET_DIR", ROOT / "target")) / "release" / "mortise"


class Server:
    """A server process, ready to answer."""

    def __init__(self, name, command, port, log):
        self.name, self.url = name, f"http://127.0.0.1:{port}"
        self.process = subprocess.Popen([str(word) for word in command], stdout=log, stderr=log)
        for _ in range(600):
            if self.process.poll() is not None:
                sys.exit(f"{name} ended with {self.process.returncode}; see {log.name}")
            try:
                with urllib.request.urlopen(f"{self.url}/health", timeout=5) as answer:
                    if answer.status == 200:
                        return
            except OSError:
                pass
            time.sleep(0.1)
        sys.exit(f"{name} did not start; see {log.name}")

    def end(self):
        self.process.terminate()
        self.process.wait()


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def servers(arguments, ours, theirs, path):
    """Both, on the same file."""
    config = arguments.folder / "http.toml"
    config.write_text(f'[engine]\nkv_type = "f16"\nthreads = {arguments.threads}\n')
    log = open(arguments.folder / "http.log", "a", encoding="utf-8")
    port = free_port()
    yield Server("mortise", [ours, "serve", "--config", config, "--model", path, "--port", port,
                             "--served-model-name", "bench", "--max-context", CONTEXT,
                             "--log-level", "warn"], port, log)
    port = free_port()
    yield Server("llama-server", [theirs, "-m", path, "--port", port, "-t", arguments.threads,
                                  "-np", SEQUENCES, "-c", SEQUENCES * CONTEXT, "-a", "bench"], port, log)


def measure(client, server, arguments, clients):
    command = [client, "bench", "--serve", server.url, "--served-model", "bench", "--streams", clients,
               "--prompt", arguments.prompt, "--generate", arguments.generate,
               "--repeat", arguments.requests, "--json"]
    done = subprocess.run([str(word) for word in command], check=True, capture_output=True, text=True)
    row = json.loads(done.stdout)["results"][0]
    if row["failed"]:
        sys.exit(f"{server.name} with {clients} clients: {row['failed']} requests failed\n{done.stderr}")
    return row


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--folder", type=pathlib.Path, default=ROOT / "target/compare-llama-cpp")
    parser.add_argument("--models", nargs="+", default=["demo", "qwen2.5-0.5b"])
    parser.add_argument("--format", default="Q4_0", help="of models with random weights")
    parser.add_argument("--clients", default="1,4,8,16")
    parser.add_argument("--requests", type=int, default=4, help="of each client in a round")
    parser.add_argument("--prompt", type=int, default=128, help="words of a prompt")
    parser.add_argument("--generate", type=int, default=32, help="tokens of an answer")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--llama-server", type=pathlib.Path, help="one that is built already")
    parser.add_argument("--mortise", type=pathlib.Path, help="one that is built already")
    parser.add_argument("--json", type=pathlib.Path)
    parser.add_argument("--inside", action="store_true", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    arguments.folder.mkdir(parents=True, exist_ok=True)
    if not arguments.inside:
        python = environment(arguments.folder)
        os.execv(python, [str(python), "-B", __file__, *sys.argv[1:], "--inside"])
    import random_models
    theirs = arguments.llama_server or llama_server(arguments.folder, pathlib.Path(sys.executable))
    ours, all_rows = arguments.mortise or mortise(), []
    for name in arguments.models:
        path = (random_models.demo(arguments.folder) if name == "demo"
                else random_models.model(arguments.folder, name, arguments.format, chat=True))
        both = list(servers(arguments, ours, theirs, path))
        for clients in map(int, arguments.clients.split(",")):
            found = {server.name: [] for server in both}
            for turn in range(arguments.rounds):
                for server in both if turn % 2 == 0 else reversed(both):
                    found[server.name].append(measure(ours, server, arguments, clients))
            for key, label, more_is_better in FIGURES:
                a, b = (statistics.median(row[key] for row in found[server.name]) for server in both)
                ratio = (a / b if more_is_better else b / a) if a and b else float("nan")
                all_rows.append(dict(model=path.stem, clients=clients, figure=label, mortise=a,
                                     llama_server=b, ratio=ratio))
                print(f"| {path.stem} | {clients} | {label} | {a:.4g} | {b:.4g} | **{ratio:.2f}** |", flush=True)
        for server in both:
            server.end()
    if arguments.json:
        arguments.json.write_text(json.dumps(all_rows, indent=1))


main()
