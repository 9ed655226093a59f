//! Output parsers: parsing of answers by a plugin.

use std::sync::Arc;

use wasmtime::component::ResourceAny;

use crate::answer_rules::AnswerRules;
use crate::attribution::{self, Control, Load, attribute, attribute_drop, attribute_to_plugin};
use crate::handle::PluginHandle;
use crate::pool::Lease;
use crate::versions::{OutputParserExports, convert};
use crate::{
    Binding, CallContext, Component, Fault, Finish, GrammarSource, LoadError, ParserEvent,
    ParserSetup, ParserTraits, PluginError, PluginHost,
};

/// The text of a control call.
const SMALLEST: &str = "Yes.";

/// Longest text around reasoning, in bytes.
const MAX_MARK_BYTES: usize = 256;

/// An output parser, bound to a model.
#[derive(Clone)]
pub struct OutputParser {
    handle: PluginHandle<OutputParserExports>,
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
        let handle = PluginHandle::bind(host, component, binding).await?;
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

    /// Needs of the parser.
    pub fn traits(&self) -> ParserTraits {
        self.traits.clone()
    }

    /// The grammar that the raw answer must follow, if any.
    ///
    /// # Errors
    /// When the setup is refused or takes more than the plugin may use, or the plugin fails.
    pub async fn constraint(
        &self,
        context: &CallContext,
        setup: &ParserSetup,
        wanted: Option<&GrammarSource>,
    ) -> Result<Option<GrammarSource>, PluginError> {
        match self.constraint_once(context, setup, wanted).await {
            Err(error) => {
                let smallest = ParserSetup::default();
                let called = self.constraint_once(context, &smallest, None);
                let control = async { Control::of(&called.await) };
                Err(attribute(self.handle.pool(), error, to_caller, control).await)
            }
            constraint => constraint,
        }
    }

    async fn constraint_once(
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
                    let setup = convert::parser_setup(setup);
                    let wanted = wanted.map(convert::grammar_to_guest);
                    let asked = (&setup, wanted.as_ref());
                    let said = exports.constraint.call(store, asked).await?;
                    Ok(said.map(|source| source.map(convert::grammar_from_guest)))
                },
                |grammar, _| Ok(grammar),
            )
            .await
    }

    /// Open a session for one answer; `None` if nothing in it needs parsing. The session keeps
    /// an instance to itself.
    ///
    /// # Errors
    /// When the setup is refused or takes more than the plugin may use, or the plugin fails.
    pub async fn open(
        &self,
        context: &CallContext,
        setup: &ParserSetup,
    ) -> Result<Option<ParserSession>, PluginError> {
        match self.open_once(context, setup).await {
            Err(error) => {
                let smallest = ParserSetup::default();
                let control = async { Control::of(&self.open_once(context, &smallest).await) };
                Err(attribute(self.handle.pool(), error, to_caller, control).await)
            }
            opened => opened,
        }
    }

    async fn open_once(
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
                let setup = convert::parser_setup(setup);
                exports.open.call(store, (&setup,)).await
            },
            |session, _| Ok(session),
        );
        let (session, lease) = opened.await?;
        Ok(session.map(|session| ParserSession {
            open: Some((lease, session)),
            parser: self.clone(),
            context: context.clone(),
            rules,
        }))
    }

    /// Control call: the smallest answer of a model, without tools.
    async fn control(&self, context: &CallContext) -> Control {
        let mut session = match self.open_once(context, &ParserSetup::default()).await {
            Ok(Some(session)) => session,
            opened => return Control::of(&opened),
        };
        match session.feed_once(SMALLEST, &[]).await {
            Ok(_) => Control::of(&session.close_once(Finish::Stop).await),
            fed => Control::of(&fed),
        }
    }
}

fn to_caller(fault: Fault) -> Fault {
    attribution::too_complex(fault, "send fewer tools, or tools with smaller schemas")
}

fn to_model(fault: Fault) -> Fault {
    attribution::model_output(fault, "its parser")
}

async fn describe(handle: &PluginHandle<OutputParserExports>) -> Result<ParserTraits, PluginError> {
    handle
        .call(
            &CallContext::new("-"),
            "output-parser.describe",
            handle.deadlines().constraint_ms,
            async |exports, store| {
                let (traits,) = exports.describe.call_async(&mut *store, ()).await?;
                let marks = match &exports.reasoning {
                    Some(marks) => marks.call_async(store, ()).await?.0,
                    None => None,
                };
                Ok(Ok(convert::parser_traits(traits, marks)))
            },
            |traits, _| check_marks(traits),
        )
        .await
}

/// Check that marks of reasoning tell how it ends, and are short.
fn check_marks(traits: ParserTraits) -> Result<ParserTraits, Fault> {
    let Some(marks) = &traits.reasoning else {
        return Ok(traits);
    };
    let longest = marks.open.len().max(marks.close.len());
    if marks.close.is_empty() || longest > MAX_MARK_BYTES {
        return Err(Fault::Internal(format!(
            "`reasoning.describe` gives a text of {longest} bytes; 1 to {MAX_MARK_BYTES} are allowed, and only `open` may \
             be empty"
        )));
    }
    Ok(traits)
}

/// Session of one answer that is parsed.
pub struct ParserSession {
    /// Session with its instance; `None` once closed.
    open: Option<(Lease<OutputParserExports>, ResourceAny)>,
    /// Parser of the session, for control calls.
    parser: OutputParser,
    context: CallContext,
    rules: AnswerRules,
}

impl ParserSession {
    /// Hand over the next text and the tokens it came from. After an error the session is over.
    ///
    /// # Errors
    /// When the plugin fails, or the text takes more than the plugin may use.
    pub async fn feed(
        &mut self,
        text: &str,
        tokens: &[u32],
    ) -> Result<Vec<ParserEvent>, PluginError> {
        match self.feed_once(text, tokens).await {
            Err(error) => Err(self.attribute(error).await),
            fed => fed,
        }
    }

    /// Attribute a fault by which a call took more than it may: to the caller or the model if the setup or the text is
    /// large and the plugin handles the smallest ones, and else to the plugin.
    fn attribute(&self, error: PluginError) -> impl Future<Output = PluginError> + Send + use<> {
        let (parser, context) = (self.parser.clone(), self.context.clone());
        let load = self.rules.load();
        async move {
            let pool = parser.handle.pool();
            let to_cause = match load {
                Load::Ordinary => return attribute_to_plugin(pool, error),
                Load::Caller => to_caller,
                Load::Text => to_model,
            };
            attribute(pool, error, to_cause, parser.control(&context)).await
        }
    }

    async fn feed_once(
        &mut self,
        text: &str,
        tokens: &[u32],
    ) -> Result<Vec<ParserEvent>, PluginError> {
        let Some((lease, session)) = self.open.as_mut() else {
            return Ok(Vec::new());
        };
        let (session, rules) = (*session, &mut self.rules);
        rules.note_text(text.len());
        let deadline_ms = lease.pool().grants().limits.deadlines.feed_ms;
        lease
            .call(
                &self.context,
                "output-parser.feed",
                deadline_ms,
                async |exports, store| {
                    let said = exports.feed.call(store, (session, text, tokens)).await?;
                    Ok(said.map(convert::parser_events))
                },
                |events, _| rules.check(events),
            )
            .await
    }

    /// End the answer; what was held back comes out.
    ///
    /// # Errors
    /// As [`Self::feed`].
    pub async fn close(mut self, reason: Finish) -> Result<Vec<ParserEvent>, PluginError> {
        match self.close_once(reason).await {
            Err(error) => Err(self.attribute(error).await),
            closed => closed,
        }
    }

    async fn close_once(&mut self, reason: Finish) -> Result<Vec<ParserEvent>, PluginError> {
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
                    let reason = convert::finish(reason);
                    let said = exports.close.call(store, (session, reason)).await?;
                    Ok(said.map(convert::parser_events))
                },
                |events, _| rules.check_last(events),
            )
            .await
    }
}

impl Drop for ParserSession {
    fn drop(&mut self) {
        if let Some((mut lease, session)) = self.open.take() {
            lease.release(vec![session], attribute_drop(self.rules.load()));
        }
    }
}
