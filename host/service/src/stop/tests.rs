use proptest::prelude::*;

use super::StopMatcher;

/// The definition: the first position at which the text ends with a stop string.
fn naive<'a>(text: &'a str, stops: &[String]) -> (&'a str, bool) {
    for end in (0..=text.len()).filter(|&end| text.is_char_boundary(end)) {
        let longest = stops
            .iter()
            .filter(|stop| !stop.is_empty() && text[..end].ends_with(stop.as_str()))
            .map(String::len)
            .max();
        if let Some(length) = longest {
            return (&text[..end - length], true);
        }
    }
    (text, false)
}

fn feed(pieces: &[&str], stops: &[String]) -> (String, bool) {
    let mut matcher = StopMatcher::new(stops.iter().map(String::as_str));
    let mut out = String::new();
    for piece in pieces {
        if matcher.push(piece, &mut out) {
            return (out, true);
        }
    }
    matcher.finish(&mut out);
    (out, false)
}

/// The pieces of `text` when cut wherever a bit of `cuts` is set.
fn pieces(text: &str, cuts: u64) -> Vec<&str> {
    let mut pieces = Vec::new();
    let mut from = 0;
    for (count, (at, _)) in text.char_indices().enumerate().skip(1) {
        if cuts >> (count % 64) & 1 == 1 {
            pieces.push(&text[from..at]);
            from = at;
        }
    }
    pieces.push(&text[from..]);
    pieces
}

fn check(text: &str, stops: &[&str]) {
    let stops: Vec<String> = stops.iter().map(|&s| s.to_owned()).collect();
    let (expected, stopped) = naive(text, &stops);
    let cuttings = 1u64 << text.chars().count().min(12);
    for cuts in 0..cuttings {
        let found = feed(&pieces(text, cuts), &stops);
        assert_eq!(
            found,
            (expected.to_owned(), stopped),
            "{text:?} {stops:?} cut by {cuts:b}"
        );
    }
}

#[test]
fn feature_t7_stop_strings_match_under_all_cuttings() {
    check("hello END x", &["END"]);
    check("hello EN", &["END"]);
    check("aabaabaac", &["aabaac"]);
    check("abcdef", &["bcdx", "cd"]);
    check("xabcd", &["abcd", "bc"]);
    check("abcd", &["abc", "abcd", "ab"]);
    check("\n\nUser: x", &["\nUser:", "\n\nUser:"]);
    check("naïve — 😀🙂 stop", &["😀🙂", "—x"]);
    check("anything", &[]);
    check("anything", &[""]);
    check("a", &["a"]);
}

#[test]
fn feature_t7_holds_back_no_more_than_could_become_a_stop_string() {
    let mut matcher = StopMatcher::new(["END", "EX"]);
    let mut out = String::new();
    assert!(!matcher.push("abcE", &mut out));
    assert_eq!((out.as_str(), matcher.held()), ("abc", 1));
    assert!(!matcher.push("NE", &mut out));
    assert_eq!((out.as_str(), matcher.held()), ("abcEN", 1));
    assert!(matcher.push("X!", &mut out));
    assert_eq!(out, "abcEN");
    assert!(matcher.push("more", &mut out), "it stays stopped");
    assert_eq!(out, "abcEN");
}

proptest! {
    #[test]
    fn equals_the_definition(
        text in "[ab\u{e9}]{0,40}",
        stops in proptest::collection::vec("[ab\u{e9}]{0,5}", 0..5),
        cuts in any::<u64>(),
    ) {
        let (expected, stopped) = naive(&text, &stops);
        prop_assert_eq!(feed(&pieces(&text, cuts), &stops), (expected.to_owned(), stopped));
    }
}
