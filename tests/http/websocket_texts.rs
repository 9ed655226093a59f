//! Texts for the cases of WebSockets by the letter: octets that are UTF-8, and octets that are not.

use crate::websocket_cases::{Case, End, KOSME, NO_TEXT, TEXT, case, text, whole};

/// 6.5 and up: texts of one frame, valid and not.
pub(crate) fn sequences() -> Vec<Case> {
    let mut cases = Vec::new();
    for (group, sequences) in SEQUENCES.iter().enumerate() {
        for (at, (valid, octets)) in sequences.iter().enumerate() {
            let id = format!("6.{}.{}", group + 7, at + 1);
            cases.push(sequence(id, *valid, octets));
        }
    }
    for length in 1..=KOSME.len() {
        let whole_letters = [2, 5, 7, 9, 11].contains(&length);
        cases.push(sequence(
            format!("6.6.{length}"),
            whole_letters,
            &KOSME[..length],
        ));
    }
    let inside = ["$", "¢", "€", "𤭢"].map(|letter| format!("hello{letter}world").into_bytes());
    let correct = inside.into_iter().chain([KOSME.to_vec()]);
    cases.extend(
        correct
            .zip(1..)
            .map(|(octets, at)| sequence(format!("6.5.{at}"), true, &octets)),
    );
    for (at, plane) in (0..17_u32).enumerate() {
        // The last two code points of each plane are no characters, and valid.
        for (more, low) in [0xfffe, 0xffff].into_iter().enumerate() {
            let letter = char::from_u32(plane << 16 | low).expect("a code point");
            let id = format!("6.22.{}", at * 2 + more + 1);
            cases.push(sequence(id, true, letter.to_string().as_bytes()));
        }
    }
    for (letter, at) in ('\u{fff9}'..='\u{ffff}').zip(1..) {
        cases.push(sequence(
            format!("6.23.{at}"),
            true,
            letter.to_string().as_bytes(),
        ));
    }
    cases
}

fn sequence(id: String, valid: bool, octets: &[u8]) -> Case {
    let frames = [whole(TEXT, octets)];
    match valid {
        true => case(id, &frames, &[text(octets)], End::Closed),
        false => case(id, &frames, &[], NO_TEXT),
    }
}

type Sequences = &'static [(bool, &'static [u8])];

/// 6.7 to 6.21, as Markus Kuhn's stress test of decoders has them.
const SEQUENCES: [Sequences; 15] = [
    // The first of each length.
    &[(true, b"\x00"), (true, b"\xc2\x80"), (true, b"\xe0\xa0\x80"), (true, b"\xf0\x90\x80\x80")],
    &[(false, b"\xf8\x88\x80\x80\x80"), (false, b"\xfc\x84\x80\x80\x80\x80")],
    // The last of each length.
    &[(true, b"\x7f"), (true, b"\xdf\xbf"), (true, b"\xef\xbf\xbf"), (true, b"\xf4\x8f\xbf\xbf")],
    &[
        (false, b"\xf7\xbf\xbf\xbf"),
        (false, b"\xfb\xbf\xbf\xbf\xbf"),
        (false, b"\xfd\xbf\xbf\xbf\xbf\xbf"),
    ],
    // Other boundaries.
    &[
        (true, b"\xed\x9f\xbf"),
        (true, b"\xee\x80\x80"),
        (true, b"\xef\xbf\xbd"),
        (true, b"\xf4\x8f\xbf\xbf"),
        (false, b"\xf4\x90\x80\x80"),
    ],
    // Continuations of nothing.
    &[
        (false, b"\x80"),
        (false, b"\xbf"),
        (false, b"\x80\xbf"),
        (false, b"\x80\xbf\x80"),
        (false, b"\x80\xbf\x80\xbf"),
        (false, b"\x80\xbf\x80\xbf\x80"),
        (false, b"\x80\xbf\x80\xbf\x80\xbf"),
        (false, &ascending::<0x80, 63>()),
    ],
    // Beginnings of nothing.
    &[
        (false, &spaced::<0xc0, 62>()),
        (false, &spaced::<0xe0, 30>()),
        (false, &spaced::<0xf0, 14>()),
        (false, &spaced::<0xf8, 6>()),
        (false, &spaced::<0xfc, 2>()),
    ],
    // The last octet is missing.
    &[
        (false, b"\xc0"),
        (false, b"\xe0\x80"),
        (false, b"\xf0\x80\x80"),
        (false, b"\xf8\x80\x80\x80"),
        (false, b"\xfc\x80\x80\x80\x80"),
        (false, b"\xdf"),
        (false, b"\xef\xbf"),
        (false, b"\xf7\xbf\xbf"),
        (false, b"\xfb\xbf\xbf\xbf"),
        (false, b"\xfd\xbf\xbf\xbf\xbf"),
    ],
    &[(
        false,
        b"\xc0\xe0\x80\xf0\x80\x80\xf8\x80\x80\x80\xfc\x80\x80\x80\x80\xdf\xef\xbf\xf7\xbf\xbf\xfb\xbf\xbf\xbf\xfd\xbf\xbf\xbf\xbf",
    )],
    // Octets that no text has.
    &[(false, b"\xfe"), (false, b"\xff"), (false, b"\xfe\xfe\xff\xff")],
    // A slash in too many octets.
    &[
        (false, b"\xc0\xaf"),
        (false, b"\xe0\x80\xaf"),
        (false, b"\xf0\x80\x80\xaf"),
        (false, b"\xf8\x80\x80\x80\xaf"),
        (false, b"\xfc\x80\x80\x80\x80\xaf"),
    ],
    &[
        (false, b"\xc1\xbf"),
        (false, b"\xe0\x9f\xbf"),
        (false, b"\xf0\x8f\xbf\xbf"),
        (false, b"\xf8\x87\xbf\xbf\xbf"),
        (false, b"\xfc\x83\xbf\xbf\xbf\xbf"),
    ],
    &[
        (false, b"\xc0\x80"),
        (false, b"\xe0\x80\x80"),
        (false, b"\xf0\x80\x80\x80"),
        (false, b"\xf8\x80\x80\x80\x80"),
        (false, b"\xfc\x80\x80\x80\x80\x80"),
    ],
    // Surrogates, alone and in pairs.
    &[
        (false, b"\xed\xa0\x80"),
        (false, b"\xed\xad\xbf"),
        (false, b"\xed\xae\x80"),
        (false, b"\xed\xaf\xbf"),
        (false, b"\xed\xb0\x80"),
        (false, b"\xed\xbe\x80"),
        (false, b"\xed\xbf\xbf"),
    ],
    &[
        (false, b"\xed\xa0\x80\xed\xb0\x80"),
        (false, b"\xed\xa0\x80\xed\xbf\xbf"),
        (false, b"\xed\xad\xbf\xed\xb0\x80"),
        (false, b"\xed\xad\xbf\xed\xbf\xbf"),
        (false, b"\xed\xae\x80\xed\xb0\x80"),
        (false, b"\xed\xae\x80\xed\xbf\xbf"),
        (false, b"\xed\xaf\xbf\xed\xb0\x80"),
        (false, b"\xed\xaf\xbf\xed\xbf\xbf"),
    ],
];

/// Octets in ascending order from `FIRST` on, `COUNT` of them.
const fn ascending<const FIRST: u8, const COUNT: usize>() -> [u8; COUNT] {
    let mut octets = [FIRST; COUNT];
    let mut at = 0;
    while at < COUNT {
        octets[at] = FIRST + at as u8;
        at += 1;
    }
    octets
}

/// Octets in ascending order, with a space behind each; `COUNT` octets with the spaces.
const fn spaced<const FIRST: u8, const COUNT: usize>() -> [u8; COUNT] {
    let mut octets = [b' '; COUNT];
    let mut at = 0;
    while at < COUNT / 2 {
        octets[at * 2] = FIRST + at as u8;
        at += 1;
    }
    octets
}
