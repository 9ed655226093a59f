//! Lies to the canonical ABI (J4): lengths, addresses, texts, cases and handles that are none.

use mortise_plugin::Kind;

use super::{ANSWERED, Attack, Case, forged, observe};
use crate::forged::{Forged, LISTS, NOWHERE, RESULT, ZEROS, words};

const LOG: &str =
    "(import \"mortise:plugin/host@0.3.0\" \"log\" (func $log (param i32 i32 i32 i32 i32)))";
const COUNT: &str =
    "(import \"mortise:plugin/host@0.3.0\" \"count\" (func $count (param i32 i32 i64)))";

/// A prompt whose list of segments is this.
fn prompt(address: u32, length: u32) -> Forged {
    Forged::new(Kind::ChatTemplate).answers("render", &words(&[0, address, length]))
}

/// A prompt of one segment.
fn segment(case: u32, text: u32, length: u32) -> Forged {
    prompt(LISTS, 1).data(LISTS, &words(&[case, text, length]))
}

/// A tool whose results are long.
fn tool() -> Forged {
    const PARAMETERS: &[u8] = br#"{"type":"object"}"#;
    let [name, parameters] = [LISTS + 64, LISTS + 128];
    let declaration = words(&[name, 4, ZEROS, 0, parameters, PARAMETERS.len() as u32]);
    Forged::new(Kind::Tool)
        .pages(256)
        .data(LISTS, &declaration)
        .data(name, b"does")
        .data(parameters, PARAMETERS)
        .data(RESULT + 64, &words(&[LISTS, 1]))
        .body("#describe", &format!("(i32.const {})", RESULT + 64))
        .answers("#call", &words(&[0, 2 << 20, 9 << 20]))
}

/// Answers that are no values of their type.
pub(super) fn values() -> Vec<Case> {
    let template = || Forged::new(Kind::ChatTemplate);
    let many: Vec<u8> = words(&[1, 2 << 20, 1 << 20]).repeat(1000);
    vec![
        forged("answers with a list outside of its memory", "`trap`", prompt(NOWHERE, 4)),
        forged("answers with a list of 4 294 967 295 entries", "`trap`", prompt(LISTS, u32::MAX)),
        forged("answers with a list at an odd address", "`trap`", prompt(LISTS + 1, 1)),
        forged("answers with a text outside of its memory", "`trap`", segment(1, NOWHERE, 64)),
        forged("answers with a text of 4 GiB", "`trap`", segment(1, LISTS, u32::MAX)),
        forged(
            "answers with a text that is not UTF-8",
            "`trap`",
            segment(1, LISTS + 64, 2).data(LISTS + 64, b"\xc3\x28"),
        ),
        forged(
            "answers with a surrogate in a text",
            "`trap`",
            segment(1, LISTS + 64, 3).data(LISTS + 64, b"\xed\xa0\x80"),
        ),
        forged("answers with a case that the variant does not have", "`trap`", segment(9, ZEROS, 0)),
        forged(
            "answers with neither success nor a fault",
            "`trap`",
            template().answers("render", &words(&[2])),
        ),
        forged(
            "answers from outside of its memory",
            "`trap`",
            template().body("render", &format!("(i32.const {NOWHERE})")),
        ),
        forged(
            "answers from an odd address",
            "`trap`",
            template().body("render", "(i32.const 1025)"),
        ),
        forged(
            "answers with one text of 1 MiB a thousand times",
            "`output`",
            prompt(LISTS, 1000).data(LISTS, &many),
        ),
        forged(
            "answers with a status that the enumeration does not have",
            "`trap`",
            Forged::new(Kind::Grammar).data(RESULT + 64, &words(&[0, 7])).body(
                "matcher.mask",
                &format!(
                    "(call $only (local.get 1) (i32.const {ZEROS}) (i32.const 1)) (i32.const {})",
                    RESULT + 64
                ),
            ),
        ),
        forged(
            "decides in a way that there is not",
            "`trap`",
            Forged::new(Kind::Policy).answers("authorize", &words(&[0, 0, 5])),
        ),
        forged("gives 9 MiB as the result of a tool", "`output`", tool()),
        forged(
            "allows a request to nobody",
            "`invalid-result`",
            Forged::new(Kind::Policy).body("authorize", &format!("(i32.const {ZEROS})")),
        ),
    ]
}

/// Memory for arguments, and calls into the host.
pub(super) fn borders() -> Vec<Case> {
    let template = || Forged::new(Kind::ChatTemplate);
    let log = |arguments: &str| {
        template().import(LOG).body(
            "render",
            &format!("(call $log {arguments}) (i32.const {ZEROS})"),
        )
    };
    vec![
        forged(
            "hands out memory that it does not have",
            "`trap`",
            template().realloc(&format!("(i32.const {NOWHERE})")),
        ),
        forged(
            "hands out memory at odd addresses",
            "`trap`",
            Forged::new(Kind::Grammar).realloc("(i32.const 1025)"),
        ),
        forged(
            "calls the host while the host asks it for memory",
            "`trap`",
            template()
                .import(COUNT)
                .realloc(&format!("(call $count (i32.const {ZEROS}) (i32.const 0) (i64.const 1)) (i32.const {LISTS})")),
        ),
        forged(
            "calls the host after its answer was read",
            "`trap`",
            template()
                .import(COUNT)
                .body("post-return render", &format!("(call $count (i32.const {ZEROS}) (i32.const 0) (i64.const 1))")),
        ),
        forged(
            "traps after its answer was read",
            "`trap`",
            template().body("post-return render", "unreachable"),
        ),
        forged(
            "logs a text outside of its memory",
            "`trap`",
            log("(i32.const 2) (i32.const -16) (i32.const 64) (i32.const 0) (i32.const 0)"),
        ),
        forged(
            "logs a text that is not UTF-8",
            "`trap`",
            log(&format!("(i32.const 2) (i32.const {LISTS}) (i32.const 2) (i32.const 0) (i32.const 0)"))
                .data(LISTS, b"\xc3\x28"),
        ),
        forged(
            "logs at a level that there is not",
            "`trap`",
            log("(i32.const 99) (i32.const 0) (i32.const 0) (i32.const 0) (i32.const 0)"),
        ),
        forged(
            "logs 268 435 456 fields",
            "`trap`",
            log("(i32.const 2) (i32.const 0) (i32.const 0) (i32.const 0) (i32.const 0x10000000)"),
        ),
        forged(
            "has its settings written outside of its memory",
            "`trap`",
            template()
                .import("(import \"mortise:plugin/settings@0.3.0\" \"get\" (func $get (param i32)))")
                .body("render", &format!("(call $get (i32.const -16)) (i32.const {ZEROS})")),
        ),
        forged(
            "pushes a mask from outside of its memory",
            "`trap`",
            Forged::new(Kind::Grammar).body(
                "matcher.mask",
                &format!("(call $dense (local.get 1) (i32.const -16) (i32.const 3)) (i32.const {ZEROS})"),
            ),
        ),
        forged(
            "pushes a mask from an odd address",
            "`trap`",
            Forged::new(Kind::Grammar).body(
                "matcher.mask",
                &format!("(call $dense (local.get 1) (i32.const 1025) (i32.const 3)) (i32.const {ZEROS})"),
            ),
        ),
        forged(
            "pushes a mask while it compiles",
            "`invalid-result`",
            Forged::new(Kind::Grammar).body(
                "compile",
                &format!("(call $only (i32.const 0) (i32.const {ZEROS}) (i32.const 1)) (i32.const {ZEROS})"),
            ),
        ),
        forged(
            "divides by zero",
            "`trap`",
            template().body("render", "(i32.div_u (i32.const 1) (i32.const 0))"),
        ),
        forged(
            "calls a function through an empty place of a table",
            "`trap`",
            template()
                .declare("(table 4 funcref) (type $plain (func))")
                .body("render", "(call_indirect (type $plain) (i32.const 2)) unreachable"),
        ),
        forged(
            "calls a function as one of another type",
            "`trap`",
            template()
                .declare("(table funcref (elem $one)) (type $plain (func)) (func $one (param i64))")
                .body("render", "(call_indirect (type $plain) (i32.const 0)) unreachable"),
        ),
        Case {
            kind: Kind::ChatTemplate,
            does: "answers with 16 MiB of text",
            outcome: "`too-complex`",
            attack: Attack::Render("huge"),
        },
        Case {
            kind: Kind::ChatTemplate,
            does: "answers with two million segments",
            outcome: "`too-complex`",
            attack: Attack::Render("list"),
        },
    ]
}

/// Handles that are forged, used twice, or of something else.
pub(super) fn handles() -> Vec<Case> {
    let grammar = || Forged::new(Kind::Grammar);
    let answer = |handle: &str| {
        format!(
            "(i32.store (i32.const {}) {handle}) (i32.const {RESULT})",
            RESULT + 4
        )
    };
    vec![
        forged(
            "answers with a matcher that it never made",
            "`trap`",
            grammar().body("compile", &answer("(i32.const 12345)")),
        ),
        forged(
            "answers with a session that it never made",
            "`trap`",
            Forged::new(Kind::OutputParser).answers("#open", &words(&[0, 1, 77])),
        ),
        forged(
            "answers with a matcher that it dropped",
            "`trap`",
            grammar().declare("(global $made (mut i32) (i32.const 0))").body(
                "compile",
                &format!(
                    "(global.set $made (call $new (i32.const 1))) (call $drop (global.get $made)) {}",
                    answer("(global.get $made)")
                ),
            ),
        ),
        forged(
            "answers with a matcher that it gave away before",
            "`trap`",
            grammar()
                .declare("(global $made (mut i32) (i32.const 0))")
                .body(
                    "compile",
                    &format!("(global.set $made (call $new (i32.const 1))) {}", answer("(global.get $made)")),
                )
                .body("matcher.fork", &answer("(global.get $made)")),
        ),
        forged(
            "drops a matcher twice",
            "`trap`",
            grammar().declare("(global $made (mut i32) (i32.const 0))").body(
                "compile",
                "(global.set $made (call $new (i32.const 1))) (call $drop (global.get $made)) \
                 (call $drop (global.get $made)) unreachable",
            ),
        ),
        forged(
            "drops the matcher that it is asked about",
            "`trap`",
            grammar().body(
                "matcher.probe",
                &format!("(call $drop (local.get 0)) (i32.const {ZEROS})"),
            ),
        ),
        forged(
            "answers with the same number for every matcher",
            ANSWERED,
            grammar(),
        ),
    ]
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn j4_answers_that_are_no_values_trap() {
    observe(values()).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn j4_lies_at_the_border_trap() {
    observe(borders()).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn j4_handles_cannot_be_forged() {
    observe(handles()).await;
}
