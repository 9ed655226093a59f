//! Texts that a model without any idea writes under a translated grammar are taken by the grammar as it was written, and
//! the texts that such grammars are for are taken by the translation.

use std::collections::BTreeSet;

use llguidance::api::TopLevelGrammar;
use llguidance::{Matcher, ParserFactory};
use proptest::prelude::*;
use toktrie::ApproximateTokEnv;

use super::*;

const JSON: &str = r##"
# JSON, as grammars of llama.cpp write it
root   ::= object
value  ::= object | array | string | number | ("true" | "false" | "null") ws
object ::=
  "{" ws (
            string ":" ws value
    ("," ws string ":" ws value)*
  )? "}" ws
array  ::= "[" ws ( value ("," ws value)* )? "]" ws
string ::=
  "\"" (
    [^"\\\x7F\x00-\x1F] |
    "\\" (["\\bfnrt] | "u" [0-9a-fA-F]{4}) # escapes
  )* "\"" ws
number ::= ("-"? ([0-9] | [1-9] [0-9]{0,15})) ("." [0-9]+)? ([eE] [-+]? [0-9] [1-9]{0,15})? ws
ws ::= | " " | "\n" [ \t]{0,20}
"##;

const SUM: &str = r#"
root  ::= (expr "=" ws term "\n")+
expr  ::= term ([-+*/] term)*
term  ::= ident | num | "(" ws expr ")" ws
ident ::= [a-z] [a-z0-9_]* ws
num   ::= [0-9]+ ws
ws    ::= [ \t\n]*
"#;

const LIST: &str = r#"root ::= item+
item ::= "- " [^\r\n\x0b\x0c\x85\u2028\u2029]+ "\n""#;

const MOVES: &str = r#"root ::= "1. " move " " move "\n" ([1-9] [0-9]? ". " move " " move "\n")+
move ::= (pawn | nonpawn | castle) [+#]?
nonpawn ::= [NBKQR] [a-h]? [1-8]? "x"? [a-h] [1-8]
pawn ::= ([a-h] "x")? [a-h] [1-8] ("=" [NBKQR])?
castle ::= "O-O" "-O"?"#;

fn matcher(lark: &str) -> Matcher {
    let factory = ParserFactory::new_simple(&ApproximateTokEnv::single_byte_env()).unwrap();
    let matcher = Matcher::new(factory.create_parser(TopLevelGrammar::from_lark(lark.to_owned())));
    assert!(!matcher.is_error(), "{lark}\n{:?}", matcher.get_error());
    matcher
}

fn takes(lark: &str, text: &str) -> bool {
    let mut matcher = matcher(lark);
    let tokens: Vec<u32> = text.bytes().map(u32::from).collect();
    let taken = matcher.try_consume_tokens(&tokens).unwrap();
    taken == tokens.len() && matcher.is_accepting().unwrap()
}

/// Text of a random walk through the masks over these bytes; `None` if it came to no end.
fn walk(lark: &str, bytes: &[u8], seed: u64, most: usize) -> Option<String> {
    let mut matcher = matcher(lark);
    let mut state = seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1;
    let mut text = Vec::new();
    loop {
        if matcher.is_stopped() {
            break;
        }
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        let accepting = matcher.is_accepting().unwrap();
        if text.len() >= most || (accepting && state.is_multiple_of(5)) {
            break;
        }
        let mask = matcher.compute_mask().unwrap();
        let mut allowed = bytes.iter().copied();
        let allowed: Vec<u8> = allowed
            .by_ref()
            .filter(|byte| mask.is_allowed(u32::from(*byte)))
            .collect();
        if allowed.is_empty() {
            assert!(
                accepting,
                "a dead end behind {:?}\n{lark}",
                String::from_utf8_lossy(&text)
            );
            break;
        }
        let byte = allowed[(state >> 8) as usize % allowed.len()];
        matcher.consume_token(u32::from(byte)).unwrap();
        text.push(byte);
    }
    let whole = matcher.is_accepting().unwrap();
    whole.then(|| String::from_utf8(text).unwrap())
}

/// Ends of what a node takes from `start` on. For grammars without left recursion.
fn ends(grammar: &Grammar, node: &RuleNode, text: &[char], start: usize) -> BTreeSet<usize> {
    match node {
        RuleNode::Literal(literal) => {
            let literal: Vec<char> = literal.chars().collect();
            let fits = text[start..].starts_with(&literal);
            fits.then_some(start + literal.len()).into_iter().collect()
        }
        RuleNode::Class(ranges) => {
            let code = text.get(start).map(|c| u32::from(*c));
            let fits = |code: u32| ranges.iter().any(|&(from, to)| (from..=to).contains(&code));
            code.filter(|code| fits(*code))
                .map(|_| start + 1)
                .into_iter()
                .collect()
        }
        RuleNode::Rule(index) => ends(grammar, &grammar.bodies[*index], text, start),
        RuleNode::Token(_) => BTreeSet::new(),
        RuleNode::Alt(parts) => {
            let each = parts
                .iter()
                .flat_map(|part| ends(grammar, part, text, start));
            each.collect()
        }
        RuleNode::Seq(parts) => parts.iter().fold(BTreeSet::from([start]), |from, part| {
            let each = from
                .into_iter()
                .flat_map(|at| ends(grammar, part, text, at));
            each.collect()
        }),
        RuleNode::Repeat { node, min, max } => {
            let mut found = BTreeSet::new();
            let mut from = BTreeSet::from([start]);
            let mut times = 0;
            loop {
                if times >= *min {
                    let known = found.len();
                    found.extend(&from);
                    if found.len() == known {
                        return found;
                    }
                }
                if max.is_some_and(|max| times >= max) || from.is_empty() {
                    return found;
                }
                let next = from
                    .into_iter()
                    .flat_map(|at| ends(grammar, node, text, at));
                from = next.collect();
                times += 1;
            }
        }
    }
}

fn is_taken(grammar: &Grammar, text: &str) -> bool {
    let text: Vec<char> = text.chars().collect();
    ends(grammar, &grammar.bodies[grammar.root], &text, 0).contains(&text.len())
}

#[test]
fn texts_of_well_known_grammars_are_taken() {
    for (gbnf, yes, no) in [
        (
            JSON,
            &[
                "{}",
                "{\"a\": [1, -2.5e+3, true, null], \"é \\\" \\u00e9\": {\"b\": \"\"}}",
                "{ \"a\":\n  \"x\" }",
            ][..],
            &["[]", "{\"a\": 01}", "{\"a\" \"b\"}", "{\"a\": \"\n\"}"][..],
        ),
        (
            SUM,
            &["1+2=3\n", "a_1 *(b -22) = c\n", "x=1\ny = 2 \n"][..],
            &["1+=3\n", "1=2", "=1\n"][..],
        ),
        (
            LIST,
            &["- a\n", "- a b\n- ü - 日\n"][..],
            &["- \n", "a\n", "- a"][..],
        ),
        (
            MOVES,
            &["1. e4 e5\n2. Nf3 Nc6\n", "1. d4 d5\n12. O-O-O exd5+\n"][..],
            &["1. e9 e5\n2. Nf3 Nc6\n", "1. e4 e5\n"][..],
        ),
    ] {
        assert!(is_gbnf(gbnf));
        let lark = to_lark(gbnf).unwrap();
        let grammar = Grammar::parse(gbnf).unwrap();
        for text in yes {
            assert!(is_taken(&grammar, text), "{text}");
            assert!(takes(&lark, text), "{text}\n{lark}");
        }
        for text in no {
            assert!(!takes(&lark, text), "{text}\n{lark}");
        }
    }
}

/// One lexeme for what is inside of a text of JSON, so that masks of large vocabularies are found soon.
#[test]
fn parts_that_tell_where_they_end_are_one_lexeme() {
    let lark = to_lark(JSON).unwrap();
    assert!(lark.contains("(/(?:(?:["), "{lark}");
    // Here one more letter could be the next part: each letter is a lexeme.
    let lark = to_lark("root ::= [a-z]+ \"end\"").unwrap();
    assert!(lark.contains("(/[a-z]/)+ \"end\""), "{lark}");
    assert!(takes(&lark, "fooend"));
}

#[test]
fn what_models_write_is_taken_by_the_grammar() {
    let ascii: Vec<u8> = (0x20..0x7f).chain([b'\n', b'\t']).collect();
    for gbnf in [JSON, SUM, LIST, MOVES] {
        let lark = to_lark(gbnf).unwrap();
        let grammar = Grammar::parse(gbnf).unwrap();
        let mut whole = 0;
        for seed in 0..40 {
            if let Some(text) = walk(&lark, &ascii, seed, 120) {
                whole += 1;
                assert!(is_taken(&grammar, &text), "{text:?}\n{lark}");
            }
        }
        assert!(whole > 0, "no walk comes to an end\n{lark}");
    }
}

#[test]
fn what_is_no_gbnf_is_refused_with_its_line() {
    for (gbnf, message) in [
        ("", "no rule `root`"),
        ("a ::= \"b\"", "no rule `root`"),
        ("root ::= a", "no rule `a`"),
        ("root ::= \"a", "line 1"),
        ("root ::= [a", "line 1"),
        ("root ::= [b-a]", "a range ends before it begins"),
        ("root ::= []", "a class is empty"),
        ("root ::= (\"a\"\nb ::= \"c\"", "`)` is missing"),
        ("root ::= \"a\"\n\nroot ::= \"b\"", "given twice"),
        ("root ::= \"a\"\n  )", "line 2"),
        ("root ::= (?= \"a\")", "look-ahead"),
        ("root ::= \"\\q\"", "no escape"),
        ("root ::= \"\\uD800\"", "no character"),
        ("root ::= \"a\"{3,2}", "a number of repetitions"),
        ("root ::= \"a\"{9999}", "more than 2000 times"),
        ("root ::= !<[1]>", "`!`"),
        ("root = \"a\"", "a rule"),
    ] {
        let error = to_lark(gbnf).unwrap_err();
        assert!(error.contains(message), "{gbnf}: {error}");
    }
    let deep = format!("root ::= {}\"a\"", "(".repeat(100_000));
    assert!(to_lark(&deep).unwrap_err().contains("deeper than"));
    let signs = format!("root ::= \"a\"{}", "*".repeat(100_000));
    assert!(
        to_lark(&signs)
            .unwrap_err()
            .contains("too many repetitions")
    );
    let long = format!("root ::= {}", "\"a\" ".repeat(100_000));
    assert!(to_lark(&long).unwrap_err().contains("elements"));
    let rules: String = (0..5_000)
        .map(|rule| format!("r{rule} ::= \"a\"\n"))
        .collect();
    assert!(to_lark(&rules).unwrap_err().contains("rules"));
}

#[test]
fn lark_is_not_taken_for_gbnf() {
    assert!(is_gbnf("# a comment ::=\n\n my-rule  ::= \"a\""));
    for lark in [
        "start: \"a\"",
        "start: \"b ::= c\"",
        "start::_ : \"a\"",
        "",
        "%llguidance {}",
    ] {
        assert!(!is_gbnf(lark), "{lark}");
    }
}

#[test]
fn control_tokens_stay() {
    let lark = to_lark("root ::= <think> [^<]* <[7]> \"a\"").unwrap();
    assert!(lark.contains("<think>") && lark.contains("<[7]>"), "{lark}");
}

/// Bodies of rules over a few letters. A rule refers to later ones only.
fn body(rule: usize, rules: usize) -> impl Strategy<Value = String> {
    let mut leaves = vec![
        Just("\"a\"".to_owned()).boxed(),
        Just("\"ab\"".to_owned()).boxed(),
        Just("\"ba\"".to_owned()).boxed(),
        Just("\"c\"".to_owned()).boxed(),
        Just("[ab]".to_owned()).boxed(),
        Just("[b-d]".to_owned()).boxed(),
        Just("[^a]".to_owned()).boxed(),
        Just("\"\"".to_owned()).boxed(),
    ];
    if rule + 1 < rules {
        leaves.push(
            (rule + 1..rules)
                .prop_map(|rule| format!("r{rule}"))
                .boxed(),
        );
    }
    let leaf = proptest::strategy::Union::new(leaves);
    leaf.prop_recursive(3, 12, 3, |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 1..4).prop_map(|all| all.join(" ")),
            prop::collection::vec(inner.clone(), 2..4)
                .prop_map(|all| format!("({})", all.join(" | "))),
            (
                inner,
                prop::sample::select(vec!["*", "+", "?", "{2}", "{1,3}", "{2,}"])
            )
                .prop_map(|(inner, sign)| format!("({inner}){sign}")),
        ]
    })
}

fn grammars() -> impl Strategy<Value = String> {
    (body(0, 3), body(1, 3), body(2, 3))
        .prop_map(|(a, b, c)| format!("root ::= {a}\nr1 ::= {b}\nr2 ::= {c}\n"))
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    #[test]
    fn nothing_is_written_that_a_grammar_does_not_take(gbnf in grammars(), seed in 0u64..1000) {
        let grammar = Grammar::parse(&gbnf).unwrap();
        let lark = to_lark(&gbnf).unwrap();
        for seed in seed..seed + 4 {
            if let Some(text) = walk(&lark, b"abcd", seed, 24) {
                prop_assert!(is_taken(&grammar, &text), "{:?}\n{}\n{}", text, gbnf, lark);
            }
        }
    }

    #[test]
    fn any_text_is_read_or_refused(text in "(root ::= )?[a-c\"\\\\\\[\\](){}|*+?.<>!:=#\n ^,0-9x-]{0,80}") {
        let _ = to_lark(&text);
    }

    #[test]
    fn any_unicode_is_read_or_refused(text in "\\PC{0,60}") {
        let _ = to_lark(&format!("root ::= {text}"));
    }
}
