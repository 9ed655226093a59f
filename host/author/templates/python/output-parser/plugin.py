"""An output parser for models that write a tool call as [[name {"argument": 1}]]. The markers are in
the settings: {"open": "[[", "close": "]]"}. The session is in output_parser.py."""

import json

import output_parser
from wit_world import exports
from wit_world.exports.output_parser import ToolChoice_None_, Traits
from wit_world.imports import settings


class Lifecycle(exports.Lifecycle):
    def prepare(self) -> None:
        output_parser.markers.update(json.loads(settings.get()))


class OutputParser(exports.OutputParser):
    def describe(self):
        return Traits(keep_special_tokens=False)

    def constraint(self, setup, wanted):
        """A parser whose calls may be forced returns the grammar of its format here."""
        return wanted

    def open(self, setup):
        names = [tool["function"]["name"] for tool in json.loads(setup.tools)]
        if not names or isinstance(setup.tool_choice, ToolChoice_None_):
            # Nothing can be a call: the host passes the text on without asking us.
            return None
        return output_parser.Session(names, setup.parallel)
