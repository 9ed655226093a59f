"""`mortise pull` beside huggingface_hub: the same files at the same places of the cache."""

import os
import subprocess
import sys
import threading
from pathlib import Path

import fake_hub

FOLDER = Path(__file__).resolve().parents[3] / "examples/demo-model/model"
SNAPSHOT = "from huggingface_hub import snapshot_download as s; print(s('org/tiny', ignore_patterns=['README.md']))"


def tree(cache):
    """Names, contents and link targets; without the listings that huggingface_hub keeps beside them."""
    found = {}
    for path in sorted((cache / "models--org--tiny").rglob("*")):
        name = str(path.relative_to(cache))
        if "trees" in path.parts:
            continue
        if path.is_symlink():
            found[name] = os.readlink(path)
        elif path.is_file():
            found[name] = path.read_bytes()
    return found


def test_the_cache_is_that_of_huggingface_hub(tmp_path):
    files = {p.name: p.read_bytes() for p in FOLDER.iterdir()} | {"README.md": b"not needed"}
    server = fake_hub.serve(files)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    ours, theirs = tmp_path / "ours", tmp_path / "theirs"

    def run(cache, *command, **more):
        environment = os.environ | {"HF_ENDPOINT": f"http://127.0.0.1:{server.server_port}", "HF_HUB_CACHE": str(cache),
                                    "HF_HUB_DISABLE_XET": "1"} | more
        done = subprocess.run(command, env=environment, capture_output=True, text=True)
        assert done.returncode == 0, done.stderr
        return done.stdout.strip()

    mortise = os.environ["MORTISE_BINARY"]
    path = run(ours, mortise, "pull", "org/tiny")
    run(theirs, sys.executable, "-c", SNAPSHOT)
    assert tree(ours) == tree(theirs)
    server.shutdown()
    # Each reads, offline, what the other wrote.
    assert run(ours, sys.executable, "-c", SNAPSHOT, HF_HUB_OFFLINE="1") == path
    assert run(theirs, mortise, "pull", "org/tiny", HF_HUB_OFFLINE="1") == path.replace("ours", "theirs")
