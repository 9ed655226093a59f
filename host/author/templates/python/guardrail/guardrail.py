"""One answer being read: it ends or is mended where it says a word of the list."""

import re

from wit_world.exports import guardrail as wit

rules = {"words": ["swordfish"], "replace_with": None}


def find(text: str) -> tuple[int, int] | None:
    """The first word in the text: where it begins, and where it ends."""
    pattern = "|".join(re.escape(word) for word in rules["words"])
    found = re.search(pattern, text, re.IGNORECASE) if pattern else None
    return found.span() if found else None


def may_go_on(text: str) -> bool:
    """Whether the text ends in the middle of a word."""

    def begins(word: str) -> bool:
        end = text[max(0, len(text) - len(word) + 1) :].lower()
        return any(word.lower().startswith(end[at:]) for at in range(len(end)))

    return any(begins(word) for word in rules["words"])


def mended(text: str) -> str:
    said = ""
    while found := find(text):
        said += text[: found[0]] + rules["replace_with"]
        text = text[found[1] :]
    return said + text


def refuse(message: str) -> wit.Verdict:
    return wit.Verdict_Refuse(wit.Refusal("word", message))


def out_of(text: str, held: int) -> int:
    """Number of characters before the last `held` bytes of the text."""
    content = text.encode()
    return len(content[: max(0, len(content) - held)].decode(errors="ignore"))


class Session(wit.Session):
    def __init__(self, mends: bool):
        self.mends = mends
        # Text since all of it went out.
        self.text = ""

    def verdict(self, out: int) -> wit.Verdict:
        """The verdict on the text, of which the first `out` characters went out."""
        found = find(self.text)
        if found is None:
            return wit.Verdict_Pass()
        if self.mends and found[0] >= out:
            return wit.Verdict_Replace(mended(self.text[out:]))
        return refuse("the answer has a word that may not be used")

    def feed(self, part, text, held):
        out = out_of(self.text, held)
        self.text += text
        verdict = self.verdict(out)
        # The end may belong to another word; once it does not, the text is mended as a whole.
        if not isinstance(verdict, wit.Verdict_Refuse) and may_go_on(self.text):
            return wit.Verdict_Undecided()
        self.text = ""
        return verdict

    def close(self, reason, held):
        return self.verdict(out_of(self.text, held))
