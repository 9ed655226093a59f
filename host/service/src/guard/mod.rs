//! Guardrails of a request: what is asked before the model sees it, and each choice while it is made.

mod held;
mod observed;
mod watcher;

use std::sync::Arc;

use futures::stream::{BoxStream, StreamExt, unfold};
use mortise_models::conversation::template_json;
use mortise_plugin::{Denial, GuardContext, GuardVerdict, PluginError, Principal, Refusal};

use self::held::HeldChoice;
use self::observed::ObservedChoice;
use self::watcher::{Watcher, passed_over};
use crate::error::ServiceError;
use crate::event::Event;
use crate::observer::{GuardedPart, ModelObserver};
use crate::plugins::{GuardAnswer, GuardMode, RequestId};
use crate::refusal::invalid;
use crate::request::{Prompt, RequestFields};

/// Guardrails that look at a request, in their order.
pub(crate) struct Guards {
    pub(crate) list: Vec<Arc<dyn GuardAnswer>>,
    pub(crate) request: RequestId,
    pub(crate) observer: Arc<dyn ModelObserver>,
    /// Public name of the model.
    pub(crate) model: Arc<str>,
    pub(crate) principal: Principal,
}

/// Watchers of one choice, the first of which looks first.
pub(crate) type Watchers = Vec<Watcher>;

impl Guards {
    /// Have the prompt looked at.
    ///
    /// # Errors
    /// When a guardrail refuses it, or fails and is required.
    pub(crate) async fn check_input(&self, fields: &RequestFields) -> Result<(), ServiceError> {
        let looking = self.list.iter().filter(|guard| guard.traits().input);
        let looking: Vec<&Arc<dyn GuardAnswer>> = looking.collect();
        if looking.is_empty() {
            return Ok(());
        }
        let messages = messages(&fields.prompt)?;
        for guard in looking {
            let told = self.context(&**guard);
            let said = guard.check_input(&self.request, &told, &messages).await;
            match said {
                Ok(GuardVerdict::Refuse(refusal)) => return Err(self.refused(&**guard, refusal)),
                Ok(_) => {}
                Err(error) => self.passed_over(&**guard, error)?,
            }
        }
        Ok(())
    }

    /// Open a session of each guardrail for each choice.
    ///
    /// # Errors
    /// When a guardrail fails and is required.
    pub(crate) async fn watchers(&self, choices: usize) -> Result<Vec<Watchers>, ServiceError> {
        let mut all = Vec::with_capacity(choices);
        for _ in 0..choices {
            let mut watchers = Vec::new();
            for guard in &self.list {
                let traits = guard.traits();
                if !(traits.content || traits.reasoning || traits.call_arguments) {
                    continue;
                }
                let told = self.context(&**guard);
                match guard.open(&self.request, &told).await {
                    Ok(None) => {}
                    Ok(Some(session)) => watchers.push(Watcher {
                        guard: Arc::clone(guard),
                        session: Some(session),
                        request: self.request.clone(),
                        observer: Arc::clone(&self.observer),
                    }),
                    Err(error) => self.passed_over(&**guard, error)?,
                }
            }
            all.push(watchers);
        }
        Ok(all)
    }

    fn context(&self, guard: &dyn GuardAnswer) -> GuardContext {
        GuardContext {
            model: self.model.to_string(),
            subject: self.principal.subject.clone(),
            tenant: self.principal.tenant.clone(),
            holds: matches!(guard.mode(), GuardMode::Hold { .. }),
        }
    }

    fn refused(&self, guard: &dyn GuardAnswer, refusal: Refusal) -> ServiceError {
        self.observer.refused_by(guard.name(), GuardedPart::Input);
        tracing::info!(request_id = %self.request, guardrail = guard.name(), code = refusal.code,
            "a guardrail refused what was asked");
        ServiceError::Denied(Denial {
            status: 400,
            kind: "invalid_request_error".to_owned(),
            code: "content_filter".to_owned(),
            message: refusal.message,
            retry_after_ms: None,
            headers: Vec::new(),
        })
    }

    fn passed_over(&self, guard: &dyn GuardAnswer, error: PluginError) -> Result<(), ServiceError> {
        passed_over(guard, &self.request, error)
    }
}

/// The prompt as guardrails are told it.
fn messages(prompt: &Prompt) -> Result<String, ServiceError> {
    match prompt {
        Prompt::Chat(chat) => template_json::messages(&chat.conversation)
            .map_err(|error| invalid("messages", error.to_string())),
        Prompt::Text(text) => Ok(serde_json::Value::from(text.as_str()).to_string()),
        Prompt::Tokens(_) => Err(invalid(
            "prompt",
            "a guardrail of this server looks at prompts, so they must be text, not tokens"
                .to_owned(),
        )),
    }
}

/// The events of a choice as its watchers let them out.
pub(crate) fn watched(
    events: BoxStream<'static, Event>,
    watchers: Watchers,
) -> BoxStream<'static, Event> {
    watchers.into_iter().fold(events, |events, watcher| {
        // The state lives in the stream, so a poll that is given up loses nothing.
        match watcher.guard.mode() {
            GuardMode::Hold { tokens } => unfold(
                HeldChoice::new(events, watcher, tokens),
                |mut choice| async move { Some((choice.next().await?, choice)) },
            )
            .boxed(),
            GuardMode::Observe => unfold(
                ObservedChoice::new(events, watcher),
                |mut choice| async move { Some((choice.next().await?, choice)) },
            )
            .boxed(),
        }
    })
}
