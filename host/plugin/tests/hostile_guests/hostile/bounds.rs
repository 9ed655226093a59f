//! Time, memory and stack: guests that want more than they are granted.

use mortise_plugin::Kind;

use super::{ANSWERED, Attack, Case, forged, observe};
use crate::forged::{Forged, LISTS, RESULT, ZEROS};

const FOREVER: &str = "(loop (br 0)) unreachable";

/// J1: guests that do not come back.
pub(super) fn time() -> Vec<Case> {
    let template = || Forged::new(Kind::ChatTemplate);
    vec![
        forged(
            "loops while the host asks it for memory",
            "`deadline`",
            template().realloc(FOREVER),
        ),
        forged(
            "loops after its answer was read",
            "`deadline`",
            template().body("post-return render", FOREVER),
        ),
        forged(
            "loops in its start function",
            "not taken: `deadline`",
            template().declare("(func $endless (loop (br 0))) (start $endless)"),
        ),
        forged(
            "asks the host for its settings in an endless loop",
            "`deadline`",
            template()
                .import("(import \"mortise:plugin/settings@0.3.0\" \"get\" (func $get (param i32)))")
                // Always to the same place, or its memory would be full before its time is over.
                .realloc(&format!("(i32.const {LISTS})"))
                .body("render", &format!("(loop (call $get (i32.const {RESULT})) (br 0)) unreachable")),
        ),
        forged(
            "loops when its matchers are dropped",
            ANSWERED,
            Forged::new(Kind::Grammar).declare(
                "(func (export \"mortise:plugin/grammar@0.3.0#[dtor]matcher\") (param i32) (loop (br 0)))",
            ),
        ),
        forged(
            "traps when its sessions are dropped",
            ANSWERED,
            Forged::new(Kind::OutputParser).declare(
                "(func (export \"mortise:plugin/output-parser@0.3.0#[dtor]session\") (param i32) unreachable)",
            ),
        ),
        Case {
            kind: Kind::OutputParser,
            does: "stays just below its deadline, token after token",
            outcome: "`budget`",
            attack: Attack::Feed("drip", 1000),
        },
        Case {
            kind: Kind::Policy,
            does: "offers texts of 4 MiB as secrets",
            outcome: ANSWERED,
            attack: Attack::Decide("secrets"),
        },
        Case {
            kind: Kind::Policy,
            does: "draws from 150 000 buckets of its ledger",
            outcome: "`deadline`",
            attack: Attack::Decide("buckets"),
        },
        Case {
            kind: Kind::ChatTemplate,
            does: "logs 20 lines of 20 000 empty fields",
            outcome: ANSWERED,
            attack: Attack::Render("fields"),
        },
    ]
}

/// J2: guests that take memory.
pub(super) fn memory() -> Vec<Case> {
    let template = || Forged::new(Kind::ChatTemplate);
    let grows = "(loop (drop (memory.grow (i32.const 1))) (br 0)) unreachable";
    let table = "(loop (drop (table.grow (ref.null func) (i32.const 1000))) (br 0)) unreachable";
    vec![
        forged(
            "grows its memory page by page",
            "`memory`",
            template().body("render", grows),
        ),
        forged(
            "asks for 4 GiB at once",
            "`memory`",
            template().body(
                "render",
                &format!("(drop (memory.grow (i32.const 65472))) (i32.const {ZEROS})"),
            ),
        ),
        forged(
            "has a memory of 4 GiB from the start",
            "not taken: `memory`",
            template().pages(65536),
        ),
        forged(
            "grows a table without end",
            "`memory`",
            template()
                .declare("(table 1 funcref)")
                .body("render", table),
        ),
        forged(
            "grows a table in its start function",
            "not taken: `memory`",
            template().declare(&format!(
                "(table 1 funcref) (func $grow {table}) (start $grow)"
            )),
        ),
        forged(
            "has a table of ten million functions from the start",
            "refused: does not compile",
            template().declare("(table 10000000 funcref)"),
        ),
        forged(
            "makes 100 000 matchers and keeps them",
            "`trap`",
            Forged::new(Kind::Grammar).body(
                "compile",
                "(loop (drop (call $new (i32.const 1))) (br 0)) unreachable",
            ),
        ),
    ]
}

/// J3: guests that recurse.
pub(super) fn stack() -> Vec<Case> {
    let template = || Forged::new(Kind::ChatTemplate);
    vec![
        forged(
            "calls itself without end",
            "`stack`",
            template().declare("(func $again (call $again))").body("render", "(call $again) unreachable"),
        ),
        forged(
            "calls itself in its start function",
            "not taken: `stack`",
            template().declare("(func $again (call $again)) (start $again)"),
        ),
        forged(
            "calls itself through a table, with a frame of 400 locals",
            "`stack`",
            template()
                .declare(&format!(
                    "(table funcref (elem $wide)) (type $plain (func)) \
                     (func $wide (type $plain) (local {}) (call_indirect (type $plain) (i32.const 0)))",
                    "i64 ".repeat(400)
                ))
                .body("render", "(call $wide) unreachable"),
        ),
        forged(
            "calls itself while the host asks it for memory",
            "`stack`",
            template()
                .declare("(func $again (call $again))")
                .realloc("(call $again) unreachable"),
        ),
    ]
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn j1_guests_that_do_not_come_back_meet_their_deadline() {
    observe(time()).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn j2_guests_that_take_memory_meet_their_limit() {
    observe(memory()).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn j3_guests_that_recurse_overflow_their_own_stack() {
    observe(stack()).await;
}
