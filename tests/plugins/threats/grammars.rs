//! Section C: grammars.

use super::*;

pub(super) fn schema(schema: Value) -> Value {
    json!({"type": "json_schema", "json_schema": {"name": "s", "schema": schema}})
}

/// A model whose grammars have time: deadlines are met on a quiet machine, and tests run on busy ones.
/// What may not take long is bounded by the plugin's own limits.
pub(super) fn unhurried(model: Target) -> Target {
    let settings = "deadline_ms = 20000\nbudget_ms = 60000".to_owned();
    model.bound("grammar", settings)
}

/// The demo model as such.
pub(super) fn patient() -> Target {
    unhurried(Target::computing("patient"))
}

/// Copy of a request for the patient model.
pub(super) fn patiently(body: &Value) -> Value {
    with(body.clone(), "model", json!("patient"))
}

/// Grammars in every field that takes one, and what each comes to.
pub(super) fn constrained(field: &str, value: Value) -> Value {
    with(
        with(ask(BYSTANDER.model, "Hi"), "max_tokens", json!(16)),
        field,
        value,
    )
}

#[test]
fn c1_c3_c4_grammar_bombs_are_refused_or_harmless() {
    let mut server = server(&[patient()]);
    let mut bystander = Bystander::new(&mut server, BYSTANDER);
    let deep = (0..100).fold(
        json!({}),
        |inner, _| json!({"items": inner, "type": "array"}),
    );
    let cases: Vec<(&str, &str, Value)> = vec![
        (
            "C1",
            "30 000 parentheses",
            constrained("guided_regex", json!(format!("{}a", "(".repeat(30_000)))),
        ),
        (
            "C1",
            "a grammar of 30 000 parentheses",
            constrained(
                "guided_grammar",
                json!(format!("start: {}\"a\"", "(".repeat(30_000))),
            ),
        ),
        (
            "C1",
            "a schema nested too deep",
            constrained("guided_json", deep),
        ),
        (
            "C1",
            "a schema that refers to itself",
            constrained("guided_json", json!({"$ref": "#"})),
        ),
        (
            "C1",
            "two schemas that refer to each other",
            constrained(
                "guided_json",
                json!({"$ref": "#/$defs/a", "$defs": {"a": {"$ref": "#/$defs/b"}, "b": {"$ref": "#/$defs/a"}}}),
            ),
        ),
        (
            "C1",
            "left recursion",
            constrained("guided_grammar", json!("start: start \"a\" | \"a\"")),
        ),
        (
            "C1",
            "an empty loop",
            constrained(
                "guided_grammar",
                json!("start: (\"\")* start2\nstart2: start2 |"),
            ),
        ),
        ("C3", "(a+)+b", constrained("guided_regex", json!("(a+)+b"))),
        (
            "C3",
            "(a|a)*b",
            constrained("guided_regex", json!("(a|a)*b")),
        ),
        ("C3", "(.*)*", constrained("guided_regex", json!("(.*)*"))),
        (
            "C3",
            "a million repeats",
            constrained("guided_regex", json!("a{1000000}")),
        ),
        (
            "C3",
            "repeats of repeats",
            constrained("guided_regex", json!("((a{1000}){1000}){1000}")),
        ),
        (
            "C3",
            "looking behind",
            constrained("guided_regex", json!("(?<=a)b")),
        ),
        (
            "C3",
            "a reference back",
            constrained("guided_regex", json!("(a)\\1")),
        ),
        (
            "C3",
            "a bomb as a pattern",
            constrained(
                "response_format",
                schema(json!({"type": "string", "pattern": "((a{1000}){1000}){1000}"})),
            ),
        ),
        (
            "C3",
            "a bomb in a tool",
            with(
                constrained("tool_choice", json!("required")),
                "tools",
                json!([{"type": "function", "function": {"name": "f", "parameters": {"type": "object",
                "properties": {"a": {"type": "string", "pattern": "((a{1000}){1000}){1000}"}}}}}]),
            ),
        ),
        (
            "C3",
            "a bomb as a pattern of names",
            constrained(
                "guided_json",
                json!({"type": "object", "patternProperties": {"((a{1000}){1000}){1000}": {}}}),
            ),
        ),
        (
            "C4",
            "a schema that is true",
            constrained("guided_json", json!(true)),
        ),
        (
            "C4",
            "a schema that is null",
            constrained("guided_json", Value::Null),
        ),
        (
            "C4",
            "a type that is a number",
            constrained("response_format", schema(json!({"type": 5}))),
        ),
        (
            "C4",
            "a schema that is a list",
            constrained("guided_json", json!([])),
        ),
        (
            "C4",
            "a schema that is no text",
            constrained("guided_json", json!("")),
        ),
        (
            "C4",
            "an empty enumeration",
            constrained("response_format", schema(json!({"enum": []}))),
        ),
        (
            "C4",
            "10^18 items",
            constrained(
                "response_format",
                schema(json!({"type": "array", "minItems": 1e18})),
            ),
        ),
        (
            "C4",
            "no choice at all",
            constrained("guided_choice", json!([])),
        ),
        (
            "C4",
            "an empty grammar",
            constrained("guided_grammar", json!("")),
        ),
        (
            "C4",
            "a negative length",
            constrained(
                "response_format",
                schema(json!({"type": "string", "maxLength": -1})),
            ),
        ),
        (
            "C4",
            "multiples of nothing",
            constrained(
                "response_format",
                schema(json!({"type": "integer", "multipleOf": 0})),
            ),
        ),
        (
            "C4",
            "a constant of 1 MB",
            constrained(
                "response_format",
                schema(json!({"const": "x".repeat(1 << 20)})),
            ),
        ),
    ];
    for (id, what, body) in &cases {
        let case = Case {
            id,
            what,
            ..Case::with(Expected::Anything)
        };
        bystander.endures(&case, |server| {
            let answer = server.post(CHAT, &patiently(body));
            // What holds is answered; what does not is the caller's fault, and told so.
            let told = [200, 400, 413, 422].contains(&answer.status());
            assert!(told, "{id} ({what}): {}", answer.text());
            if *id == "C4" {
                // These two mean any text, and no constraint.
                let sound = ["a schema that is true", "a schema that is null"].contains(what);
                let status: &[u16] = if sound { &[200] } else { &[400, 422] };
                let right = status.contains(&answer.status());
                assert!(right, "{what}: {}", answer.text());
            }
            if *id == "C4" && answer.status() != 200 {
                let param = answer.json()["error"]["param"].clone();
                let field = param.as_str().unwrap_or_default();
                let known = ["guided_", "response_format"];
                assert!(
                    known.iter().any(|name| field.starts_with(name)),
                    "{}",
                    answer.text()
                );
            }
            vec![answer]
        });
    }
}

#[test]
fn c1_schemas_nested_thirty_thousand_deep_are_refused() {
    let mut server = server(&[]);
    let mut bystander = Bystander::new(&mut server, BYSTANDER);
    // As text: who builds or reads them as values recurses.
    let deep = |open: &str, close: &str| {
        let schema = format!("{}{{}}{}", open.repeat(30_000), close.repeat(30_000));
        let model = BYSTANDER.model;
        format!(
            "{{\"model\":\"{model}\",\"prompt\":\"Hi\",\"max_tokens\":4,\"guided_json\":{schema}}}"
        )
    };
    let bodies = [deep("{\"items\":", "}"), deep("{\"anyOf\":[", "]}")];
    let case = case("C1", "schemas 30 000 deep", Expected::Anything);
    bystander.endures(&case, |server| {
        let asked = bodies.iter().map(|body| {
            let answer = server.send(&Request::raw("/v1/completions", body.as_bytes()));
            assert_eq!(answer.status(), 400, "{}", answer.text());
            answer
        });
        asked.collect()
    });
}

/// Definitions that each refer to the next, so many items deep.
fn chained(links: usize, items: usize) -> Value {
    let definition = |index: usize| {
        let next = json!({"$ref": format!("#/$defs/{}", index + 1)});
        (0..items).fold(next, |inner, _| json!({"items": inner}))
    };
    let mut definitions: serde_json::Map<_, _> = (0..links)
        .map(|index| (index.to_string(), definition(index)))
        .collect();
    definitions.insert(links.to_string(), json!({}));
    json!({"$ref": "#/$defs/0", "$defs": definitions})
}

/// Rules that each refer to the next.
fn ruled(links: usize) -> String {
    let rules = (0..links).map(|index| format!("a{index}: \"y\" a{}\n", index + 1));
    format!("start: a0\n{}a{links}: \"x\"\n", rules.collect::<String>())
}

#[test]
fn c1_references_that_lead_too_deep_suspend_nobodys_grammars() {
    // The breaker is as everybody has it: five of these within ten seconds would open it.
    let mut server = server(&[]);
    let mut bystander = Bystander::new(&mut server, BYSTANDER);
    let tool = |strict: bool| {
        let function = json!({"name": "f", "strict": strict, "parameters": chained(5, 40)});
        let tools = json!([{"type": "function", "function": function}]);
        with(
            constrained("tool_choice", json!("required")),
            "tools",
            tools,
        )
    };
    let bodies = [
        constrained("response_format", schema(chained(3000, 1))),
        constrained("guided_json", chained(3000, 1)),
        constrained("structured_outputs", json!({"json": chained(3000, 1)})),
        constrained("guided_grammar", json!(ruled(10_000))),
        constrained("structured_outputs", json!({"grammar": ruled(10_000)})),
        constrained(
            "guided_grammar",
            json!(format!("start: %json {}", chained(3000, 1))),
        ),
        tool(false),
        tool(true),
    ];
    let refused = Expected::Refusal(400, "too_complex");
    let case = case("C1", "references that lead too deep", refused);
    bystander.endures(&case, |server| {
        bodies.iter().map(|body| server.post(CHAT, body)).collect()
    });
    let server = bystander.server();
    server
        .post(
            CHAT,
            &constrained("response_format", schema(json!({"type": "integer"}))),
        )
        .ok();
    let metrics = server.get("/metrics").text();
    let faults = |fault: &str| {
        let labels = ["grammar", fault].map(|label| format!("\"{label}\""));
        let is_it = |line: &&str| labels.iter().all(|label| line.contains(label));
        let lines = metrics
            .lines()
            .filter(|line| line.starts_with("mortise_plugin_faults_total"));
        lines
            .filter(is_it)
            .filter(|line| !line.ends_with(" 0"))
            .count()
    };
    assert!(faults("too-complex") > 0, "{metrics}");
    assert_eq!((faults("stack"), faults("suspended")), (0, 0), "{metrics}");
}

#[test]
fn c1_grammars_that_lead_nowhere_are_the_callers_fault() {
    let mut server = server(&[patient()]);
    let mut bystander = Bystander::new(&mut server, BYSTANDER);
    let refused = Expected::Refusal(400, "invalid_value");
    let grammars = case("C1", "grammars that lead nowhere", refused);
    let refused = Expected::Refusal(422, "invalid_schema");
    let schemas = case("C1", "schemas that lead nowhere", refused);
    let bodies = [
        constrained("guided_grammar", json!("start: \"x\" /[^\\s\\S]/")),
        constrained("guided_grammar", json!("start: \"ab\" /[^\\s\\S]+/ \"c\"")),
        constrained("guided_regex", json!("a[^\\s\\S]")),
    ];
    let nowhere = schema(json!({"type": "string", "pattern": "^[^\\s\\S]$"}));
    for (case, bodies) in [
        (grammars, &bodies[..]),
        (schemas, &[constrained("response_format", nowhere)]),
    ] {
        bystander.endures(&case, |server| {
            let asked = bodies
                .iter()
                .map(|body| server.post(CHAT, &patiently(body)));
            asked.collect()
        });
    }
}

/// A grammar that is easy to begin with, and then has more ways to go on than llguidance follows at once.
fn hard_later() -> String {
    let ways = (0..12_100).map(|way| format!("L \"{}u\" \"{}v\"", way / 110, way % 110));
    let ways: Vec<String> = ways.collect();
    format!("start: \"zqzqzqzq\" ({})\nL: /[a-z]/\n", ways.join(" | "))
}

#[test]
fn c1_a_grammar_that_grows_too_complex_is_the_callers_fault_in_mid_stream() {
    // Not its time is to be met, however busy the machine is.
    let mut server = server(&[unhurried(Target::saying("target", "zqzqzqzqa1u1v"))]);
    let mut bystander = Bystander::new(&mut server, BYSTANDER);
    let mut body = ask("target", "Hi");
    body["guided_grammar"] = json!(hard_later());
    body["stream"] = json!(true);
    let case = case(
        "C1",
        "a grammar that is easy to begin with",
        Expected::Anything,
    );
    bystander.endures(&case, |server| vec![server.post(CHAT, &body)]);
    let answer = bystander.server().post(CHAT, &body);
    assert_eq!(answer.status(), 200, "the head was out: {}", answer.text());
    let events = crate::support::client::events(&answer.text());
    let error = events.iter().find(|event| event.get("error").is_some());
    let error = &error.expect("an error event")["error"];
    assert_eq!(error["type"], "invalid_request_error", "{error}");
    assert_eq!(error["code"], "too_complex", "{error}");
    // In one piece, it is a refusal like any other.
    body["stream"] = json!(false);
    let answer = bystander.server().post(CHAT, &body);
    assert_eq!(answer.status(), 400, "{}", answer.text());
    assert_eq!(answer.json()["error"]["code"], "too_complex");
}
