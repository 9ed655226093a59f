"""Makes the wheel of `mortise_plugin`: `wheel.py VERSION FOLDER`. Prints its path."""

import base64
import hashlib
import os
import pathlib
import sys
import time
import zipfile

version, folder = sys.argv[1], pathlib.Path(sys.argv[2])
here = pathlib.Path(__file__).parent
root = here.parent.parent
pinned = (root / "host/author/templates/python/requirements.txt").read_text().strip()

METADATA = f"""Metadata-Version: 2.3
Name: mortise-plugin
Version: {version}
Summary: Builds plugins of the mortise inference server from Python
License-Expression: MIT OR Apache-2.0
Requires-Python: >=3.10
Requires-Dist: {pinned}
Description-Content-Type: text/plain

`python -m mortise_plugin build` makes a component of `plugin.py`, `python -m mortise_plugin types` writes its types.
"""
WHEEL = "Wheel-Version: 1.0\nGenerator: mortise\nRoot-Is-Purelib: true\nTag: py3-none-any\n"

information = f"mortise_plugin-{version}.dist-info"
sources = sorted(here.glob("mortise_plugin/**/*.py"))
files = {file.relative_to(here).as_posix(): file.read_bytes() for file in sources}
for file in sorted(root.glob("wit/v0.3/*.wit")):
    files[f"mortise_plugin/wit/{file.name}"] = file.read_bytes()
files[f"{information}/METADATA"] = METADATA.encode()
files[f"{information}/WHEEL"] = WHEEL.encode()


def digest(content):
    return base64.urlsafe_b64encode(hashlib.sha256(content).digest()).rstrip(b"=").decode()


record = "".join(f"{name},sha256={digest(content)},{len(content)}\n" for name, content in files.items())
files[f"{information}/RECORD"] = f"{record}{information}/RECORD,,\n".encode()

when = time.gmtime(max(int(os.environ["SOURCE_DATE_EPOCH"]), 315532800))[:6]
path = folder / f"mortise_plugin-{version}-py3-none-any.whl"
with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED, compresslevel=9) as archive:
    for name, content in files.items():
        entry = zipfile.ZipInfo(name, when)
        entry.external_attr = 0o100644 << 16
        entry.compress_type = zipfile.ZIP_DEFLATED
        archive.writestr(entry, content)
print(path)
