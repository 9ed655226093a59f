"""`python -m mortise_plugin build` makes a component of `plugin.py`; `python -m mortise_plugin types` writes the types that
an editor reads. What both need of a release of mortise, the WIT package and the entry of components, is in this package."""

import argparse
import ast
import json
import pathlib
import shutil
import subprocess
import sys
import tempfile

HERE = pathlib.Path(__file__).parent

# The class that `plugin.py` has for each kind of plugins.
KINDS = {
    "ChatTemplate": "chat-template",
    "OutputParser": "output-parser",
    "Grammar": "grammar",
    "Policy": "policy",
    "Tool": "tool",
    "Guardrail": "guardrail",
    "Retriever": "retriever",
}

# The section that holds the JSON Schema of the settings.
SCHEMA = b"mortise:settings-schema"


def fail(message):
    sys.exit(f"mortise_plugin: {message}")


def componentize(*arguments):
    own = str(pathlib.Path(sys.executable).parent)
    program = shutil.which("componentize-py", path=own) or shutil.which("componentize-py")
    if program is None:
        fail("componentize-py is not installed; `pip install mortise-plugin` installs it")
    done = subprocess.run([program, *map(str, arguments)], check=False)
    if done.returncode != 0:
        fail(f"componentize-py ended with status {done.returncode}")


def kind_of(folder):
    """The kind that the classes of `plugin.py` say."""
    source = folder / "plugin.py"
    try:
        tree = ast.parse(source.read_text(encoding="utf-8"), str(source))
    except OSError as error:
        fail(f"cannot read `{source}`: {error.strerror}")
    except SyntaxError as error:
        fail(f"{source}:{error.lineno}: {error.msg}")
    names = [node.name for node in tree.body if isinstance(node, ast.ClassDef)]
    kinds = [KINDS[name] for name in names if name in KINDS]
    if len(kinds) != 1:
        classes = ", ".join(KINDS)
        fail(f"`{source}` has {len(kinds)} of the classes {classes}; have one, or say --kind")
    return kinds[0]


def number(value):
    """A number as WebAssembly writes it."""
    encoded = bytearray()
    while True:
        value, low = value >> 7, value & 0x7F
        encoded.append(low | (0x80 if value else 0))
        if not value:
            return bytes(encoded)


def section(name, content):
    body = number(len(name)) + name + content
    return b"\0" + number(len(body)) + body


def build(arguments):
    folder = arguments.folder
    kind = arguments.kind or kind_of(folder)
    output = arguments.output or folder / f"{folder.resolve().name}.wasm"
    schema = folder / "settings.schema.json"
    sections = b""
    if schema.is_file():
        content = schema.read_bytes()
        try:
            json.loads(content)
        except ValueError as error:
            fail(f"`{schema}` is not JSON: {error}")
        sections = section(SCHEMA, content)
    with tempfile.TemporaryDirectory() as made:
        component = pathlib.Path(made) / "plugin.wasm"
        world = ["--wit-path", HERE / "wit", "--world", f"{kind}-plugin"]
        paths = ["--python-path", folder, "--python-path", HERE / "guest"]
        componentize(*world, "componentize", "--stub-wasi", *paths, "--output", component, "entry")
        output.write_bytes(component.read_bytes() + sections)
    print(f"built `{output}`, kind {kind}")


def types(arguments):
    kind = arguments.kind or kind_of(arguments.folder)
    world = ["--wit-path", HERE / "wit", "--world", f"{kind}-plugin"]
    componentize(*world, "bindings", arguments.output)
    print(f"wrote the types of {kind} plugins to `{arguments.output}`")


def main():
    parser = argparse.ArgumentParser(prog="python -m mortise_plugin", description=__doc__)
    commands = parser.add_subparsers(required=True)
    for name, run, text in [
        ("build", build, "make a component of `plugin.py`, with the schema in `settings.schema.json`"),
        ("types", types, "write the types that `plugin.py` imports, for editors and checkers"),
    ]:
        command = commands.add_parser(name, help=text, description=text)
        command.set_defaults(run=run)
        command.add_argument("--kind", choices=sorted(KINDS.values()), help="default: as `plugin.py` says by its class")
        command.add_argument("--folder", type=pathlib.Path, default=pathlib.Path("."), help="the project (.)")
        default = "types" if name == "types" else None
        shown = default or "FOLDER.wasm"
        command.add_argument("--output", type=pathlib.Path, default=default, help=f"where it is written ({shown})")
    arguments = parser.parse_args()
    arguments.run(arguments)


if __name__ == "__main__":
    main()
