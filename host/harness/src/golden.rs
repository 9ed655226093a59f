//! Golden cases: what goes into a plugin, and what must come out. Authors run them from files; a server
//! runs those that a plugin carries before it takes the plugin.

use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context as _, anyhow, bail, ensure};
use mortise_models::ModelFiles;
use mortise_plugin::{Component, Kind, PluginHost, Secret};
use mortise_plugin_manager::{AuthConfig, LoadedPlugins, PluginConfig, deserialize_kind};
use serde::{Deserialize, Deserializer};
use serde_json::{Map, Value, json};

use crate::demo::model_files;
use crate::grants::{Moment, TestGrants};
use crate::harness::Harness;

/// Sizes of the pieces in which a parser is fed; 0 is the model's tokens.
const PIECES: [usize; 6] = [0, 1, 2, 3, 5, 17];

/// Cases that a plugin may carry.
const MAX_CARRIED: usize = 64;

/// Time that all carried cases of a plugin may take together. Deadlines bound each call, and a case
/// of a parser makes many.
const MAX_CARRIED_TIME: Duration = Duration::from_secs(60);

/// Longest account of a failed case, in bytes: what it quotes comes from the plugin.
const MAX_TOLD: usize = 1000;

/// A loaded plugin, which is bound anew for every harness, with settings of the harness.
pub struct PluginUnderTest {
    /// Host that runs the plugin.
    pub host: PluginHost,
    /// The plugin.
    pub component: Arc<Component>,
    text: Arc<ModelFiles>,
    /// Limits of the plugin's calls.
    within: PluginConfig,
    /// Grants of the plugin.
    pub grants: TestGrants,
}

impl PluginUnderTest {
    /// A plugin on its host, with the text files of a model, within bounds.
    pub fn new(
        host: PluginHost,
        component: Arc<Component>,
        text: ModelFiles,
        within: PluginConfig,
    ) -> Self {
        Self {
            host,
            component,
            text: Arc::new(text),
            within,
            grants: TestGrants::default(),
        }
    }

    /// Bind the plugin with these settings as each of its kinds.
    pub fn harness(&self, settings: &Value) -> anyhow::Result<Harness> {
        self.harness_at(settings, self.grants.now)
    }

    /// Bind the plugin with these settings as each of its kinds. The clock stands still at `now`, if given; else it is
    /// the system's.
    fn harness_at(&self, settings: &Value, now: Option<Moment>) -> anyhow::Result<Harness> {
        let (host, component) = (&self.host, &self.component);
        let granted = TestGrants {
            now,
            ..self.grants.clone()
        };
        let (http, now_ms) = (granted.http(), now.map(Moment::unix_millis));
        let plugins =
            LoadedPlugins::single(host, component, settings, &self.within, &http, now_ms)?;
        let secrets = granted.secrets.iter();
        let auth = AuthConfig {
            secrets: secrets
                .map(|(name, value)| Secret::new(&**name, value))
                .collect(),
            ..AuthConfig::default()
        };
        Harness::open(plugins, &auth, Arc::clone(&self.text), now)
    }

    /// The kind that is asked: the one that is named, or the only one.
    pub fn kind(&self, named: Option<Kind>) -> anyhow::Result<Kind> {
        match (named, self.component.kinds()) {
            (Some(kind), kinds) if kinds.contains(&kind) => Ok(kind),
            (Some(kind), _) => bail!("the plugin is no {kind}; it is: {}", self.kinds_text()),
            (None, [kind]) => Ok(*kind),
            (None, _) => bail!("say which of its kinds is meant: {}", self.kinds_text()),
        }
    }

    fn kinds_text(&self) -> String {
        let kinds = self.component.kinds().iter();
        let names: Vec<&str> = kinds.map(|kind| kind.as_str()).collect();
        names.join(", ")
    }
}

/// Budget of a case.
#[derive(Clone, Copy)]
pub struct CaseBudget {
    /// Places at which a parser's text is cut in two; longer texts are cut at the first ones.
    cuts: usize,
    /// Deadline.
    until: Option<Instant>,
}

impl CaseBudget {
    /// Budget for `mortise plugin test`: many cuts, no deadline.
    pub const THOROUGH: Self = Self::cutting(2000);

    /// Budget of `cuts` cuts, without a deadline.
    pub const fn cutting(cuts: usize) -> Self {
        Self { cuts, until: None }
    }

    /// Budget for a server that loads the plugin: few cuts, and a deadline.
    pub fn at_load() -> Self {
        Self {
            cuts: 64,
            until: Some(Instant::now() + MAX_CARRIED_TIME),
        }
    }

    fn check(&self) -> anyhow::Result<()> {
        ensure!(
            self.until.is_none_or(|until| Instant::now() < until),
            "all cases that a plugin carries may take {} s together; carry fewer or quicker ones",
            MAX_CARRIED_TIME.as_secs()
        );
        Ok(())
    }
}

/// A golden case: input and expected output.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Case {
    #[serde(default, deserialize_with = "named_kind")]
    kind: Option<Kind>,
    #[serde(default)]
    settings: Map<String, Value>,
    /// Fixed time.
    #[serde(default)]
    now: Option<Moment>,
    /// Input of the call.
    pub input: Value,
    #[serde(default)]
    expect: Option<Value>,
    #[serde(default)]
    error: Option<String>,
}

/// A kind that a case names, or null.
fn named_kind<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<Kind>, D::Error> {
    #[derive(Deserialize)]
    #[serde(transparent)]
    struct Named(#[serde(deserialize_with = "deserialize_kind")] Kind);
    Ok(Option::<Named>::deserialize(deserializer)?.map(|named| named.0))
}

/// The cases that a plugin carries, as its author wrote them.
///
/// # Errors
/// When they are no JSON object, or too many.
pub fn carried(component: &Component) -> anyhow::Result<Option<Map<String, Value>>> {
    let Some(text) = component.cases() else {
        return Ok(None);
    };
    let wrong = || format!("the cases that `{}` carries", component.origin());
    let cases: Map<String, Value> = serde_json::from_str(text)
        .context("they are not a JSON object of cases")
        .with_context(wrong)?;
    check_number(&cases).with_context(wrong)?;
    Ok(Some(cases))
}

/// Check that the number of cases is within the bound on carried cases.
pub fn check_number(cases: &Map<String, Value>) -> anyhow::Result<()> {
    let count = cases.len();
    ensure!(
        count <= MAX_CARRIED,
        "they are {count}, and a plugin may carry {MAX_CARRIED}"
    );
    Ok(())
}

/// Cases by their names, of which each says what must come out.
pub fn checked(cases: Map<String, Value>) -> anyhow::Result<Vec<(String, Case)>> {
    let checked = cases.into_iter().map(|(name, case)| {
        let case: Case =
            serde_json::from_value(case).with_context(|| format!("the case `{name}`"))?;
        if case.expect.is_some() == case.error.is_some() {
            bail!("the case `{name}` needs one of `expect` and `error`");
        }
        Ok((name, case))
    });
    checked.collect()
}

/// Run the cases that a plugin carries; how many there are. They meet the settings and the time that they
/// state, the text of the demo model, no secrets and no network, so that they come out alike on every server;
/// `within` says what the calls may take. Blocks.
///
/// # Errors
/// When a case fails: its name, and what differed.
pub fn prove(
    host: &PluginHost,
    component: &Arc<Component>,
    within: &PluginConfig,
) -> anyhow::Result<usize> {
    let Some(cases) = carried(component)? else {
        return Ok(0);
    };
    let origin = component.origin();
    let cases = checked(cases).with_context(|| format!("the cases that `{origin}` carries"))?;
    let subject = PluginUnderTest::new(
        host.clone(),
        Arc::clone(component),
        model_files(None)?,
        within.clone(),
    );
    let budget = CaseBudget::at_load();
    for (name, case) in &cases {
        let outcome = case.run(&subject, &Value::Null, budget);
        outcome.and_then(|()| budget.check()).map_err(|error| {
            let told = shortened(format!("{error:#}"));
            anyhow!("`{origin}` fails the case `{name}`, which it carries: {told}")
        })?;
    }
    Ok(cases.len())
}

/// Text cut to a bounded length, with an ellipsis if it was longer.
pub fn shortened(mut text: String) -> String {
    if text.len() > MAX_TOLD {
        text.truncate(text.floor_char_boundary(MAX_TOLD));
        text.push('…');
    }
    text
}

impl Case {
    /// The kind that is asked: the one that the case names, or the plugin's only one.
    pub fn kind(&self, subject: &PluginUnderTest) -> anyhow::Result<Kind> {
        subject.kind(self.kind)
    }

    /// Bind the plugin for the case: with its settings, over those for all cases, and at its time.
    ///
    /// # Errors
    /// When the plugin does not take its settings, among others.
    pub fn harness(&self, subject: &PluginUnderTest, common: &Value) -> anyhow::Result<Harness> {
        let mut settings = common.as_object().cloned().unwrap_or_default();
        settings.extend(self.settings.clone());
        // A case comes out alike whenever it is asked.
        let now = self.now.or(subject.grants.now);
        let now = now.unwrap_or(Moment::GOLDEN);
        subject.harness_at(&Value::Object(settings), Some(now))
    }

    /// Ask what the case asks and compare.
    ///
    /// # Errors
    /// The first difference from the expected output.
    pub fn run(
        &self,
        subject: &PluginUnderTest,
        common: &Value,
        budget: CaseBudget,
    ) -> anyhow::Result<()> {
        let kind = self.kind(subject)?;
        // A plugin may refuse its settings, which is an outcome as well.
        let harness = match (self.harness(subject, common), &self.error) {
            (Err(error), Some(expected)) => return contains(&error, expected),
            (harness, _) => harness?.until(budget.until),
        };
        let said = harness.ask(kind, self.input.clone());
        match (said, &self.error, &self.expect) {
            (Err(error), Some(expected), _) => contains(&error, expected),
            (Ok(said), Some(expected), _) => {
                bail!("should fail with \"{expected}\"; it gave {said}")
            }
            (said, None, expected) => {
                let said = said?;
                if let Some(problem) = expected.as_ref().and_then(|e| difference("", e, &said)) {
                    bail!(problem);
                }
                match kind {
                    Kind::OutputParser => check_pieces(&harness, &self.input, &said, budget),
                    Kind::ChatTemplate
                    | Kind::Grammar
                    | Kind::Policy
                    | Kind::Tool
                    | Kind::Guardrail
                    | Kind::Retriever => Ok(()),
                }
            }
        }
    }
}

fn contains(error: &anyhow::Error, expected: &str) -> anyhow::Result<()> {
    let text = format!("{error:#}");
    match text.contains(expected) {
        true => Ok(()),
        false => bail!("should fail with \"{expected}\"; it failed with \"{text}\""),
    }
}

/// However the text is cut, the events add up to the same.
pub fn check_pieces(
    harness: &Harness,
    input: &Value,
    whole: &Value,
    budget: CaseBudget,
) -> anyhow::Result<()> {
    let Value::Object(input) = input else {
        bail!("`input` must be an object");
    };
    let text = input.get("text").and_then(Value::as_str);
    let length = text.map_or(0, |text| text.chars().count());
    let sizes = PIECES.iter().map(|size| ("chunk", *size));
    let cuts = (1..length.min(budget.cuts)).map(|at| ("split", at));
    for (key, value) in sizes.chain(cuts) {
        let mut input = input.clone();
        input.insert(key.to_owned(), json!(value));
        let said = harness.ask(Kind::OutputParser, Value::Object(input))?;
        if said["events"] != whole["events"] {
            let how = match (key, value) {
                ("chunk", 0) => "as tokens".to_owned(),
                ("chunk", size) => format!("in pieces of {size} characters"),
                (_, at) => format!("in two pieces, cut after {at} characters"),
            };
            bail!(
                "fed {how} it gives {}, and in one piece {}",
                said["events"],
                whole["events"]
            );
        }
    }
    Ok(())
}

/// First path at which `said` differs from `expected`; objects may hold more.
pub fn difference(place: &str, expected: &Value, said: &Value) -> Option<String> {
    match (expected, said) {
        (Value::Object(expected), Value::Object(said)) => {
            expected.iter().find_map(|(key, value)| {
                let place = format!("{place}.{key}");
                match said.get(key) {
                    Some(said) => difference(&place, value, said),
                    None => Some(format!("{place} is missing; it should be {value}")),
                }
            })
        }
        (Value::Array(expected), Value::Array(said)) if expected.len() == said.len() => {
            let pairs = expected.iter().zip(said).enumerate();
            pairs
                .filter_map(|(index, (expected, said))| {
                    difference(&format!("{place}[{index}]"), expected, said)
                })
                .next()
        }
        (expected, said) if expected == said => None,
        (expected, said) => Some(format!("{place} is {said}; it should be {expected}")),
    }
}

#[cfg(test)]
mod tests {
    use std::sync::LazyLock;

    use mortise_plugin::HostConfig;
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn what_is_late_or_long_is_cut_off() {
        let late = CaseBudget {
            cuts: 0,
            until: Some(Instant::now()),
        };
        let error = late.check().expect_err("the time is over");
        assert!(error.to_string().contains("60 s"), "{error}");
        CaseBudget::THOROUGH.check().expect("authors can wait");
        let told = shortened("ä".repeat(MAX_TOLD));
        assert!(told.len() <= MAX_TOLD + "…".len() && told.ends_with("ä…"));
        assert_eq!(shortened("short".to_owned()), "short");
    }

    #[test]
    fn b8_cases_fix_the_day_that_templates_know() {
        let mut subject = embedded(Kind::ChatTemplate);
        let dated = "{{ messages[0].content }} {{ strftime_now('%Y-%m-%d %H:%M:%S') }}";
        let run = |subject: &PluginUnderTest, now: Option<&str>, prompt: &str| {
            let mut case = json!({
                "kind": "chat-template", "settings": {"chat_template": dated},
                "input": {"messages": [{"role": "user", "content": "at"}]},
                "expect": {"prompt": prompt},
            });
            if let Some(now) = now {
                case["now"] = json!(now);
            }
            let case: Case = serde_json::from_value(case).expect("a case");
            case.run(subject, &Value::Null, CaseBudget::at_load())
        };
        run(&subject, None, "at 2024-01-01 00:00:00").expect("the day of golden cases");
        subject.grants.now = Some("2023-05-06T07:08:09Z".parse().expect("a time"));
        run(&subject, None, "at 2023-05-06 00:00:00").expect("that of the command line");
        let own = Some("2022-12-31T23:59:59Z");
        run(&subject, own, "at 2022-12-31 00:00:00").expect("its own");
        run(&subject, own, "at 2022-12-31 23:59:59").expect_err("no time of day");
    }

    /// The embedded plugin of a kind.
    fn embedded(kind: Kind) -> PluginUnderTest {
        let host = PluginHost::new(HostConfig::default()).expect("a host");
        let mut plugins = mortise_bundle::plugins()
            .into_iter()
            .map(|source| host.load(source).expect("it loads"));
        let component = plugins
            .find(|component| component.kinds().contains(&kind))
            .expect("every kind but tools has one");
        let text = model_files(None).expect("the demo model");
        PluginUnderTest::new(host.clone(), component, text, PluginConfig::default())
    }

    #[test]
    fn the_input_of_a_parser_is_an_object() {
        let subject = embedded(Kind::OutputParser);
        let run = |input: Value| {
            let case = json!({"kind": "output-parser", "input": input, "expect": {}});
            let case: Case = serde_json::from_value(case).expect("a case");
            case.run(&subject, &Value::Null, CaseBudget::at_load())
        };
        run(json!({"text": "Hello"})).expect("any output will do");
        // As an array of the same fields it is understood, and cannot be fed in pieces.
        let fields = json!(["Hello", null, null, null, "auto", true, false]);
        let error = run(fields).expect_err("no object");
        assert!(error.to_string().contains("must be an object"), "{error}");
    }

    #[test]
    fn all_that_is_expected_must_be_there_and_more_may_be() {
        let said = json!({"a": {"b": 1, "c": [1, {"d": 2, "e": 3}]}, "f": null});
        let differs = |expected| difference("", &expected, &said);
        assert_eq!(differs(json!({"a": {"c": [1, {"d": 2}]}})), None);
        assert_eq!(differs(json!({"f": null})), None);
        let found = |expected: Value, place: &str| {
            let text = differs(expected).expect("a difference");
            assert!(text.starts_with(place), "{text}");
        };
        found(json!({"a": {"b": 2}}), ".a.b is 1");
        found(json!({"a": {"x": 2}}), ".a.x is missing");
        found(json!({"a": {"c": [1]}}), ".a.c is [1");
        found(json!({"a": {"c": [1, {"e": 4}]}}), ".a.c[1].e is 3");
        found(json!({"a": []}), ".a is {");
    }

    /// Files of cases, without what should come out.
    const CASES: [(Kind, &str); 4] = [
        (
            Kind::ChatTemplate,
            r#"{"input": {"messages": [{"role": "user", "content": "Hi"}, {"role": "assistant",
            "content": null, "tool_calls": [{"type": "function", "function": {"name": "f",
            "arguments": "{}"}}]}], "arguments": {"enable_thinking": true}}, "settings": {}}"#,
        ),
        (
            Kind::OutputParser,
            r#"{"settings": {"format": "hermes", "reasoning": "think"}, "input": {"text":
            "<think>a</think><tool_call>{\"name\": \"f\", \"arguments\": {}}</tool_call>", "tools":
            [{"function": {"name": "f", "parameters": {}}}], "tool_choice": "auto", "split": 3}}"#,
        ),
        (
            Kind::Grammar,
            r#"{"input": {"json_schema": {"type": "object", "properties": {"a": {"enum": [1, "b"]}}},
            "texts": ["{\"a\": 1}", "{}", "x"]}, "settings": {}}"#,
        ),
        (
            Kind::Policy,
            r#"{"settings": {}, "input": {"route": "/v1/models", "method": "GET", "peer": "::1",
            "headers": {"authorization": "Bearer x"}}}"#,
        ),
    ];

    /// Changes of a file: text at a place gives way to other text.
    fn changes() -> impl Strategy<Value = Vec<(prop::sample::Index, usize, String)>> {
        let pieces = prop::sample::select(vec![
            "{",
            "}",
            "[",
            "]",
            ",",
            ":",
            "\"",
            "null",
            "true",
            "-1",
            "1e400",
            "{}",
            "[]",
            "\\u0000",
            "\\ud800",
            "\"input\": {}",
            "\"kind\": \"grammar\",",
            "18446744073709551616",
        ]);
        let piece = prop_oneof![pieces.prop_map(str::to_owned), any::<String>()];
        prop::collection::vec((any::<prop::sample::Index>(), 0usize..12, piece), 0..3)
    }

    proptest! {
        // Each binds a plugin three times.
        #![proptest_config(ProptestConfig::with_cases(64))]

        /// Case files of any content are refused, or the plugin answers or fails; a case that names the actual output
        /// passes, and one that names the contrary does not.
        #[test]
        fn cases_hold_exactly_what_comes_out(which in 0..CASES.len(), changes in changes()) {
            static SUBJECTS: LazyLock<Vec<PluginUnderTest>> =
                LazyLock::new(|| CASES.iter().map(|(kind, _)| embedded(*kind)).collect());
            let (kind, text) = CASES[which];
            let mut text = text.to_owned();
            for (place, length, piece) in changes {
                let start = text.floor_char_boundary(place.index(text.len() + 1));
                let end = text.ceil_char_boundary((start + length).min(text.len()));
                text.replace_range(start..end, &piece);
            }
            let Ok(Value::Object(mut case)) = serde_json::from_str(&text) else {
                return Ok(());
            };
            case.remove("expect");
            case.remove("error");
            let expecting = |key: &str, value: Value| {
                let mut case = case.clone();
                case.insert(key.to_owned(), value);
                checked(Map::from_iter([("a case".to_owned(), Value::Object(case))]))
            };
            prop_assert!(checked(Map::from_iter([("a case".to_owned(), Value::Object(case.clone()))])).is_err());
            let Ok(any) = expecting("expect", json!({})) else {
                return Ok(());
            };
            let subject = &SUBJECTS[which];
            let case = &any[0].1;
            let common = Value::Null;
            let outcome = case
                .harness(subject, &common)
                .and_then(|harness| harness.ask(kind, case.input.clone()));
            let passes = |cases: anyhow::Result<Vec<(String, Case)>>| {
                let cases = cases.expect("a case that says what must come out");
                cases[0].1.run(subject, &common, CaseBudget { cuts: 3, until: None })
            };
            let right_kind = case.kind.is_none_or(|named| named == kind);
            match outcome {
                Ok(said) if right_kind && case.input.is_object() => {
                    passes(expecting("expect", said)).map_err(|error| TestCaseError::fail(format!("{error:#}")))?;
                    prop_assert!(passes(expecting("error", json!(""))).is_err());
                }
                Err(error) if right_kind => {
                    let told = format!("{error:#}");
                    prop_assert!(!told.is_empty());
                    prop_assert!(passes(expecting("error", json!(told))).is_ok());
                    let nothing = expecting("expect", json!({}));
                    prop_assert!(passes(nothing).is_err());
                }
                _ => {
                    let nothing = expecting("expect", json!({}));
                    prop_assert!(passes(nothing).is_err());
                }
            }
        }
    }
}
