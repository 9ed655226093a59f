//! Answers of the right type that make no sense, or that one cannot tell from honest ones: those cost
//! the request that asked, and nobody else.

use mortise_plugin::Kind;

use super::{ANSWERED, Attack, Case, observe};

fn case(kind: Kind, does: &'static str, outcome: &'static str, attack: Attack) -> Case {
    Case {
        kind,
        does,
        outcome,
        attack,
    }
}

/// Guests that answer nonsense.
pub(super) fn answers() -> Vec<Case> {
    const NONSENSE: &str = "`invalid-result`";
    let parser = |does, outcome, text, times| {
        case(Kind::OutputParser, does, outcome, Attack::Feed(text, times))
    };
    let grammar =
        |does, outcome, command| case(Kind::Grammar, does, outcome, Attack::Mask(command));
    let policy = |does, outcome, model| case(Kind::Policy, does, outcome, Attack::Decide(model));
    let tool = |does, settings| {
        case(
            Kind::Tool,
            does,
            "not taken: `invalid-result`",
            Attack::Settings(settings),
        )
    };
    vec![
        parser("swallows all text", ANSWERED, "swallow", 100),
        parser(
            "invents 3 MiB of text for each token",
            NONSENSE,
            "invent",
            100,
        ),
        parser("begins call 1 before call 0", NONSENSE, "gap", 1),
        parser("calls a tool without a name", NONSENSE, "nameless", 1),
        parser("goes on with a call that never began", NONSENSE, "ghost", 1),
        parser("goes on with a call after its end", NONSENSE, "again", 1),
        parser(
            "calls a tool that was not offered",
            NONSENSE,
            "undeclared",
            1,
        ),
        parser("begins 2000 calls", NONSENSE, "many", 1),
        grammar("allows every token", ANSWERED, "everything"),
        grammar("allows no token", NONSENSE, "empty"),
        grammar("pushes no mask", NONSENSE, "none"),
        grammar("pushes a mask that is too wide", NONSENSE, "wide"),
        grammar("pushes a mask that is too narrow", NONSENSE, "narrow"),
        grammar("pushes a mask of 16 MiB", "`output`", "huge"),
        grammar("pushes its mask to another slot", NONSENSE, "slot"),
        grammar("allows tokens that there are not", NONSENSE, "beyond"),
        grammar("sets bits beyond the vocabulary", ANSWERED, "stray-bits"),
        grammar(
            "forces tokens that its mask forbids",
            NONSENSE,
            "contradict",
        ),
        grammar(
            "would accept more tokens than it was shown",
            NONSENSE,
            "boast",
        ),
        policy("refuses with status 200", NONSENSE, "deny:200"),
        policy("breaks a header into two", NONSENSE, "split:"),
        policy("refuses with a message of 1 MiB", NONSENSE, "essay"),
        policy(
            "allows a request and grants it no tokens",
            ANSWERED,
            "extremes",
        ),
        tool("declares no tool", r#"{"tools":"none"}"#),
        tool("declares a tool without a name", r#"{"tools":"nameless"}"#),
        tool("declares two tools of one name", r#"{"tools":"twice"}"#),
        case(
            Kind::ChatTemplate,
            "adds 100 000 stop strings",
            NONSENSE,
            Attack::Render("stops"),
        ),
    ]
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn j4_answers_that_make_no_sense_are_refused() {
    observe(answers()).await;
}
