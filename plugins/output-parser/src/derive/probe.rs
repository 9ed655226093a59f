//! Renderings of conversations that hold words of ours.

use mortise_jinja::render::{self, Input, Renderer};
use mortise_plugin_sdk::Model;
use serde_json::{Value, json};

use super::marks::common_prefix;

/// Steps of one rendering: hundreds of times what a conversation of two messages takes.
const MAX_STEPS: u64 = 200_000;
/// Bytes of a turn that is looked at; a template that writes more for one short call is none to learn from.
const MAX_TURN_BYTES: usize = 16 * 1024;

/// Names of tools, keys and values that no template has.
pub(super) const ALFA: &str = "quark_alfa";
pub(super) const BETA: &str = "pion_beta";
pub(super) const KEY_1: &str = "zkey_uno";
pub(super) const KEY_2: &str = "zkey_due";
pub(super) const TEXT_1: &str = "vtext1x";
pub(super) const TEXT_2: &str = "vtext2x";
/// Ids of nine letters and digits, which some templates insist on.
pub(super) const ID_1: &str = "callqz001";
const ID_2: &str = "callqz002";
const SAID: &str = "Qwertzuiop";
const THOUGHT: &str = "Asdfghjkl";

/// A call as a conversation has it.
pub(super) type Call = (&'static str, Value);

/// The template of a model, ready to render.
pub(super) struct Probe {
    renderer: Renderer,
    pub(super) tools: String,
    /// The prompt that an answer follows.
    asked: String,
    /// Text before and behind an answer of words only.
    around: (String, String),
    ends: Vec<String>,
}

impl Probe {
    /// Probe of a model's template; `None` where the template does not write calls, or does not render.
    pub(super) fn new(model: &Model) -> Option<Self> {
        let template = model.chat_template.as_ref()?;
        if !template.contains("tool_calls") {
            return None;
        }
        let tokens = model.control_tokens.iter();
        let facts = render::Model {
            chat_template: Some(template.clone()),
            bos_token: model.bos_token.clone(),
            eos_token: model.eos_token.clone(),
            control_tokens: tokens
                .map(|token| render::ControlToken {
                    text: token.text.clone(),
                    special: token.special,
                })
                .collect(),
        };
        let mut probe = Self {
            renderer: Renderer::bounded("{}", facts, MAX_STEPS).ok()?,
            tools: tools().to_string(),
            asked: String::new(),
            around: (String::new(), String::new()),
            ends: Vec::new(),
        };
        let (asked, stop) = probe.render(&json!([user()]), true)?;
        probe.asked = asked;
        probe.ends = stop;
        probe.ends.push(model.eos_token.clone());
        probe.ends.retain(|end| !end.is_empty());
        let said = probe.turn(&json!({"role": "assistant", "content": SAID}))?;
        let (before, behind) = said.split_once(SAID)?;
        probe.around = (before.trim().to_owned(), behind.trim().to_owned());
        Some(probe)
    }

    fn render(&self, messages: &Value, asks: bool) -> Option<(String, Vec<String>)> {
        let output = self.renderer.render(&Input {
            messages: messages.to_string(),
            tools: Some(self.tools.clone()),
            arguments: None,
            add_generation_prompt: asks,
            continue_final_message: false,
            today: "2000-01-01".to_owned(),
        });
        let output = output.ok()?;
        let text: String = output.segments.iter().map(|part| part.text()).collect();
        Some((text, output.stop))
    }

    /// Text that a model writes where the conversation has this message: without the prompt, and without what ends a turn.
    fn turn(&self, message: &Value) -> Option<String> {
        let (whole, _) = self.render(&json!([user(), message]), false)?;
        let mut text = behind(&self.asked, &whole)?.trim_end();
        while let Some(rest) = (self.ends.iter()).find_map(|end| text.strip_suffix(end.as_str())) {
            text = rest.trim_end();
        }
        if let Some(rest) = text.strip_suffix(self.around.1.as_str()) {
            text = rest.trim_end();
        }
        (text.len() <= MAX_TURN_BYTES).then(|| text.to_owned())
    }

    /// A turn of calls, with words before them or without.
    pub(super) fn calls(&self, content: &str, calls: &[Call]) -> Option<String> {
        let ids = [ID_1, ID_2];
        let calls = calls.iter().zip(ids).map(|((name, arguments), id)| {
            let function = json!({"name": name, "arguments": arguments.to_string()});
            json!({"id": id, "type": "function", "function": function})
        });
        let calls: Vec<Value> = calls.collect();
        self.turn(&json!({"role": "assistant", "content": content, "tool_calls": calls}))
    }

    /// True if the template takes two calls in one turn.
    pub(super) fn writes_several(&self) -> bool {
        let call = (ALFA, json!({KEY_1: TEXT_1}));
        self.calls("", &[call.clone(), call]).is_some()
    }

    /// A turn of words.
    pub(super) fn words(&self, content: &str) -> Option<String> {
        self.turn(&json!({"role": "assistant", "content": content}))
    }

    /// Calls without what stands before any answer.
    fn bare_calls(&self, calls: &[Call]) -> Option<String> {
        let text = self.calls("", calls)?;
        let text = text.trim_start();
        let rest = text.strip_prefix(self.around.0.as_str()).unwrap_or(text);
        Some(rest.trim_start().to_owned())
    }

    /// A turn of thought and words, with both.
    pub(super) fn thought(&self) -> Option<(String, &'static str, &'static str)> {
        let message = json!({"role": "assistant", "content": SAID, "reasoning_content": THOUGHT});
        let text = self.turn(&message)?;
        text.contains(THOUGHT).then_some((text, THOUGHT, SAID))
    }

    /// Marks before and behind the thought of an answer.
    pub(super) fn reasoning(&self) -> Option<(String, String)> {
        let (text, thought, said) = self.thought()?;
        let (open, rest) = text.split_once(thought)?;
        let (close, _) = rest.split_once(said)?;
        let (open, close) = (open.trim(), close.trim());
        (!open.is_empty() && !close.is_empty()).then(|| (open.to_owned(), close.to_owned()))
    }
}

fn user() -> Value {
    json!({"role": "user", "content": "Hello."})
}

/// Text of an answer, behind the prompt. The prompt may open a block of reasoning that turns of the past lack.
fn behind<'a>(asked: &str, whole: &'a str) -> Option<&'a str> {
    if let Some(rest) = whole.strip_prefix(asked) {
        return Some(rest);
    }
    let shared = common_prefix(asked, whole);
    let rest = &asked[shared..];
    if rest.trim().is_empty() {
        return whole.get(shared..);
    }
    let last = asked.rfind(['<', '['])?;
    let mark = asked[last..].to_ascii_lowercase();
    let opens = mark.contains("think") || mark.contains("reason") || mark.contains("thought");
    if last > shared || !opens {
        return None;
    }
    whole.get(last..)
}

/// Declarations of the tools that the conversations call.
fn tools() -> Value {
    let text = json!({"type": "string", "description": "A text."});
    let alfa = json!({
        "type": "object",
        "properties": {KEY_1: text, KEY_2: text},
    });
    let beta = json!({
        "type": "object",
        "properties": {
            KEY_2: text,
            "count": {"type": "integer", "description": "A count."},
            "ratio": {"type": "number", "description": "A ratio."},
            "flag": {"type": "boolean", "description": "A flag."},
            "tags": {"type": "array", "description": "Tags.", "items": {"type": "string"}},
            "inner": {"type": "object", "description": "An object.", "properties": {}},
        },
    });
    let each = [(ALFA, alfa), (BETA, beta)].map(|(name, parameters)| {
        let about = "Does something.";
        let function = json!({"name": name, "description": about, "parameters": parameters});
        json!({"type": "function", "function": function})
    });
    Value::from(each.to_vec())
}

/// Turns from which marks are told.
pub(super) struct Seen {
    /// A call with one argument.
    pub(super) one: String,
    /// A call with two arguments.
    pub(super) longer: Option<String>,
    /// Two calls; `None` where the template refuses two.
    pub(super) both: Option<String>,
}

impl Seen {
    pub(super) fn new(probe: &Probe) -> Option<Self> {
        let one = (ALFA, json!({KEY_1: TEXT_1}));
        let other = (BETA, json!({KEY_2: TEXT_2}));
        let longer = (ALFA, json!({KEY_1: TEXT_1, KEY_2: TEXT_2}));
        Some(Self {
            both: probe.bare_calls(&[one.clone(), other]),
            one: probe.bare_calls(&[one])?,
            longer: probe.bare_calls(&[longer]),
        })
    }
}
