"""What README.md shows is what comes out."""

import pathlib
import subprocess
import sys

ROOT = pathlib.Path(__file__).parents[3]


def test_readme_shows_what_the_three_things_print(base_url):
    script = ROOT / "examples/clients/three_things.py"
    output = subprocess.run(
        [sys.executable, script, base_url], capture_output=True, text=True, check=True
    ).stdout
    readme = (ROOT / "README.md").read_text()
    assert output.strip() in readme, output
