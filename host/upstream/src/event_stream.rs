//! Server-sent events: bytes in pieces of any size to the data of each event.

use memchr::memchr2;

use crate::limits::MAX_EVENT_BYTES;

/// A line or an event is longer than [`MAX_EVENT_BYTES`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct TooLong;

/// Reader of a stream of events. What it keeps is bounded by two times [`MAX_EVENT_BYTES`].
#[derive(Debug, Default)]
pub(crate) struct EventStream {
    /// The line so far, where a piece ended within it.
    line: Vec<u8>,
    /// Data of the event so far.
    data: Vec<u8>,
    has_data: bool,
    /// The last piece ended with a carriage return; a line feed that follows belongs to it.
    after_return: bool,
    /// The first line has been read, which may begin with a byte order mark.
    begun: bool,
}

impl EventStream {
    /// Read a piece, and hand on the data of each event that it completes, until `event` fails.
    pub(crate) fn feed<E: From<TooLong>>(
        &mut self,
        mut piece: &[u8],
        mut event: impl FnMut(&[u8]) -> Result<(), E>,
    ) -> Result<(), E> {
        if self.after_return && !piece.is_empty() {
            self.after_return = false;
            piece = piece.strip_prefix(b"\n").unwrap_or(piece);
        }
        while let Some(end) = memchr2(b'\n', b'\r', piece) {
            let (line, rest) = piece.split_at(end);
            self.after_return = rest == b"\r";
            piece = rest.strip_prefix(b"\r\n").unwrap_or(&rest[1..]);
            if self.line.is_empty() {
                self.accept(line, &mut event)?;
            } else {
                let mut kept = std::mem::take(&mut self.line);
                extend(&mut kept, line)?;
                self.accept(&kept, &mut event)?;
                kept.clear();
                self.line = kept;
            }
        }
        Ok(extend(&mut self.line, piece)?)
    }

    /// The stream has ended; an event without a blank line behind it counts as complete.
    pub(crate) fn end<E: From<TooLong>>(
        &mut self,
        mut event: impl FnMut(&[u8]) -> Result<(), E>,
    ) -> Result<(), E> {
        let line = std::mem::take(&mut self.line);
        if !line.is_empty() {
            self.accept(&line, &mut event)?;
        }
        self.accept(b"", &mut event)
    }

    /// Take a line without its end.
    fn accept<E: From<TooLong>>(
        &mut self,
        line: &[u8],
        event: &mut impl FnMut(&[u8]) -> Result<(), E>,
    ) -> Result<(), E> {
        let line = match std::mem::replace(&mut self.begun, true) {
            true => line,
            false => line.strip_prefix("\u{feff}".as_bytes()).unwrap_or(line),
        };
        if line.is_empty() {
            if std::mem::take(&mut self.has_data) {
                let data = std::mem::take(&mut self.data);
                event(&data)?;
                self.data = data;
                self.data.clear();
            }
            return Ok(());
        }
        // llama.cpp's server has sent failures in a field of their own.
        let field = [&b"data"[..], b"error"]
            .iter()
            .find_map(|name| line.strip_prefix(*name));
        let Some(value) = field.and_then(|rest| match rest {
            [] => Some(rest),
            [b':', rest @ ..] => Some(rest.strip_prefix(b" ").unwrap_or(rest)),
            _ => None,
        }) else {
            // Comments, names and ids of events.
            return Ok(());
        };
        if std::mem::replace(&mut self.has_data, true) {
            extend(&mut self.data, b"\n")?;
        }
        Ok(extend(&mut self.data, value)?)
    }
}

fn extend(buffer: &mut Vec<u8>, bytes: &[u8]) -> Result<(), TooLong> {
    if buffer.len() + bytes.len() > MAX_EVENT_BYTES {
        return Err(TooLong);
    }
    buffer.extend_from_slice(bytes);
    Ok(())
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Data of all events of a stream that comes in these pieces.
    fn events<'a>(pieces: impl IntoIterator<Item = &'a [u8]>) -> Result<Vec<String>, TooLong> {
        let mut stream = EventStream::default();
        let mut found = Vec::new();
        let mut keep = |data: &[u8]| -> Result<(), TooLong> {
            found.push(String::from_utf8_lossy(data).into_owned());
            Ok(())
        };
        for piece in pieces {
            stream.feed(piece, &mut keep)?;
        }
        stream.end(&mut keep)?;
        Ok(found)
    }

    const STREAM: &str = "\u{feff}data: a\n\n: hello\r\nevent: x\rid: 7\ndata:b\r\ndata:  c\r\n\r\n\
                          data\n\ndatum: no\n\nerror: {}\n\nretry: 1\r\rdata: last";

    #[test]
    fn the_rules_of_server_sent_events_hold() {
        let found = events([STREAM.as_bytes()]).expect("events");
        assert_eq!(found, ["a", "b\n c", "", "{}", "last"]);
    }

    #[test]
    fn lines_and_events_have_a_bound() {
        let long = vec![b'x'; MAX_EVENT_BYTES + 1];
        assert_eq!(events([&long[..]]), Err(TooLong));
        assert_eq!(events(long.chunks(1000)), Err(TooLong));
        let lines = "data: 0123456789\n".repeat(MAX_EVENT_BYTES / 10);
        assert_eq!(events([lines.as_bytes()]), Err(TooLong));
        // Many short events are no long one.
        let short = "data: 0123456789\n\n".repeat(MAX_EVENT_BYTES / 10);
        assert!(events([short.as_bytes()]).is_ok());
    }

    proptest! {
        #[test]
        fn pieces_make_no_difference(cuts in proptest::collection::vec(0..STREAM.len(), 0..12)) {
            let mut cuts = cuts;
            cuts.sort_unstable();
            let mut pieces = Vec::new();
            let mut from = 0;
            for cut in cuts {
                pieces.push(&STREAM.as_bytes()[from..cut]);
                from = cut;
            }
            pieces.push(&STREAM.as_bytes()[from..]);
            prop_assert_eq!(events(pieces), events([STREAM.as_bytes()]));
        }

        #[test]
        fn no_bytes_are_too_odd(bytes: Vec<u8>, cut: prop::sample::Index) {
            let cut = cut.index(bytes.len() + 1);
            let (one, two) = bytes.split_at(cut);
            prop_assert_eq!(events([one, two]), events([&bytes[..]]));
        }
    }
}
