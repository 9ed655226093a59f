//! A component of all kinds.

mod retrieve;
mod watch;

use std::cell::{Cell, RefCell};

wit_bindgen::generate!({
    path: "../../wit/v0.3",
    inline: "
        package test:guests;
        world every-kind {
            include mortise:plugin/chat-template-plugin@0.3.0;
            include mortise:plugin/output-parser-plugin@0.3.0;
            include mortise:plugin/grammar-plugin@0.3.0;
            include mortise:plugin/policy-plugin@0.3.0;
            include mortise:plugin/tool-plugin@0.3.0;
            include mortise:plugin/guardrail-plugin@0.3.0;
            include mortise:plugin/retriever-plugin@0.3.0;
        }
    ",
    world: "test:guests/every-kind",
    generate_all,
});

use exports::mortise::plugin::{chat_template, grammar, lifecycle, output_parser, policy, tool};
use mortise::plugin::types::{Fault, Finish, GrammarSource};
use mortise::plugin::{
    clock, ledger, mask_sink, model, outbound_http, secrets, settings, vocabulary,
};

use crate::behaviour::{act, recall, remember};

struct Guest;

impl lifecycle::Guest for Guest {
    fn prepare() -> Result<(), Fault> {
        match setting("prepare").as_deref() {
            Some("fault") => Err(Fault::Internal("bad setting".to_owned())),
            Some(command) => {
                act(command);
                Ok(())
            }
            None => Ok(()),
        }
    }
}

/// Command of the settings for a function, such as `{"prepare":"loop"}`, read without a parser.
fn setting(function: &str) -> Option<String> {
    let settings = settings::get();
    let mut words = settings.split('"').skip(1).step_by(2);
    words.find(|word| *word == function)?;
    words.next().map(str::to_owned)
}

/// Do what the settings tell this function to do.
fn act_on_setting(function: &str) {
    if let Some(command) = setting(function) {
        act(&command);
    }
}

impl chat_template::Guest for Guest {
    fn render(input: chat_template::Input) -> Result<chat_template::Output, Fault> {
        act_on_setting("render");
        let command = input.messages.as_str();
        let text = match command.split_once(':').unwrap_or((command, "")) {
            ("echo", text) => text.to_owned(),
            ("remember", text) => {
                remember(text);
                "remembered".to_owned()
            }
            ("recall", _) => recall(),
            ("invalid", text) => return Err(Fault::Invalid(text.to_owned())),
            ("too-complex", text) => return Err(Fault::TooComplex(text.to_owned())),
            ("unsupported", text) => return Err(Fault::Unsupported(text.to_owned())),
            ("internal", text) => return Err(Fault::Internal(text.to_owned())),
            ("random", _) => {
                use std::hash::{BuildHasher, Hasher};
                let state = std::collections::hash_map::RandomState::new();
                state.build_hasher().finish().to_string()
            }
            ("stops", _) => {
                let mut many = output(Vec::new());
                many.stop = (0..100_000).map(|index| index.to_string()).collect();
                return Ok(many);
            }
            ("huge", _) => "x".repeat(16 << 20),
            ("list", _) => return Ok(output(vec![special(""); 2 << 20])),
            ("grow", _) => {
                remember(&"x".repeat(20 << 20));
                "grown".to_owned()
            }
            ("model", _) => model::describe().name,
            ("clock", _) => clock::unix_millis().to_string(),
            ("now", _) => format!("{:?}", std::time::SystemTime::now().elapsed()),
            ("environment", _) => format!(
                "{} {} {}",
                std::env::vars().count(),
                std::env::args().count(),
                std::fs::read("/etc/passwd").is_ok()
            ),
            _ => {
                act(command);
                setting("writes").unwrap_or_else(|| "survived".to_owned())
            }
        };
        Ok(output(vec![
            special("<|begin|>"),
            chat_template::Segment::Plain(text),
        ]))
    }
}

fn special(text: &str) -> chat_template::Segment {
    chat_template::Segment::Special(text.to_owned())
}

fn output(segments: Vec<chat_template::Segment>) -> chat_template::Output {
    chat_template::Output {
        segments,
        stop: Vec::new(),
        opens_reasoning: false,
    }
}

impl output_parser::Guest for Guest {
    type Session = Session;

    fn describe() -> output_parser::Traits {
        act_on_setting("describe");
        output_parser::Traits {
            keep_special_tokens: true,
        }
    }

    fn constraint(
        setup: output_parser::Setup,
        wanted: Option<GrammarSource>,
    ) -> Result<Option<GrammarSource>, Fault> {
        act_on_setting("constraint");
        act(&setup.tools);
        Ok(wanted)
    }

    fn open(setup: output_parser::Setup) -> Result<Option<output_parser::Session>, Fault> {
        act_on_setting("open");
        act(&setup.tools);
        if setup.tools == "none" {
            return Ok(None);
        }
        Ok(Some(output_parser::Session::new(Session {
            held_back: RefCell::new(String::new()),
        })))
    }
}

struct Session {
    held_back: RefCell<String>,
}

impl Drop for Session {
    fn drop(&mut self) {
        act_on_setting("drop");
    }
}

impl output_parser::GuestSession for Session {
    fn feed(&self, text: String, tokens: Vec<u32>) -> Result<Vec<output_parser::Event>, Fault> {
        use output_parser::Event;
        act_on_setting("feed");
        let begin = |index, name: &str| {
            Event::CallBegin(output_parser::CallBegin {
                index,
                id: None,
                name: name.to_owned(),
            })
        };
        let arguments = |index| {
            Event::CallArguments(output_parser::CallArguments {
                index,
                delta: "{}".to_owned(),
            })
        };
        Ok(match text.as_str() {
            "call" => vec![begin(0, "f"), arguments(0), Event::CallEnd(0)],
            "gap" => vec![begin(1, "f")],
            "nameless" => vec![begin(0, "")],
            "ghost" => vec![arguments(7)],
            "again" => vec![begin(0, "f"), Event::CallEnd(0), arguments(0)],
            "undeclared" => vec![begin(0, "rm")],
            "swallow" => Vec::new(),
            "invent" => vec![Event::Content("x".repeat(3 << 20))],
            "drip" => {
                act("spin:60");
                Vec::new()
            }
            "many" => (0..2000).map(|index| begin(index, "f")).collect(),
            "hold" => {
                self.held_back.borrow_mut().push_str("held back");
                Vec::new()
            }
            _ => {
                act(&text);
                vec![Event::Content(format!("{text}{tokens:?}"))]
            }
        })
    }

    fn close(&self, reason: Finish) -> Result<Vec<output_parser::Event>, Fault> {
        act_on_setting("close");
        let held_back = self.held_back.take();
        let text = format!("{held_back} {reason:?}");
        Ok(vec![output_parser::Event::Reasoning(text)])
    }
}

impl grammar::Guest for Guest {
    type Matcher = Matcher;

    fn compile(source: GrammarSource) -> Result<grammar::Matcher, Fault> {
        act_on_setting("compile");
        let GrammarSource::Regex(command) = source else {
            return Err(Fault::Invalid("only regex here".to_owned()));
        };
        act(&command);
        let table = vocabulary::get();
        Ok(grammar::Matcher::new(Matcher {
            command,
            tokens: table.offsets.len() as u32 - 1,
            taken: Cell::new(0),
        }))
    }
}

/// Allows the token that is numbered as many as were taken.
struct Matcher {
    command: String,
    tokens: u32,
    taken: Cell<u32>,
}

impl Drop for Matcher {
    fn drop(&mut self) {
        act_on_setting("drop");
    }
}

impl Matcher {
    fn push(&self, slot: u32) -> Result<(), Fault> {
        let (taken, width) = (self.taken.get(), self.tokens.div_ceil(32) as usize);
        let mut words = vec![0u32; width];
        words[taken as usize / 32] |= 1 << (taken % 32);
        match self.command.as_str() {
            "dense" => mask_sink::dense(slot, &words),
            "only" | "contradict" => mask_sink::only(slot, &[taken]),
            "everything" => mask_sink::all_but(slot, &[]),
            "all-but" => mask_sink::all_but(slot, &[taken]),
            "stray-bits" => mask_sink::dense(slot, &vec![u32::MAX; width]),
            "wide" => mask_sink::dense(slot, &vec![1; width + 1]),
            "narrow" => mask_sink::dense(slot, &vec![1; width - 1]),
            "huge" => mask_sink::dense(slot, &vec![1; 4 << 20]),
            "slot" => mask_sink::dense(slot + 1, &words),
            "beyond" => mask_sink::only(slot, &[self.tokens]),
            "empty" => mask_sink::only(slot, &[]),
            "none" | "finished" => {}
            "complex" if taken > 0 => return Err(Fault::TooComplex("too many states".to_owned())),
            "complex" => mask_sink::only(slot, &[taken]),
            command => act(command.strip_prefix("then-").unwrap_or(command)),
        }
        Ok(())
    }

    fn status(&self) -> grammar::Status {
        match self.command.as_str() {
            "finished" => grammar::Status::Finished,
            _ => grammar::Status::Active,
        }
    }
}

impl grammar::GuestMatcher for Matcher {
    fn mask(&self, slot: u32) -> Result<grammar::Status, Fault> {
        act_on_setting("mask");
        self.push(slot)?;
        Ok(self.status())
    }

    fn advance(&self, tokens: Vec<u32>, slot: u32) -> Result<grammar::Step, Fault> {
        act_on_setting("advance");
        if tokens.contains(&u32::MAX) {
            return Err(Fault::Invalid("no such token".to_owned()));
        }
        self.taken.set(self.taken.get() + tokens.len() as u32);
        self.push(slot)?;
        Ok(grammar::Step {
            status: self.status(),
            forced: match self.command.as_str() {
                "contradict" => vec![self.taken.get() + 1],
                _ => vec![self.taken.get()],
            },
        })
    }

    fn probe(&self, tokens: Vec<u32>) -> Result<u32, Fault> {
        act_on_setting("probe");
        Ok(tokens.len() as u32 + u32::from(self.command == "boast"))
    }

    fn rollback(&self, count: u32) -> Result<(), Fault> {
        act_on_setting("rollback");
        let left = self.taken.get().checked_sub(count);
        self.taken
            .set(left.ok_or_else(|| Fault::Invalid("too far".to_owned()))?);
        Ok(())
    }

    fn fork(&self) -> Result<grammar::Matcher, Fault> {
        act_on_setting("fork");
        Ok(grammar::Matcher::new(Matcher {
            command: self.command.clone(),
            tokens: self.tokens,
            taken: self.taken.clone(),
        }))
    }
}

impl policy::Guest for Guest {
    fn authorize(facts: policy::Facts) -> Result<policy::Decision, Fault> {
        act_on_setting("authorize");
        // Tests of headers ask by one, others by the model.
        let mut asked = facts.headers.iter().filter(|(name, _)| name == "x-ask");
        let command = match asked.next() {
            Some((_, command)) => command.clone(),
            None => facts.model.clone().unwrap_or_default(),
        };
        let (command, text) = command.split_once(':').unwrap_or((&command, ""));
        Ok(match command {
            "abstain" => policy::Decision::Abstain,
            "deny" => deny(text.parse().unwrap(), Vec::new()),
            "essay" => {
                let mut essay = deny(400, Vec::new());
                if let policy::Decision::Deny(deny) = &mut essay {
                    deny.message = "x".repeat(1 << 20);
                }
                essay
            }
            "extremes" => {
                let mut extreme = allow("someone".to_owned());
                if let policy::Decision::Allow(allow) = &mut extreme {
                    allow.priority = i32::MIN;
                    allow.max_tokens = Some(0);
                    allow.headers = vec![("content-length".to_owned(), "7".to_owned())];
                }
                extreme
            }
            "split" => deny(401, vec![("x-a".to_owned(), "b\r\nc: d".to_owned())]),
            "tools" => {
                let mut limited = allow(format!("{:?} {:?}", facts.tools, facts.server_tools));
                if let policy::Decision::Allow(allow) = &mut limited {
                    let names = text.split(',').map(str::to_owned).collect();
                    allow.tools = policy::ToolGrant::Only(names);
                    allow.server_tools = policy::ToolGrant::AllBut(vec!["rm".to_owned()]);
                }
                limited
            }
            "many-tools" => {
                let mut generous = allow("someone".to_owned());
                if let policy::Decision::Allow(allow) = &mut generous {
                    allow.tools = policy::ToolGrant::AllBut(vec![String::new(); 100_000]);
                }
                generous
            }
            // What a header holds, and whose key it is, as a refusal tells.
            "header" => {
                let mut values = facts.headers.iter().filter(|(name, _)| name == text);
                let value = values.next().map_or("absent", |(_, value)| value);
                let key = value.rsplit(' ').next().unwrap_or_default();
                let owner = secrets::find(key).unwrap_or_else(|| "nobody".to_owned());
                let mut told = deny(403, Vec::new());
                if let policy::Decision::Deny(deny) = &mut told {
                    deny.message = format!("{value} of {owner}");
                }
                told
            }
            "secret" => allow(secrets::find(text).unwrap_or_else(|| "unknown".to_owned())),
            "clock" => allow(clock::unix_millis().to_string()),
            "model" => allow(model::describe().name),
            "ledger" => {
                let verdict = ledger::take(text, 1, 3, 3_600_000);
                if !verdict.allowed {
                    ledger::adjust(text, -3, 3, 3_600_000);
                }
                allow(format!("{} {}", verdict.allowed, verdict.remaining))
            }
            // Two buckets: `a` holds three, `b` one.
            "ledger-all" => {
                let of = |bucket: &str, capacity| ledger::Withdrawal {
                    bucket: format!("{text}-{bucket}"),
                    cost: 1,
                    capacity,
                    period_ms: 3_600_000,
                };
                let verdicts = ledger::take_all(&[of("a", 3), of("b", 1)]);
                let told = verdicts
                    .iter()
                    .map(|verdict| format!("{} {}", verdict.allowed, verdict.remaining));
                allow(told.collect::<Vec<_>>().join(", "))
            }
            "ledger-flood" => {
                let withdrawal = ledger::Withdrawal {
                    bucket: text.to_owned(),
                    cost: 0,
                    capacity: 1,
                    period_ms: 1,
                };
                let verdicts = ledger::take_all(&vec![withdrawal; 65]);
                allow(verdicts.len().to_string())
            }
            "rewrite" => {
                let mut rewritten = allow("someone".to_owned());
                if let policy::Decision::Allow(allow) = &mut rewritten {
                    allow.rewrites = text.split(',').map(rewrite).collect();
                }
                rewritten
            }
            _ => {
                act(command);
                act(&format!("{command}:{text}"));
                allow("someone".to_owned())
            }
        })
    }

    fn account(usage: policy::Usage) -> Result<(), Fault> {
        act_on_setting("account");
        act(&usage.model);
        Ok(())
    }
}

fn allow(subject: String) -> policy::Decision {
    policy::Decision::Allow(policy::Allow {
        principal: policy::Principal {
            subject,
            tenant: None,
            labels: Vec::new(),
        },
        priority: 0,
        max_tokens: None,
        tools: policy::ToolGrant::All,
        server_tools: policy::ToolGrant::All,
        headers: Vec::new(),
        lease: None,
        rewrites: Vec::new(),
    })
}

/// A change by its name: `model=small`, `max_tokens=5`.
fn rewrite(text: &str) -> policy::Rewrite {
    let (name, value) = text.split_once('=').unwrap_or((text, ""));
    let prompt = |place| {
        policy::Rewrite::System(policy::SystemPrompt {
            text: value.to_owned(),
            place,
        })
    };
    match name {
        "model" => policy::Rewrite::Model(value.to_owned()),
        "max_tokens" => policy::Rewrite::MaxTokens(value.parse().unwrap()),
        "temperature" => policy::Rewrite::Temperature(value.parse().unwrap()),
        "before" => prompt(policy::SystemPlace::Before),
        "instead" => prompt(policy::SystemPlace::Instead),
        _ => prompt(policy::SystemPlace::IfAbsent),
    }
}

fn deny(status: u16, headers: Vec<(String, String)>) -> policy::Decision {
    policy::Decision::Deny(policy::Deny {
        status,
        kind: "test".to_owned(),
        code: "test".to_owned(),
        message: "no".to_owned(),
        retry_after_ms: None,
        headers,
    })
}

impl tool::Guest for Guest {
    fn describe() -> Vec<tool::Declaration> {
        act_on_setting("describe-tools");
        let declaration = |name: &str| tool::Declaration {
            name: name.to_owned(),
            description: format!("{name} what it is told"),
            parameters: r#"{"type":"object","properties":{"text":{"type":"string"}},
                "required":["text"],"additionalProperties":false}"#
                .to_owned(),
        };
        match setting("tools").as_deref() {
            Some("none") => Vec::new(),
            Some("nameless") => vec![declaration("")],
            Some("twice") => vec![declaration("does"), declaration("does")],
            _ => ["does", "refuses", "fails", "tells", "asks"]
                .map(declaration)
                .into(),
        }
    }

    fn call(
        name: String,
        arguments: String,
        context: tool::Context,
    ) -> Result<String, tool::Failure> {
        act_on_setting("call");
        // The value of the only argument.
        let text = arguments.split('"').nth(3).unwrap_or_default().to_owned();
        match name.as_str() {
            "refuses" => Err(tool::Failure::Refused(text)),
            "fails" => Err(tool::Failure::Internal(text)),
            "tells" => Ok(format!("{context:?}")),
            "asks" => Ok(ask(&text)),
            _ => {
                act(&text);
                Ok(text)
            }
        }
    }
}

/// The answer of another server, or why there is none. `METHOD URL`.
fn ask(text: &str) -> String {
    let (method, url) = text.split_once(' ').unwrap_or(("GET", text));
    let request = outbound_http::Request {
        method: method.to_owned(),
        url: url.to_owned(),
        headers: vec![("x-guest".to_owned(), "yes".to_owned())],
        body: Vec::new(),
        timeout_ms: None,
    };
    match outbound_http::send(&request) {
        Ok(answer) => format!(
            "{} {}",
            answer.status,
            String::from_utf8_lossy(&answer.body)
        ),
        Err(error) => format!("{error:?}"),
    }
}

export!(Guest);
