//! Guardrails: what is asked and answered, looked at by a plugin.

use std::sync::Arc;

use wasmtime::component::ResourceAny;

use crate::attribution::{self, Control, Load, attribute, attribute_drop, attribute_to_plugin};
use crate::handle::PluginHandle;
use crate::pool::Lease;
use crate::versions::{GuardrailExports, convert};
use crate::{
    AnswerPart, Binding, CallContext, Component, Fault, Finish, GuardContext, GuardTraits,
    GuardVerdict, LoadError, PluginError, PluginHost,
};

/// Messages of a control call, and the text of one.
const SMALLEST: &str = r#"[{"role":"user","content":"Hi"}]"#;
const SMALLEST_TEXT: &str = "Yes.";

/// Longest code of a refusal, which becomes a label of metrics.
const MAX_VERDICT_CODE_BYTES: usize = 64;

/// Longest text of a refusal that the caller is told.
const MAX_VERDICT_MESSAGE_BYTES: usize = 1024;

/// A guardrail with its settings.
#[derive(Clone)]
pub struct Guardrail {
    handle: PluginHandle<GuardrailExports>,
    traits: GuardTraits,
}

impl Guardrail {
    /// Bind a component, preparing a first instance and asking for its traits. Needs a tokio
    /// runtime with time.
    ///
    /// # Errors
    /// When the component is no guardrail, does not fit, refuses its settings, or looks at nothing.
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

    /// Parts that it looks at.
    pub fn traits(&self) -> GuardTraits {
        self.traits
    }

    /// Verdict on the messages of a request: a JSON array of messages, or a JSON string, the prompt.
    ///
    /// # Errors
    /// When the messages take more than the plugin may use, or it fails. The caller must not take that for consent.
    pub async fn check_input(
        &self,
        context: &CallContext,
        told: &GuardContext,
        messages: &str,
    ) -> Result<GuardVerdict, PluginError> {
        match self.check_input_once(context, told, messages).await {
            Err(error) => {
                let called = self.check_input_once(context, told, SMALLEST);
                let control = async { Control::of(&called.await) };
                Err(attribute(self.handle.pool(), error, to_caller, control).await)
            }
            verdict => verdict,
        }
    }

    async fn check_input_once(
        &self,
        context: &CallContext,
        told: &GuardContext,
        messages: &str,
    ) -> Result<GuardVerdict, PluginError> {
        self.handle
            .call(
                context,
                "guardrail.check-input",
                self.handle.deadlines().check_ms,
                async |exports, store| {
                    let told = convert::guard_context(&context.request_id, told);
                    let said = exports.check_input.call(store, (&told, messages)).await?;
                    Ok(said.map(convert::guard_verdict))
                },
                |verdict, _| match verdict {
                    GuardVerdict::Undecided | GuardVerdict::Replace(_) => {
                        Err(Fault::InvalidResult(
                            "said of an input that it neither passes nor is refused".to_owned(),
                        ))
                    }
                    verdict => check(verdict, false),
                },
            )
            .await
    }

    /// Open a session for one choice; `None` if nothing in it is to be looked at. The session keeps
    /// an instance to itself.
    ///
    /// # Errors
    /// When the plugin fails.
    pub async fn open(
        &self,
        context: &CallContext,
        told: &GuardContext,
    ) -> Result<Option<GuardSession>, PluginError> {
        // What it is told is short, and none of it is the caller's or the model's.
        let opened = self.handle.open(
            context,
            "guardrail.open",
            self.handle.deadlines().check_ms,
            async |exports, store| {
                let told = convert::guard_context(&context.request_id, told);
                exports.open.call(store, (&told,)).await
            },
            |session, _| Ok(session),
        );
        let (session, lease) = opened.await?;
        Ok(session.map(|session| GuardSession {
            open: Some((lease, session)),
            guardrail: self.clone(),
            context: context.clone(),
            told: told.clone(),
            text_bytes: 0,
            replaceable: false,
        }))
    }

    /// A short choice, looked at from its beginning to its end.
    async fn control(&self, context: &CallContext, told: &GuardContext) -> Control {
        let mut session = match self.open(context, told).await {
            Ok(Some(session)) => session,
            opened => return Control::of(&opened),
        };
        let fed = session.feed_once(&AnswerPart::Content, SMALLEST_TEXT, 0);
        match fed.await {
            Ok(_) => Control::of(&session.close_once(Finish::Stop, 0).await),
            fed => Control::of(&fed),
        }
    }
}

fn to_caller(fault: Fault) -> Fault {
    attribution::too_complex(fault, "send fewer or shorter messages")
}

fn to_model(fault: Fault) -> Fault {
    attribution::model_output(fault, "a guardrail")
}

async fn describe(handle: &PluginHandle<GuardrailExports>) -> Result<GuardTraits, PluginError> {
    handle
        .call(
            &CallContext::new("-"),
            "guardrail.describe",
            handle.deadlines().check_ms,
            async |exports, store| {
                let (traits,) = exports.describe.call_async(store, ()).await?;
                Ok(Ok(convert::guard_traits(traits)))
            },
            |traits, _| match traits == GuardTraits::default() {
                true => Err(Fault::InvalidResult("looks at nothing".to_owned())),
                false => Ok(traits),
            },
        )
        .await
}

/// One choice being looked at.
pub struct GuardSession {
    /// `None` once closed.
    open: Option<(Lease<GuardrailExports>, ResourceAny)>,
    /// For control calls.
    guardrail: Guardrail,
    context: CallContext,
    told: GuardContext,
    /// Bytes of text that were handed over.
    text_bytes: usize,
    /// The part that was handed over last is one whose text may be replaced.
    replaceable: bool,
}

impl GuardSession {
    /// Hand over the next text of a part, of which the last `held` bytes before it are held back. After an
    /// error the session is over.
    ///
    /// # Errors
    /// When the text takes more than the plugin may use, or it fails.
    pub async fn feed(
        &mut self,
        part: &AnswerPart,
        text: &str,
        held: u32,
    ) -> Result<GuardVerdict, PluginError> {
        match self.feed_once(part, text, held).await {
            Err(error) => Err(self.attribute(error).await),
            verdict => verdict,
        }
    }

    /// Attribute the excess of a call: to a long text, if the plugin does well with a short one, and
    /// else to the plugin.
    fn attribute(&self, error: PluginError) -> impl Future<Output = PluginError> + Send + use<> {
        let (guardrail, context) = (self.guardrail.clone(), self.context.clone());
        let (told, load) = (self.told.clone(), Load::of(0, self.text_bytes));
        async move {
            let pool = guardrail.handle.pool();
            if load == Load::Ordinary {
                return attribute_to_plugin(pool, error);
            }
            let control = guardrail.control(&context, &told);
            attribute(pool, error, to_model, control).await
        }
    }

    async fn feed_once(
        &mut self,
        part: &AnswerPart,
        text: &str,
        held: u32,
    ) -> Result<GuardVerdict, PluginError> {
        self.text_bytes = self.text_bytes.saturating_add(text.len());
        self.replaceable = self.told.holds && !matches!(part, AnswerPart::CallArguments { .. });
        let replaceable = self.replaceable;
        let Some((lease, session)) = self.open.as_mut() else {
            return Ok(GuardVerdict::Pass);
        };
        let session = *session;
        let deadline_ms = lease.pool().grants().limits.deadlines.feed_ms;
        lease
            .call(
                &self.context,
                "guardrail.feed",
                deadline_ms,
                async |exports, store| {
                    let part = convert::answer_part(part);
                    let fed = (session, &part, text, held);
                    let said = exports.feed.call(store, fed).await?;
                    Ok(said.map(convert::guard_verdict))
                },
                |verdict, _| check(verdict, replaceable),
            )
            .await
    }

    /// The choice has ended: the last verdict, for which `held` bytes of the last part are held back.
    ///
    /// # Errors
    /// As [`Self::feed`].
    pub async fn close(mut self, reason: Finish, held: u32) -> Result<GuardVerdict, PluginError> {
        match self.close_once(reason, held).await {
            Err(error) => Err(self.attribute(error).await),
            verdict => verdict,
        }
    }

    async fn close_once(&mut self, reason: Finish, held: u32) -> Result<GuardVerdict, PluginError> {
        let replaceable = self.replaceable;
        let Some((lease, session)) = self.open.as_mut() else {
            return Ok(GuardVerdict::Pass);
        };
        let session = *session;
        let deadline_ms = lease.pool().grants().limits.deadlines.close_ms;
        lease
            .call(
                &self.context,
                "guardrail.close",
                deadline_ms,
                async |exports, store| {
                    let reason = convert::finish(reason);
                    let said = exports.close.call(store, (session, reason, held)).await?;
                    Ok(said.map(convert::guard_verdict))
                },
                |verdict, _| check(verdict, replaceable),
            )
            .await
    }
}

impl Drop for GuardSession {
    fn drop(&mut self) {
        if let Some((mut lease, session)) = self.open.take() {
            let load = Load::of(0, self.text_bytes);
            lease.release(vec![session], attribute_drop(load));
        }
    }
}

/// Hold a verdict to the contract.
fn check(verdict: GuardVerdict, replaceable: bool) -> Result<GuardVerdict, Fault> {
    match verdict {
        GuardVerdict::Replace(_) if !replaceable => Err(Fault::InvalidResult(
            "replaced text that is not held back, or arguments of a call".to_owned(),
        )),
        GuardVerdict::Refuse(mut refusal) => {
            let plain =
                |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'_';
            let code = &refusal.code;
            if code.is_empty() || code.len() > MAX_VERDICT_CODE_BYTES || !code.bytes().all(plain) {
                return Err(Fault::InvalidResult(format!(
                    "refused with a code that is not 1 to {MAX_VERDICT_CODE_BYTES} small letters, digits or `_`"
                )));
            }
            let message = &mut refusal.message;
            message.truncate(message.floor_char_boundary(MAX_VERDICT_MESSAGE_BYTES));
            Ok(GuardVerdict::Refuse(refusal))
        }
        verdict => Ok(verdict),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Refusal;

    fn refuse(code: &str, message: &str) -> GuardVerdict {
        GuardVerdict::Refuse(Refusal {
            code: code.to_owned(),
            message: message.to_owned(),
        })
    }

    #[test]
    fn refusals_are_fit_for_labels_and_bounded() {
        let sound = refuse("no_swords_2", "no");
        assert_eq!(check(sound.clone(), false), Ok(sound));
        for code in ["", "No", "a b", "a\n", "é", &"a".repeat(65)] {
            assert!(check(refuse(code, ""), true).is_err(), "{code:?}");
        }
        let long = check(refuse("c", &"é".repeat(1000)), false);
        assert_eq!(long, Ok(refuse("c", &"é".repeat(512))));
    }

    #[test]
    fn only_text_that_is_held_is_replaced() {
        let replaced = GuardVerdict::Replace("x".to_owned());
        assert!(check(replaced.clone(), false).is_err());
        assert_eq!(check(replaced.clone(), true), Ok(replaced));
    }
}
