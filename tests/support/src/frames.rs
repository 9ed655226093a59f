//! Frames of HTTP/2 as bytes, for peers that break its rules (RFC 9113).

use std::io::{self, Read as _, Write as _};
use std::net::TcpStream;
use std::time::Duration;

/// Connection preface of a client.
pub const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";

pub const DATA: u8 = 0;
pub const HEADERS: u8 = 1;
pub const PRIORITY: u8 = 2;
pub const RST_STREAM: u8 = 3;
pub const SETTINGS: u8 = 4;
pub const PUSH_PROMISE: u8 = 5;
pub const PING: u8 = 6;
pub const GOAWAY: u8 = 7;
pub const WINDOW_UPDATE: u8 = 8;
pub const CONTINUATION: u8 = 9;

pub const END_STREAM: u8 = 1;
pub const ACK: u8 = 1;
pub const END_HEADERS: u8 = 4;

/// Errors of a stream or a connection.
pub const PROTOCOL_ERROR: u32 = 1;
pub const FLOW_CONTROL_ERROR: u32 = 3;
pub const STREAM_CLOSED: u32 = 5;
pub const FRAME_SIZE_ERROR: u32 = 6;
pub const REFUSED_STREAM: u32 = 7;
pub const COMPRESSION_ERROR: u32 = 9;

/// A frame, with whatever is wrong with it.
pub fn frame(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
    let length = u32::try_from(payload.len()).expect("a short payload");
    let mut bytes = length.to_be_bytes()[1..].to_vec();
    bytes.extend([kind, flags]);
    bytes.extend(stream.to_be_bytes());
    bytes.extend(payload);
    bytes
}

/// Headers as literals that no table keeps (RFC 7541, 6.2.3).
pub fn block(headers: &[(&str, &str)]) -> Vec<u8> {
    let mut bytes = Vec::new();
    for (name, value) in headers {
        bytes.push(0x10);
        for text in [name, value] {
            string(&mut bytes, text);
        }
    }
    bytes
}

fn string(bytes: &mut Vec<u8>, text: &str) {
    let mut length = text.len();
    if length < 127 {
        bytes.push(length as u8);
    } else {
        bytes.push(127);
        length -= 127;
        while length >= 128 {
            bytes.push((length % 128) as u8 | 128);
            length /= 128;
        }
        bytes.push(length as u8);
    }
    bytes.extend(text.as_bytes());
}

/// The pseudo-headers of a request.
pub fn request<'a>(method: &'a str, path: &'a str) -> Vec<(&'a str, &'a str)> {
    vec![
        (":method", method),
        (":scheme", "http"),
        (":authority", "localhost"),
        (":path", path),
    ]
}

/// A frame that was received.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Frame {
    pub kind: u8,
    pub flags: u8,
    pub stream: u32,
    pub payload: Vec<u8>,
}

impl Frame {
    /// The error code of `RST_STREAM` or `GOAWAY`.
    pub fn error(&self) -> Option<u32> {
        let bytes = match self.kind {
            RST_STREAM => self.payload.get(..4),
            GOAWAY => self.payload.get(4..8),
            _ => None,
        };
        bytes.map(|bytes| u32::from_be_bytes(bytes.try_into().expect("four bytes")))
    }
}

/// A connection on which the preface and empty settings were sent.
pub fn open(mut stream: TcpStream, patience: Duration) -> TcpStream {
    stream
        .set_read_timeout(Some(patience))
        .expect("set a timeout");
    let _ = stream.write_all(PREFACE);
    let _ = stream.write_all(&frame(SETTINGS, 0, 0, &[]));
    stream
}

/// The next frame; an error when the connection has ended, or nothing comes in time.
pub fn next(stream: &mut TcpStream) -> io::Result<Frame> {
    let mut head = [0; 9];
    stream.read_exact(&mut head)?;
    let length = u32::from_be_bytes([0, head[0], head[1], head[2]]);
    let mut payload = vec![0; length as usize];
    stream.read_exact(&mut payload)?;
    Ok(Frame {
        kind: head[3],
        flags: head[4],
        stream: u32::from_be_bytes([head[5], head[6], head[7], head[8]]),
        payload,
    })
}
