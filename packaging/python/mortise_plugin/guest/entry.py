"""Entry of the component; nothing in here needs a change. What `plugin.py` prints goes to the log. What it
raises is told to the host in one line, with its traceback behind it: whoever runs the plugin reads both, and
callers of the server read neither."""

import functools
import importlib
import io
import os
import sys
import types
import typing

import plugin
from componentize_py_types import Err
from plugin import *
from wit_world import exports
from wit_world.imports import host
from wit_world.imports.types import Fault_Internal

# Frames of a traceback that are told, the innermost ones.
FRAMES = 16

# Lines of the project's files.
SOURCES = {}

# The folder that the sources were in when the component was built.
FOLDER = os.path.join(os.path.dirname(plugin.__file__), "")


class Lines(io.TextIOBase):
    """A standard stream whose lines go to the log: this component is built without WASI."""

    def __init__(self, level):
        self.level = level
        self.held = ""

    def writable(self):
        return True

    def write(self, text):
        *lines, self.held = (self.held + text).split("\n")
        for line in lines:
            host.log(self.level, line, [])
        return len(text)

    def end(self):
        if self.held:
            self.write("\n")


def place_of(code, line):
    """Where code stands, as its author calls the file."""
    return f"{code.co_filename.removeprefix(FOLDER)}:{line}, in {code.co_name}"


def frames_of(error):
    """Code and lines from the outermost call to where it was raised."""
    trace, frames = error.__traceback__, []
    while trace:
        frames.append((trace.tb_frame.f_code, trace.tb_lineno))
        trace = trace.tb_next
    return frames


def where(error):
    """File, line and function in which it was raised: the innermost of the project, for errors of libraries."""
    frames = frames_of(error)
    own = [frame for frame in frames if frame[0].co_filename in SOURCES and frame[0].co_filename != __file__]
    return place_of(*(own or frames)[-1])


def summary(error):
    """Class and text on one line."""
    kind = type(error)
    name = kind.__qualname__ if kind.__module__ == "builtins" else f"{kind.__module__}.{kind.__qualname__}"
    try:
        text = " ".join(str(error).splitlines())
    except Exception:
        text = "(its text cannot be had)"
    return f"{name}: {text}" if text else name


def told(error):
    """One line that says what broke and where, and below it the calls on the way there. The library's own
    `traceback` is not asked: it reads files, and here there are none."""
    lines = [f"{summary(error)} ({where(error)})", "Traceback (most recent call last):"]
    for code, line in frames_of(error)[-FRAMES:]:
        lines.append(f"  {place_of(code, line)}")
        source = SOURCES.get(code.co_filename, [])
        lines += [f"    {text.strip()}" for text in source[line - 1 : line]]
    before = error.__cause__ or error.__context__
    if before and before.__traceback__:
        lines.append(f"after {summary(before)} ({where(before)})")
    return "\n".join(lines)


def classes(annotation):
    """What a value must be an instance of to be what the annotation says, as far as that is cheap to ask."""
    origin = typing.get_origin(annotation)
    if origin in (typing.Union, types.UnionType):
        return tuple(one for part in typing.get_args(annotation) for one in classes(part))
    if annotation is None:
        return (type(None),)
    kind = origin or annotation
    resource = not isinstance(kind, type) or getattr(kind, "_is_protocol", False)
    return (object,) if resource else (kind,)


def guarded(function, failure, returns):
    """The function, whose exceptions become faults that tell what happened."""
    expected = classes(returns)

    @functools.wraps(function)
    def call(*arguments):
        try:
            value = function(*arguments)
            if not isinstance(value, expected):
                names = " or ".join(one.__name__ for one in expected)
                place = place_of(function.__code__, function.__code__.co_firstlineno)
                raise Err(failure(f"it returned a {type(value).__name__} and no {names} ({place})"))
            return value
        except Err:
            raise
        except BaseException as error:
            text = told(error)
            if failure is None:
                sys.stderr.write(text + "\n")
                raise
            raise Err(failure(text)) from None
        finally:
            sys.stdout.end()
            sys.stderr.end()

    return call


def sealed(prepare):
    """The function, from whose first call on no files are looked for: a module that was not imported when the
    component was built is not in it, and whoever imports it is told so."""

    @functools.wraps(prepare)
    def call(*arguments):
        named = [finder for finder in sys.meta_path if getattr(finder, "__name__", "") != "PathFinder"]
        sys.meta_path[:] = named
        return prepare(*arguments)

    return call


def guard(owner, contract):
    """Guard the functions of a class that the host calls."""
    for name, function in vars(contract).items():
        own = vars(owner).get(name)
        if name.startswith("_") or not isinstance(own, types.FunctionType):
            continue
        # A description has no fault to return: it traps, and what was printed tells why.
        failure = None if name == "describe" else Fault_Internal
        if contract.__name__ == "Tool" and failure:
            failure = importlib.import_module("wit_world.exports.tool").Failure_Internal
        own = sealed(own) if name == "prepare" else own
        setattr(owner, name, guarded(own, failure, function.__annotations__.get("return")))


def keep_sources():
    """Read the project's lines for tracebacks while there are files; where it runs there are none."""
    for module in list(sys.modules.values()):
        file = getattr(module, "__file__", None)
        if file and os.path.dirname(file) == os.path.dirname(plugin.__file__):
            with open(file, encoding="utf-8") as source:
                SOURCES[file] = source.read().splitlines()


def guard_all():
    for name, contract in list(vars(exports).items()):
        if isinstance(contract, type) and hasattr(plugin, name):
            guard(getattr(plugin, name), contract)
        elif isinstance(contract, types.ModuleType) and name in sys.modules:
            # A resource, such as a session of a parser, is a class in a module that is named like its interface.
            for resource, held in vars(contract).items():
                owner = getattr(sys.modules[name], resource, None)
                if isinstance(held, type) and getattr(held, "_is_protocol", False) and owner:
                    guard(owner, held)


guard_all()
keep_sources()
sys.stdout, sys.stderr = Lines(host.Level.INFO), Lines(host.Level.WARN)
