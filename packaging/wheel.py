"""Makes a wheel with the program inside: `wheel.py BINARY VERSION FOLDER LEVEL`. Prints the wheel's path."""

import base64
import hashlib
import os
import pathlib
import platform
import re
import subprocess
import sys
import time
import zipfile

binary, version, folder, level = pathlib.Path(sys.argv[1]), sys.argv[2], pathlib.Path(sys.argv[3]), int(sys.argv[4])

# The newest symbols of the C library that the program uses say where it runs.
symbols = subprocess.run(["objdump", "-T", binary], check=True, capture_output=True, text=True).stdout
glibc = max(tuple(map(int, found)) for found in re.findall(r"GLIBC_(\d+)\.(\d+)", symbols))
tag = f"py3-none-manylinux_{glibc[0]}_{glibc[1]}_{platform.machine()}"

METADATA = f"""Metadata-Version: 2.3
Name: mortise
Version: {version}
Summary: An LLM inference server whose policy is made of sandboxed WebAssembly plugins
License-Expression: MIT OR Apache-2.0
Requires-Python: >=3.8
Description-Content-Type: text/plain

`mortise serve` serves a demo model on http://127.0.0.1:8080, with a page to try it.
`mortise serve --hf ORG/NAME` serves a model of the Hugging Face hub.
"""
WHEEL = f"Wheel-Version: 1.0\nGenerator: mortise\nRoot-Is-Purelib: false\nTag: {tag}\n"

information = f"mortise-{version}.dist-info"
files = {
    f"mortise-{version}.data/scripts/mortise": (binary.read_bytes(), 0o755),
    f"{information}/METADATA": (METADATA.encode(), 0o644),
    f"{information}/WHEEL": (WHEEL.encode(), 0o644),
}


def digest(content):
    return base64.urlsafe_b64encode(hashlib.sha256(content).digest()).rstrip(b"=").decode()


record = "".join(f"{name},sha256={digest(content)},{len(content)}\n" for name, (content, _) in files.items())
files[f"{information}/RECORD"] = (f"{record}{information}/RECORD,,\n".encode(), 0o644)

# Files of archives are as old as the commit, so that the same sources make the same archive.
when = time.gmtime(max(int(os.environ["SOURCE_DATE_EPOCH"]), 315532800))[:6]
path = folder / f"mortise-{version}-{tag}.whl"
with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED, compresslevel=level) as archive:
    for name, (content, mode) in files.items():
        entry = zipfile.ZipInfo(name, when)
        entry.external_attr = (0o100000 | mode) << 16
        entry.compress_type = zipfile.ZIP_DEFLATED
        archive.writestr(entry, content)
print(path)
