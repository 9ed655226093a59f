//! Prints what `reasoning-parser` and `tool-parser` make of the cases in `written.json`, for the formats that they know:
//!
//!     cargo run --release --manifest-path tests/parsers/others/Cargo.toml > tests/parsers/others.json
//!
//! Reasoning is taken out of an answer first, and calls of what is left, as the server that these crates come from does.

use std::error::Error;

use openai_protocol::common::Tool;
use serde::Deserialize;
use serde_json::{Value, json};

/// Format of ours, their parser of reasoning, and theirs of calls.
const FORMATS: [(&str, &str, &str); 17] = [
    ("hermes", "qwen3", "qwen"),
    ("qwen-coder", "qwen3", "qwen_coder"),
    ("deepseek-v3", "deepseek_v31", "deepseek"),
    ("deepseek", "deepseek_v31", "deepseek31"),
    ("deepseek-dsml", "deepseek_v31", "deepseek32"),
    ("glm", "glm45", "glm45_moe"),
    ("kimi-k2", "kimi_k25", "kimik2"),
    ("kimi-k3", "kimi_k3", "kimi_k3"),
    ("minimax", "minimax", "minimax_m2"),
    ("minimax-m3", "minimax_m3", "minimax_m3"),
    ("step3", "step3", "step3"),
    ("mistral", "passthrough", "mistral"),
    ("pythonic", "passthrough", "pythonic"),
    ("llama3-json", "passthrough", "llama"),
    ("gemma4", "gemma4", "gemma4"),
    ("inkling", "inkling", "inkling"),
    ("command-a", "cohere_cmd", "cohere"),
];

#[derive(Deserialize)]
struct Case {
    name: String,
    format: String,
    text: String,
    #[serde(default)]
    opens: bool,
}

fn tools() -> Result<Vec<Tool>, serde_json::Error> {
    serde_json::from_str(include_str!("../../tools.json"))
}

async fn answer(case: &Case, reasoning: &str, calls: &str) -> Result<Value, Box<dyn Error>> {
    let reasoning_parsers = reasoning_parser::ParserFactory::new();
    let mut parser = reasoning_parsers
        .registry()
        .create_parser(reasoning)
        .ok_or("no such parser of reasoning")?;
    if case.opens {
        parser.mark_reasoning_started();
        parser.mark_think_start_stripped();
    }
    let parsed = parser.detect_and_parse_reasoning(&case.text)?;
    let tool_parsers = tool_parser::ParserFactory::new();
    let parser = tool_parsers
        .registry()
        .create_parser(calls)
        .ok_or("no such parser of calls")?;
    let (content, calls) = parser
        .parse_complete_with_tools(&parsed.normal_text, &tools()?)
        .await?;
    let calls = calls.into_iter().map(|call| {
        let arguments: Value = serde_json::from_str(&call.function.arguments)?;
        Ok(json!([call.function.name, arguments]))
    });
    let calls = calls.collect::<Result<Vec<Value>, serde_json::Error>>()?;
    Ok(json!({"content": content, "reasoning": parsed.reasoning_text, "calls": calls}))
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn Error>> {
    let cases: Vec<Case> = serde_json::from_str(include_str!("../../written.json"))?;
    let mut answers = serde_json::Map::new();
    for case in &cases {
        let known = FORMATS.iter().find(|(format, _, _)| *format == case.format);
        if let Some((_, reasoning, calls)) = known {
            let answer = answer(case, reasoning, calls).await;
            let answer = answer.unwrap_or_else(|error| json!({"error": error.to_string()}));
            answers.insert(case.name.clone(), answer);
        }
    }
    let answers: Vec<String> = answers
        .iter()
        .map(|(name, answer)| format!("{}: {answer}", Value::from(name.as_str())))
        .collect();
    println!("{{\n{}\n}}", answers.join(",\n"));
    Ok(())
}
