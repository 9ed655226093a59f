//! The text of a document. What was uploaded is untrusted: the work is linear in its bytes, and nothing recurs.

use html5gum::{Token, Tokenizer};

use crate::limits::MAX_DOCUMENT_BYTES;

/// Format of a document.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Format {
    /// Text as it stands.
    Text,
    /// Text in which lines that begin with `#` are headings.
    Markdown,
    /// Elements, whose text counts.
    Html,
    /// Pages, in which large type makes headings.
    Pdf,
}

/// Reason for which a document cannot be taken.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum DocumentError {
    /// The format of the document is not read.
    #[error("files of the format {0} are not read; send text, Markdown, HTML or PDF")]
    Format(&'static str),
    /// The document is too long.
    #[error("it has {bytes} bytes; a document may have {MAX_DOCUMENT_BYTES}")]
    TooLong {
        /// Bytes of the document.
        bytes: usize,
    },
    /// The document is not UTF-8.
    #[error("it is not UTF-8 from byte {0} on")]
    NotText(usize),
    /// The document has no text.
    #[error("it has no text")]
    Empty,
}

/// Beginnings of files that are no text, and the names of their formats.
const FOREIGN: [(&[u8], &str); 6] = [
    (b"PK\x03\x04", "ZIP, as Office documents are"),
    (b"\xD0\xCF\x11\xE0", "OLE, as older Office documents are"),
    (b"\x1F\x8B", "gzip"),
    (b"\x89PNG", "PNG"),
    (b"\xFF\xD8\xFF", "JPEG"),
    (b"{\\rtf", "RTF"),
];

/// True if a file is one of PDF, which its beginning tells, or its name.
pub fn is_pdf(name: &str, bytes: &[u8]) -> bool {
    let begins = bytes.trim_ascii_start();
    let begins = begins.strip_prefix(b"\xEF\xBB\xBF").unwrap_or(begins);
    let extension = name.rsplit_once('.').map(|(_, extension)| extension);
    begins.starts_with(b"%PDF-") || extension.is_some_and(|of| of.eq_ignore_ascii_case("pdf"))
}

/// The text of a file, and its format, which its name and its beginning tell. Offsets of chunks count in this text: it is
/// the file itself, but for HTML.
///
/// # Errors
/// When it is no text, or too long.
pub fn text_of(name: &str, bytes: Vec<u8>) -> Result<(String, Format), DocumentError> {
    fits(bytes.len())?;
    let foreign = FOREIGN.iter().find(|(start, _)| bytes.starts_with(start));
    if let Some((_, format)) = foreign {
        return Err(DocumentError::Format(format));
    }
    let text = String::from_utf8(bytes);
    let text = text.map_err(|error| DocumentError::NotText(error.utf8_error().valid_up_to()))?;
    clean(&text)?;
    let format = format_of(name, &text);
    let text = match format {
        Format::Html => text_of_html(&text),
        Format::Text | Format::Markdown | Format::Pdf => text,
    };
    filled(&text)?;
    Ok((text, format))
}

/// The text of pages, one behind the other, and where each begins.
///
/// # Errors
/// When there is none, or it is too long.
pub fn text_of_pages(pages: &[String]) -> Result<(String, DocumentPages), DocumentError> {
    let between = PAGE_BREAK.len() * pages.len();
    let bytes = pages.iter().map(String::len).sum::<usize>() + between;
    fits(bytes)?;
    let mut text = String::with_capacity(bytes);
    let mut begins = Vec::with_capacity(pages.len());
    for page in pages {
        if !text.is_empty() {
            text.push_str(PAGE_BREAK);
        }
        begins.push(text.len());
        text.push_str(page);
    }
    clean(&text)?;
    filled(&text)?;
    Ok((text, DocumentPages(begins)))
}

/// Line ends between two pages: those between two paragraphs.
const PAGE_BREAK: &str = "\n\n";

/// Places of pages in a text. None of a document that has no pages.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct DocumentPages(Vec<usize>);

impl DocumentPages {
    /// The page of a byte, from 1.
    pub fn at(&self, byte: usize) -> Option<u16> {
        let begun = self.0.partition_point(|begin| *begin <= byte);
        u16::try_from(begun).ok().filter(|page| *page > 0)
    }
}

fn fits(bytes: usize) -> Result<(), DocumentError> {
    match bytes > MAX_DOCUMENT_BYTES {
        true => Err(DocumentError::TooLong { bytes }),
        false => Ok(()),
    }
}

/// Refuse what text has none of.
fn clean(text: &str) -> Result<(), DocumentError> {
    let found = text.find('\0');
    found.map_or(Ok(()), |at| Err(DocumentError::NotText(at)))
}

fn filled(text: &str) -> Result<(), DocumentError> {
    match text.trim().is_empty() {
        true => Err(DocumentError::Empty),
        false => Ok(()),
    }
}

fn format_of(name: &str, text: &str) -> Format {
    let extension = name.rsplit_once('.').map(|(_, extension)| extension);
    match extension.unwrap_or_default().to_ascii_lowercase().as_str() {
        "md" | "markdown" => Format::Markdown,
        "html" | "htm" | "xhtml" => Format::Html,
        _ => {
            let start = text.trim_start().as_bytes();
            let begins = |mark: &[u8]| {
                let start = start.get(..mark.len());
                start.is_some_and(|start| start.eq_ignore_ascii_case(mark))
            };
            match begins(b"<!doctype html") || begins(b"<html") {
                true => Format::Html,
                false => Format::Text,
            }
        }
    }
}

/// Elements whose text nobody reads.
const UNREAD: [&[u8]; 6] = [
    b"script",
    b"style",
    b"template",
    b"noscript",
    b"svg",
    b"head",
];

/// Elements that stand on lines of their own.
const BLOCKS: [&[u8]; 32] = [
    b"address",
    b"article",
    b"aside",
    b"blockquote",
    b"br",
    b"dd",
    b"details",
    b"div",
    b"dl",
    b"dt",
    b"figure",
    b"footer",
    b"form",
    b"h1",
    b"h2",
    b"h3",
    b"h4",
    b"h5",
    b"h6",
    b"header",
    b"hr",
    b"li",
    b"main",
    b"nav",
    b"ol",
    b"p",
    b"pre",
    b"section",
    b"table",
    b"td",
    b"tr",
    b"ul",
];

/// The text of a page. Tags are read one after the other and no tree is made, so that their nesting costs nothing.
fn text_of_html(page: &str) -> String {
    let mut text = String::with_capacity(page.len() / 2);
    // The element whose text is left out, and how often it is open.
    let mut unread: Option<(&'static [u8], usize)> = None;
    for token in Tokenizer::new(page) {
        let Ok(token) = token;
        match token {
            Token::StartTag(tag) => {
                let name = tag.name.as_slice();
                match &mut unread {
                    Some((of, depth)) if *of == name && !tag.self_closing => *depth += 1,
                    Some(_) => {}
                    None => {
                        let found = UNREAD.iter().find(|unread| **unread == name);
                        unread = found.filter(|_| !tag.self_closing).map(|name| (*name, 1));
                        open(&mut text, name);
                    }
                }
            }
            Token::EndTag(tag) => match &mut unread {
                Some((of, depth)) if *of == tag.name.as_slice() => {
                    *depth -= 1;
                    if *depth == 0 {
                        unread = None;
                    }
                }
                Some(_) => {}
                None => {
                    if BLOCKS.contains(&tag.name.as_slice()) {
                        break_line(&mut text, 1);
                    }
                }
            },
            Token::String(piece) if unread.is_none() => {
                add(&mut text, &String::from_utf8_lossy(piece.as_slice()));
            }
            _ => {}
        }
    }
    text
}

/// The beginning of an element. A heading is marked as in Markdown, so that chunks begin with it.
fn open(text: &mut String, name: &[u8]) {
    if !BLOCKS.contains(&name) {
        return;
    }
    let level = match name {
        [b'h', level @ b'1'..=b'6'] => usize::from(level - b'0'),
        _ => 0,
    };
    break_line(text, if level > 0 || name == b"p" { 2 } else { 1 });
    if level > 0 {
        text.push_str("######".get(..level).unwrap_or_default());
        text.push(' ');
    }
}

/// End the line, with as many line ends as there are to be.
fn break_line(text: &mut String, ends: usize) {
    let trimmed = text.trim_end_matches(' ').len();
    text.truncate(trimmed);
    if text.is_empty() {
        return;
    }
    let there = text.len() - text.trim_end_matches('\n').len();
    for _ in there..ends {
        text.push('\n');
    }
}

/// Add text, with one blank for any white space.
fn add(text: &mut String, piece: &str) {
    for character in piece.chars() {
        if !character.is_whitespace() {
            text.push(character);
        } else if !text.is_empty() && !text.ends_with([' ', '\n']) {
            text.push(' ');
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(name: &str, bytes: &[u8]) -> Result<(String, Format), DocumentError> {
        text_of(name, bytes.to_vec())
    }

    #[test]
    fn formats_are_known_by_name_and_beginning() {
        let format = |name, text: &str| read(name, text.as_bytes()).expect("text").1;
        assert_eq!(format("a.txt", "x"), Format::Text);
        assert_eq!(format("a.MD", "x"), Format::Markdown);
        assert_eq!(format("a.htm", "<p>x"), Format::Html);
        assert_eq!(format("page", " <!DOCTYPE html><p>x"), Format::Html);
        for (bytes, format) in FOREIGN {
            let mut file = bytes.to_vec();
            file.extend_from_slice(b"...");
            assert_eq!(text_of("a.txt", file), Err(DocumentError::Format(format)));
        }
        assert_eq!(read("a", b"ab\xFFc"), Err(DocumentError::NotText(2)));
        assert_eq!(read("a", b"ab\0c"), Err(DocumentError::NotText(2)));
        assert_eq!(read("a", b" \n "), Err(DocumentError::Empty));
        assert_eq!(
            read("a.html", b"<script>x</script>"),
            Err(DocumentError::Empty)
        );
        let long = vec![b'a'; MAX_DOCUMENT_BYTES + 1];
        let bytes = long.len();
        assert_eq!(text_of("a", long), Err(DocumentError::TooLong { bytes }));
    }

    #[test]
    fn pages_follow_each_other_and_are_known_by_their_places() {
        assert!(is_pdf("a", b"%PDF-1.7\n") && is_pdf("a.PDF", b"text"));
        assert!(is_pdf("a.txt", b"\xEF\xBB\xBF%PDF-2.0"));
        assert!(!is_pdf("pdf", b"On %PDF-1.7") && !is_pdf("a.txt", b""));
        let pages = ["", "one", "", "two\nlines"].map(str::to_owned);
        let (text, places) = text_of_pages(&pages).expect("text");
        assert_eq!(text, "one\n\n\n\ntwo\nlines");
        let page = |of: &str| places.at(text.find(of).expect("a part of the text"));
        assert_eq!(
            (page("one"), page("two"), page("lines")),
            (Some(2), Some(4), Some(4))
        );
        assert_eq!(DocumentPages::default().at(7), None);
        assert_eq!(text_of_pages(&[]), Err(DocumentError::Empty));
        assert_eq!(text_of_pages(&[" ".to_owned()]), Err(DocumentError::Empty));
        assert_eq!(
            text_of_pages(&["\0".to_owned()]),
            Err(DocumentError::NotText(0))
        );
        let long = text_of_pages(&["a".repeat(MAX_DOCUMENT_BYTES)]);
        assert!(matches!(long, Err(DocumentError::TooLong { .. })));
    }

    #[test]
    fn the_text_of_a_page_is_what_is_read_of_it() {
        let page = "<html><head><title>T</title><style>p{}</style></head><body><h2>A &amp; B</h2>\
                    <p>One\n  two <b>three</b></p><script>if (a < b) x()</script><ul><li>x<li>y</ul>\
                    <template><template>no</template>no</template>end";
        let (text, _) = read("a.html", page.as_bytes()).expect("text");
        assert_eq!(text, "## A & B\n\nOne two three\nx\ny\nend");
    }

    #[test]
    fn a_million_nested_tags_cost_their_bytes() {
        let mut page = "<div><b>".repeat(500_000);
        page.push_str("deep");
        assert_eq!(read("a.html", page.as_bytes()).expect("text").0, "deep");
        let broken = format!("<{}", "a=\"<".repeat(100_000));
        assert_eq!(read("a.html", broken.as_bytes()), Err(DocumentError::Empty));
    }
}
