//! Formats that are derived from a chat template: what they read, and that what cannot be told is not made up.

#[path = "../../../tests/parsers/answers.rs"]
#[allow(dead_code)] // Cuts are tried elsewhere.
mod answers;
mod grammars;
#[path = "../../../tests/templates/published.rs"]
mod published;
#[path = "grammars/runs.rs"]
mod runs;

use answers::{Answer, answer, setup};
use grammars::model;
use mortise_output_parser::constraint::constraint;
use mortise_output_parser::derive::derived;
use mortise_output_parser::open;
use mortise_output_parser::style::{Reason, Settings, Style};
use mortise_plugin_sdk::formats::{Format, Writing};
use mortise_plugin_sdk::output_parser::{Setup, ToolChoice};
use mortise_plugin_sdk::{ControlToken, Model};
use serde_json::{Value, json};

/// The parser of a model whose format nothing else tells.
fn style(model: Model) -> Option<Style> {
    let format = derived(&model)?;
    Some(Style {
        format,
        reason: Reason::Derived,
        reasons: true,
        thought: format.spec().reasoning,
        model,
        response: None,
        refused: None,
    })
}

fn read(style: &Style, opens: bool, text: &str) -> Answer {
    let parsing = open(style, &setup("auto", true, opens)).unwrap().unwrap();
    answer(parsing, std::iter::once(text))
}

/// Names and arguments of calls.
fn calls(answer: &Answer) -> Vec<(String, Value)> {
    let calls = answer.calls.iter().map(|call| {
        let arguments = serde_json::from_str(&call.arguments).unwrap();
        (call.name.clone(), arguments)
    });
    calls.collect()
}

/// A template of turns as `<s>ROLE\n…</s>`, with calls as `calls` writes them.
fn template(calls: &str) -> String {
    format!(
        "{{%- for message in messages %}}<s>{{{{ message.role }}}}\n\
         {{%- if message.reasoning_content %}}[[muse]]{{{{ message.reasoning_content }}}}[[/muse]]{{%- endif %}}\
         {{{{ message.content or '' }}}}{{%- if message.tool_calls %}}{calls}{{%- endif %}}</s>\n{{%- endfor %}}\
         {{%- if add_generation_prompt %}}<s>assistant\n{{% endif %}}"
    )
}

fn unseen(calls: &str) -> Model {
    Model {
        eos_token: "</s>".to_owned(),
        ..model(&template(calls), "nobody_has_seen_this", Vec::new())
    }
}

/// Calls as templates write them that nobody has seen, and an answer in the same way.
const UNSEEN: &[(&str, &str, &str)] = &[
    (
        "an object between marks",
        "{%- for call in message.tool_calls %}\n{!do}{\"tool\": \"{{ call.function.name }}\", \"with\": {{ call.function.arguments | tojson }}}{/do}{%- endfor %}",
        "{!do}{\"tool\": \"get_weather\", \"with\": {\"city\": \"Ulm\", \"days\": 3}}{/do}",
    ),
    (
        "a list between marks",
        "{!all}[{%- for call in message.tool_calls %}{\"fn\": \"{{ call.function.name }}\", \"kwargs\": {{ call.function.arguments | tojson }}}{%- if not loop.last %}, {% endif %}{%- endfor %}]{/all}",
        "{!all}[{\"fn\": \"get_weather\", \"kwargs\": {\"city\": \"Ulm\", \"days\": 3}}]{/all}",
    ),
    (
        "a name before an object",
        "{%- for call in message.tool_calls %}<run:{{ call.function.name }}>{{ call.function.arguments | tojson }}</run>{%- endfor %}",
        "<run:get_weather>{\"city\": \"Ulm\", \"days\": 3}</run>",
    ),
    (
        "an object within an object",
        "<x>{%- for call in message.tool_calls %}{\"type\": \"function\", \"function\": {\"name\": \"{{ call.function.name }}\", \"arguments\": {{ call.function.arguments | tojson }}}}\n{%- endfor %}</x>",
        "<x>{\"type\": \"function\", \"function\": {\"name\": \"get_weather\", \"arguments\": {\"city\": \"Ulm\", \"days\": 3}}}</x>",
    ),
    (
        "tags",
        "{%- for call in message.tool_calls %}<do what=\"{{ call.function.name }}\">{%- for key, value in call.function.arguments.items() %}<with key=\"{{ key }}\">{{ value if value is string else value | tojson }}</with>{%- endfor %}</do>{%- endfor %}",
        "<do what=\"get_weather\"><with key=\"city\">Ulm</with><with key=\"days\">3</with></do>",
    ),
    (
        "tags of keys and values, in lines",
        "{%- for call in message.tool_calls %}{{ '\\n<job>\\n<tool=' + call.function.name + '>' }}{%- for key, value in call.function.arguments.items() %}{{ '\\n<k>' + key + '</k>\\n<v>' }}{{ value if value is string else value | tojson }}</v>{%- endfor %}{{ '\\n</tool>\\n</job>' }}{%- endfor %}",
        "<job>\n<tool=get_weather>\n<k>city</k>\n<v>Ulm</v>\n<k>days</k>\n<v>3</v>\n</tool>\n</job>",
    ),
    (
        "Python",
        "<py>[{%- for call in message.tool_calls %}{{ call.function.name }}({%- for key, value in call.function.arguments.items() %}{{ key }}={{ value | tojson }}{%- if not loop.last %}, {% endif %}{%- endfor %}){%- if not loop.last %}, {% endif %}{%- endfor %}]</py>",
        "<py>[get_weather(city=\"Ulm\", days=3)]</py>",
    ),
];

#[test]
fn feature_s14_a_format_nobody_has_seen_is_told_by_its_template() {
    for (name, written, text) in UNSEEN {
        let style = Style::new(&Settings::default(), unseen(written));
        assert_eq!(style.reason, Reason::Derived, "{name}");
        assert!(!style.is_unknown());
        let found = read(&style, false, &format!("Well.\n{text}"));
        let expected = ("get_weather".to_owned(), json!({"city": "Ulm", "days": 3}));
        assert_eq!(calls(&found), [expected], "{name}: {style:?}\n{found:?}");
        assert_eq!(found.content, "Well.", "{name}");
        let thought = read(&style, false, &format!("[[muse]]Hm.[[/muse]]{text}"));
        assert_eq!(
            (thought.reasoning.as_str(), thought.calls.len()),
            ("Hm.", 1),
            "{name}"
        );
        // Other tools, and text that only looks alike, are text.
        let other = text.replace("get_weather", "rm");
        assert_eq!(read(&style, false, &other).content, other, "{name}");
    }
}

#[test]
fn feature_s14_calls_in_a_derived_format_are_forced_by_a_grammar() {
    for (name, written, text) in UNSEEN {
        let style = style(unseen(written)).unwrap();
        assert!(
            !matches!(style.format.spec().writing, Writing::Free),
            "{name}"
        );
        let setup = Setup {
            tool_choice: ToolChoice::Required,
            ..setup("auto", true, false)
        };
        let source = constraint(
            &Style {
                reasons: false,
                ..style.clone()
            },
            &setup,
            None,
        );
        let source = source.unwrap().unwrap();
        assert!(grammars::takes(&style, &source, text), "{name}: {source:?}");
        let run = runs::run(&style, &setup, &source);
        assert_eq!(run.failed, Vec::<String>::new(), "{name}: {source:?}");
        assert!(run.read > 0, "{name} never comes to an end");
    }
}

/// Templates of which nothing may be concluded.
#[test]
fn feature_s14_what_a_template_does_not_tell_is_not_made_up() {
    for (name, written) in [
        ("no calls", ""),
        (
            "names only",
            "{%- for call in message.tool_calls %}<call>{{ call.function.name }}</call>{%- endfor %}",
        ),
        (
            "texts without quotes",
            "<py>[{%- for call in message.tool_calls %}{{ call.function.name }}({%- for key, value in call.function.arguments.items() %}{{ key }}={{ value }}{%- endfor %}){%- endfor %}]</py>",
        ),
        (
            "arguments without keys",
            "{%- for call in message.tool_calls %}<call>{{ call.function.name }} {{ call.function.arguments.values() | list | tojson }}</call>{%- endfor %}",
        ),
        (
            "the count of calls",
            "{%- for call in message.tool_calls %}<call n={{ message.tool_calls | length }}>{\"name\": \"{{ call.function.name }}\", \"arguments\": {{ call.function.arguments | tojson }}}</call n={{ message.tool_calls | length }}>{%- endfor %}",
        ),
        ("a refusal", "{{ raise_exception('no calls here') }}"),
        (
            "no end",
            "{%- for a in range(100000) %}{%- for b in range(100000) %}x{%- endfor %}{%- endfor %}",
        ),
    ] {
        let model = unseen(written);
        assert!(derived(&model).is_none(), "{name}");
        let style = Style::new(&Settings::default(), model);
        assert_eq!(
            (style.format, style.reason),
            (Format::Hermes, Reason::Nothing),
            "{name}"
        );
    }
}

/// Published templates, as if none of their formats were listed: what `transformers` makes of a turn is read as the calls
/// of that turn, or no format is derived at all.
#[test]
fn feature_s14_formats_derived_from_published_templates_are_never_wrong() {
    let test = "feature_s14_formats_derived_from_published_templates_are_never_wrong";
    let Some((folder, document)) = published::published(env!("CARGO_TARGET_TMPDIR"), test) else {
        return;
    };
    let (mut told, mut untold, mut wrong) = (Vec::new(), Vec::new(), Vec::new());
    for (name, facts) in document["templates"].as_object().unwrap() {
        let turns = facts["turns"].as_object().unwrap();
        if turns.is_empty() {
            continue;
        }
        let tokens = facts["control_tokens"].as_array().unwrap().iter();
        let tokens = tokens.zip(1000..).map(|(token, id)| ControlToken {
            id,
            text: token["text"].as_str().unwrap().to_owned(),
            special: token["special"].as_bool().unwrap(),
        });
        let source = std::fs::read_to_string(folder.join(name)).unwrap();
        let Some(style) = style(Model {
            bos_token: facts["bos_token"].as_str().unwrap_or_default().to_owned(),
            eos_token: facts["eos_token"].as_str().unwrap_or_default().to_owned(),
            ..model(&source, "", tokens.collect())
        }) else {
            untold.push(name.as_str());
            continue;
        };
        for (turn, written) in turns {
            let text = written["text"].as_str().unwrap();
            let found = read(&style, written["opens"].as_bool().unwrap(), text);
            let meant = document["turns"][turn]["calls"].as_array().unwrap().iter();
            let meant = meant.map(|call| {
                let text = |at: usize| call[at].as_str().unwrap();
                (text(0).to_owned(), serde_json::from_str(text(1)).unwrap())
            });
            if calls(&found) != meant.collect::<Vec<(String, Value)>>() {
                wrong.push(format!(
                    "{name}, {turn}: {text:?}\n  {found:?}\n  {:?}",
                    style.format
                ));
            }
        }
        told.push(name.as_str());
    }
    println!("derived: {told:#?}\nnot derived: {untold:#?}");
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    assert!(
        told.len() > 30,
        "{} derived, {} not",
        told.len(),
        untold.len()
    );
}
