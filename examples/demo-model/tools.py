"""Tools: families known from everyday examples, and tools that nobody has seen.

A tool is a dict: name, description, args. An argument is a dict: name, kind,
description, required, and for enums its options.
"""

from words import ADJ, COLOUR, COUNTRY, ITEM, NOUN, PARAM, PRODUCT, TOPIC, VERB

UNITS = [["celsius", "fahrenheit"], ["celsius", "fahrenheit"], ["c", "f"], ["metric", "imperial"], ["C", "F"]]
LANGS = "French German Spanish Italian Dutch Polish Czech Greek Turkish Swedish Danish Finnish Japanese Korean Hindi Arabic".split()
MONEY = "USD EUR GBP JPY CHF SEK NOK DKK PLN CZK CAD AUD INR BRL MXN ZAR".split()
MEASURE = "km miles meters feet inches cm kg pounds grams ounces liters gallons yards".split()

# name | description | argument: names/kind[!optional] ; … | ways to ask
FAMILIES = """
get_weather get_current_weather weather fetch_weather check_weather weather_lookup getWeather current_weather weather_report get_forecast|Get current temperature for a given location.;Get the current weather in a given location;Weather for a city;Returns the weather.;Look up the weather.|location city place town city_name area:place;unit units temperature_unit scale:unit?|what's the weather like in {0};what is the weather in {0};weather in {0};is it raining in {0};how warm is it in {0};what's the weather like in {0} today;how is the weather in {0};do I need an umbrella in {0};is it cold in {0};tell me the weather in {0};temperature in {0};what is the temperature in {0};what is the weather like in {0}
get_time current_time get_current_time time clock fetch_time getTime local_time time_in_city world_clock|Get the current time in a city.;Returns the local time;The current time of a place;Tells the time.|city location place town timezone:place|what time is it in {0};what's the time in {0};time in {0};tell me the time in {0};how late is it in {0};what is the current time in {0};do you know what time it is in {0}
calculator calculate calc evaluate math compute do_math eval_expression|Evaluate an arithmetic expression.;A calculator;Computes the value of an expression;Does arithmetic.|expression expr formula input equation:expr|what is {0};calculate {0};compute {0};how much is {0};{0};work out {0};evaluate {0};use the calculator for {0}
multiply product multiply_numbers times|Multiply two numbers.;Returns the product of two numbers|a x first left:number;b y second right:number|what is {0} times {1};multiply {0} by {1};{0} * {1};how much is {0} times {1};{0} times {1};what is {0} * {1}
add add_numbers sum_numbers plus|Add two numbers.;Returns the sum of two numbers|a x first left:number;b y second right:number|what is {0} plus {1};add {0} and {1};{0} + {1};how much is {0} + {1};what is {0} + {1};sum {0} and {1}
search web_search search_web google lookup find_information search_engine|Search the web.;Find pages about a topic;Runs a web search|query q search_query text terms:phrase;limit max_results count n:int?|search for {0};search the web for {0};look up {0};find information about {0};google {0};find pages about {0};can you search for {0}
convert_units unit_converter convert_unit unit_conversion|Convert a value from one unit to another.;Converts units of measure|value amount quantity number:number;from_unit from source_unit:measure;to_unit to target_unit:measure|convert {0} {1} to {2};how many {2} are {0} {1};what is {0} {1} in {2};{0} {1} in {2}
convert_currency currency_converter exchange convert_money currency_exchange|Convert money between currencies.;Exchange rates|amount value sum:number;from_currency from source base:money;to_currency to target:money|convert {0} {1} to {2};how much is {0} {1} in {2};what is {0} {1} in {2};exchange {0} {1} for {2};change {0} {1} into {2}
send_email email send_mail compose_email mail|Send an email.;Sends a message to an address|to recipient address email:email;subject title:phrase;body text message content:sentence?|send an email to {0} with the subject {1};email {0} about {1};write an email to {0}, subject {1};mail {0} about {1}
send_message message text send_sms notify|Send a message to a person.;Sends a short text message|to recipient contact person name:person;message text body content:sentence|tell {0}: {1};send a message to {0}: {1};text {0} "{1}";send {0} the message "{1}";message {0}: {1}
set_timer timer start_timer countdown create_timer|Set a timer.;Starts a countdown;Timer|minutes duration duration_minutes length:int|set a timer for {0} minutes;start a timer of {0} minutes;timer {0} minutes;wake me in {0} minutes;set a {0} minute timer;count down {0} minutes
set_alarm alarm create_alarm wake_me|Set an alarm.;Rings at a given time|time at clock when:clock;label name title note:phrase?|set an alarm for {0};wake me at {0};alarm at {0};set the alarm to {0};I want to get up at {0}
create_reminder remind add_reminder set_reminder reminder|Create a reminder.;Reminds the user of something|text task message what:phrase;time when at due:clock|remind me of {0} at {1};set a reminder for {0} at {1};reminder: {0} at {1};create a reminder for {0} at {1}
translate translate_text translation translator|Translate text.;Translates a text into a language|text input phrase source_text:quoted;language target_language to lang target:lang|translate {0} into {1};translate {0} to {1};how do you say {0} in {1};what is {0} in {1};say {0} in {1}
get_stock_price stock_price stock get_quote quote|Get the price of a stock.;Current stock price|symbol ticker stock:ticker|what is the price of {0};stock price of {0};how is {0} doing;get the quote for {0};what does {0} trade at;price of the stock {0}
book_flight flight search_flights find_flights flights|Book a flight.;Find flights between two cities|from origin departure from_city source:city;to destination arrival to_city:city;date day departure_date:date?|book a flight from {0} to {1};find flights from {0} to {1};I want to fly from {0} to {1};flights from {0} to {1};get me from {0} to {1}
create_event add_event schedule_meeting calendar new_event|Create a calendar event.;Adds an event to the calendar|title name subject summary:phrase;date day on:date;time start at:clock?|create an event {0} on {1};schedule {0} on {1};add {0} to my calendar on {1};plan {0} for {1};put {0} on {1}
play_music play play_song music start_song|Play music.;Plays a song or an artist|song title track artist query:person|play {0};play some {0};I want to hear {0};put on {0};start playing {0};music by {0}
set_light light lights control_light lamp|Control a light.;Switch a light on or off|room location zone where:room;on state power enabled:onoff|turn {1} the light in the {0};switch {1} the {0} light;turn the {0} light {1};light {1} in the {0}
set_temperature thermostat heating set_thermostat|Set the thermostat.;Sets the temperature of a room|room zone location where:room;temperature degrees value target:int|set the {0} to {1} degrees;heat the {0} to {1} degrees;make it {1} degrees in the {0};set the temperature in the {0} to {1}
get_user find_user user_info lookup_user get_customer|Look up a user.;Finds a user by id|user_id id uid number:int|who is user {0};find user {0};look up user {0};show user {0};get the user with id {0};information about user {0}
order_status track_order get_order track_parcel|Get the status of an order.;Tracks an order|order_id id number order code:code|where is order {0};what is the status of order {0};track order {0};track {0};where is my parcel {0};order {0}, where is it
distance get_distance route directions get_directions|Distance between two places.;Finds a route|from origin start start_city:city;to destination end end_city:city|how far is it from {0} to {1};distance from {0} to {1};how do I get from {0} to {1};route from {0} to {1};directions from {0} to {1}
add_to_cart buy order_product purchase order_item|Order a product.;Adds a product to the cart|product item name article:product;quantity count amount number:int|buy {1} {0}s;order {1} {0}s;I need {1} {0}s;add {1} {0}s to the cart;get me {1} {0}s
shopping_list add_items add_to_list|Add items to the shopping list.;Adds to a list|items products things list:items|add {0} to the list;put {0} on my shopping list;I need {0};we are out of {0};add {0}
get_recipe find_recipe recipe recipes|Find a recipe.;Recipes for a dish|dish ingredient name query:food|a recipe with {0};find a recipe for {0};how do I cook {0};what can I make with {0};recipe for {0}
get_news news headlines latest_news|Get the latest news.;News about a topic|topic subject category about:topic|news about {0};what is new in {0};latest news on {0};headlines about {0};any news on {0}
""".strip().splitlines()

ROOMS = "kitchen bedroom bathroom office garage hall cellar attic garden nursery library".split() + ["living room", "dining room"]


def sample(d, kind, options=None):
    """A value of a kind: (as JSON, as the user writes it)."""
    if kind == "place":
        city = d.city()
        if d.chance(0.12):
            city += ", " + d.pick(COUNTRY)
        return city, city
    if kind in ("city", "person", "email", "date", "clock", "code", "phrase"):
        v = getattr(d, kind)()
        return v, v
    if kind == "int":
        v = d.integer()
        return v, str(v)
    if kind == "number":
        v = d.integer() if d.chance(0.75) else d.decimal()
        return v, str(v)
    if kind == "expr":
        v = f"{d.integer()} {d.choice('+-**/')} {d.integer()}"
        if d.chance(0.15):
            v += f" {d.choice('+-*')} {d.integer()}"
        v = v.replace(" ", "") if d.chance(0.25) else v
        return v, v
    if kind == "ticker":
        v = d.made_up(2)[:d.randint(3, 4)].upper()
        return v, v
    if kind == "quoted":
        v = d.phrase()
        return v, f'"{v}"' if d.chance(0.6) else f"'{v}'"
    if kind == "sentence":
        v = d.choice(("{a} {p} is {j}", "the {p} is {j}", "bring the {p}", "see you at {t}", "call {n}", "I need {p}",
                      "the {j} {p} arrived", "I am in {c}", "meet {n} in {c}")).format(
            a=d.pick(ADJ), p=d.word(PRODUCT), j=d.pick(ADJ), t=d.clock(), n=d.first(), c=d.city())
        return v, v
    if kind == "onoff":
        v = d.chance(0.5)
        return v, "on" if v else "off"
    if kind == "items":
        v = [d.word(ITEM, 0.25) for _ in range(d.randint(1, 3))]
        return v, v[0] if len(v) == 1 else ", ".join(v[:-1]) + " and " + v[-1]
    if kind == "enum":
        v = d.choice(options)
        return v, v
    lists = {"measure": MEASURE, "money": MONEY, "lang": LANGS, "room": ROOMS, "product": PRODUCT, "topic": TOPIC, "food": ITEM,
             "colour": COLOUR}
    v = d.word(lists[kind], 0.15 if kind in ("room", "product", "topic", "food") else 0)
    return v, v


def arg(d, name, kind, required=True, options=None, description=None):
    return {"name": name, "kind": kind, "required": required, "options": options, "description": description}


def family_tool(d, line=None):
    names, descriptions, args, asks = (line or d.choice(FAMILIES)).split("|")
    made = []
    for spec in args.split(";"):
        labels, kind = spec.split(":")
        optional, kind = kind.endswith("?"), kind.rstrip("?")
        labels = labels.split()
        if optional and d.chance(0.6):
            continue
        name = labels[0] if d.chance(0.5) else d.choice(labels)
        if d.chance(0.06):
            name = d.made_up()
        options = d.choice(UNITS) if kind == "unit" else None
        made.append(arg(d, name, "enum" if options else kind, not optional, options,
                        f"The {labels[d.randint(0, len(labels) - 1)].replace('_', ' ')}"))
    name = d.choice(names.split())
    if d.chance(0.08):
        name = d.choice((d.made_up() + "_" + name, name + "_" + d.made_up(), d.made_up()))
    seen = set()
    for a in made:
        while a["name"] in seen:
            a["name"] = d.made_up()
        seen.add(a["name"])
    return {"name": name, "description": d.choice(descriptions.split(";")), "args": made, "asks": asks.split(";")}


def family_call(d, tool):
    """A request for a tool of a family, and the arguments it should be called with."""
    needed = [a for a in tool["args"] if a["required"]]
    pairs = {a["name"]: sample(d, a["kind"], a["options"]) for a in tool["args"]}
    text = d.choice(tool["asks"]).format(*[pairs[a["name"]][1] for a in needed])
    arguments = {}
    for a in tool["args"]:
        value, said = pairs[a["name"]]
        if not a["required"]:
            if d.chance(0.5):
                continue
            label = a["name"].replace("_", " ")
            if a["kind"] == "enum":
                text += d.choice((f" in {said}", f", in {said}", f", use {said}", f" ({said})", f", {label} {said}"))
            else:
                text += d.choice((f", {label} {said}", f" with {label} {said}", f", {label}: {said}"))
        arguments[a["name"]] = value
    return text, arguments


KINDS = ["phrase", "int", "int", "number", "person", "city", "email", "date", "clock", "code", "bool", "enum", "word", "word", "items",
         "quoted", "title"]


def synthetic_tool(d):
    verb, noun = d.word(VERB, 0.3), d.word(NOUN, 0.45)
    name = d.choice(("{v}_{n}", "{v}_{n}", "{v}_{n}", "{n}_{v}", "{v}{N}", "{v}-{n}", "{n}", "{v}_{m}_{n}")).format(
        v=verb, n=noun, N=noun.capitalize(), m=d.word(ADJ, 0.5))
    args, seen = [], set()
    for _ in range(d.choice((0, 1, 1, 1, 2, 2, 2, 3, 3, 4))):
        p = d.word(PARAM, 0.3)
        if d.chance(0.12):
            p = f"{p}_{d.word(PARAM, 0.4)}"
        if p in seen or p == noun:
            continue
        seen.add(p)
        kind = d.choice(KINDS)
        options = None
        if kind == "enum":
            options = list(dict.fromkeys(d.word(d.choice((COLOUR, ADJ, TOPIC)), 0.3) for _ in range(d.randint(2, 4))))
        args.append(arg(d, p, kind, d.chance(0.75), options,
                        d.choice(("The {l} of the {n}", "{L}", "The {l}", "Which {l} to use", "{L} for the {n}")).format(
                            l=p.replace("_", " "), L=p.replace("_", " ").capitalize(), n=noun)))
    said = verb.replace("_", " ")
    description = d.choice(("{V} a {n}.", "{V} the {n}", "{V}s a {n}", "Use this to {v} a {n}.", "{V} one {n}", "Tool to {v} the {n}.")).format(
        V=said.capitalize(), v=said, n=noun)
    return {"name": name, "description": description, "args": args, "verb": said, "noun": noun}


def synthetic_value(d, a):
    if a["kind"] == "bool":
        v = d.chance(0.5)
        return v, v
    if a["kind"] == "word":
        v = d.made_up()
        v = d.choice((v, v, v.capitalize(), v.upper(), v + str(d.randint(1, 99))))
        return v, v
    if a["kind"] == "title":
        v = " ".join(w.capitalize() for w in d.phrase().split())
        return v, v
    return sample(d, a["kind"], a["options"])


def synthetic_call(d, tool):
    text = d.choice(("{v} the {n}", "please {v} the {n}", "can you {v} a {n}", "{v} a {n}", "I want to {v} a {n}", "{v} {n}",
                     "could you {v} the {n}", "we need to {v} the {n}", "{v} the {n} now")).format(v=tool["verb"], n=tool["noun"])
    chosen = [a for a in tool["args"] if a["required"] or d.chance(0.5)]
    pairs = {a["name"]: synthetic_value(d, a) for a in chosen}
    order = list(chosen)
    if d.chance(0.5):
        d.shuffle(order)
    for i, a in enumerate(order):
        value, said = pairs[a["name"]]
        label = a["name"].replace("_", " ") if d.chance(0.85) else a["name"]
        if a["kind"] == "bool":
            part = d.choice(("with {l}", "with {l} on", "{l} true", "{l}: yes", "{l} enabled") if value else
                            ("without {l}", "with {l} off", "{l} false", "{l}: no", "{l} disabled")).format(l=label)
        else:
            if isinstance(value, str) and a["kind"] != "quoted" and d.chance(0.15):
                said = f'"{said}"'
            part = d.choice(("{l} {s}", "with {l} {s}", "{l}: {s}", "the {l} is {s}", "{l} = {s}", "with {s} as {l}",
                             "set {l} to {s}", "use {s} for the {l}")).format(l=label, s=said)
        text += (d.choice((", ", " ", ": ", ". ", "; ")) if i == 0 else d.choice((", ", " and ", ", and ", "; "))) + part
    return text, {a["name"]: pairs[a["name"]][0] for a in chosen}


JSON_TYPE = {"int": "integer", "number": "number", "bool": "boolean", "onoff": "boolean", "items": "array"}


def declaration(d, tool):
    """The OpenAI object of a tool, in one of the many styles people use."""
    style = d.random()
    properties = {}
    for a in tool["args"]:
        p = {"type": JSON_TYPE.get(a["kind"], "string")}
        if a["kind"] == "int" and d.chance(0.15):
            p["type"] = "number"
        if p["type"] == "array":
            p["items"] = {"type": "string"}
        if a["options"]:
            p["enum"] = a["options"]
        if a["description"] and style > 0.35 and d.chance(0.8):
            p["description"] = a["description"]
            if d.chance(0.2):
                p = dict(reversed(p.items()))
        properties[a["name"]] = p
    parameters = {"type": "object", "properties": properties}
    if d.chance(0.85):
        parameters["required"] = [a["name"] for a in tool["args"] if a["required"]]
    if d.chance(0.15):
        parameters["additionalProperties"] = False
    function = {"name": tool["name"], "description": tool["description"], "parameters": parameters}
    if style < 0.1:
        del function["description"]
    if not tool["args"] and d.chance(0.4):
        function["parameters"] = {"type": "object", "properties": {}}
    if d.chance(0.07):
        function["strict"] = True
    out = {"type": "function", "function": function}
    if d.chance(0.04):  # a renderer may sort the keys
        out = sort_keys(out)
    return out


def sort_keys(value):
    if isinstance(value, dict):
        return {k: sort_keys(value[k]) for k in sorted(value)}
    return [sort_keys(v) for v in value] if isinstance(value, list) else value
