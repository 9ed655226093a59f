//! Finds the end of a chunked body (RFC 9112, section 7.1) without taking it apart: hyper does that. Only
//! the strict form is followed; of any other nothing more is known, and nothing more is read.

/// Bytes of one line of a chunk's size with its extensions, and of all trailers.
const MAX_LINE_BYTES: usize = 8 * 1024;

/// Place in a chunked body.
#[derive(Debug, Clone, Default)]
pub(super) struct ChunkScan {
    stage: Stage,
    /// Bytes of the line, or of the trailers, so far.
    line: usize,
}

#[derive(Debug, Clone, Default)]
enum Stage {
    /// In the digits of a size.
    #[default]
    Size,
    Digits(u64),
    /// Behind the digits, up to the line break.
    Extension(u64),
    /// The line feed of a size's line.
    SizeEnd(u64),
    Data(u64),
    /// The line break behind the data.
    DataCr,
    DataLf,
    /// At the start of a trailer's line, or of the empty line.
    TrailerStart,
    Trailer,
    TrailerLf,
    LastLf,
}

/// Outcome of some bytes.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Scanned {
    /// All belong to the body, and it goes on.
    All,
    /// The body ends behind so many bytes.
    End(usize),
    /// The byte with this number is wrong.
    Broken(usize),
}

impl ChunkScan {
    pub(super) fn scan(&mut self, bytes: &[u8]) -> Scanned {
        let mut at = 0;
        while let Some(&byte) = bytes.get(at) {
            if let Stage::Data(left) = self.stage {
                let here = (bytes.len() - at) as u64;
                let step = left.min(here);
                at += usize::try_from(step).unwrap_or(bytes.len());
                self.stage = match left - step {
                    0 => Stage::DataCr,
                    rest => Stage::Data(rest),
                };
                continue;
            }
            self.line += 1;
            let next = match self.line > MAX_LINE_BYTES {
                true => None,
                false => self.step(byte),
            };
            at += 1;
            match next {
                None => return Scanned::Broken(at),
                Some(Next::End) => return Scanned::End(at),
                Some(Next::Stage(stage)) => self.stage = stage,
            }
        }
        Scanned::All
    }

    fn step(&mut self, byte: u8) -> Option<Next> {
        let digit = char::from(byte).to_digit(16).map(u64::from);
        Some(Next::Stage(match (&self.stage, byte) {
            (Stage::Size, _) => Stage::Digits(digit?),
            (Stage::Digits(size), _) if digit.is_some() => {
                Stage::Digits(size.checked_mul(16)?.checked_add(digit?)?)
            }
            (Stage::Digits(size) | Stage::Extension(size), b'\r') => Stage::SizeEnd(*size),
            (Stage::Digits(size), b';') => Stage::Extension(*size),
            (Stage::Extension(size), b' '..=b'~' | b'\t') => Stage::Extension(*size),
            (Stage::SizeEnd(0), b'\n') => {
                self.line = 0;
                Stage::TrailerStart
            }
            (Stage::SizeEnd(size), b'\n') => Stage::Data(*size),
            (Stage::DataCr, b'\r') => Stage::DataLf,
            (Stage::DataLf, b'\n') => {
                self.line = 0;
                Stage::Size
            }
            (Stage::TrailerStart, b'\r') => Stage::LastLf,
            (Stage::Trailer, b'\r') => Stage::TrailerLf,
            (Stage::TrailerStart | Stage::Trailer, byte) if byte != b'\n' => Stage::Trailer,
            (Stage::TrailerLf, b'\n') => Stage::TrailerStart,
            (Stage::LastLf, b'\n') => return Some(Next::End),
            _ => return None,
        }))
    }
}

enum Next {
    Stage(Stage),
    End,
}

#[cfg(test)]
mod tests {
    use super::*;

    fn scan(parts: &[&[u8]]) -> Vec<Scanned> {
        let mut scan = ChunkScan::default();
        parts.iter().map(|part| scan.scan(part)).collect()
    }

    #[test]
    fn the_end_is_found_however_the_body_is_cut() {
        for body in [
            &b"0\r\n\r\n"[..],
            b"3\r\nabc\r\n0\r\n\r\n",
            b"00A;x=\"y\"\r\n0123456789\r\n0\r\na: b\r\nc: d\r\n\r\n",
            b"5\r\n\r\n0\r\n\r\n0\r\n\r\n",
        ] {
            let mut with_rest = body.to_vec();
            with_rest.extend(b"GET /");
            assert_eq!(scan(&[&with_rest]), [Scanned::End(body.len())]);
            for cut in 1..body.len() {
                let (one, two) = with_rest.split_at(cut);
                let outcome = scan(&[one, two]);
                assert_eq!(outcome, [Scanned::All, Scanned::End(body.len() - cut)]);
            }
        }
    }

    #[test]
    fn other_forms_are_broken() {
        let long = [b"1;".to_vec(), vec![b'x'; 10_000]].concat();
        let trailers = [b"0\r\n".to_vec(), b"a: b\r\n".repeat(2_000)].concat();
        for body in [
            &b"x\r\n"[..],
            b"\r\n",
            b"-1\r\n",
            b" 1\r\n",
            b"1 \r\n",
            b"1\n",
            b"1\r\nab",
            b"1\r\na\n",
            b"1\r\na\rx",
            b"0\r\n\n",
            b"0\r\na: b\n",
            b"10000000000000000\r\n",
            &long,
            &trailers,
        ] {
            let outcome = scan(&[body]);
            assert!(
                matches!(outcome.as_slice(), [Scanned::Broken(_)]),
                "{outcome:?} of {:?}",
                String::from_utf8_lossy(body)
            );
        }
    }
}
