//! Parsing answers through a plugin.

use std::sync::Arc;

use wasmtime::component::ResourceAny;

use crate::limits::MAX_TOOL_CALLS;
use crate::pool::{Lease, Pool, Running};
use crate::v0_1::bindings::output_parser::Exported;
use crate::v0_1::convert;
use crate::{
    Binding, CallContext, Component, Finish, GrammarSource, LoadError, ParserEvent, ParserSetup,
    ParserTraits, PluginError, PluginHost,
};

/// An output parser, bound to a model.
#[derive(Clone)]
pub struct OutputParser {
    pool: Arc<Pool<Exported>>,
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
        let pool = Pool::bind(host, component, binding).await?;
        let traits = describe(&pool).await;
        let traits = traits.map_err(|source| LoadError::Prepare {
            origin: component.label(),
            source,
        })?;
        Ok(Self { pool, traits })
    }

    /// The component behind this handle.
    pub fn component(&self) -> &Arc<Component> {
        self.pool.component()
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
        const FUNCTION: &str = "output-parser.constraint";
        let setup = convert::parser_setup(setup);
        let wanted = wanted.map(convert::grammar_to_guest);
        let deadline_ms = self.pool.grants().limits.deadlines.constraint_ms;
        let mut lease = self.pool.checkout(context, FUNCTION).await?;
        let running = lease.begin(FUNCTION, context, deadline_ms)?;
        let Running {
            call,
            exports,
            store,
        } = running;
        let parser = exports.mortise_plugin_output_parser();
        let outcome = parser.call_constraint(store, &setup, wanted.as_ref()).await;
        let outcome = outcome.map(|grammar| grammar.map_err(convert::fault));
        lease.finish(call, outcome, |grammar, _| {
            Ok(grammar.map(convert::grammar_from_guest))
        })
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
        const FUNCTION: &str = "output-parser.open";
        let setup = convert::parser_setup(setup);
        let deadline_ms = self.pool.grants().limits.deadlines.constraint_ms;
        let mut lease = self.pool.checkout(context, FUNCTION).await?;
        let running = lease.begin(FUNCTION, context, deadline_ms)?;
        let Running {
            call,
            exports,
            store,
        } = running;
        let parser = exports.mortise_plugin_output_parser();
        let outcome = parser.call_open(store, &setup).await;
        let outcome = outcome.map(|opened| opened.map_err(convert::fault));
        let session = lease.finish(call, outcome, |session, _| Ok(session))?;
        Ok(session.map(|session| ParserSession {
            open: Some((lease, session)),
            context: context.clone(),
            calls: CallOrder::default(),
        }))
    }
}

async fn describe(pool: &Arc<Pool<Exported>>) -> Result<ParserTraits, PluginError> {
    const FUNCTION: &str = "output-parser.describe";
    let context = CallContext::new("-");
    let deadline_ms = pool.grants().limits.deadlines.constraint_ms;
    let mut lease = pool.checkout(&context, FUNCTION).await?;
    let running = lease.begin(FUNCTION, &context, deadline_ms)?;
    let Running {
        call,
        exports,
        store,
    } = running;
    let parser = exports.mortise_plugin_output_parser();
    let outcome = parser.call_describe(store).await.map(Ok);
    lease.finish(call, outcome, |traits, _| {
        Ok(convert::parser_traits(traits))
    })
}

/// One answer being parsed.
pub struct ParserSession {
    /// `None` once closed.
    open: Option<(Lease<Exported>, ResourceAny)>,
    context: CallContext,
    calls: CallOrder,
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
        const FUNCTION: &str = "output-parser.feed";
        let Some((lease, session)) = self.open.as_mut() else {
            return Ok(Vec::new());
        };
        let deadline_ms = lease.pool().grants().limits.deadlines.feed_ms;
        let running = lease.begin(FUNCTION, &self.context, deadline_ms)?;
        let Running {
            call,
            exports,
            store,
        } = running;
        let parser = exports.mortise_plugin_output_parser().session();
        let outcome = parser.call_feed(store, *session, text, tokens).await;
        let outcome = outcome.map(|events| events.map_err(convert::fault));
        let calls = &mut self.calls;
        lease.finish(call, outcome, |events, _| {
            calls.check(events.into_iter().map(convert::parser_event))
        })
    }

    /// End the answer; what was held back comes out.
    ///
    /// # Errors
    /// When the plugin fails.
    pub async fn close(mut self, reason: Finish) -> Result<Vec<ParserEvent>, PluginError> {
        const FUNCTION: &str = "output-parser.close";
        let Some((lease, session)) = self.open.as_mut() else {
            return Ok(Vec::new());
        };
        let deadline_ms = lease.pool().grants().limits.deadlines.close_ms;
        let running = lease.begin(FUNCTION, &self.context, deadline_ms)?;
        let Running {
            call,
            exports,
            store,
        } = running;
        let parser = exports.mortise_plugin_output_parser().session();
        let outcome = parser
            .call_close(store, *session, convert::finish(reason))
            .await;
        let outcome = outcome.map(|events| events.map_err(convert::fault));
        let calls = &mut self.calls;
        lease.finish(call, outcome, |events, _| {
            calls.check(events.into_iter().map(convert::parser_event))
        })
    }
}

impl Drop for ParserSession {
    fn drop(&mut self) {
        if let Some((mut lease, session)) = self.open.take() {
            lease.release(vec![session]);
        }
    }
}

/// Tool calls of the answer so far, to hold events to the contract.
#[derive(Default)]
struct CallOrder {
    /// For each call that has begun, whether it has ended.
    ended: Vec<bool>,
}

impl CallOrder {
    fn check(
        &mut self,
        events: impl Iterator<Item = ParserEvent>,
    ) -> Result<Vec<ParserEvent>, String> {
        let checked = events.map(|event| self.check_one(&event).map(|()| event));
        checked.collect()
    }

    fn check_one(&mut self, event: &ParserEvent) -> Result<(), String> {
        match event {
            ParserEvent::Content(_) | ParserEvent::Reasoning(_) => Ok(()),
            ParserEvent::CallBegin { index, name, .. } => self.begin(*index, name),
            ParserEvent::CallArguments { index, .. } => self.open_call(*index).map(drop),
            ParserEvent::CallEnd { index } => {
                *self.open_call(*index)? = true;
                Ok(())
            }
        }
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

#[cfg(test)]
mod tests {
    use super::*;

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
        CallOrder::default().check(events.iter().cloned()).map(drop)
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
}
