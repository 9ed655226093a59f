//! Golden cases: a byte that names a kind, and the file. They are run with the embedded plugin of that
//! kind, twice: a case comes out alike whenever it is asked.

use std::sync::OnceLock;

use mortise_harness::GoldenCases;
use mortise_plugin::Kind;

/// Run on one input.
pub fn run(data: &[u8]) {
    static CASES: OnceLock<GoldenCases> = OnceLock::new();
    let cases = CASES.get_or_init(|| GoldenCases::new().expect("the embedded plugins"));
    let Some((kind, text)) = data.split_first() else {
        return;
    };
    let kind = Kind::ALL[usize::from(*kind) % Kind::ALL.len()];
    let Ok(text) = std::str::from_utf8(text) else {
        return;
    };
    let run = || cases.run(kind, text).map_err(|error| format!("{error:#}"));
    assert_eq!(run(), run());
}
