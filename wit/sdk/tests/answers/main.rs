//! Answers as models write them, with their meaning: the cases of `tests/parsers`, whole and in pieces.

#[path = "../../../../tests/parsers/answers.rs"]
mod answers;
mod code;
mod linear;

use answers::{Answer, Case, answer, expected, pieces, setup};
use mortise_plugin_sdk::formats::Format;
use mortise_plugin_sdk::output_parser::Event;
use mortise_plugin_sdk::stream::Parsing;
use mortise_plugin_sdk::tools::Tools;
use proptest::prelude::*;

/// The cases of the default parser and those of all formats.
fn cases() -> Vec<Case> {
    let mut cases = answers::read(include_str!("../../../../tests/parsers/cases.json"));
    let more = include_str!("../../../../tests/parsers/formats.json");
    cases.extend(answers::read(more));
    cases
}

/// Answers in each model format, written by code that shares nothing with the readers.
fn written() -> Vec<Case> {
    answers::read(include_str!("../../../../tests/parsers/written.json"))
}

pub(crate) fn parsing(format: Format, choice: &str, parallel: bool, opens: bool) -> Parsing {
    let tools = Tools::allowed(&setup(choice, parallel, opens)).unwrap();
    Parsing::new(tools, opens, async move |text| format.read(text).await)
}

fn parse<'a>(case: &Case, pieces: impl Iterator<Item = &'a str>) -> Answer {
    let format = Format::named(&case.format).unwrap_or_else(|| panic!("{}", case.format));
    answer(
        parsing(format, &case.choice, case.parallel, case.opens),
        pieces,
    )
}

#[test]
fn whole_answers() {
    let mut failures = Vec::new();
    for case in cases() {
        let found = parse(&case, std::iter::once(case.text.as_str()));
        if found != expected(&case) {
            failures.push(format!(
                "{}:\n   {found:?}\n   {:?}",
                case.name,
                expected(&case)
            ));
        }
    }
    assert!(failures.is_empty(), "{}", failures.join("\n"));
}

#[test]
fn character_by_character() {
    for case in cases() {
        let found = parse(&case, case.text.split_inclusive(|_| true));
        assert_eq!(found, expected(&case), "{}", case.name);
    }
}

#[test]
fn every_format_has_cases_that_call() {
    for format in Format::all() {
        let own = |case: &Case| case.format == format.name();
        let written = written().into_iter().filter(own);
        let (calls, others): (Vec<Case>, Vec<Case>) =
            written.partition(|case| !case.calls.is_empty());
        assert!(calls.len() >= 5 && others.len() >= 3, "{}", format.name());
    }
}

#[test]
fn feature_s14_every_format_is_read_in_whatever_pieces() {
    let mut failures = Vec::new();
    for case in written() {
        let meant = expected(&case).compact();
        let whole = || parse(&case, std::iter::once(case.text.as_str()));
        let found = whole().compact();
        if found != meant {
            failures.push(format!("{}:\n   {found:?}\n   {meant:?}", case.name));
            continue;
        }
        let whole = whole();
        let single = case.text.split_inclusive(|_| true);
        assert_eq!(parse(&case, single), whole, "{}", case.name);
        for (cut, _) in case.text.char_indices() {
            let (one, other) = case.text.split_at(cut);
            let found = parse(&case, [one, other].into_iter());
            assert_eq!(found, whole, "{}: {one:?} | {other:?}", case.name);
        }
    }
    assert!(failures.is_empty(), "{}", failures.join("\n"));
}

#[test]
fn formats_are_told_by_their_templates() {
    for (template, format) in [
        ("{{ '<tool_call>' }}", Some(Format::Hermes)),
        (
            "<tool_call>\n<function=example>\n<parameter=a>",
            Some(Format::QwenCoder),
        ),
        ("<tool_call>{{ name }}<arg_key>", Some(Format::Glm)),
        ("[AVAILABLE_TOOLS] [TOOL_CALLS]", Some(Format::Mistral)),
        (
            "Environment: ipython {\"name\": x, \"parameters\": y}",
            Some(Format::Llama3Json),
        ),
        (
            "<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>",
            Some(Format::DeepSeek),
        ),
        (
            "<function=example_function_name>",
            Some(Format::Functionary),
        ),
        ("{{ messages }}", None),
    ] {
        assert_eq!(Format::of_template(template), format, "{template}");
    }
}

#[test]
fn text_goes_out_as_soon_as_it_is_certain() {
    let mut parsing = parsing(Format::Hermes, "time", true, false);
    let content = |text: &str| vec![Event::Content(text.to_owned())];
    assert_eq!(parsing.feed("Let me"), content("Let me"));
    assert_eq!(parsing.feed(" look <"), content(" look"));
    assert_eq!(parsing.feed("b> <tool_call"), content(" <b>"));
    assert_eq!(parsing.feed(">{\"name\": \"time\", "), vec![]);
    let [Event::CallBegin(_), Event::CallArguments(more)] =
        &parsing.feed("\"arguments\": {\"a")[..]
    else {
        panic!("the arguments do not stream");
    };
    assert_eq!(more.delta, "{\"a");
}

proptest! {
    #[test]
    fn d4_cuts_change_nothing(
        index in any::<prop::sample::Index>(),
        cuts in proptest::collection::vec(0.0f64..1.0, 0..12),
    ) {
        let mut cases = cases();
        cases.extend(written());
        let case = &cases[index.index(cases.len())];
        let pieces = pieces(&case.text, &cuts);
        let found = parse(case, pieces.iter().map(String::as_str));
        prop_assert_eq!(found.compact(), expected(case).compact());
    }

    /// Answers made of pieces of formats, in any order: whatever they come to, cuts do not change it,
    /// and every event is in order.
    #[test]
    fn d4_cuts_change_nothing_in_nonsense(
        format in any::<prop::sample::Index>(),
        parts in proptest::collection::vec((any::<prop::sample::Index>(), 0.0f64..1.0, 0.0f64..1.0), 0..8),
        cuts in proptest::collection::vec(0.0f64..1.0, 0..12),
        opens in any::<bool>(),
        parallel in any::<bool>(),
    ) {
        let cases = written();
        let formats: Vec<Format> = Format::all().collect();
        let format = formats[format.index(formats.len())];
        let own: Vec<&Case> = cases.iter().filter(|case| case.format == format.name()).collect();
        let text: String = parts.iter().map(|(index, from, to)| {
            let characters: Vec<char> = own[index.index(own.len())].text.chars().collect();
            let (from, to) = (from.min(*to), from.max(*to));
            let place = |share: f64| (share * characters.len() as f64) as usize;
            characters[place(from)..place(to)].iter().collect::<String>()
        }).collect();
        let whole = answer(parsing(format, "auto", parallel, opens), std::iter::once(text.as_str()));
        let pieces = pieces(&text, &cuts);
        let cut = answer(parsing(format, "auto", parallel, opens), pieces.iter().map(String::as_str));
        prop_assert_eq!(cut, whole);
    }
}
