//! Cases of WebSockets by the letter: what a client sends to an echo, and what must come back. Numbers and expectations
//! are those of the Autobahn test suite.

/// One step of a client.
#[derive(Debug, Clone)]
pub(crate) enum Step {
    /// Octets in one write.
    Write(Vec<u8>),
    /// Octets in writes of so many.
    Chops(Vec<u8>, usize),
    /// A pause until so many events have come.
    Await(usize),
}

/// Answer to a case.
#[derive(Clone, PartialEq, Eq)]
pub(crate) enum Event {
    Text(Vec<u8>),
    Binary(Vec<u8>),
    Pong(Vec<u8>),
}

impl std::fmt::Debug for Event {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let (kind, payload) = match self {
            Self::Text(payload) => ("text", payload),
            Self::Binary(payload) => ("binary", payload),
            Self::Pong(payload) => ("pong", payload),
        };
        let begin = String::from_utf8_lossy(&payload[..payload.len().min(24)]);
        write!(formatter, "{kind} of {}: {begin:?}", payload.len())
    }
}

/// The end of a connection.
#[derive(Debug, Clone, Copy)]
pub(crate) enum End {
    /// The client closes it with the code 1000, which the server repeats.
    Closed,
    /// The steps have a close frame, which the server answers with one of these codes, or without one.
    Answered(&'static [u16]),
    /// The server fails it by itself, with one of these codes.
    Failed(&'static [u16]),
    /// The connection ends; how is left to servers.
    Ended,
}

/// A connection.
#[derive(Debug, Clone)]
pub(crate) struct Case {
    pub(crate) id: String,
    pub(crate) steps: Vec<Step>,
    pub(crate) events: Vec<Event>,
    pub(crate) end: End,
}

/// Code of a client that breaks the protocol.
pub(crate) const PROTOCOL: End = End::Failed(&[1002]);
/// Code of a text that is not UTF-8.
pub(crate) const NO_TEXT: End = End::Failed(&[1007]);

pub(crate) const CONTINUATION: u8 = 0;
pub(crate) const TEXT: u8 = 1;
pub(crate) const BINARY: u8 = 2;
pub(crate) const CLOSE: u8 = 8;
pub(crate) const PING: u8 = 9;
pub(crate) const PONG: u8 = 10;

/// A frame of a client: its first byte, of opcode, reserved bits and the mark of the last, and its payload.
pub(crate) fn raw(first: u8, payload: &[u8]) -> Vec<u8> {
    let mut frame = vec![first];
    match payload.len() {
        short @ 0..126 => frame.push(0x80 | short as u8),
        middle @ 126..65_536 => {
            frame.push(0x80 | 126);
            frame.extend((middle as u16).to_be_bytes());
        }
        long => {
            frame.push(0x80 | 127);
            frame.extend((long as u64).to_be_bytes());
        }
    }
    let mask = [7, 1, 9, 3];
    frame.extend(mask);
    let masked = payload.iter().zip(mask.iter().cycle());
    frame.extend(masked.map(|(byte, mask)| byte ^ mask));
    frame
}

/// A whole message, or a control frame.
pub(crate) fn whole(opcode: u8, payload: impl AsRef<[u8]>) -> Vec<u8> {
    raw(0x80 | opcode, payload.as_ref())
}

/// A fragment that another follows.
fn part(opcode: u8, payload: impl AsRef<[u8]>) -> Vec<u8> {
    raw(opcode, payload.as_ref())
}

/// A frame with reserved bits.
fn reserved(opcode: u8, bits: u8, payload: &[u8]) -> Vec<u8> {
    raw(0x80 | bits << 4 | opcode, payload)
}

/// A close frame.
fn close(code: u16, reason: &[u8]) -> Vec<u8> {
    whole(CLOSE, [&code.to_be_bytes(), reason].concat())
}

/// Frames of a message in fragments of a size.
fn fragments(opcode: u8, payload: &[u8], size: usize) -> Vec<u8> {
    let mut bytes = Vec::new();
    let count = payload.len().div_ceil(size);
    for (at, piece) in payload.chunks(size).enumerate() {
        let opcode = if at == 0 { opcode } else { CONTINUATION };
        let last = if at + 1 == count { 0x80 } else { 0 };
        bytes.extend(raw(last | opcode, piece));
    }
    bytes
}

pub(crate) fn text(payload: impl AsRef<[u8]>) -> Event {
    Event::Text(payload.as_ref().to_vec())
}

fn pong(payload: impl AsRef<[u8]>) -> Event {
    Event::Pong(payload.as_ref().to_vec())
}

/// A message of an opcode, as it comes back.
fn echoed(opcode: u8, payload: &[u8]) -> Event {
    match opcode {
        BINARY => Event::Binary(payload.to_vec()),
        _ => text(payload),
    }
}

/// A case of frames that are written at once.
pub(crate) fn case(id: impl Into<String>, frames: &[Vec<u8>], events: &[Event], end: End) -> Case {
    steps(id, vec![Step::Write(frames.concat())], events, end)
}

/// A case of frames that are written octet by octet.
fn chopped(id: &str, frames: &[Vec<u8>], events: &[Event], end: End) -> Case {
    steps(id, vec![Step::Chops(frames.concat(), 1)], events, end)
}

/// A case of frames that are written one by one.
fn apart(id: &str, frames: &[Vec<u8>], events: &[Event], end: End) -> Case {
    let writes = frames.iter().cloned().map(Step::Write);
    steps(id, writes.collect(), events, end)
}

fn steps(id: impl Into<String>, steps: Vec<Step>, events: &[Event], end: End) -> Case {
    Case {
        id: id.into(),
        steps,
        events: events.to_vec(),
        end,
    }
}

/// 1: messages of any length.
pub(crate) fn framing() -> Vec<Case> {
    let mut cases = Vec::new();
    for (group, opcode, octet) in [(1, TEXT, b'*'), (2, BINARY, 0xfe)] {
        let lengths = [0, 125, 126, 127, 128, 65_535, 65_536];
        for (at, length) in lengths.into_iter().enumerate() {
            let payload = vec![octet; length];
            let id = format!("1.{group}.{}", at + 1);
            let events = [echoed(opcode, &payload)];
            cases.push(case(id, &[whole(opcode, &payload)], &events, End::Closed));
        }
        let payload = vec![octet; 65_536];
        cases.push(steps(
            format!("1.{group}.8"),
            vec![Step::Chops(whole(opcode, &payload), 997)],
            &[echoed(opcode, &payload)],
            End::Closed,
        ));
    }
    cases
}

/// 2: pings and pongs.
pub(crate) fn pings() -> Vec<Case> {
    let hello = b"Hello, world!";
    let octets = b"\x00\xff\xfe\xfd\xfc\xfb\x00\xff";
    let long = [0xfe; 125];
    let unsolicited = whole(PONG, "unsolicited pong payload");
    let ten: Vec<String> = (0..10).map(|at| format!("payload-{at}")).collect();
    let pings: Vec<Vec<u8>> = ten.iter().map(|payload| whole(PING, payload)).collect();
    let pongs: Vec<Event> = ten.iter().map(pong).collect();
    let one =
        |id: &str, payload: &[u8]| case(id, &[whole(PING, payload)], &[pong(payload)], End::Closed);
    vec![
        one("2.1", b""),
        one("2.2", hello),
        one("2.3", octets),
        one("2.4", &long),
        case("2.5", &[whole(PING, [0xfe; 126])], &[], PROTOCOL),
        chopped("2.6", &[whole(PING, long)], &[pong(long)], End::Closed),
        case("2.7", &[whole(PONG, "")], &[], End::Closed),
        case("2.8", std::slice::from_ref(&unsolicited), &[], End::Closed),
        case(
            "2.9",
            &[unsolicited, whole(PING, "ping payload")],
            &[pong("ping payload")],
            End::Closed,
        ),
        case("2.10", &pings, &pongs, End::Closed),
        chopped("2.11", &pings, &pongs, End::Closed),
    ]
}

/// 3: bits that are reserved. 4: opcodes that are reserved.
pub(crate) fn reserved_bits_and_opcodes() -> Vec<Case> {
    let hello = b"Hello, world!";
    let octets = b"\x00\xff\xfe\xfd\xfc\xfb\x00\xff";
    let echo = [text(hello)];
    let behind = |frame: Vec<u8>| [whole(TEXT, hello), frame, whole(PING, "")];
    let mut cases = vec![
        case("3.1", &[reserved(TEXT, 1, hello)], &[], PROTOCOL),
        case("3.2", &behind(reserved(TEXT, 2, hello)), &echo, PROTOCOL),
        apart("3.3", &behind(reserved(TEXT, 3, hello)), &echo, PROTOCOL),
        chopped("3.4", &behind(reserved(TEXT, 4, hello)), &echo, PROTOCOL),
        case("3.5", &[reserved(BINARY, 5, octets)], &[], PROTOCOL),
        case("3.6", &[reserved(BINARY, 6, hello)], &[], PROTOCOL),
        case("3.7", &[reserved(CLOSE, 7, b"")], &[], PROTOCOL),
    ];
    for (group, first) in [(1, 3), (2, 11)] {
        let id = |at: u8| format!("4.{group}.{at}");
        let payload = "reserved opcode payload";
        cases.extend([
            case(id(1), &[whole(first, "")], &[], PROTOCOL),
            case(id(2), &[whole(first + 1, payload)], &[], PROTOCOL),
            case(id(3), &behind(whole(first + 2, "")), &echo, PROTOCOL),
            case(id(4), &behind(whole(first + 3, hello)), &echo, PROTOCOL),
            chopped(&id(5), &behind(whole(first + 4, hello)), &echo, PROTOCOL),
        ]);
    }
    cases
}

/// Ways to write frames.
type Written = fn(&str, &[Vec<u8>], &[Event], End) -> Case;

/// Ways to write frames: at once, one by one, and octet by octet.
const WAYS: [Written; 3] = [
    |id, frames, events, end| case(id, frames, events, end),
    apart,
    chopped,
];

/// 5: fragments.
pub(crate) fn fragmentation() -> Vec<Case> {
    let (one, two) = ("fragment1", "fragment2");
    let both = [text("fragment1fragment2")];
    let mut cases = vec![
        case(
            "5.1",
            &[part(PING, one), whole(CONTINUATION, two)],
            &[],
            PROTOCOL,
        ),
        case(
            "5.2",
            &[part(PONG, one), whole(CONTINUATION, two)],
            &[],
            PROTOCOL,
        ),
    ];
    let message = [part(TEXT, one), whole(CONTINUATION, two)];
    let pinged = [
        part(TEXT, one),
        whole(PING, "ping payload"),
        whole(CONTINUATION, two),
    ];
    let answers = [pong("ping payload"), both[0].clone()];
    let nothing = "non-continuation payload";
    let hello = whole(TEXT, "Hello, world!");
    let stray = [whole(CONTINUATION, nothing), hello.clone()];
    let open = [part(CONTINUATION, nothing), hello];
    for (first, frames, events, end) in [
        (3, message.as_slice(), both.as_slice(), End::Closed),
        (6, &pinged, &answers, End::Closed),
        (9, &stray, &[], PROTOCOL),
        (12, &open, &[], PROTOCOL),
    ] {
        let ids = (first..).map(|number| format!("5.{number}"));
        let written = WAYS.iter().zip(ids);
        cases.extend(written.map(|(way, id)| way(&id, frames, events, end)));
    }
    let behind = [part(CONTINUATION, "fragment3"), whole(TEXT, "fragment4")];
    let frames = [message.as_slice(), &behind].concat();
    cases.push(case("5.15", &frames, &both, PROTOCOL));
    for (id, stray) in [
        ("5.16", part(CONTINUATION, one)),
        ("5.17", whole(CONTINUATION, one)),
    ] {
        let round = [stray, part(TEXT, two), whole(CONTINUATION, "fragment3")];
        cases.push(case(
            id,
            &[round.as_slice(), &round].concat(),
            &[],
            PROTOCOL,
        ));
    }
    cases.push(case(
        "5.18",
        &[part(TEXT, one), whole(TEXT, two)],
        &[],
        PROTOCOL,
    ));
    cases.extend(["5.19", "5.20"].map(between_pings));
    cases
}

/// A message whose first ping is answered before it is complete; in the second case, frames are written one by one.
fn between_pings(id: &str) -> Case {
    let begin = vec![
        part(TEXT, "fragment1"),
        part(CONTINUATION, "fragment2"),
        whole(PING, "pongme 1!"),
    ];
    let rest = vec![
        part(CONTINUATION, "fragment3"),
        part(CONTINUATION, "fragment4"),
        whole(PING, "pongme 2!"),
        whole(CONTINUATION, "fragment5"),
    ];
    let written = |frames: Vec<Vec<u8>>| match id {
        "5.19" => vec![Step::Write(frames.concat())],
        _ => frames.into_iter().map(Step::Write).collect(),
    };
    let all = [written(begin), vec![Step::Await(1)], written(rest)].concat();
    let message = "fragment1fragment2fragment3fragment4fragment5";
    let events = [pong("pongme 1!"), pong("pongme 2!"), text(message)];
    steps(id, all, &events, End::Closed)
}

/// Greek, in letters of two and three octets.
pub(crate) const KOSME: &[u8] = b"\xce\xba\xe1\xbd\xb9\xcf\x83\xce\xbc\xce\xb5";

/// 6.1 to 6.4: texts in fragments.
pub(crate) fn texts() -> Vec<Case> {
    let greeting = "Hello-µ@ßöäüàá-UTF-8!!";
    let (one, two) = greeting.split_at("Hello-µ@ßöä".len());
    let middle = "middle frame payload";
    let surrogate = [KOSME, b"\xed\xa0\x80", b"edited"].concat();
    let cut = |payload: &[u8], size: usize| vec![fragments(TEXT, payload, size)];
    vec![
        case("6.1.1", &[whole(TEXT, "")], &[text("")], End::Closed),
        case(
            "6.1.2",
            &[
                part(TEXT, ""),
                part(CONTINUATION, ""),
                whole(CONTINUATION, ""),
            ],
            &[text("")],
            End::Closed,
        ),
        case(
            "6.1.3",
            &[
                part(TEXT, ""),
                part(CONTINUATION, middle),
                whole(CONTINUATION, ""),
            ],
            &[text(middle)],
            End::Closed,
        ),
        case(
            "6.2.1",
            &[whole(TEXT, greeting)],
            &[text(greeting)],
            End::Closed,
        ),
        case(
            "6.2.2",
            &[part(TEXT, one), whole(CONTINUATION, two)],
            &[text(greeting)],
            End::Closed,
        ),
        case(
            "6.2.3",
            &cut(greeting.as_bytes(), 1),
            &[text(greeting)],
            End::Closed,
        ),
        case("6.2.4", &cut(KOSME, 1), &[text(KOSME)], End::Closed),
        case("6.3.1", &[whole(TEXT, &surrogate)], &[], NO_TEXT),
        case("6.3.2", &cut(&surrogate, 1), &[], NO_TEXT),
        failing_fast("6.4.1", 11, 15),
        failing_fast("6.4.2", 12, 13),
        in_one_frame("6.4.3", 11, 15),
        in_one_frame("6.4.4", 12, 13),
    ]
}

/// A text whose 13th octet makes it invalid, cut at two places.
fn invalid(one: usize, two: usize) -> [Vec<u8>; 3] {
    let all = [KOSME, b"\xf4\x90\x80\x80", b"edited"].concat();
    [&all[..one], &all[one..two], &all[two..]].map(<[u8]>::to_vec)
}

/// A fragment that cannot be part of a text fails the connection before the last fragment is sent. The ping shows that
/// the first was taken.
fn failing_fast(id: &str, one: usize, two: usize) -> Case {
    let [one, two, _] = invalid(one, two);
    let begin = [part(TEXT, one), whole(PING, "")].concat();
    let rest = Step::Write(part(CONTINUATION, two));
    let all = vec![Step::Write(begin), Step::Await(1), rest];
    steps(id, all, &[pong("")], NO_TEXT)
}

/// A case of the invalid text in one frame, in three writes. The suite would like the second write to fail; a server
/// that reads whole frames refuses the text when its frame is complete, which the suite calls not strict.
fn in_one_frame(id: &str, one: usize, two: usize) -> Case {
    let frame = whole(TEXT, invalid(one, two).concat());
    let head = frame.len() - 21;
    let cuts = [
        &frame[..head + one],
        &frame[head + one..head + two],
        &frame[head + two..],
    ];
    let writes = cuts.map(|piece| Step::Write(piece.to_vec())).to_vec();
    steps(id, writes, &[], NO_TEXT)
}

/// 7: ends of connections.
pub(crate) fn closing() -> Vec<Case> {
    const NORMAL: End = End::Answered(&[1000]);
    const WRONG: End = End::Answered(&[1002]);
    let hello = "Hello World!";
    let normal = close(1000, b"");
    let no_text = [KOSME, b"\xed\xa0\x80", b"edited"].concat();
    let long = b"BAsd7&jh23".repeat(26_215);
    let before = [
        whole(TEXT, &long[..256 * 1024]),
        whole(TEXT, hello),
        normal.clone(),
        whole(PING, ""),
    ];
    let mut cases = vec![
        case("7.1.1", &[whole(TEXT, hello)], &[text(hello)], End::Closed),
        case("7.1.2", &[normal.clone(), whole(CLOSE, "")], &[], NORMAL),
        case("7.1.3", &[normal.clone(), whole(PING, "")], &[], NORMAL),
        case("7.1.4", &[normal.clone(), whole(TEXT, hello)], &[], NORMAL),
        case(
            "7.1.5",
            &[
                part(TEXT, "fragment1"),
                normal.clone(),
                whole(CONTINUATION, "fragment2"),
            ],
            &[],
            NORMAL,
        ),
        case("7.1.6", &before, &[], End::Ended),
        case("7.3.1", &[whole(CLOSE, "")], &[], NORMAL),
        case("7.3.2", &[whole(CLOSE, "a")], &[], WRONG),
        case("7.3.3", &[normal], &[], NORMAL),
        case("7.3.4", &[close(1000, hello.as_bytes())], &[], NORMAL),
        case("7.3.5", &[close(1000, &[b'*'; 123])], &[], NORMAL),
        case("7.3.6", &[close(1000, &[b'*'; 124])], &[], WRONG),
        case(
            "7.5.1",
            &[close(1000, &no_text)],
            &[],
            End::Answered(&[1002, 1007]),
        ),
    ];
    // Each is answered with itself; 1000 would do as well.
    const VALID: [&[u16]; 13] = [
        &[1000],
        &[1001, 1000],
        &[1002, 1000],
        &[1003, 1000],
        &[1007, 1000],
        &[1008, 1000],
        &[1009, 1000],
        &[1010, 1000],
        &[1011, 1000],
        &[3000, 1000],
        &[3999, 1000],
        &[4000, 1000],
        &[4999, 1000],
    ];
    for (at, codes) in VALID.into_iter().enumerate() {
        let id = format!("7.7.{}", at + 1);
        cases.push(case(id, &[close(codes[0], b"")], &[], End::Answered(codes)));
    }
    let wrong = [0, 999, 1004, 1005, 1006, 1016, 1100, 2000, 2999];
    for (at, code) in wrong.into_iter().enumerate() {
        cases.push(case(
            format!("7.9.{}", at + 1),
            &[close(code, b"")],
            &[],
            WRONG,
        ));
    }
    for (at, code) in [5000, 65_535].into_iter().enumerate() {
        cases.push(case(
            format!("7.13.{}", at + 1),
            &[close(code, b"")],
            &[],
            End::Ended,
        ));
    }
    cases
}

/// 9: long messages, in `1/scale` of their size, and 10: a message in fragments.
pub(crate) fn sizes(scale: usize) -> Vec<Case> {
    const KIB: usize = 1024;
    let long = |opcode: u8, length: usize| -> Vec<u8> {
        let pattern: &[u8] = if opcode == TEXT {
            b"BAsd7&jh23"
        } else {
            b"\x00\xfe\x23\xfa\xf0"
        };
        pattern
            .iter()
            .copied()
            .cycle()
            .take((length / scale).max(1))
            .collect()
    };
    let mut cases = Vec::new();
    for (group, opcode) in [(1, TEXT), (2, BINARY)] {
        for (at, kib) in [64, 256, KIB, 4 * KIB, 8 * KIB, 16 * KIB]
            .into_iter()
            .enumerate()
        {
            let payload = long(opcode, kib * KIB);
            let (id, events) = (format!("9.{group}.{}", at + 1), [echoed(opcode, &payload)]);
            cases.push(case(id, &[whole(opcode, &payload)], &events, End::Closed));
        }
        let payload = long(opcode, 4 * KIB * KIB);
        let events = [echoed(opcode, &payload)];
        for at in 1..=9 {
            // Of 64 octets, and of four times as many each time.
            let size = (64_usize << (2 * (at - 1))).min(payload.len());
            let frames = [fragments(opcode, &payload, size)];
            let id = format!("9.{}.{at}", group + 2);
            cases.push(case(id, &frames, &events, End::Closed));
        }
        let payload = long(opcode, KIB * KIB);
        let events = [echoed(opcode, &payload)];
        for at in 1..=6 {
            let chops = vec![Step::Chops(whole(opcode, &payload), 32 << at)];
            let id = format!("9.{}.{at}", group + 4);
            cases.push(steps(id, chops, &events, End::Closed));
        }
        for (at, length) in [0, 16, 64, 256, 1024, 4096].into_iter().enumerate() {
            let payload = vec![if opcode == TEXT { b'*' } else { 0xfe }; length];
            let count = 1000 / scale;
            let turn = |done| [Step::Write(whole(opcode, &payload)), Step::Await(done)];
            let turns = (1..=count).flat_map(turn).collect();
            let events = vec![echoed(opcode, &payload); count];
            let id = format!("9.{}.{}", group + 6, at + 1);
            cases.push(steps(id, turns, &events, End::Closed));
        }
    }
    let payload = vec![b'*'; 65_536];
    let frames = [fragments(TEXT, &payload, 1300)];
    cases.push(case("10.1.1", &frames, &[text(&payload)], End::Closed));
    cases
}
