//! Reads `multipart/form-data` (RFC 7578) part by part while it arrives. No more of it is held than what has just come
//! and the end of what came before.
//!
//! `multer`, which axum has for this, reads into memory whatever the connection gives, and bounds no head of a part.

use std::time::Duration;

use axum::body::Body;
use bytes::{Bytes, BytesMut};
use http::{HeaderMap, StatusCode, header};
use http_body_util::BodyExt as _;
use tokio::sync::watch;
use tokio::time::{Instant, sleep_until, timeout};

use crate::body::{cause, late, stopped, too_large};
use crate::problem::{Problem, stopping};

/// Longest boundary, in bytes; the standard's own limit.
const MAX_BOUNDARY_BYTES: usize = 70;
/// Bytes of the head of a part.
const MAX_PART_HEAD_BYTES: usize = 8192;
/// Parts of one body.
const MAX_PARTS: usize = 32;

/// Limits on one body.
#[derive(Debug, Clone)]
pub struct FormLimits {
    /// Its length.
    pub bytes: u64,
    /// Time in which more of it must arrive.
    pub pause: Duration,
    /// Time in which all of it must arrive.
    pub time: Duration,
    /// Becomes true when the server takes no new work.
    pub draining: watch::Receiver<bool>,
}

/// Head of a part.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FormPart {
    /// Name of the form's field.
    pub name: String,
    /// Name of the file, if it is one.
    pub file_name: Option<String>,
}

/// A body that is being read.
#[derive(Debug)]
pub struct Multipart {
    body: Body,
    /// A line break, two dashes and the boundary.
    delimiter: Vec<u8>,
    /// Bytes that have come and were not given out.
    held: BytesMut,
    place: Place,
    parts: usize,
    read: u64,
    limits: FormLimits,
    end: Instant,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Place {
    /// In the data of a part, or before the first.
    Data,
    /// Behind a delimiter.
    Delimiter,
    /// Behind the last delimiter.
    End,
}

impl Multipart {
    /// Begin to read a body, if it is a form by its type and within the limits by its length.
    ///
    /// # Errors
    /// When it is not.
    pub fn open(headers: &HeaderMap, body: Body, limits: FormLimits) -> Result<Self, Problem> {
        let boundary = boundary(headers)?;
        let announced = headers
            .get(header::CONTENT_LENGTH)
            .and_then(|value| value.to_str().ok()?.parse::<u64>().ok());
        if announced.is_some_and(|length| length > limits.bytes) {
            return Err(too_large(limits.bytes));
        }
        Ok(Self {
            body,
            delimiter: [b"\r\n--", boundary.as_bytes()].concat(),
            // The first delimiter has no line before it.
            held: BytesMut::from(&b"\r\n"[..]),
            place: Place::Data,
            parts: 0,
            read: 0,
            end: Instant::now() + limits.time,
            limits,
        })
    }

    /// The next part; what is left of the one before is passed over. `None` at the end.
    ///
    /// # Errors
    /// When the body is no form, is beyond a limit, or breaks off; so for all that read.
    pub async fn part(&mut self) -> Result<Option<FormPart>, Problem> {
        while self.data().await?.is_some() {}
        if self.place == Place::End {
            return Ok(None);
        }
        let blank = |byte: &u8| matches!(byte, b' ' | b'\t');
        loop {
            let padding = self.held.iter().take_while(|byte| blank(byte)).count();
            let rest = self.held.get(padding..).unwrap_or_default();
            if rest.starts_with(b"--") {
                self.place = Place::End;
                self.held.clear();
                // What follows means nothing, and is read so that the connection can be used again.
                while self.more().await? {
                    self.held.clear();
                }
                return Ok(None);
            }
            if rest.len() >= 2 && !rest.starts_with(b"\r\n") {
                return Err(malformed("a boundary is followed by other bytes"));
            }
            if let Some(length) = find(rest, b"\r\n\r\n") {
                let part = head(rest.get(2..length).unwrap_or_default());
                let _ = self.held.split_to(padding + length + 4);
                self.place = Place::Data;
                self.parts += 1;
                if self.parts > MAX_PARTS {
                    return Err(malformed(&format!("it has more than {MAX_PARTS} parts")));
                }
                return part.map(Some);
            }
            if self.held.len() > MAX_PART_HEAD_BYTES {
                let problem =
                    format!("the head of a part is longer than {MAX_PART_HEAD_BYTES} bytes");
                return Err(malformed(&problem));
            }
            if !self.more().await? {
                return Err(malformed("it ends before its last boundary"));
            }
        }
    }

    /// More data of the part; `None` at its end.
    pub async fn data(&mut self) -> Result<Option<Bytes>, Problem> {
        loop {
            if self.place != Place::Data {
                return Ok(None);
            }
            let part_of_none = self.parts == 0;
            let (length, ends) = match find(&self.held, &self.delimiter) {
                Some(length) => (length, true),
                // The delimiter may have begun.
                None => (
                    self.held.len().saturating_sub(self.delimiter.len() - 1),
                    false,
                ),
            };
            let data = self.held.split_to(length).freeze();
            if ends {
                let _ = self.held.split_to(self.delimiter.len());
                self.place = Place::Delimiter;
            }
            if !data.is_empty() && !part_of_none {
                return Ok(Some(data));
            }
            if !ends && !self.more().await? {
                return Err(malformed("it ends before its last boundary"));
            }
        }
    }

    /// All data of the part, as a text of at most so many bytes.
    pub async fn text(&mut self, name: &str, most: usize) -> Result<String, Problem> {
        let mut text = Vec::new();
        while let Some(data) = self.data().await? {
            if text.len() + data.len() > most {
                let problem = format!("`{name}` has more than {most} bytes");
                return Err(Problem::invalid(name, problem));
            }
            text.extend_from_slice(&data);
        }
        String::from_utf8(text)
            .map_err(|_| Problem::invalid(name, format!("`{name}` is not UTF-8")))
    }

    /// Wait for more of the body; false at its end.
    async fn more(&mut self) -> Result<bool, Problem> {
        let limits = &self.limits;
        let frame = tokio::select! {
            frame = timeout(limits.pause, self.body.frame()) => match frame {
                Ok(frame) => frame,
                Err(_) => return Err(late(limits.pause)),
            },
            () = sleep_until(self.end) => return Err(late(limits.time)),
            () = stopped(limits.draining.clone()) => {
                return Err(stopping().with_header("connection", "close"));
            }
        };
        let Some(frame) = frame else {
            return Ok(false);
        };
        let frame = frame.map_err(|error| {
            let problem = format!("the body could not be read: {}", cause(&error));
            Problem::new(StatusCode::BAD_REQUEST, "body_unreadable", problem)
        })?;
        if let Ok(data) = frame.into_data() {
            self.read += data.len() as u64;
            if self.read > self.limits.bytes {
                return Err(too_large(self.limits.bytes));
            }
            self.held.extend_from_slice(&data);
        }
        Ok(true)
    }
}

fn malformed(problem: &str) -> Problem {
    Problem::new(
        StatusCode::BAD_REQUEST,
        "malformed_multipart",
        format!("the body is no `multipart/form-data`: {problem}"),
    )
}

fn find(bytes: &[u8], wanted: &[u8]) -> Option<usize> {
    // All that is looked for begins with a carriage return, which texts seldom have.
    let mut from = 0;
    loop {
        let rest = bytes.get(from..)?;
        let at = rest.iter().position(|byte| *byte == b'\r')?;
        if rest.get(at..)?.starts_with(wanted) {
            return Some(from + at);
        }
        from += at + 1;
    }
}

/// The boundary that the header `Content-Type` names.
fn boundary(headers: &HeaderMap) -> Result<String, Problem> {
    let value = headers.get(header::CONTENT_TYPE);
    let text = value
        .and_then(|value| value.to_str().ok())
        .unwrap_or("absent");
    let (essence, parameters) = text.split_once(';').unwrap_or((text, ""));
    if !essence.trim().eq_ignore_ascii_case("multipart/form-data") {
        let problem =
            format!("the header `Content-Type` must be `multipart/form-data`; it is {essence:?}");
        let status = StatusCode::UNSUPPORTED_MEDIA_TYPE;
        return Err(Problem::new(status, "unsupported_content_type", problem));
    }
    if let Some(coding) = headers.get(header::CONTENT_ENCODING)
        && coding.as_bytes() != b"identity"
    {
        let problem = "compressed bodies are not read; leave out the header `Content-Encoding`";
        let status = StatusCode::UNSUPPORTED_MEDIA_TYPE;
        return Err(Problem::new(
            status,
            "unsupported_content_encoding",
            problem,
        ));
    }
    let found = parameters_of(parameters).and_then(|all| {
        let mut named = all.into_iter().filter(|(name, _)| name == "boundary");
        let (only, none) = (named.next()?.1, named.next());
        none.is_none().then_some(only)
    });
    let sound = |boundary: &String| {
        (1..=MAX_BOUNDARY_BYTES).contains(&boundary.len())
            && boundary.bytes().all(|byte| matches!(byte, b' '..=b'~'))
    };
    found.filter(sound).ok_or_else(|| {
        malformed("the header `Content-Type` must name a boundary of 1 to 70 printable characters")
    })
}

/// Head of a part.
fn head(bytes: &[u8]) -> Result<FormPart, Problem> {
    let text =
        std::str::from_utf8(bytes).map_err(|_| malformed("the head of a part is not UTF-8"))?;
    let mut lines = text.split("\r\n").filter_map(|line| line.split_once(':'));
    let disposition = lines.find(|(name, _)| name.eq_ignore_ascii_case("content-disposition"));
    let value = disposition.map_or("", |(_, value)| value);
    let (kind, parameters) = value.split_once(';').unwrap_or((value, ""));
    if !kind.trim().eq_ignore_ascii_case("form-data") {
        return Err(malformed("a part has no `Content-Disposition: form-data`"));
    }
    let parameters = parameters_of(parameters)
        .ok_or_else(|| malformed("the `Content-Disposition` of a part cannot be read"))?;
    let value = |wanted: &str| {
        let found = parameters.iter().find(|(name, _)| name == wanted);
        found.map(|(_, value)| unescaped(value))
    };
    Ok(FormPart {
        name: value("name").ok_or_else(|| malformed("a part has no name"))?,
        file_name: value("filename"),
    })
}

/// Forms write quotes and line breaks within names so.
fn unescaped(value: &str) -> String {
    let quotes = value.replace("%22", "\"");
    quotes.replace("%0D", "\r").replace("%0A", "\n")
}

/// Parameters of a header, names in lower case; `None` if they cannot be read.
fn parameters_of(text: &str) -> Option<Vec<(String, String)>> {
    let mut all = Vec::new();
    let mut rest = text.trim();
    while !rest.is_empty() {
        let (name, behind) = rest.split_once('=')?;
        let behind = behind.trim_start();
        let (value, behind) = match behind.strip_prefix('"') {
            Some(quoted) => quoted_value(quoted)?,
            None => {
                let end = behind.find(';').unwrap_or(behind.len());
                let (value, behind) = behind.split_at(end);
                (value.trim_end().to_owned(), behind)
            }
        };
        all.push((name.trim().to_ascii_lowercase(), value));
        let behind = behind.trim_start();
        rest = match behind.strip_prefix(';') {
            Some(next) => next.trim_start(),
            None if behind.is_empty() => behind,
            None => return None,
        };
    }
    Some(all)
}

/// A value up to its closing quote, and what is behind it.
fn quoted_value(text: &str) -> Option<(String, &str)> {
    let mut value = String::new();
    let mut characters = text.char_indices();
    while let Some((at, character)) = characters.next() {
        match character {
            '"' => return Some((value, text.get(at + 1..)?)),
            '\\' => match characters.next()?.1 {
                // Only these two are escaped; some clients send the paths of another system.
                escaped @ ('"' | '\\') => value.push(escaped),
                other => value.extend(['\\', other]),
            },
            other => value.push(other),
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use futures::stream;

    use super::*;

    const FORM: &str = "ignored\r\n--b1\r\nContent-Disposition: form-data; name=\"purpose\"\r\n\r\nbatch\r\n\
        --b1 \r\ncontent-type: text/plain\r\nCONTENT-DISPOSITION: form-data; name=file; \
        filename=\"a \\\"%22ü.jsonl\"\r\n\r\none\r\ntwo\r\n--b\r\n--b1--\r\nbehind";

    fn headers(kind: &str) -> HeaderMap {
        let mut headers = HeaderMap::new();
        headers.insert(header::CONTENT_TYPE, kind.parse().expect("a value"));
        headers
    }

    /// The parts of a body that comes in pieces of so many bytes.
    async fn parts(
        body: &[u8],
        piece: usize,
        most: u64,
    ) -> Result<Vec<(FormPart, Vec<u8>)>, Problem> {
        let pieces = body.chunks(piece.max(1)).map(Bytes::copy_from_slice);
        let pieces: Vec<Result<Bytes, std::io::Error>> = pieces.map(Ok).collect();
        let (_sender, draining) = watch::channel(false);
        let limits = FormLimits {
            bytes: most,
            pause: Duration::from_secs(60),
            time: Duration::from_secs(60),
            draining,
        };
        let body = Body::from_stream(stream::iter(pieces));
        let headers = headers("multipart/form-data; boundary=\"b1\"");
        let mut form = Multipart::open(&headers, body, limits)?;
        let mut parts = Vec::new();
        while let Some(part) = form.part().await? {
            let mut data = Vec::new();
            while let Some(more) = form.data().await? {
                data.extend_from_slice(&more);
            }
            parts.push((part, data));
        }
        Ok(parts)
    }

    #[tokio::test]
    async fn a_form_is_read_however_it_is_cut() {
        let part = |name: &str, file_name: Option<&str>| FormPart {
            name: name.to_owned(),
            file_name: file_name.map(str::to_owned),
        };
        let expected = vec![
            (part("purpose", None), b"batch".to_vec()),
            (
                part("file", Some("a \"\"ü.jsonl")),
                b"one\r\ntwo\r\n--b".to_vec(),
            ),
        ];
        for piece in 1..=FORM.len() {
            let found = parts(FORM.as_bytes(), piece, 1000).await.expect("a form");
            assert_eq!(found, expected, "in pieces of {piece}");
        }
    }

    #[tokio::test]
    async fn what_is_no_form_is_refused() {
        // All but the whole form breaks off; behind the last dashes nothing counts.
        let whole = FORM.find("--b1--").expect("the end") + "--b1--".len();
        for length in 0..whole {
            let found = parts(&FORM.as_bytes()[..length], 7, 1000).await;
            assert_eq!(
                found.expect_err("cut").code,
                "malformed_multipart",
                "{length}"
            );
        }
        for (body, problem) in [
            ("--b1x\r\n\r\n", "followed by other bytes"),
            ("--b1\r\nname: x\r\n\r\n\r\n--b1--", "form-data"),
            (
                "--b1\r\nContent-Disposition: form-data\r\n\r\n\r\n--b1--",
                "no name",
            ),
            (
                "--b1\r\nContent-Disposition: form-data; name=\"x\r\n\r\n",
                "cannot be read",
            ),
        ] {
            let found = parts(body.as_bytes(), 5, 1000).await.expect_err(body);
            assert!(found.message.contains(problem), "{}", found.message);
        }
        let endless = format!("--b1\r\n{}", "x".repeat(2 * MAX_PART_HEAD_BYTES));
        let found = parts(endless.as_bytes(), 1000, 100_000)
            .await
            .expect_err("a long head");
        assert!(found.message.contains("longer than"), "{}", found.message);
        let part = "--b1\r\nContent-Disposition: form-data; name=x\r\n\r\n\r\n";
        let many = part.repeat(MAX_PARTS + 1) + "--b1--";
        assert!(parts(many.as_bytes(), 1000, 100_000).await.is_err());
        let large = parts(FORM.as_bytes(), 10, FORM.len() as u64 - 1).await;
        assert_eq!(
            large.expect_err("too large").status,
            StatusCode::PAYLOAD_TOO_LARGE
        );
    }

    #[test]
    fn boundaries_are_read_from_the_type() {
        let of = |kind: &str| boundary(&headers(kind)).map_err(|problem| problem.status.as_u16());
        assert_eq!(
            of("multipart/form-data; boundary=abc"),
            Ok("abc".to_owned())
        );
        assert_eq!(
            of("Multipart/Form-Data;charset=x; Boundary=\"a b\""),
            Ok("a b".to_owned())
        );
        assert_eq!(of("application/json"), Err(415));
        for wrong in [
            "",
            "; boundary=",
            "; boundary=\"x",
            "; boundary=a; boundary=b",
            "; x",
        ] {
            assert_eq!(
                of(&format!("multipart/form-data{wrong}")),
                Err(400),
                "{wrong}"
            );
        }
        assert_eq!(
            of(&format!("multipart/form-data; boundary={}", "x".repeat(71))),
            Err(400)
        );
    }

    proptest::proptest! {
        #[test]
        fn any_data_comes_back(data: Vec<u8>, noise in "[\r\n\\-b1]{0,40}", piece in 1_usize..50) {
            let data = [&data, noise.as_bytes()].concat();
            let inside = [b"\r\n", &*data].concat();
            proptest::prop_assume!(find(&inside, b"\r\n--b1").is_none());
            let body = [
                b"--b1\r\nContent-Disposition: form-data; name=x\r\n\r\n",
                &*data,
                b"\r\n--b1--\r\n",
            ].concat();
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
            let found = runtime.block_on(parts(&body, piece, 1_000_000));
            let found = found.expect("a form").remove(0).1;
            proptest::prop_assert_eq!(found, data);
        }
    }
}
