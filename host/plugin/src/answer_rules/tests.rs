use super::*;
use crate::Cause;

const TOOLS: &str = r#"[{"type":"function","function":{"name":"f"}}]"#;

fn rules() -> AnswerRules {
    let setup = ParserSetup {
        tools: TOOLS.to_owned(),
        ..ParserSetup::default()
    };
    AnswerRules::new(&setup, 100)
}

fn begin(index: u32) -> ParserEvent {
    ParserEvent::CallBegin {
        index,
        id: None,
        name: "f".to_owned(),
    }
}

fn arguments(index: u32) -> ParserEvent {
    ParserEvent::CallArguments {
        index,
        delta: "{".to_owned(),
    }
}

fn check(events: &[ParserEvent]) -> Result<(), String> {
    let checked = rules().check(events.to_vec());
    checked.map(drop).map_err(|fault| fault.to_string())
}

#[test]
fn calls_may_interleave_and_must_not_skip() {
    let end = |index| ParserEvent::CallEnd { index };
    assert_eq!(
        check(&[
            begin(0),
            begin(1),
            arguments(0),
            end(0),
            arguments(1),
            end(1)
        ]),
        Ok(())
    );
    assert!(
        check(&[begin(1)])
            .unwrap_err()
            .contains("where 0 comes next")
    );
    assert!(
        check(&[begin(0), begin(0)])
            .unwrap_err()
            .contains("where 1 comes next")
    );
    assert!(check(&[arguments(0)]).unwrap_err().contains("never began"));
    assert!(
        check(&[begin(0), end(0), arguments(0)])
            .unwrap_err()
            .contains("after its end")
    );
    let nameless = ParserEvent::CallBegin {
        index: 0,
        id: None,
        name: String::new(),
    };
    assert!(check(&[nameless]).unwrap_err().contains("without a name"));
}

/// Events of calls of one tool with these arguments, each with its end or without.
fn calls(arguments: &[(&str, bool)]) -> Vec<ParserEvent> {
    let calls = arguments
        .iter()
        .zip(0..)
        .flat_map(|(&(text, ends), index)| {
            let delta = text.to_owned();
            let end = ends.then_some(ParserEvent::CallEnd { index });
            [begin(index), ParserEvent::CallArguments { index, delta }]
                .into_iter()
                .chain(end)
        });
    calls.collect()
}

#[test]
fn calls_with_arguments_of_no_use_are_text_and_those_behind_them_are_numbered_anew() {
    let mut rules = AnswerRules::new(
        &ParserSetup {
            tools: TOOLS.to_owned(),
            ..ParserSetup::default()
        },
        10_000,
    );
    let written = [
        ("{\"a\":NaN}", true),
        ("{\"a\":1}", true),
        ("{\"a\":1,}", true),
        ("{\"a\":1e9999}", true),
        ("{}", true),
    ];
    let text = |text: &str| ParserEvent::Content(call_as_text("f", text));
    let mut expected = vec![text("{\"a\":NaN}")];
    expected.extend(calls(&[("{\"a\":1}", true), ("{\"a\":1}", true)]));
    expected.push(text("{\"a\":1e9999}"));
    expected.push(begin(2));
    let (index, delta) = (2, "{}".to_owned());
    expected.push(ParserEvent::CallArguments { index, delta });
    expected.push(ParserEvent::CallEnd { index: 2 });
    assert_eq!(rules.check(calls(&written)), Ok(expected));
    // A later batch goes on with the numbers of both.
    let late = |index, delta: &str| {
        let delta = delta.to_owned();
        vec![
            begin(index),
            ParserEvent::CallArguments { index, delta },
            ParserEvent::CallEnd { index },
        ]
    };
    assert_eq!(rules.check(late(5, "{}")), Ok(late(3, "{}")));
}

#[test]
fn calls_wait_until_they_are_whole() {
    let mut rules = rules();
    let delta = |index, delta: &str| {
        let delta = delta.to_owned();
        ParserEvent::CallArguments { index, delta }
    };
    let end = |index| ParserEvent::CallEnd { index };
    let text = || ParserEvent::Content("So.".to_owned());
    let none = Ok(Vec::new());
    assert_eq!(rules.check(vec![text(), begin(0)]), Ok(vec![text()]));
    assert_eq!(rules.check(vec![delta(0, "{\"a\"")]), none);
    assert_eq!(rules.check(vec![delta(0, ":1}"), begin(1)]), none);
    assert_eq!(rules.check(vec![delta(1, "{")]), none);
    // What of the first call comes behind the beginning of the second waits for that.
    assert_eq!(rules.check(vec![end(0), text()]), none);
    let whole = vec![
        begin(0),
        delta(0, "{\"a\":1}"),
        begin(1),
        delta(1, "{}"),
        end(0),
        text(),
        end(1),
    ];
    let split = rules.check(vec![delta(1, "}"), end(1)]).expect("sound");
    let joined = |events: &[ParserEvent], wanted: u32| -> String {
        let deltas = events.iter().filter_map(|event| match event {
            ParserEvent::CallArguments { index, delta } if *index == wanted => Some(&**delta),
            _ => None,
        });
        deltas.collect()
    };
    for index in [0, 1] {
        assert_eq!(joined(&split, index), joined(&whole, index));
    }
    let others = |events: Vec<ParserEvent>| -> Vec<ParserEvent> {
        let is_other = |event: &ParserEvent| !matches!(event, ParserEvent::CallArguments { .. });
        events.into_iter().filter(is_other).collect()
    };
    assert_eq!(others(split), others(whole));
    // One that does not end is text.
    let written = vec![begin(2), delta(2, "{\"a\":")];
    assert_eq!(rules.check(written), none);
    let last = ParserEvent::Content(call_as_text("f", "{\"a\":"));
    assert_eq!(rules.check_last(vec![text()]), Ok(vec![last, text()]));
}

#[test]
fn a_forced_call_is_passed_on_as_it_comes_and_left_open_if_it_is_of_no_use() {
    let forced = || {
        let setup = ParserSetup {
            tools: TOOLS.to_owned(),
            tool_choice: ToolChoice::Required,
            ..ParserSetup::default()
        };
        AnswerRules::new(&setup, 100)
    };
    for (text, ends) in [
        ("{\"a\":1}", true),
        ("{\"a\":NaN}", false),
        ("{\"a\":\"\\ud800\"}", false),
    ] {
        let mut rules = forced();
        let begun = calls(&[(text, false)]);
        assert_eq!(rules.check(begun.clone()), Ok(begun), "{text}");
        let end = vec![ParserEvent::CallEnd { index: 0 }];
        let expected = if ends { end.clone() } else { Vec::new() };
        assert_eq!(rules.check_last(end), Ok(expected), "{text}");
    }
    // Arguments that are left out are those of a tool without any.
    let mut rules = forced();
    assert_eq!(rules.check(vec![begin(0)]), Ok(vec![begin(0)]));
    let (index, delta) = (0, "{}".to_owned());
    let end = ParserEvent::CallEnd { index };
    let whole = vec![ParserEvent::CallArguments { index, delta }, end.clone()];
    assert_eq!(rules.check(vec![end]), Ok(whole));
}

#[test]
fn only_tools_that_may_be_called_are() {
    let named = |tool_choice| ParserSetup {
        tools: r#"[{"type":"function","function":{"name":"f"}},
                   {"type":"function","function":{"name":"g"}}, 7]"#
            .to_owned(),
        tool_choice,
        ..ParserSetup::default()
    };
    assert_eq!(callable(&named(ToolChoice::Auto)), ["f", "g"]);
    assert_eq!(callable(&named(ToolChoice::Required)), ["f", "g"]);
    assert_eq!(callable(&named(ToolChoice::Named("g".to_owned()))), ["g"]);
    assert!(callable(&named(ToolChoice::None)).is_empty());
    let undeclared = ParserEvent::CallBegin {
        index: 0,
        id: None,
        name: "rm\n".to_owned(),
    };
    let message = check(&[undeclared]).unwrap_err();
    assert!(message.contains("`rm\\n`"), "{message}");
}

#[test]
fn an_answer_is_bounded_over_all_its_events_and_its_cause_is_who_wrote_so_much() {
    let sixty = || vec![ParserEvent::Content("x".repeat(60))];
    let mut invented = rules();
    invented.note_text(12);
    assert!(invented.check(sixty()).is_ok());
    let fault = invented.check(sixty()).unwrap_err();
    assert_eq!(fault.cause(), Cause::Plugin, "{fault}");
    assert!(fault.to_string().contains("more than 100 bytes"), "{fault}");
    let mut written = rules();
    written.note_text(120);
    assert!(written.check(sixty()).is_ok());
    let fault = written.check(sixty()).unwrap_err();
    assert_eq!(fault.cause(), Cause::Model, "{fault}");
}

#[test]
fn more_calls_than_an_answer_may_have_are_the_models_if_it_wrote_them() {
    let all = || (0..=MAX_TOOL_CALLS).map(|index| begin(index as u32));
    for (written, cause) in [(10, Cause::Plugin), (20 * MAX_TOOL_CALLS, Cause::Model)] {
        let setup = ParserSetup {
            tools: TOOLS.to_owned(),
            ..ParserSetup::default()
        };
        let mut rules = AnswerRules::new(&setup, 1 << 20);
        rules.note_text(written);
        assert!(rules.check(all().take(MAX_TOOL_CALLS).collect()).is_ok());
        let fault = rules
            .check(all().skip(MAX_TOOL_CALLS).collect())
            .unwrap_err();
        assert_eq!(fault.cause(), cause, "{fault}");
        assert_eq!(fault.is_breakdown(), cause == Cause::Plugin);
    }
}
