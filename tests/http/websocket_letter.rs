//! WebSockets by the letter: an echo passes the cases of the Autobahn test suite that RFC 6455 is about, 1 to 7, 9 and
//! 10, by its numbers and without a failure. Its cases 12 and 13 are about compression, which the server does not offer.

use std::io::{ErrorKind, Read as _, Write as _};
use std::net::TcpStream;

use crate::sockets::Socket;
use crate::support::Server;
use crate::websocket_cases::{
    BINARY, CLOSE, CONTINUATION, Case, End, Event, PING, PONG, Step, TEXT, closing, fragmentation,
    framing, pings, reserved_bits_and_opcodes, sizes, texts, whole,
};
use crate::websocket_texts::sequences;

const ECHO: &str = "/debug/websocket-echo";
/// Number of the suite's cases that are not about compression.
const CASES: usize = 301;
/// Part of the suite's sizes that are sent in every run.
const SCALE: usize = 16;

fn echo(more: &str) -> Server {
    Server::scripted(
        "default = \"Hi.\"\n",
        &format!("[server]\nwebsocket_echo = true\n{more}"),
    )
}

/// Event, close frame or end that a client reads.
#[derive(Debug)]
enum Come {
    Event(Event),
    /// A close frame, with its code.
    Close(Option<u16>),
    /// The end of the connection.
    End,
}

/// A client that sends whatever it likes, and reads strictly.
struct Peer {
    stream: TcpStream,
    events: Vec<Event>,
    /// The close frame that came, with its code.
    close: Option<Option<u16>>,
}

impl Peer {
    fn open(server: &Server) -> Self {
        let (status, socket) = Socket::open(server, ECHO, "");
        assert_eq!(status, 101);
        socket.0.set_nodelay(true).expect("send small writes");
        Self {
            stream: socket.0,
            events: Vec::new(),
            close: None,
        }
    }

    /// Bytes of the server, if the connection goes on.
    fn read(&mut self, count: usize) -> Result<Option<Vec<u8>>, String> {
        let mut bytes = vec![0; count];
        match self.stream.read_exact(&mut bytes) {
            Ok(()) => Ok(Some(bytes)),
            Err(error) => match error.kind() {
                ErrorKind::UnexpectedEof | ErrorKind::ConnectionReset | ErrorKind::BrokenPipe => {
                    Ok(None)
                }
                _ => Err(format!("the server says nothing: {error}")),
            },
        }
    }

    /// One frame: its first byte, and its payload.
    fn frame(&mut self) -> Result<Option<(u8, Vec<u8>)>, String> {
        let Some(head) = self.read(2)? else {
            return Ok(None);
        };
        let length = match head[1] {
            126 => self.read(2)?,
            127 => self.read(8)?,
            masked if masked & 0x80 != 0 => return Err("a masked frame".to_owned()),
            short => Some(vec![short]),
        };
        let Some(length) = length else {
            return Ok(None);
        };
        let length = length
            .iter()
            .fold(0, |sum, byte| sum << 8 | usize::from(*byte));
        let payload = self.read(length)?;
        Ok(payload.map(|payload| (head[0], payload)))
    }

    /// Next message, pong, close frame or end of the connection; pings are passed over.
    fn next(&mut self) -> Result<Come, String> {
        let mut message: Option<(u8, Vec<u8>)> = None;
        while let Some((first, payload)) = self.frame()? {
            if first & 0x70 != 0 {
                return Err(format!("reserved bits in {first:#x}"));
            }
            let (last, opcode) = (first & 0x80 != 0, first & 15);
            let control = opcode >= CLOSE;
            if control && (!last || payload.len() > 125) {
                return Err("a control frame that is none".to_owned());
            }
            match (opcode, &mut message) {
                (PONG, _) => return Ok(Come::Event(Event::Pong(payload))),
                (PING, _) => continue,
                (CLOSE, _) => {
                    let code = payload.first_chunk().map(|code| u16::from_be_bytes(*code));
                    return Ok(Come::Close(code));
                }
                (TEXT | BINARY, None) => message = Some((opcode, payload)),
                (CONTINUATION, Some((_, begun))) => begun.extend(payload),
                _ => return Err(format!("a frame {first:#x} that does not belong there")),
            }
            if let (true, Some((opcode, payload))) = (last, message.take_if(|_| last)) {
                return Ok(Come::Event(match opcode {
                    TEXT => Event::Text(payload),
                    _ => Event::Binary(payload),
                }));
            }
        }
        Ok(Come::End)
    }

    /// Write, to a server that may have ended the connection.
    fn write(&mut self, bytes: &[u8]) {
        let _ = self.stream.write_all(bytes);
    }

    fn step(&mut self, step: &Step) -> Result<(), String> {
        match step {
            Step::Write(bytes) => self.write(bytes),
            Step::Chops(bytes, size) => bytes.chunks(*size).for_each(|piece| self.write(piece)),
            Step::Await(count) => self.until(*count)?,
        }
        Ok(())
    }

    /// Read until so many events have come.
    fn until(&mut self, count: usize) -> Result<(), String> {
        while self.events.len() < count {
            match self.next()? {
                Come::Event(event) => self.events.push(event),
                other => return Err(format!("{other:?} after {:?}", self.events)),
            }
        }
        Ok(())
    }

    /// Read until the connection has ended.
    fn drain(&mut self) -> Result<(), String> {
        loop {
            match self.next()? {
                Come::Event(event) if self.close.is_none() => self.events.push(event),
                Come::Close(code) if self.close.is_none() => self.close = Some(code),
                Come::End => return Ok(()),
                other => return Err(format!("{other:?} after the close frame")),
            }
        }
    }
}

/// Differences of the answers to a case from those that are expected.
fn run(server: &Server, case: &Case) -> Result<(), String> {
    let mut peer = Peer::open(server);
    for step in &case.steps {
        peer.step(step)?;
    }
    if let End::Closed = case.end {
        peer.until(case.events.len())?;
        peer.write(&whole(CLOSE, 1000_u16.to_be_bytes()));
    }
    peer.drain()?;
    let codes: &[u16] = match case.end {
        End::Ended => return Ok(()),
        End::Closed => &[1000],
        End::Answered(codes) | End::Failed(codes) => codes,
    };
    if peer.events != case.events {
        return Err(format!("{:?} in place of {:?}", peer.events, case.events));
    }
    match (peer.close, case.end) {
        // A server that fails a connection says why.
        (Some(None), End::Closed | End::Answered(_)) => Ok(()),
        (Some(Some(code)), _) if codes.contains(&code) => Ok(()),
        (other, _) => Err(format!("ends with {other:?} in place of one of {codes:?}")),
    }
}

fn run_all(server: &Server, cases: &[Case]) {
    let failures: Vec<String> = cases
        .iter()
        .filter_map(|case| {
            let failure = run(server, case).err()?;
            Some(format!("{}: {failure}", case.id))
        })
        .collect();
    assert!(
        failures.is_empty(),
        "{} of {} cases fail: {failures:#?}",
        failures.len(),
        cases.len()
    );
}

#[test]
fn feature_e26_an_echo_passes_the_cases_of_autobahn() {
    let mut server = echo("max_body_bytes = 1048576\n");
    let cases = [
        framing(),
        pings(),
        reserved_bits_and_opcodes(),
        fragmentation(),
        texts(),
        sequences(),
        closing(),
        sizes(SCALE),
    ]
    .concat();
    assert_eq!(cases.len(), CASES);
    run_all(&server, &cases);
    server.assert_sound();
}

/// `cargo test --release -p mortise --test http -- --ignored autobahn`: 16 MiB, and a thousand messages.
#[test]
#[ignore = "takes half a minute"]
fn feature_e26_an_echo_passes_the_cases_of_autobahn_in_their_full_size() {
    let mut server = echo("max_body_bytes = 16777216\n");
    run_all(&server, &sizes(1));
    server.assert_sound();
}

#[test]
fn feature_e26_an_echo_is_there_only_where_it_is_asked_for() {
    let server = Server::scripted("default = \"Hi.\"\n", "");
    assert_eq!(server.get(ECHO).status(), 404);
    let keys =
        "max_body_bytes = 65536\n[[auth.api_keys]]\nid = \"a\"\nkey = \"key-of-a-0123456789\"\n";
    let server = echo(keys);
    let key = "authorization: Bearer key-of-a-0123456789\r\n";
    assert_eq!(Socket::open(&server, ECHO, "").0, 401);
    let offer = "sec-websocket-extensions: permessage-deflate\r\n";
    let (status, socket) = Socket::open(&server, ECHO, &format!("{key}{offer}"));
    assert_eq!(status, 101);
    let mut peer = Peer {
        stream: socket.0,
        events: Vec::new(),
        close: None,
    };
    // Longer than any body, and refused before it has come.
    peer.write(&whole(BINARY, [0; 65_537])[..14]);
    peer.drain().expect("an end");
    assert_eq!(peer.close, Some(Some(1009)));
}
