"""Word lists, made-up words, and the wall between training and held-out values.

A value belongs to training or to the held-out side by a checksum of its text,
so the two sides can never meet, whatever the seeds are.
"""

import random
import zlib

FIRST = """Ada Alan Grace Linus Barbara Edsger Donald Margaret Ken Dennis Bjarne Guido Katherine Dorothy Mary Hedy
Radia Frances Jean Betty Kay Ida Ruth Anna Peter Paul John James Emma Olivia Noah Liam Lucas Mia Sofia Elena Marta
Ivan Olga Nina Igor Yuki Hana Kenji Mei Wei Ling Chen Ravi Priya Anil Asha Omar Leila Amina Yusuf Fatima Kofi Ama
Zuri Pedro Lucia Diego Carmen Pablo Ines Hugo Chloe Louis Claire Felix Greta Hans Karl Lena Lars Ingrid Sven Freya
Tomas Eva Petra Marek Zofia Jan Bruno Carla Dario Gina Marco Paola Rosa Tina Victor Walter Xenia Yara Zack Oscar
Ella Ben Sam Max Leo Ivy Zoe Amy Kim Lee Tom Tim Joe Dan Eve Bob Alice Carol Dave Frank Henry Iris Jack Nora""".split()
LAST = """Lovelace Turing Hopper Torvalds Liskov Dijkstra Knuth Hamilton Thompson Ritchie Johnson Vaughan Jackson
Lamarr Perlman Allen Smith Brown Jones Miller Davis Wilson Moore Taylor Clark Lewis Walker Hall Young King Wright
Scott Green Baker Adams Nelson Carter Garcia Lopez Silva Santos Costa Rossi Bianchi Ferrari Weber Fischer Schmidt
Becker Wagner Novak Kovacs Petrov Ivanova Tanaka Suzuki Sato Kim Park Chen Wang Singh Patel Kumar Khan Ali Hassan
Mensah Okafor Nkosi Jensen Hansen Larsen Berg Lind Virtanen Murphy Kelly Byrne Martin Dubois Laurent Moreau Stone
Woods Rivers Marsh Field Hill Brook Frost Snow Winter Summers Day Knight Page Bell Cook Mason Potter Fisher""".split()
CITY = """Paris London Berlin Madrid Rome Vienna Prague Lisbon Dublin Oslo Stockholm Helsinki Copenhagen Warsaw
Budapest Athens Istanbul Cairo Lagos Nairobi Accra Tunis Dakar Tokyo Kyoto Osaka Seoul Beijing Shanghai Delhi Mumbai
Bangkok Hanoi Jakarta Manila Singapore Sydney Melbourne Auckland Toronto Montreal Vancouver Boston Chicago Seattle
Denver Austin Dallas Miami Atlanta Houston Phoenix Portland Lima Bogota Quito Santiago Havana Geneva Zurich Basel
Munich Hamburg Cologne Milan Turin Naples Venice Florence Lyon Nice Lille Nantes Porto Seville Valencia Bilbao
Krakow Riga Tallinn Vilnius Sofia Belgrade Zagreb Bergen Malmo Ghent Bruges Utrecht Leeds York Bath Oxford
Cambridge Glasgow Cardiff Belfast Cork Galway Reykjavik Dubai Doha Amman Beirut Marrakesh Casablanca""".split()
CITY += ["New York", "San Francisco", "Los Angeles", "Buenos Aires", "Mexico City", "Cape Town", "Hong Kong",
         "Rio de Janeiro", "Tel Aviv", "São Paulo", "Zürich", "Málaga", "Kraków", "New Delhi", "Santa Fe"]
COUNTRY = """France Germany Spain Italy Austria Portugal Ireland Norway Sweden Finland Denmark Poland Hungary Greece
Turkey Egypt Nigeria Kenya Ghana Japan Korea China India Thailand Vietnam Australia Canada Peru Chile Cuba Brazil
Mexico Argentina Iceland Estonia Latvia Croatia Belgium Switzerland Morocco Tunisia""".split()
JOB = """engineer teacher nurse doctor lawyer baker carpenter painter writer singer farmer pilot chef designer
gardener plumber electrician librarian mechanic programmer scientist translator tailor waiter driver dentist
architect musician photographer journalist""".split()
PRODUCT = """laptop phone lamp chair table desk bottle cup bag book pen pencil notebook camera printer keyboard mouse
monitor speaker headset clock watch jacket shirt scarf hat boots gloves umbrella tent kettle toaster blender fridge
sofa carpet mirror vase candle hammer saw drill ladder rope bucket broom bicycle helmet guitar piano drum violin
puzzle kite ball racket skateboard backpack wallet blanket pillow teapot""".split()
COLOUR = "red green blue yellow black white grey orange purple pink brown silver gold cyan teal violet beige".split()
ITEM = """milk bread eggs butter cheese apples pears bananas rice pasta tea coffee sugar salt flour honey jam nuts
beans peas carrots onions tomatoes potatoes soup juice water wine chocolate yoghurt lemons grapes""".split()
TOPIC = """music history chess football cooking gardening robots physics poetry painting climate trains space oceans
volcanoes birds whales bees castles maps bridges rivers mountains tides stars planets comets dinosaurs fossils
coins stamps quilting pottery yoga sailing skiing surfing cycling tennis databases compilers networks kernels
jazz opera theatre films photography fashion travel nutrition sleep""".split()
ADJ = """quick slow bright dark warm cold new old small large quiet loud soft hard light heavy early late sweet dry
smart plain fresh deep wild calm""".split()
VERB = """get set create delete update find list send open close start stop add remove check fetch book cancel track
schedule lookup search compute convert measure read write save load share print scan sort merge split copy move
rename archive restore enable disable lock unlock approve reject assign invite register rate order ship refund
reserve play pause record upload download validate monitor publish""".split()
NOUN = """invoice order ticket user account device lamp door camera sensor room table flight hotel train parcel
shipment contract report document file folder image video song playlist album note task project meeting calendar
event alarm backup server cluster database record customer client supplier product stock price discount coupon
payment transfer loan policy claim patient recipe menu garden plant pump valve engine robot drone vehicle route
station map course lesson student exam grade library member badge key token session message channel comment post
survey poll vote review rating job batch queue printer scanner thermostat oven heater fan window curtain gate
elevator parking battery charger meter water energy weather forecast news article translation dictionary""".split()
PARAM = """id name title label code kind type status level count amount size length width height depth weight speed
duration distance temperature volume priority limit offset page year month day date hour minute start end from_date
to_date city country region address street zone floor room owner author sender recipient customer user_name group
team role language format currency unit colour brand model version category tag topic subject message text body
comment reason note query keyword filter sort_by order_by path file_name folder_name url host port key value token
account_id order_id ticket_id user_id item_id product_name quantity price discount rating score mode channel
destination origin carrier seat_class gate_number serial_number batch_size retry_count max_results min_price
max_price due_date start_time end_time time_zone phone_number email""".split()

_ONSET = "b c d f g h j k l m n p r s t v w z br ch cl dr fl gr kr pl pr qu sh sk sl st th tr vr zh".split()
_VOWEL = "a e i o u a e i o u ai ea ia io oo ou".split()
_CODA = ["", "", "", "", "l", "m", "n", "r", "s", "t", "k", "x", "nd", "rt", "sk", "ll"]
_pools = {}

# What the tokenizer splits words into, set by the trainer: words of random pieces, because a token that never
# has to be written in training is not written well afterwards, and held-out words would consist of such.
PIECES = []


def is_held_out(text):
    return zlib.crc32(text.lower().encode()) % 8 == 0


class Dice(random.Random):
    """Random choices that stay on one side of the wall."""

    def __init__(self, seed, held_out=False):
        super().__init__(seed)
        self.held_out = held_out

    def chance(self, p):
        return self.random() < p

    def pick(self, values):
        """One of a long list of values, from this side's part of it."""
        key = (id(values), self.held_out)
        if key not in _pools:
            pool = [v for v in values if is_held_out(v) == self.held_out]
            _pools[key] = (values, pool or values)
        return self.choice(_pools[key][1])

    def made_up(self, syllables=None):
        while True:
            if PIECES and self.chance(0.4):
                word = "".join(self.choice(PIECES) for _ in range(syllables or self.choice((1, 2, 2, 3))))[:12]
            else:
                n = syllables or self.choice((2, 2, 2, 3))
                word = "".join(self.choice(_ONSET) + self.choice(_VOWEL) for _ in range(n)) + self.choice(_CODA)
            if len(word) > 3 and is_held_out(word) == self.held_out:
                return word

    def word(self, values, p=0.3):
        """A listed word, or with probability p one nobody has heard of."""
        return self.made_up() if self.chance(p) else self.pick(values)

    def first(self):
        return self.made_up().capitalize() if self.chance(0.25) else self.pick(FIRST)

    def last(self):
        return self.made_up().capitalize() if self.chance(0.25) else self.pick(LAST)

    def person(self):
        return f"{self.first()} {self.last()}" if self.chance(0.7) else self.first()

    def city(self):
        return self.made_up().capitalize() if self.chance(0.3) else self.pick(CITY)

    def email(self):
        host = self.choice(["example.com", "example.org", "mail.test", self.made_up() + ".com", self.made_up() + ".io"])
        sep = self.choice([".", "", "_"])
        user = self.first().lower()
        return f"{user}{sep}{self.last().lower()}@{host}" if self.chance(0.5) else f"{user}@{host}"

    def date(self):
        return f"{self.randint(1990, 2035)}-{self.randint(1, 12):02}-{self.randint(1, 28):02}"

    def clock(self):
        return f"{self.randint(0, 23):02}:{self.choice((0, 5, 10, 15, 20, 30, 40, 45, 50)):02}"

    def code(self):
        letters = "".join(self.choice("ABCDEFGHJKLMNPRSTUVWXYZ") for _ in range(self.randint(1, 3)))
        return f"{letters}{self.choice(['-', '', ''])}{self.randint(1, 9999)}"

    def integer(self):
        return self.choice((self.randint(0, 9), self.randint(10, 99), self.randint(10, 999), self.randint(1000, 9999)))

    def decimal(self):
        return round(self.randint(0, 200) + self.choice((0.5, 0.25, 0.1, 0.75, 0.99, 0.9, self.randint(1, 99) / 100)), 2)

    def phrase(self):
        words = [self.word(TOPIC, 0.2) if self.chance(0.5) else self.word(PRODUCT, 0.2) for _ in range(self.randint(1, 3))]
        return " ".join([self.pick(ADJ)] + words if self.chance(0.4) else words)
