"""One sequence being constrained to a few words."""

from componentize_py_types import Err
from wit_world.exports import grammar as wit
from wit_world.exports.grammar import Status, Step
from wit_world.imports import mask_sink
from wit_world.imports.types import Fault_Internal

# The bytes of each token that is text, and the tokens that end an answer.
tokens: dict[int, bytes] = {}
ends: list[int] = []


class Matcher(wit.Matcher):
    def __init__(self, words: list[bytes], taken: list[int]):
        self.words = words
        self.taken = taken

    def rests(self) -> list[bytes]:
        """The bytes that may follow what was taken."""
        text = b"".join(tokens[token] for token in self.taken)
        return [word[len(text):] for word in self.words if word.startswith(text)]

    def status(self, rests: list[bytes]) -> Status:
        if b"" not in rests:
            return Status.ACTIVE
        return Status.FINISHED if len(rests) == 1 else Status.ACCEPTING

    def accept(self, new: list[int]) -> int:
        """Take tokens up to the first that does not fit; how many that were."""
        for count, token in enumerate(new):
            text = tokens.get(token)
            if text is None or not any(rest.startswith(text) for rest in self.rests()):
                return count
            self.taken.append(token)
        return len(new)

    def mask(self, slot):
        rests = self.rests()
        status = self.status(rests)
        # The tokens that begin a rest: few, so they are looked for among the texts of all.
        beginnings = {rest[:end] for rest in rests for end in range(1, len(rest) + 1)}
        allowed = [token for token, text in tokens.items() if text in beginnings]
        mask_sink.only(slot, allowed if status == Status.ACTIVE else allowed + ends)
        return status

    def advance(self, tokens, slot):
        taken = self.accept(tokens)
        if taken < len(tokens):
            self.rollback(taken)
            raise Err(Fault_Internal(f"token {tokens[taken]} does not fit"))
        return Step(status=self.mask(slot), forced=[])

    def probe(self, tokens):
        taken = self.accept(tokens)
        self.rollback(taken)
        return taken

    def rollback(self, count):
        if count > len(self.taken):
            raise Err(Fault_Internal(f"{count} tokens were not taken"))
        del self.taken[len(self.taken) - count:]

    def fork(self):
        return Matcher(self.words, list(self.taken))
