"""Facts in a sentence become fields in JSON."""

import json

from toolchat import system
from words import CITY, COLOUR, COUNTRY, ITEM, JOB, NOUN, PARAM, PRODUCT  # noqa: F401

# the field's usual name first, then names a schema may use for it
NAMES = {
    "name": "name full_name person who", "age": "age years age_years", "city": "city location town home place",
    "job": "job profession occupation work", "email": "email mail email_address contact", "country": "country nation",
    "product": "product item article name", "price": "price cost amount", "quantity": "quantity count amount number",
    "colour": "colour color", "customer": "customer buyer name client", "date": "date day when", "time": "time start hour",
    "place": "place location city venue", "title": "title event name subject", "order": "order order_id id", "in_stock": "in_stock available",
    "author": "author writer by", "year": "year published", "items": "items products list", "from": "from origin start",
    "to": "to destination end", "phone": "phone phone_number tel",
}
# group | fields | sentences
TEXTS = """
person|name age city|{name} is {age} years old and lives in {city}.;{name} is {age} and lives in {city}.;{name}, {age}, lives in {city}.;My name is {name}, I am {age} and I live in {city}.;In {city} lives {name}, who is {age} years old.;{name} ({age}) from {city}
person|name age|{name} is {age} years old.;{name} is {age}.;{name}, {age}.;I am {name} and I am {age} years old.;{name}, aged {age}
person|name city|{name} lives in {city}.;{name} is from {city}.;I am {name} from {city}.;{name} moved to {city}.
person|name job|{name} is a {job}.;{name} works as a {job}.;I am {name}, a {job}.
person|name age job city|{name} is a {age} year old {job} from {city}.;{name}, {age}, works as a {job} in {city}.;{name} is {age}, lives in {city} and works as a {job}.
person|name email|{name} can be reached at {email}.;Write to {name} at {email}.;{name} <{email}>;My name is {name} and my email is {email}.
person|name email city|{name} lives in {city}, email {email}.;{name} from {city} has the address {email}.
person|name phone|{name} has the phone number {phone}.;Call {name} at {phone}.;{name}, phone {phone}
person|name country age|{name} comes from {country} and is {age}.;{name} is {age} years old and was born in {country}.
product|product price|The {product} costs {price} dollars.;A {product} for {price} euros.;{product}: {price};The price of the {product} is {price}.
product|product colour price|The {colour} {product} costs {price}.;A {colour} {product} for {price} dollars.;{product}, {colour}, {price} euros
product|product price in_stock|The {product} costs {price} and is {in_stock}.;{product}, {price} dollars, {in_stock}.
order|customer quantity product|{customer} bought {quantity} {product}s.;{customer} ordered {quantity} {product}s.;{quantity} {product}s for {customer}.
order|order customer date|Order {order} by {customer} was placed on {date}.;{customer} placed order {order} on {date}.
order|quantity product price|{quantity} {product}s at {price} each.;{quantity} {product}s for {price} dollars
event|title date time|The {title} is on {date} at {time}.;{title}, {date}, {time};Join us for the {title} at {time} on {date}.
event|title date place|The {title} takes place in {place} on {date}.;{title} on {date} in {place}.
trip|name from to date|{name} flies from {from} to {to} on {date}.;On {date} {name} travels from {from} to {to}.
trip|from to|From {from} to {to}.;The train goes from {from} to {to}.
book|title author year|{title} was written by {author} in {year}.;{author} wrote {title} in {year}.;{title} by {author}, {year}
list|name items|{name} bought {items}.;{name} needs {items}.;{name} has {items} in the bag.
""".strip().splitlines()

ASK = ("Extract {f} as JSON: {t}", "Extract {f}: {t}", "Extract the {f} as JSON: {t}", "{t} Extract {f} as JSON.", "JSON with {f}: {t}",
       "Give me {f} as JSON: {t}", "Return {f} in JSON. {t}", "Find {f} in this text and answer with JSON: {t}", "{t}\n\nFields: {f}. Answer in JSON.",
       "From the text \"{t}\" extract {f} as JSON.", "Text: {t}\nKeys: {f}\nJSON:", "Turn this into JSON with the keys {f}: {t}",
       "Get {f} from: {t}")
OPEN = ("Extract the {g}: {t}", "Extract the {g} from: {t}", "Extract the data as JSON: {t}", "{t} Give me the data as JSON.", "{t} As JSON.",
        "As JSON: {t}", "Extract: {t}", "Turn this into JSON: {t}", "{t}\nReturn JSON.", "Extract the fields: {t}", "JSON: {t}",
        "Extract the {g} as JSON: {t}", "What are the facts here? Answer in JSON. {t}", "Parse this: {t}", "Extract the information: {t}")


def field_value(d, field):
    if field in ("name", "customer", "author"):
        return d.person()
    if field in ("city", "place", "from", "to"):
        return d.city()
    if field in ("email", "date"):
        return getattr(d, field)()
    return {
        "age": lambda: d.randint(1, 99), "job": lambda: d.word(JOB, 0.2), "country": lambda: d.pick(COUNTRY),
        "product": lambda: d.word(PRODUCT), "price": lambda: d.randint(1, 999) if d.chance(0.6) else d.decimal(),
        "quantity": lambda: d.randint(2, 99), "colour": lambda: d.word(COLOUR, 0.2), "time": d.clock, "order": d.code,
        "title": lambda: " ".join(w.capitalize() for w in d.phrase().split()), "in_stock": lambda: d.chance(0.5),
        "year": lambda: d.randint(1800, 2030), "phone": lambda: f"{d.randint(100, 999)}-{d.randint(1000, 9999)}",
        "items": lambda: [d.word(ITEM, 0.25) for _ in range(d.randint(2, 3))],
    }[field]()


def said(field, v):
    if field == "in_stock":
        return "in stock" if v else "sold out"
    if field == "items":
        return ", ".join(v[:-1]) + " and " + v[-1]
    return str(v)


def join(keys, d):
    if len(keys) == 1:
        return keys[0]
    return ", ".join(keys) if d.chance(0.3) else ", ".join(keys[:-1]) + " and " + keys[-1]


def dump(value, compact=False):
    return json.dumps(value, ensure_ascii=False, separators=(",", ":") if compact else None)


def known(d):
    """Values and the sentence they stand in."""
    group, fields, sentences = d.choice(TEXTS).split("|")
    fields = fields.split()
    values = {f: field_value(d, f) for f in fields}
    return group, fields, values, d.choice(sentences.split(";")).format(**{f: said(f, v) for f, v in values.items()})


def strange(d):
    """Fields that nobody has heard of."""
    values, parts = {}, []
    for _ in range(d.randint(1, 4)):
        key = d.word(PARAM, 0.4)
        if key in values:
            continue
        v = values[key] = d.choice((d.integer, d.integer, d.decimal, d.person, d.city, d.code, d.date, d.made_up, d.phrase))()
        label = key.replace("_", " ")
        parts.append(d.choice(("the {k} is {v}", "{k}: {v}", "{k} {v}", "{k} = {v}", "with {k} {v}", "its {k} is {v}")).format(k=label, v=v))
    start = d.choice(("", "", f"{d.word(NOUN).capitalize()}: ", f"For the {d.word(NOUN)}, "))
    text = start + ", ".join(parts)
    return "data", list(values), values, text[0].upper() + text[1:] + d.choice((".", ""))


def cut(d, fields):
    keys = d.sample(fields, d.randint(1, len(fields)))
    return keys if d.chance(0.5) else [f for f in fields if f in keys]


def asked(d):
    """The keys are named in the request."""
    group, fields, values, text = known(d) if d.chance(0.6) else strange(d)
    keys = cut(d, fields)
    names = {k: (d.choice(NAMES[k].split()) if k in NAMES and d.chance(0.4) else k) for k in keys}
    if len(set(names.values())) < len(keys):
        names = {k: k for k in keys}
    if d.chance(0.1):  # the schema stands in the prompt
        schema = {"type": "object", "properties": {names[k]: {"type": json_type(values[k])} for k in keys}}
        ask = f"{text}\n\nAnswer with JSON of this schema: {dump(schema)}"
    else:
        ask = d.choice(ASK).format(f=join(list(names.values()), d), t=text)
    return chat(d, ask, dump({names[k]: values[k] for k in keys}))


def json_type(v):
    for t, name in ((bool, "boolean"), (int, "integer"), (float, "number"), (list, "array")):
        if isinstance(v, t):
            return name
    return "string"


def open_ended(d):
    """No keys are named: all fields under their usual names."""
    group, fields, values, text = known(d) if d.chance(0.85) else strange(d)
    return chat(d, d.choice(OPEN).format(g=group, t=text), dump(values))


def forced(d):
    """A grammar forces keys that the prompt does not name: learn the values only."""
    group, fields, values, text = known(d) if d.chance(0.7) else strange(d)
    keys = cut(d, fields) if d.chance(0.6) else fields
    names = {k: (d.choice(NAMES[k].split()) if k in NAMES and d.chance(0.5) else k) for k in keys}
    if len(set(names.values())) < len(keys):
        names = {k: k for k in keys}
    compact = d.chance(0.3)
    answer, free = "{", []
    for i, k in enumerate(keys):
        sep = ("," if compact else ", ") if i else ""
        key = f'{sep}"{names[k]}":' + ("" if compact else " ")
        v = dump(values[k], compact)
        quote = int(v.startswith('"'))
        free.append((len(answer) + len(key) + quote, len(answer) + len(key) + len(v)))
        answer += key + v
    sample = chat(d, d.choice(OPEN).format(g=group, t=text), answer + "}")
    sample["learn"] = free
    return sample


def chat(d, ask, answer):
    return {"messages": system(d, 0.2) + [{"role": "user", "content": ask}, {"role": "assistant", "content": answer}]}
