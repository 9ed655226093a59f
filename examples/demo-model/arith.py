"""Sums and differences: the steps inside the think block, and ways to ask."""

from words import CITY, FIRST, ITEM, PRODUCT  # noqa: F401  (word problems)

ASK = {
    "+": ("what is {a} + {b}", "what is {a} + {b}", "{a} + {b}", "{a}+{b}", "{a} + {b} = ", "what's {a} plus {b}", "{a} plus {b}",
          "add {a} and {b}", "add {b} to {a}", "what is the sum of {a} and {b}", "how much is {a} + {b}", "calculate {a} + {b}",
          "compute {a} plus {b}", "what do you get if you add {a} and {b}", "how much is {a} and {b} together",
          "work out {a} + {b}", "what does {a} + {b} make", "sum {a} and {b}", "what is {a}+{b}", "solve {a} + {b}"),
    "-": ("what is {a} - {b}", "what is {a} - {b}", "{a} - {b}", "{a}-{b}", "{a} - {b} = ", "what's {a} minus {b}", "{a} minus {b}",
          "subtract {b} from {a}", "take {b} away from {a}", "take {b} from {a}", "how much is {a} - {b}", "calculate {a} - {b}",
          "compute {a} minus {b}", "what is {a} less {b}", "what is left if you take {b} from {a}", "work out {a} - {b}",
          "what is {a}-{b}", "what do you get if you subtract {b} from {a}", "solve {a} - {b}"),
}
STORY = {
    "+": ("{p} has {a} {o} and buys {b} more. How many {o} does {p} have?",
          "I have {a} {o} and get {b} more. How many do I have now?",
          "There are {a} {o} in one box and {b} in another. How many are there in all?",
          "{p} sold {a} {o} on Monday and {b} on Tuesday. How many in total?",
          "A train carries {a} people and {b} more get on. How many are on the train?",
          "We had {a} {o}, then {b} arrived. How many {o} do we have?"),
    "-": ("{p} has {a} {o} and gives away {b}. How many {o} are left?",
          "I have {a} {o} and lose {b}. How many do I have now?",
          "There are {a} {o} in a box and {b} are taken out. How many are left?",
          "{p} had {a} {o} and sold {b}. How many {o} does {p} still have?",
          "A train carries {a} people and {b} get off. How many are on the train?",
          "We had {a} {o}, then {b} broke. How many {o} do we have left?"),
}
NEXT = {
    "+": ("add {b}", "now add {b}", "add {b} to that", "plus {b}", "and plus {b}", "and if you add {b}", "add {b} to the result",
          "what is that plus {b}", "and {b} more"),
    "-": ("subtract {b}", "now subtract {b}", "subtract {b} from that", "minus {b}", "and minus {b}", "take {b} away from that",
          "take away {b}", "what is that minus {b}", "and {b} less"),
}
RECALL = ("what was the result", "what was the result again", "what was the answer", "can you repeat the result",
          "remind me of the result", "what did we get", "say the result again", "what was that sum again")


def value(a, op, b):
    return a + b if op == "+" else a - b


def steps(a, op, b):
    """Say the sum again, write it with as many digits above and below, then go column by column from the right.

    What follows the bar is the part of the result that is known so far.
    """
    if op == "+" and a < 0:
        return "\n".join((f"{a} + {b}", steps(b, "-", -a)))
    if op == "-" and a < 0:
        return "\n".join((f"{a} - {b}", steps(-a, "+", b), str(a - b)))
    big, small = (a, b) if op == "+" or a >= b else (b, a)
    width = len(str(max(a, b)))
    above, below = f"{big:0{width}}", f"{small:0{width}}"
    lines = [f"{a} {op} {b}"]
    if op == "-":
        lines.append(f"{a} < {b}" if a < b else f"{a} > {b}" if a > b else f"{a} = {b}")
    lines.append(f"{above} {op} {below}")
    carry, known = 0, ""
    for x, y in zip(reversed(above), reversed(below)):
        x, y, tail = int(x), int(y), f" {op} 1" if carry else ""
        if op == "+":
            total = x + y + carry
            carry = total // 10
            lines.append(f"{x} + {y}{tail} = {total} | ")
        else:
            total = x - y - carry + 10 * (x - y - carry < 0)
            carry = int(x - y - carry < 0)
            lines.append(f"{x + 10 * carry} - {y}{tail} = {total} | ")
        known = str(total if len(known) == width - 1 else total % 10) + known
        lines[-1] += known
    lines.append(str(value(a, op, b)))
    return "\n".join(lines)


def answer(a, op, b, think=True):
    text = f"{a} {op} {b} = {value(a, op, b)}."
    return f"<think>\n{steps(a, op, b)}\n</think>\n\n{text}" if think else text


def number(d):
    return d.choice((d.randint(0, 9), d.randint(10, 99), d.randint(10, 99), d.randint(0, 999), d.randint(100, 999),
                     d.randint(100, 999), d.randint(1000, 9999) if d.chance(0.4) else d.randint(0, 999)))


def pair(d):
    """Operands; a tenth of the pairs is never seen in training."""
    while True:
        a, op, b = number(d), d.choice("+-"), number(d)
        if op == "-" and a < b and d.chance(0.6):
            a, b = b, a
        if d.chance(0.12):  # equal digits are rare by chance, and a case of their own
            b += a % 10 - b % 10
        if ((a * 7919 + b * 31 + (op == "+")) % 10 == 0) == d.held_out:
            return a, op, b


def question(d, a, op, b):
    from world import AFTER, BEFORE, noise
    if a >= 2 and b >= 2 and (op == "+" or a >= b) and d.chance(0.2):
        o = d.pick(PRODUCT) + "s" if d.chance(0.6) else d.choice(("apples", "pears", "coins", "books", "eggs", "stamps"))
        return d.choice(STORY[op]).format(a=a, b=b, p=d.first(), o=o)
    q = d.choice(BEFORE) + d.choice(ASK[op]).format(a=a, b=b) + d.choice(AFTER)
    return noise(d, q, 0.05) + d.choice(("?", "?", "?", "", "."))
