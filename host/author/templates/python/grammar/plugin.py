"""A grammar for answers that are one of a few words: the regular expression `yes|no|perhaps`, without
any other operator. Everything else is unsupported, and a binding with `on_failure = "fallback"` hands it
to the grammar that is part of the server. The matcher is in grammar.py."""

import grammar
from componentize_py_types import Err
from wit_world import exports
from wit_world.imports import vocabulary
from wit_world.imports.types import Fault_Unsupported, GrammarSource_Regex


class Lifecycle(exports.Lifecycle):
    def prepare(self) -> None:
        table = vocabulary.get()
        control = set(table.control)
        for token, (start, end) in enumerate(zip(table.offsets, table.offsets[1:])):
            if start < end and token not in control:
                grammar.tokens[token] = table.bytes[start:end]
        grammar.ends.extend(table.eos)


class Grammar(exports.Grammar):
    def compile(self, source):
        if not isinstance(source, GrammarSource_Regex):
            raise Err(Fault_Unsupported("only words, such as `yes|no`"))
        if any(operator in source.value for operator in "\\.^$*+?()[]{}"):
            raise Err(Fault_Unsupported(f"`{source.value}` has operators other than `|`"))
        return grammar.Matcher([word.encode() for word in source.value.split("|")], [])
