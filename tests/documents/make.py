"""Make the PDF files of this folder, and what another reader finds in them.

    pip install reportlab==5.1.0 pypdf==7.1.0
    python3 tests/documents/make.py

`report.pdf` has the fonts that every reader has, `letters.pdf` a font of its own, of which it has the letters that occur. The
word counts in `words.json` are pypdf's.
"""

import collections
import json
import pathlib
import re
import zlib

import pypdf
import reportlab
from reportlab.lib.pagesizes import A5
from reportlab.lib.styles import getSampleStyleSheet
from reportlab.pdfbase import pdfmetrics
from reportlab.pdfbase.ttfonts import TTFont
from reportlab.pdfgen import canvas
from reportlab.platypus import PageBreak, Paragraph, SimpleDocTemplate, Table

FOLDER = pathlib.Path(__file__).parent
STYLES = getSampleStyleSheet()


def report(path):
    """Headings, paragraphs of several lines and a table, on three pages."""
    prose = (
        "The committee met in the spring and considered the accounts of the year. "
        "Its members agreed that the harbour should be dredged before the winter, "
        "and that the lighthouse keeper be thanked for many years of office. "
    )
    parts = [
        Paragraph("Annual report of the harbour", STYLES["Title"]),
        Paragraph("Summary", STYLES["Heading2"]),
        Paragraph(prose * 2, STYLES["BodyText"]),
        PageBreak(),
        Paragraph("Accounts", STYLES["Heading2"]),
        Table([["Item", "Amount"], ["Dredging", "1200"], ["Lamp oil", "340"]]),
        Paragraph(prose, STYLES["BodyText"]),
        PageBreak(),
        Paragraph("Decision", STYLES["Heading2"]),
        Paragraph("Clause seven: the zebra crossing at the quay is painted anew each May.", STYLES["BodyText"]),
    ]
    SimpleDocTemplate(str(path), pagesize=A5, invariant=1).build(parts)


def letters(path):
    """A font with letters by glyph numbers, umlauts and Greek."""
    font = pathlib.Path(reportlab.__file__).parent / "fonts" / "Vera.ttf"
    pdfmetrics.registerFont(TTFont("Vera", str(font)))
    page = canvas.Canvas(str(path), pagesize=A5, invariant=1)
    page.setFont("Vera", 11)
    for place, line in enumerate(["Größere Übungen für Anfänger:", "Öl, Süßholz und Käse.", "Naïve façade — £5 or §3."]):
        page.drawString(50, 500 - 14 * place, line)
    page.save()


def locked(path):
    """A file that opens with a password only."""
    writer = pypdf.PdfWriter(clone_from=FOLDER / "letters.pdf")
    writer.encrypt("secret", algorithm="AES-128")
    writer.write(path)


def bomb(path):
    """A page of 2 GB, packed twice."""
    packer = zlib.compressobj(9)
    once = b"".join(packer.compress(bytes(1 << 20)) for _ in range(2048)) + packer.flush()
    twice = zlib.compress(once, 9)
    objects = [
        b"<</Type/Catalog/Pages 2 0 R>>",
        b"<</Type/Pages/Kids[3 0 R]/Count 1>>",
        b"<</Type/Page/Parent 2 0 R/MediaBox[0 0 9 9]/Contents 4 0 R>>",
        b"<</Filter[/FlateDecode/FlateDecode]/Length %d>>stream\n%s\nendstream" % (len(twice), twice),
    ]
    parts = [b"%d 0 obj%s endobj\n" % (number, body) for number, body in enumerate(objects, 1)]
    path.write_bytes(b"%PDF-1.7\n" + b"".join(parts) + b"trailer<</Root 1 0 R>>\n%%EOF\n")


def words(path):
    pages = pypdf.PdfReader(path).pages
    return [collections.Counter(re.findall(r"\w+", page.extract_text())) for page in pages]


report(FOLDER / "report.pdf")
letters(FOLDER / "letters.pdf")
locked(FOLDER / "locked.pdf")
bomb(FOLDER / "bomb.pdf")
found = {name: words(FOLDER / name) for name in ["report.pdf", "letters.pdf"]}
(FOLDER / "words.json").write_text(json.dumps(found, ensure_ascii=False, indent=1, sort_keys=True) + "\n")
