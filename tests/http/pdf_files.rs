//! The embedded reader of documents, with files that were made to harm it: each is refused with its reason, within the
//! bounds, and what is read beside them is read as ever.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::time::Duration;

use mortise_plugin::{DocumentReader, HostConfig, PluginHost, ReadError};
use tokio::runtime::Runtime;

use crate::retrieval::document as file;

/// The embedded reader, and what it runs on.
struct Reader {
    reader: DocumentReader,
    runtime: Runtime,
}

impl Reader {
    fn new(most: Option<Duration>) -> Self {
        let host = PluginHost::new(HostConfig::default()).expect("a host");
        let reader = DocumentReader::new(host, mortise_bundle::document_reader);
        Self {
            reader: match most {
                Some(most) => reader.within(most),
                None => reader,
            },
            runtime: Runtime::new().expect("a runtime"),
        }
    }

    fn read(&self, file: &[u8]) -> Result<Vec<String>, ReadError> {
        self.runtime.block_on(self.reader.read(file))
    }
}

fn reader() -> Reader {
    Reader::new(None)
}

/// A file of these objects, numbered from 1, of which the first is the catalog. It has no table of objects, so that they are
/// looked for.
fn pdf(objects: &[String]) -> Vec<u8> {
    let mut file = String::from("%PDF-1.7\n");
    for (number, object) in (1..).zip(objects) {
        let _ = writeln!(file, "{number} 0 obj{object}endobj");
    }
    file.push_str("trailer<</Root 1 0 R>>\n%%EOF\n");
    file.into_bytes()
}

fn stream(more: &str, content: &str) -> String {
    format!(
        "<<{more}/Length {}>>stream\n{content}\nendstream ",
        content.len()
    )
}

/// A page that draws this, with these resources.
fn page(resources: &str, content: &str, more: &[String]) -> Vec<u8> {
    let mut objects = vec![
        "<</Type/Catalog/Pages 2 0 R>>".to_owned(),
        "<</Type/Pages/Kids[3 0 R]/Count 1>>".to_owned(),
        format!(
            "<</Type/Page/Parent 2 0 R/MediaBox[0 0 600 600]/Resources<<{resources}>>/Contents 4 0 R>>"
        ),
        stream("", content),
    ];
    objects.extend_from_slice(more);
    pdf(&objects)
}

const FONT: &str = "/Font<</F<</Type/Font/Subtype/Type1/BaseFont/Helvetica>>>>";

/// Forms of which each draws the next twice.
fn doubling() -> Vec<u8> {
    let form = |next: usize| {
        let more = format!(
            "/Type/XObject/Subtype/Form/BBox[0 0 9 9]/Resources<</XObject<</X {next} 0 R>>>>"
        );
        stream(&more, "/X Do /X Do")
    };
    let forms: Vec<String> = (0..64).map(|at| form(6 + at)).collect();
    page("/XObject<</X 5 0 R>>", "/X Do", &forms)
}

/// Files without end, or without bottom.
fn endless() -> Vec<(&'static str, Vec<u8>)> {
    let catalog = "<</Type/Catalog/Pages 2 0 R>>".to_owned();
    let kids = |kids: &str| format!("<</Type/Pages/Kids[{kids}]/Count 1>>");
    let mut deep = vec![catalog.clone()];
    deep.extend((3..50_000).map(|next| kids(&format!("{next} 0 R"))));
    let own = pdf(&[catalog.clone(), kids("2 0 R 2 0 R")]);
    let two = pdf(&[catalog.clone(), kids("3 0 R"), kids("2 0 R 2 0 R")]);
    let table = b"%PDF-1.7\nxref\n0 1\n0000000000 65535 f \ntrailer<</Root 1 0 R/Prev 9>>\nstartxref\n9\n%%EOF";
    let packed = stream(
        "/Type/ObjStm/N 2/First 8/Extends 2 0 R",
        "2 0 3 9 1 0 R 3 0 R",
    );
    let length = "<</Length 4 0 R>>stream\nBT ET\nendstream ".to_owned();
    vec![
        ("pages within themselves", own),
        ("pages within each other", two),
        ("pages of many levels", pdf(&deep)),
        ("a table before itself", table.to_vec()),
        (
            "packed objects within themselves",
            pdf(&[catalog.clone(), packed]),
        ),
        (
            "a length of itself",
            pdf(&[catalog, kids("3 0 R"), String::new(), length]),
        ),
        (
            "lists in lists",
            [b"%PDF-1.7\n1 0 obj".as_slice(), &b"[".repeat(2_000_000)].concat(),
        ),
        (
            "tables in tables",
            b"%PDF-1.7\n1 0 obj<</Pages"
                .iter()
                .copied()
                .chain(b"<</A".repeat(500_000))
                .collect(),
        ),
    ]
}

/// Words of a page, and how often it has them.
fn words(page: &str) -> BTreeMap<String, u64> {
    let mut counts = BTreeMap::new();
    let words = page.split(|letter: char| !letter.is_alphanumeric());
    for word in words.filter(|word| !word.is_empty()) {
        *counts.entry(word.to_owned()).or_default() += 1;
    }
    counts
}

/// The words that `pypdf` finds (`tests/documents/make.py`).
#[test]
fn each_page_has_the_words_that_another_reader_finds() {
    let known: BTreeMap<String, Vec<BTreeMap<String, u64>>> =
        serde_json::from_slice(&file("words.json")).expect("words.json");
    assert_eq!(known.len(), 2);
    let reader = reader();
    for (name, known) in known {
        let found = reader.read(&file(&name)).expect(&name);
        let found: Vec<_> = found.iter().map(|page| words(page)).collect();
        assert_eq!(found, known, "{name}");
    }
}

#[test]
fn titles_are_headings_and_paragraphs_stand_apart() {
    let found = reader().read(&file("report.pdf")).expect("report.pdf");
    let starts: Vec<&str> = found
        .iter()
        .filter_map(|page| page.lines().next())
        .collect();
    assert_eq!(
        starts,
        [
            "# Annual report of the harbour",
            "## Accounts",
            "## Decision"
        ]
    );
    let parts = [
        "\n\n## Summary\nThe committee met",
        "Dredging 1200",
        "zebra crossing at the quay",
    ];
    for (page, part) in found.iter().zip(parts) {
        assert!(page.contains(part), "{page}");
    }
}

#[test]
fn files_that_cannot_be_read_are_refused_with_the_reason() {
    let reader = reader();
    let bare = pdf(&[
        "<</Type/Catalog/Pages 2 0 R>>".to_owned(),
        "<</Type/Pages/Kids[3 0 R]/Count 1>>".to_owned(),
        "<</Type/Page/Parent 2 0 R/MediaBox[0 0 9 9]>>".to_owned(),
    ]);
    for (name, file, part) in [
        ("a password", file("locked.pdf"), "encrypted"),
        ("nothing", Vec::new(), "broken"),
        ("no pages", b"%PDF-1.7\n%%EOF".to_vec(), "broken"),
        ("no PDF", b"no PDF at all".to_vec(), "broken"),
        ("an empty page", bare, "no text"),
    ] {
        let error = reader.read(&file).expect_err(name);
        let refused = matches!(&error, ReadError::Refused(text) if text.contains(part));
        assert!(refused, "{name}: {error}");
    }
}

#[test]
fn files_without_end_are_refused() {
    let reader = reader();
    for (name, file) in endless() {
        let error = reader.read(&file).expect_err(name);
        assert!(
            matches!(error, ReadError::Refused(_) | ReadError::Broken),
            "{name}: {error}"
        );
    }
    reader.read(&file("report.pdf")).expect("a report");
}

#[test]
fn files_that_take_much_are_ended_at_their_bounds() {
    let quick = Reader::new(Some(Duration::from_millis(300)));
    let error = quick.read(&doubling()).expect_err("forms in forms");
    assert_eq!(error, ReadError::Deadline(Duration::from_millis(300)));
    let reader = reader();
    // Two gigabytes in four kilobytes.
    let error = reader.read(&file("bomb.pdf")).expect_err("a bomb");
    assert!(matches!(error, ReadError::Memory(_)), "{error}");
    let line = |words: usize| {
        let content = format!("BT /F 9 Tf ({}) Tj ET", "word ".repeat(words));
        reader.read(&page(FONT, &content, &[]))
    };
    let long = line(40_000).expect("a line of 200 kB");
    assert_eq!(long[0].split(' ').count(), 40_000);
    let error = line(2_000_000).expect_err("a line of 10 MB");
    assert!(matches!(error, ReadError::Memory(_)), "{error}");
    reader.read(&file("report.pdf")).expect("a report");
}

#[test]
fn broken_files_end_with_an_error_or_with_what_is_left_of_them() {
    let (reader, whole) = (reader(), file("letters.pdf"));
    for cut in (0..whole.len()).step_by(whole.len() / 24) {
        // Whatever comes of it, the next file is read.
        let _ = reader.read(&whole[..cut]);
        let mut other = whole.clone();
        for at in (cut..whole.len()).step_by(97) {
            other[at] ^= 0x55;
        }
        let _ = reader.read(&other);
    }
    assert_eq!(reader.read(&whole).expect("letters").len(), 1);
}
