"""The JSON Schema test suite, out of the source package of `jsonschema` on PyPI.

    python fetch.py DIR    # needs nothing but Python; leaves a folder alone that is there
"""

import hashlib
import io
import pathlib
import re
import sys
import tarfile
import urllib.request

PACKAGE = ("https://files.pythonhosted.org/packages/b3/fc/e067678238fa451312d4c62bf6e6cf5ec56375422aee02f9cb5f909b3047/"
           "jsonschema-4.26.0.tar.gz")
DIGEST = "0c26707e2efad8aa1bfc5b7ce170f3fccc2e4918ff85989ba9ffa9facb2be326"
# The required tests; those below `optional` are of formats and other choices of a validator.
WANTED = re.compile(r"/json/tests/(draft7|draft2020-12)/[^/]+\.json$")


def fetch(folder):
    if folder.exists():
        return
    with urllib.request.urlopen(PACKAGE, timeout=120) as answer:
        package = answer.read()
    found = hashlib.sha256(package).hexdigest()
    if found != DIGEST:
        raise SystemExit(f"{PACKAGE} has the SHA-256 {found}, not {DIGEST}")
    unfinished = folder.with_name(folder.name + ".part")
    with tarfile.open(fileobj=io.BytesIO(package)) as files:
        for member in files:
            wanted = WANTED.search(member.name)
            if wanted:
                place = unfinished / wanted[1] / pathlib.PurePosixPath(member.name).name
                place.parent.mkdir(parents=True, exist_ok=True)
                place.write_bytes(files.extractfile(member).read())
    unfinished.rename(folder)


fetch(pathlib.Path(sys.argv[1]))
