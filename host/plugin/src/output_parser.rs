//! Parsing answers through a plugin.

use std::sync::Arc;

use wasmtime::component::ResourceAny;

use crate::handle::Handle;
use crate::limits::MAX_TOOL_CALLS;
use crate::pool::Lease;
use crate::versions::{OutputParserExports, in_each_version};
use crate::{
    Binding, CallContext, Component, Finish, GrammarSource, LoadError, ParserEvent, ParserSetup,
    ParserTraits, PluginError, PluginHost, ToolChoice,
};

/// Bytes of a name that an error shows.
const MAX_SHOWN_BYTES: usize = 64;

/// An output parser, bound to a model.
#[derive(Clone)]
pub struct OutputParser {
    handle: Handle<OutputParserExports>,
    traits: ParserTraits,
}

impl OutputParser {
    /// Bind a component, preparing a first instance and asking for its traits. Needs a tokio
    /// runtime with time.
    ///
    /// # Errors
    /// When the component is no output parser, does not fit, or refuses its settings.
    pub async fn bind(
        host: &PluginHost,
        component: &Arc<Component>,
        binding: Binding,
    ) -> Result<Self, LoadError> {
        let handle = Handle::bind(host, component, binding).await?;
        let traits = describe(&handle).await;
        let traits = traits.map_err(|source| LoadError::Prepare {
            origin: component.label(),
            source: Box::new(source),
        })?;
        Ok(Self { handle, traits })
    }

    /// The component behind this handle.
    pub fn component(&self) -> &Arc<Component> {
        self.handle.component()
    }

    /// What the parser needs of the host.
    pub fn traits(&self) -> ParserTraits {
        self.traits
    }

    /// The grammar that the raw answer must follow, if any.
    ///
    /// # Errors
    /// When the setup is refused, or the plugin fails.
    pub async fn constraint(
        &self,
        context: &CallContext,
        setup: &ParserSetup,
        wanted: Option<&GrammarSource>,
    ) -> Result<Option<GrammarSource>, PluginError> {
        self.handle
            .call(
                context,
                "output-parser.constraint",
                self.handle.deadlines().constraint_ms,
                async |exports, store| {
                    in_each_version!(exports, |exports, convert| {
                        let setup = convert::parser_setup(setup);
                        let wanted = wanted.map(convert::grammar_to_guest);
                        let parser = exports.mortise_plugin_output_parser();
                        let said = parser
                            .call_constraint(store, &setup, wanted.as_ref())
                            .await?;
                        let source = said.map_err(convert::fault);
                        Ok(source.map(|source| source.map(convert::grammar_from_guest)))
                    })
                },
                |grammar, _| Ok(grammar),
            )
            .await
    }

    /// Open a session for one answer; `None` if nothing in it needs parsing. The session keeps
    /// an instance to itself.
    ///
    /// # Errors
    /// When the setup is refused, or the plugin fails.
    pub async fn open(
        &self,
        context: &CallContext,
        setup: &ParserSetup,
    ) -> Result<Option<ParserSession>, PluginError> {
        let rules = AnswerRules::new(setup, self.handle.limits().output_bytes);
        let opened = self.handle.open(
            context,
            "output-parser.open",
            self.handle.deadlines().constraint_ms,
            async |exports, store| {
                in_each_version!(exports, |exports, convert| {
                    let setup = convert::parser_setup(setup);
                    let parser = exports.mortise_plugin_output_parser();
                    let said = parser.call_open(store, &setup).await?;
                    Ok(said.map_err(convert::fault))
                })
            },
            |session, _| Ok(session),
        );
        let (session, lease) = opened.await?;
        Ok(session.map(|session| ParserSession {
            open: Some((lease, session)),
            context: context.clone(),
            rules,
        }))
    }
}

async fn describe(handle: &Handle<OutputParserExports>) -> Result<ParserTraits, PluginError> {
    handle
        .call(
            &CallContext::new("-"),
            "output-parser.describe",
            handle.deadlines().constraint_ms,
            async |exports, store| {
                in_each_version!(exports, |exports, convert| {
                    let parser = exports.mortise_plugin_output_parser();
                    let traits = parser.call_describe(store).await?;
                    Ok(Ok(convert::parser_traits(traits)))
                })
            },
            |traits, _| Ok(traits),
        )
        .await
}

/// One answer being parsed.
pub struct ParserSession {
    /// `None` once closed.
    open: Option<(Lease<OutputParserExports>, ResourceAny)>,
    context: CallContext,
    rules: AnswerRules,
}

impl ParserSession {
    /// Hand over the next text and the tokens it came from. After an error the session is over.
    ///
    /// # Errors
    /// When the plugin fails.
    pub async fn feed(
        &mut self,
        text: &str,
        tokens: &[u32],
    ) -> Result<Vec<ParserEvent>, PluginError> {
        let Some((lease, session)) = self.open.as_mut() else {
            return Ok(Vec::new());
        };
        let (session, rules) = (*session, &mut self.rules);
        let deadline_ms = lease.pool().grants().limits.deadlines.feed_ms;
        lease
            .call(
                &self.context,
                "output-parser.feed",
                deadline_ms,
                async |exports, store| {
                    in_each_version!(exports, |exports, convert| {
                        let parser = exports.mortise_plugin_output_parser().session();
                        let said = parser.call_feed(store, session, text, tokens).await?;
                        Ok(said.map(convert::parser_events).map_err(convert::fault))
                    })
                },
                |events, _| rules.check(events),
            )
            .await
    }

    /// End the answer; what was held back comes out.
    ///
    /// # Errors
    /// When the plugin fails.
    pub async fn close(mut self, reason: Finish) -> Result<Vec<ParserEvent>, PluginError> {
        let Some((lease, session)) = self.open.as_mut() else {
            return Ok(Vec::new());
        };
        let (session, rules) = (*session, &mut self.rules);
        let deadline_ms = lease.pool().grants().limits.deadlines.close_ms;
        lease
            .call(
                &self.context,
                "output-parser.close",
                deadline_ms,
                async |exports, store| {
                    in_each_version!(exports, |exports, convert| {
                        let reason = convert::finish(reason);
                        let parser = exports.mortise_plugin_output_parser().session();
                        let said = parser.call_close(store, session, reason).await?;
                        Ok(said.map(convert::parser_events).map_err(convert::fault))
                    })
                },
                |events, _| rules.check(events),
            )
            .await
    }
}

impl Drop for ParserSession {
    fn drop(&mut self) {
        if let Some((mut lease, session)) = self.open.take() {
            lease.release(vec![session]);
        }
    }
}

/// What the events of one answer are held to: the contract on tool calls, and a bound on text. Each
/// call of `feed` has its own bound, but an answer has as many calls as tokens.
struct AnswerRules {
    /// Tools that may be called.
    callable: Vec<String>,
    /// For each call that has begun, whether it has ended.
    ended: Vec<bool>,
    /// Bytes that further events may carry.
    bytes_left: usize,
    /// Bytes that all events of the answer may carry.
    bytes_max: usize,
}

impl AnswerRules {
    fn new(setup: &ParserSetup, bytes_max: usize) -> Self {
        Self {
            callable: callable(setup),
            ended: Vec::new(),
            bytes_left: bytes_max,
            bytes_max,
        }
    }

    fn check(&mut self, events: Vec<ParserEvent>) -> Result<Vec<ParserEvent>, String> {
        events.iter().try_for_each(|event| self.check_one(event))?;
        Ok(events)
    }

    fn check_one(&mut self, event: &ParserEvent) -> Result<(), String> {
        let text = match event {
            ParserEvent::Content(text) | ParserEvent::Reasoning(text) => text.len(),
            ParserEvent::CallBegin { index, id, name } => {
                self.begin(*index, name)?;
                name.len() + id.as_deref().map_or(0, str::len)
            }
            ParserEvent::CallArguments { index, delta } => {
                self.open_call(*index)?;
                delta.len()
            }
            ParserEvent::CallEnd { index } => {
                *self.open_call(*index)? = true;
                0
            }
        };
        let left = self.bytes_left.checked_sub(text);
        self.bytes_left =
            left.ok_or_else(|| format!("made more than {} bytes of one answer", self.bytes_max))?;
        Ok(())
    }

    fn begin(&mut self, index: u32, name: &str) -> Result<(), String> {
        let next = self.ended.len();
        if index as usize != next {
            return Err(format!("began tool call {index} where {next} comes next"));
        }
        if next >= MAX_TOOL_CALLS {
            return Err(format!("began more than {MAX_TOOL_CALLS} tool calls"));
        }
        if name.is_empty() {
            return Err(format!("began tool call {index} without a name"));
        }
        if !self.callable.iter().any(|callable| callable == name) {
            return Err(format!(
                "called `{}`, a tool that may not be called",
                excerpt(name).escape_debug()
            ));
        }
        self.ended.push(false);
        Ok(())
    }

    fn open_call(&mut self, index: u32) -> Result<&mut bool, String> {
        match self.ended.get_mut(index as usize) {
            Some(ended) if !*ended => Ok(ended),
            Some(_) => Err(format!("went on with tool call {index} after its end")),
            None => Err(format!("went on with tool call {index}, which never began")),
        }
    }
}

/// Names of the tools that an answer may call. What is declared in another shape cannot be called.
fn callable(setup: &ParserSetup) -> Vec<String> {
    let declared: serde_json::Value = serde_json::from_str(&setup.tools).unwrap_or_default();
    let names = declared.as_array().into_iter().flatten();
    let names = names.filter_map(|tool| tool.pointer("/function/name")?.as_str());
    let choice = |name: &&str| match &setup.tool_choice {
        ToolChoice::None => false,
        ToolChoice::Auto | ToolChoice::Required => true,
        ToolChoice::Named(wanted) => name == wanted,
    };
    names.filter(choice).map(str::to_owned).collect()
}

/// The first characters of a text that may be long.
fn excerpt(text: &str) -> &str {
    &text[..text.floor_char_boundary(MAX_SHOWN_BYTES)]
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rules() -> AnswerRules {
        let setup = ParserSetup {
            tools: r#"[{"type":"function","function":{"name":"f"}}]"#.to_owned(),
            ..ParserSetup::default()
        };
        AnswerRules::new(&setup, 100)
    }

    fn begin(index: u32) -> ParserEvent {
        ParserEvent::CallBegin {
            index,
            id: None,
            name: "f".to_owned(),
        }
    }

    fn arguments(index: u32) -> ParserEvent {
        ParserEvent::CallArguments {
            index,
            delta: "{".to_owned(),
        }
    }

    fn check(events: &[ParserEvent]) -> Result<(), String> {
        rules().check(events.to_vec()).map(drop)
    }

    #[test]
    fn calls_may_interleave_and_must_not_skip() {
        let end = |index| ParserEvent::CallEnd { index };
        assert_eq!(
            check(&[
                begin(0),
                begin(1),
                arguments(0),
                end(0),
                arguments(1),
                end(1)
            ]),
            Ok(())
        );
        assert!(
            check(&[begin(1)])
                .unwrap_err()
                .contains("where 0 comes next")
        );
        assert!(
            check(&[begin(0), begin(0)])
                .unwrap_err()
                .contains("where 1 comes next")
        );
        assert!(check(&[arguments(0)]).unwrap_err().contains("never began"));
        assert!(
            check(&[begin(0), end(0), arguments(0)])
                .unwrap_err()
                .contains("after its end")
        );
        let nameless = ParserEvent::CallBegin {
            index: 0,
            id: None,
            name: String::new(),
        };
        assert!(check(&[nameless]).unwrap_err().contains("without a name"));
    }

    #[test]
    fn only_tools_that_may_be_called_are() {
        let named = |tool_choice| ParserSetup {
            tools: r#"[{"type":"function","function":{"name":"f"}},
                       {"type":"function","function":{"name":"g"}}, 7]"#
                .to_owned(),
            tool_choice,
            ..ParserSetup::default()
        };
        assert_eq!(callable(&named(ToolChoice::Auto)), ["f", "g"]);
        assert_eq!(callable(&named(ToolChoice::Required)), ["f", "g"]);
        assert_eq!(callable(&named(ToolChoice::Named("g".to_owned()))), ["g"]);
        assert!(callable(&named(ToolChoice::None)).is_empty());
        let undeclared = ParserEvent::CallBegin {
            index: 0,
            id: None,
            name: "rm\n".to_owned(),
        };
        let message = check(&[undeclared]).unwrap_err();
        assert!(message.contains("`rm\\n`"), "{message}");
    }

    #[test]
    fn an_answer_is_bounded_over_all_its_events() {
        let mut rules = rules();
        let sixty = || vec![ParserEvent::Content("x".repeat(60))];
        assert!(rules.check(sixty()).is_ok());
        let message = rules.check(sixty()).unwrap_err();
        assert!(message.contains("more than 100 bytes"), "{message}");
    }
}
