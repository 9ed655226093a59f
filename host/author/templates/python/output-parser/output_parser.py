"""One answer being parsed. A call of a tool that was not declared, or one whose arguments are no JSON
object, stays content, exactly as it was generated."""

import json

from wit_world.exports import output_parser as wit

markers = {"open": "[[", "close": "]]"}


class Session(wit.Session):
    def __init__(self, names: list[str], parallel: bool):
        self.names = names
        self.parallel = parallel
        # Text that may yet turn out to be a call, and how much of it was searched for the closing mark.
        self.held = ""
        self.searched = 0
        self.calls = 0

    def feed(self, text, tokens):
        self.held += text
        return list(self.parse(last=False))

    def close(self, reason):
        return list(self.parse(last=True))

    def parse(self, last: bool):
        """Hand out all that is certain. How the text was cut into pieces changes nothing: what happens
        next depends on the held text alone."""
        opening, closing = markers["open"], markers["close"]
        while True:
            start = self.held.find(opening)
            if start < 0:
                keep = 0 if last else beginning_of(self.held, opening)
                yield from self.release(len(self.held) - keep)
                return
            yield from self.release(start)
            end = self.held.find(closing, max(len(opening), self.searched))
            if end < 0:
                # The mark may be cut in two.
                self.searched = max(0, len(self.held) - len(closing) + 1)
                if last:
                    yield from self.release(len(self.held))
                return
            size = end + len(closing)
            call = self.call(self.held[len(opening):end])
            if call is None:
                yield from self.release(size)
            else:
                self.drop(size)
                yield from call

    def call(self, text: str):
        """`name {…}` as the events of a call, if it is one of a declared tool."""
        name, _, arguments = text.partition(" ")
        try:
            value = json.loads(arguments)
        except (ValueError, RecursionError):
            return None
        if name not in self.names or not isinstance(value, dict):
            return None
        if self.calls > 0 and not self.parallel:
            return []
        index = self.calls
        self.calls += 1
        return [
            wit.Event_CallBegin(wit.CallBegin(index, None, name)),
            wit.Event_CallArguments(wit.CallArguments(index, arguments.strip())),
            wit.Event_CallEnd(index),
        ]

    def release(self, count: int):
        """Hand out the beginning of what is held as content."""
        if count > 0:
            yield wit.Event_Content(self.held[:count])
            self.drop(count)

    def drop(self, count: int) -> None:
        self.held = self.held[count:]
        self.searched = 0


def beginning_of(text: str, marker: str) -> int:
    """Length of the longest end of `text` that begins `marker`."""
    lengths = range(min(len(text), len(marker) - 1), 0, -1)
    return next((length for length in lengths if text.endswith(marker[:length])), 0)
