//! Lets only complete and sound heads of HTTP/1 requests through to hyper.
//!
//! Bytes of a head are held until all of it is here and [`request_head`] has found it sound. Bodies pass as
//! they come; their length is followed, so that the next head is found. In the place of a head that is
//! refused, hyper gets a plain `GET`: its turn comes when all requests before it are answered, and the
//! service answers it with the refusal, in the form of all other errors. Nothing behind it is read as a
//! request. hyper takes some chunks that [`chunk_scan`](super::chunk_scan) does not, so it gets nothing of what is
//! broken: behind what passes, the stream fails, and so does the body. A connection that opens with the preface of HTTP/2 passes untouched.

use std::sync::{Arc, Mutex, PoisonError};

use crate::chunk_scan::{ChunkScan, Scanned};
use crate::request_head::{self, Framing, HeadBounds, HeadRefusal, RequestHead};

const H2_PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";

/// Request that takes the place of one that is refused.
const STAND_IN: &[u8] = b"GET / HTTP/1.1\r\nhost: refused\r\nconnection: close\r\n\r\n";

/// The refused head of a connection, for the service. There is one at most, and it is the last request.
#[derive(Debug, Default)]
pub(super) struct RefusedHead(Mutex<Option<(u64, HeadRefusal)>>);

impl RefusedHead {
    /// The refusal of the request with this number, from 0.
    pub(super) fn of(&self, request: u64) -> Option<HeadRefusal> {
        let refused = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        refused
            .as_ref()
            .filter(|(number, _)| *number == request)
            .map(|(_, refusal)| refusal.clone())
    }

    fn set(&self, request: u64, refusal: HeadRefusal) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = Some((request, refusal));
    }
}

#[derive(Debug)]
enum Stage {
    /// Version of the protocol (HTTP/1 or HTTP/2) not known yet.
    Opening,
    Head,
    /// In a body with a content length; the number of bytes to come.
    Length(u64),
    Chunked(ChunkScan),
    /// HTTP/2, or a WebSocket.
    Open,
    /// Closed: the gate takes no further bytes.
    Closed,
    /// Broken: the gate takes no further bytes, and the body in progress never ends, since a chunk of it is malformed.
    Broken,
}

/// The gate of one connection.
#[derive(Debug)]
pub(super) struct HeadGate {
    stage: Stage,
    bounds: HeadBounds,
    /// Bytes of a head, as far as it is here, and how many of them were looked at.
    held: Vec<u8>,
    scanned: usize,
    /// Bytes that may pass, and how many have passed.
    ready: Vec<u8>,
    passed: usize,
    /// Heads that were let through.
    heads: u64,
    refused: Arc<RefusedHead>,
}

impl HeadGate {
    pub(super) fn new(bounds: HeadBounds, refused: Arc<RefusedHead>) -> Self {
        Self {
            stage: Stage::Opening,
            bounds,
            held: Vec::new(),
            scanned: 0,
            ready: Vec::new(),
            passed: 0,
            heads: 0,
            refused,
        }
    }

    /// Up to `room` bytes that may pass; empty if there are none.
    pub(super) fn deliver(&mut self, room: usize) -> &[u8] {
        let from = self.passed;
        self.passed = self.ready.len().min(from + room);
        if from == self.ready.len() && from > 0 {
            self.ready = Vec::new();
            self.passed = 0;
            return &[];
        }
        self.ready.get(from..self.passed).unwrap_or_default()
    }

    /// Take bytes as they were read. Returns how many of the first pass at once; of the rest, what may pass is
    /// to be delivered after them.
    pub(super) fn take(&mut self, bytes: &[u8]) -> usize {
        let direct = self.body(bytes);
        self.held
            .extend_from_slice(bytes.get(direct..).unwrap_or_default());
        while self.step() {}
        direct
    }

    /// Whether a head, or the next one, is what the connection waits for.
    pub(super) fn awaits_head(&self) -> bool {
        matches!(self.stage, Stage::Opening | Stage::Head) && self.ready.is_empty()
    }

    /// Whether part of a head is here.
    pub(super) fn has_part_of_head(&self) -> bool {
        !self.held.is_empty()
    }

    /// True if the gate takes no further bytes.
    pub(super) fn is_closed(&self) -> bool {
        matches!(self.stage, Stage::Closed | Stage::Broken)
    }

    /// Whether the body in progress is broken, so that reading on is an error.
    pub(super) fn is_broken(&self) -> bool {
        matches!(self.stage, Stage::Broken)
    }

    /// Whether the peer may have sent something that was not read as a request or is part of one.
    pub(super) fn is_within_message(&self) -> bool {
        match self.stage {
            Stage::Opening | Stage::Head => {
                self.has_part_of_head() || self.passed < self.ready.len()
            }
            Stage::Length(_) | Stage::Chunked(_) | Stage::Closed | Stage::Broken => true,
            Stage::Open => false,
        }
    }

    /// Refuse the head that is being read.
    pub(super) fn refuse(&mut self, refusal: HeadRefusal) {
        self.refused.set(self.heads, refusal);
        self.ready.extend_from_slice(STAND_IN);
        self.held = Vec::new();
        self.stage = Stage::Closed;
    }

    /// Number of leading bytes that belong to the body in progress.
    fn body(&mut self, bytes: &[u8]) -> usize {
        match &mut self.stage {
            Stage::Opening | Stage::Head | Stage::Closed | Stage::Broken => 0,
            Stage::Open => bytes.len(),
            Stage::Length(left) => {
                let here = usize::try_from(*left).unwrap_or(usize::MAX);
                let here = here.min(bytes.len());
                *left -= here as u64;
                if *left == 0 {
                    self.stage = Stage::Head;
                }
                here
            }
            Stage::Chunked(scan) => match scan.scan(bytes) {
                Scanned::All => bytes.len(),
                Scanned::End(at) => {
                    self.stage = Stage::Head;
                    at
                }
                // Without the byte that is wrong, hyper cannot take the body for a whole one.
                Scanned::Broken(at) => {
                    self.stage = Stage::Broken;
                    at.saturating_sub(1)
                }
            },
        }
    }

    /// Process held bytes by one step. `false` if the step needs more bytes.
    fn step(&mut self) -> bool {
        if self.held.is_empty() {
            return false;
        }
        match self.stage {
            Stage::Opening if self.held.starts_with(H2_PREFACE) => self.stage = Stage::Open,
            Stage::Opening if H2_PREFACE.starts_with(&self.held) => return false,
            Stage::Opening => self.stage = Stage::Head,
            Stage::Head => return self.head(),
            Stage::Closed | Stage::Broken => self.held = Vec::new(),
            Stage::Open | Stage::Length(_) | Stage::Chunked(_) => {
                let held = std::mem::take(&mut self.held);
                let pass = self.body(&held);
                let (passing, rest) = held.split_at(pass.min(held.len()));
                self.ready.extend_from_slice(passing);
                self.held.extend_from_slice(rest);
            }
        }
        true
    }

    fn head(&mut self) -> bool {
        // Empty lines before a request are passed over, as RFC 9112 (section 2.2) has it.
        while self.held.starts_with(b"\r\n") {
            self.held.drain(..2);
            self.scanned = 0;
        }
        match request_head::read(&self.held, self.scanned, self.bounds) {
            Ok(None) => {
                self.scanned = self.held.len();
                false
            }
            Ok(Some(RequestHead { length, framing })) => {
                self.ready.extend(self.held.drain(..length));
                self.scanned = 0;
                self.heads += 1;
                self.stage = match framing {
                    Framing::Length(0) => Stage::Head,
                    Framing::Length(length) => Stage::Length(length),
                    Framing::Chunked => Stage::Chunked(ChunkScan::default()),
                    // Where the answer is another, it is the last of the connection.
                    Framing::Socket => Stage::Open,
                };
                true
            }
            Err(refusal) => {
                self.refuse(refusal);
                false
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use http::StatusCode;

    use super::*;

    const BOUNDS: HeadBounds = HeadBounds {
        bytes: 1000,
        headers: 10,
    };

    /// Bytes of `parts` that the gate lets pass, and the refused head.
    fn pass(parts: &[&[u8]]) -> (Vec<u8>, Arc<RefusedHead>) {
        let refused = Arc::<RefusedHead>::default();
        let mut gate = HeadGate::new(BOUNDS, Arc::clone(&refused));
        let mut passed = Vec::new();
        for part in parts {
            let direct = gate.take(part);
            passed.extend_from_slice(&part[..direct]);
            loop {
                let ready = gate.deliver(7);
                if ready.is_empty() {
                    break;
                }
                passed.extend_from_slice(ready);
            }
        }
        (passed, refused)
    }

    const TWO: &[u8] = b"POST /a HTTP/1.1\r\nhost: a\r\ncontent-length: 5\r\n\r\nab\n\ncGET /b HTTP/1.1\r\nhost: a\r\n\r\n";
    const CHUNKS: &[u8] = b"POST /a HTTP/1.1\r\nhost: a\r\ntransfer-encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\n\r\nGET /b HTTP/1.1\r\nhost: a\r\n\r\n";

    #[test]
    fn sound_requests_pass_unchanged_however_they_are_cut() {
        for sent in [TWO, CHUNKS] {
            for cut in 0..=sent.len() {
                let (one, two) = sent.split_at(cut);
                let (passed, refused) = pass(&[one, two]);
                assert_eq!(passed, sent, "cut at {cut}");
                assert!((0..3).all(|request| refused.of(request).is_none()));
            }
            let bytes: Vec<&[u8]> = sent.chunks(1).collect();
            assert_eq!(pass(&bytes).0, sent);
        }
    }

    #[test]
    fn a_refused_head_has_its_place_behind_those_before_it() {
        for sent in [TWO, CHUNKS] {
            let bad = b"GET /evil HTTP/1.1\nhost: a\n\n";
            let behind = b"GET /smuggled HTTP/1.1\r\nhost: a\r\n\r\n";
            let all = [sent, bad, behind].concat();
            for cut in 0..=all.len() {
                let (one, two) = all.split_at(cut);
                let (passed, refused) = pass(&[one, two]);
                assert_eq!(passed, [sent, STAND_IN].concat(), "cut at {cut}");
                let refusal = refused.of(2).expect("the third is refused");
                assert_eq!(refusal.status, StatusCode::BAD_REQUEST);
                assert!(refused.of(0).is_none() && refused.of(1).is_none());
            }
        }
    }

    #[test]
    fn nothing_passes_behind_a_broken_chunk() {
        let head = b"POST /a HTTP/1.1\r\nhost: a\r\ntransfer-encoding: chunked\r\n\r\n";
        let sent = [head, &b"3\nabc\r\n0\r\n\r\nGET /b HTTP/1.1\r\n"[..]].concat();
        for cut in 0..=sent.len() {
            let (one, two) = sent.split_at(cut);
            assert_eq!(pass(&[one, two]).0, [head, &b"3"[..]].concat());
        }
    }

    #[test]
    fn a_body_that_hyper_would_take_breaks_before_its_end() {
        let head = b"POST /a HTTP/1.1\r\nhost: a\r\ntransfer-encoding: chunked\r\n\r\n";
        let long = format!("0\r\na: {}\r\n\r\n", "x".repeat(8 * 1024 - 5));
        for body in [&b"0 \r\n\r\n"[..], b"0\r\na: b\n\r\n", long.as_bytes()] {
            let mut gate = HeadGate::new(BOUNDS, Arc::default());
            let direct = gate.take(&[head, body].concat());
            assert!(gate.is_broken() && gate.is_closed());
            let mut passed = direct;
            loop {
                match gate.deliver(1000).len() {
                    0 => break,
                    more => passed += more,
                }
            }
            assert!(passed < head.len() + body.len());
        }
    }

    #[test]
    fn http_2_passes_untouched() {
        let sent = [H2_PREFACE, &b"\0\0\0\x04\0 GET \n\n"[..]].concat();
        for cut in 0..=sent.len() {
            let (one, two) = sent.split_at(cut);
            assert_eq!(pass(&[one, two]).0, sent, "cut at {cut}");
        }
        // Nothing else that begins like it does.
        let (passed, refused) = pass(&[b"PRI * HTTP/2.0\r\n\r\nXX"]);
        assert_eq!(passed, STAND_IN);
        assert!(refused.of(0).is_some());
    }

    #[test]
    fn frames_of_a_socket_pass_untouched() {
        let head =
            b"GET /a HTTP/1.1\r\nhost: a\r\nconnection: Upgrade\r\nUpgrade: WebSocket\r\n\r\n";
        let sent = [head, &b"\x81\x05hello\n\n"[..]].concat();
        for cut in 0..=sent.len() {
            let (one, two) = sent.split_at(cut);
            assert_eq!(pass(&[one, two]).0, sent, "cut at {cut}");
        }
        // With a body it is a request like any other.
        let head =
            b"POST /a HTTP/1.1\r\nhost: a\r\nUpgrade: websocket\r\ncontent-length: 1\r\n\r\nx";
        let (passed, refused) = pass(&[head, b"evil\n\n"]);
        assert_eq!(passed, [&head[..], STAND_IN].concat());
        assert!(refused.of(1).is_some());
    }

    #[test]
    fn empty_lines_before_a_request_are_passed_over() {
        let sent = b"\r\n\r\nGET /b HTTP/1.1\r\nhost: a\r\n\r\n";
        for cut in 0..=sent.len() {
            let (one, two) = sent.split_at(cut);
            assert_eq!(pass(&[one, two]).0, &sent[4..], "cut at {cut}");
        }
    }
}
