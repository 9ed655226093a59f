//! Section C: many grammars, several at once, and large ones.

use super::grammars::{constrained, patient, patiently, schema, unhurried};
use super::*;
use crate::support::until;

/// The most memory that any instance of the grammar plugin has had, in MiB.
fn grammar_memory(server: &Server) -> u64 {
    let page = server.get("/metrics").text();
    let lines = page.lines().filter(|line| {
        line.starts_with("mortise_plugin_memory_peak_bytes{") && line.contains("kind=\"grammar\"")
    });
    let bytes = lines.filter_map(|line| line.rsplit(' ').next()?.parse::<u64>().ok());
    let most = bytes.max().expect("the gauge of the grammar plugin");
    assert!(most > 0, "it has some memory");
    most >> 20
}

/// Grammars of which no two are alike: schemas, and every other one in Lark.
fn unique(index: usize) -> Value {
    let body = ask("target", "Hi");
    if index.is_multiple_of(2) {
        let name = format!("field_{index}");
        let one = json!({"type": "object", "properties": {name: {"type": "integer"}}});
        return with(body, "response_format", schema(one));
    }
    let rule = format!("start: \"{{\" /[a-z]{{1,{index}}}/? \"}}\"");
    with(body, "guided_grammar", json!(rule))
}

#[test]
fn c2_unique_grammars_fill_no_memory() {
    const ROUNDS: usize = 100;
    let mut server = server(&[unhurried(Target::saying("target", "{}"))]);
    let mut bystander = Bystander::new(&mut server, BYSTANDER);
    let mut ask_for = |what, rounds: std::ops::Range<usize>| {
        let case = case("C2", what, Expected::Answer);
        bystander.endures(&case, |server| {
            let rounds = rounds.flat_map(|round| {
                let asked = (0..16).map(|n| Request::post(CHAT, &unique(16 * round + n)));
                server.send_together(&asked.collect::<Vec<_>>())
            });
            rounds.collect()
        });
        grammar_memory(bystander.server())
    };
    // What caches hold by now is what they ever hold.
    let filled = ask_for("320 grammars, each another", 0..ROUNDS / 5);
    let after = ask_for("1280 more", ROUNDS / 5..ROUNDS);
    assert!(after <= filled + 4, "from {filled} MiB to {after} MiB");
}

/// Instances of the grammar plugin that live.
fn grammar_instances(server: &Server) -> u64 {
    let page = server.get("/metrics").text();
    let mut lines = page.lines();
    let line = lines.find_map(|line| {
        line.strip_prefix("mortise_plugin_instances{plugin=\"grammar\",kind=\"grammar\"} ")
    });
    let count = line.and_then(|count| count.parse().ok());
    count.expect("the gauge of the grammar plugin")
}

#[test]
fn c2_large_schemas_leave_no_memory_behind() {
    let mut server = server(&[unhurried(Target::saying("target", "{}"))]);
    let mut bystander = Bystander::new(&mut server, BYSTANDER);
    let large = |index: usize| {
        let fields: serde_json::Map<_, _> = (0..400)
            .map(|field| (format!("p{field}_{index}"), json!({"type": "string"})))
            .collect();
        let one = json!({"type": "object", "properties": fields});
        Request::post(
            CHAT,
            &with(ask("target", "Hi"), "response_format", schema(one)),
        )
    };
    // What the first of anything takes stays.
    bystander.server().send(&large(0)).ok();
    let quiet = grammar_instances(bystander.server());
    // Sixteen at once leave as many instances idle, each with a cache that is full by the end.
    let case = case("C2", "64 large schemas, 16 at once", Expected::Answer);
    bystander.endures(&case, |server| {
        let rounds = (0..4).flat_map(|round| {
            let asked = (0..16).map(|n| large(1 + 16 * round + n));
            server.send_together(&asked.collect::<Vec<_>>())
        });
        let answers = rounds.collect();
        assert!(grammar_instances(server) > quiet, "they were busy at once");
        answers
    });
    let server = bystander.server();
    until("idle instances that grew are given up", || {
        grammar_instances(server) <= quiet + 1
    });
}

/// Fields of a request that constrain an answer, by name.
fn constraints() -> Vec<(&'static str, Value)> {
    let one = |field: &'static str, value: Value| (field, json!({field: value}));
    let nested = |field: &'static str, value: Value| {
        let name = field.strip_prefix("structured_outputs.").expect("a field");
        (field, json!({"structured_outputs": {name: value}}))
    };
    let text = r#"start: "a""#;
    vec![
        one("response_format", json!({"type": "json_object"})),
        one("guided_json", json!({"type": "object"})),
        one("guided_regex", json!("a")),
        one("guided_choice", json!(["a", "b"])),
        one("guided_grammar", json!(text)),
        nested("structured_outputs.json", json!({"type": "object"})),
        nested("structured_outputs.regex", json!("a")),
        nested("structured_outputs.choice", json!(["a", "b"])),
        nested("structured_outputs.grammar", json!(text)),
        nested("structured_outputs.json_object", json!(true)),
    ]
}

/// Fields of a request that force a tool call, and leave no room for content of any form.
fn forced_calls() -> Vec<(&'static str, Value)> {
    let function = json!({"name": "f"});
    let named = json!({"type": "function", "function": function});
    let allowed =
        json!({"type": "allowed_tools", "allowed_tools": {"mode": "required", "tools": [named]}});
    vec![
        (
            "tool_choice",
            json!({"tools": tools(), "tool_choice": "required"}),
        ),
        (
            "tool_choice",
            json!({"tools": tools(), "tool_choice": named}),
        ),
        (
            "tool_choice",
            json!({"tools": tools(), "tool_choice": allowed}),
        ),
        (
            "function_call",
            json!({"functions": [function], "function_call": function}),
        ),
    ]
}

/// `one` and `other` in one object.
fn merged(mut one: Value, other: &Value) -> Value {
    for (key, value) in other.as_object().expect("an object") {
        let merged = match one.get(key) {
            Some(inner) if inner.is_object() && key == "structured_outputs" => {
                merged(inner.clone(), value)
            }
            _ => value.clone(),
        };
        one[key] = merged;
    }
    one
}

#[test]
fn c5_every_pair_of_constraints_is_refused_by_both_names() {
    let mut server = server(&[patient()]);
    let mut bystander = Bystander::new(&mut server, BYSTANDER);
    let (single, forced) = (constraints(), forced_calls());
    let mut pairs = Vec::new();
    for (index, (one, first)) in single.iter().enumerate() {
        for (other, second) in single[index + 1..].iter().chain(&forced) {
            let both = merged(first.clone(), second);
            let has_tools = both.get("functions").is_some() || both.get("tools").is_some();
            pairs.push((*one, *other, both, has_tools));
        }
    }
    assert_eq!(pairs.len(), 10 * 9 / 2 + 10 * 4);
    let refused = case(
        "C5",
        "two constraints at once",
        Expected::Refusal(400, "invalid_value"),
    );
    bystander.endures(&refused, |server| {
        let mut answers = Vec::new();
        let mut check = |route: &str, body: &Value, names: [&str; 2]| {
            let answer = server.post(route, body);
            let error = answer.json()["error"].clone();
            let message = error["message"].as_str().unwrap_or_default();
            for name in names {
                assert!(
                    message.contains(&format!("`{name}`")),
                    "{route} {body}: {error}"
                );
            }
            let param = error["param"].as_str().unwrap_or_default();
            assert!(names.contains(&param), "{route} {body}: {error}");
            answers.push(answer);
        };
        for (one, other, both, has_tools) in &pairs {
            let chat = merged(ask("patient", "Hi"), both);
            check(CHAT, &chat, [*one, *other]);
            if !has_tools {
                let text = json!({"model": "patient", "prompt": "Hi", "max_tokens": 4});
                check("/v1/completions", &merged(text, both), [*one, *other]);
            }
        }
        answers
    });
    // Each by itself holds.
    let alone = case("C5", "each constraint alone", Expected::Answer);
    bystander.endures(&alone, |server| {
        let bodies = single.iter().chain(&forced).map(|(_, fields)| {
            let short = with(ask("patient", "Hi"), "max_tokens", json!(4));
            Request::post(CHAT, &merged(short, fields))
        });
        server.send_together(&bodies.collect::<Vec<_>>())
    });
}

#[test]
fn c7_large_schemas_are_refused_or_done() {
    const REFUSALS: [(u16, &str); 4] = [
        (400, "invalid_value"),
        (422, "invalid_schema"),
        (400, "too_complex"),
        (413, "body_too_large"),
    ];
    let strings = |count: usize, length: usize| -> Value {
        let texts = (0..count).map(|index| format!("{index}{}", "x".repeat(length)));
        texts.collect()
    };
    let optional = |count: usize| {
        let fields: serde_json::Map<_, _> = (0..count)
            .map(|index| (format!("p{index}"), json!({"type": "string"})))
            .collect();
        json!({"type": "object", "properties": fields})
    };
    let alternatives = |of: &Value| {
        json!({"oneOf": [
            {"type": "array", "items": of}, {"type": "object", "properties": {"a": of}}
        ]})
    };
    let deep = (0..8).fold(json!({"type": "integer"}), |inner, _| alternatives(&inner));
    // One of ten, ten times over: ten to the power of ten ways.
    let factor = |at: usize| -> Value {
        let ways = (0..10).map(|way| json!({"properties": {format!("p{at}"): {"const": way}}}));
        json!({"oneOf": ways.collect::<Vec<_>>()})
    };
    let product = json!({"type": "object", "allOf": (0..10).map(factor).collect::<Vec<_>>()});
    let mut slow_parts: Vec<Value> = (0..60)
        .map(|index| json!({"type": "string", "pattern": format!("(.*a){{1,9}}.{{9{index}}}")}))
        .collect();
    slow_parts.push(json!({"type": "nonsense"}));
    let any = |schema: Value| constrained("response_format", super::grammars::schema(schema));
    let cases = [
        (
            "10 000 strings of 1 KB",
            any(json!({"enum": strings(10_000, 1000)})),
            Some(413),
        ),
        (
            "1000 strings of 1 KB",
            any(json!({"enum": strings(1000, 1000)})),
            Some(400),
        ),
        (
            "240 strings of 1 KB",
            any(json!({"enum": strings(240, 1000)})),
            None,
        ),
        (
            "10 000 short strings",
            any(json!({"enum": strings(10_000, 10)})),
            None,
        ),
        (
            "10 000 choices of 1 KB",
            constrained("guided_choice", strings(10_000, 1000)),
            Some(413),
        ),
        (
            "1000 choices of 1 KB",
            constrained("guided_choice", strings(1000, 1000)),
            Some(400),
        ),
        (
            "240 choices of 1 KB",
            constrained("guided_choice", strings(240, 1000)),
            None,
        ),
        (
            "10 000 short choices",
            constrained("guided_choice", strings(10_000, 10)),
            None,
        ),
        ("1000 optional properties", any(optional(1000)), Some(200)),
        ("1001 optional properties", any(optional(1001)), Some(400)),
        ("alternatives within alternatives", any(deep), None),
        ("a product of alternatives", any(product), None),
        (
            "sixty slow parts and a wrong one",
            any(json!({"anyOf": slow_parts})),
            Some(400),
        ),
    ];
    let mut server = server(&[patient()]);
    let mut bystander = Bystander::new(&mut server, BYSTANDER);
    for (what, body, status) in &cases {
        let case = case("C7", what, Expected::Either(&REFUSALS));
        bystander.endures(&case, |server| {
            let answer = server.post(CHAT, &patiently(body));
            if let Some(status) = status {
                // A schema that cannot be used is told by a status of its own.
                let answered = match answer.status() {
                    422 => 400,
                    other => other,
                };
                assert_eq!(answered, *status, "{what}: {}", answer.text());
            }
            vec![answer]
        });
    }
}
