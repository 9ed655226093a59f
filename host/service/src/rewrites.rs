//! Rewrites of a request that its policies ask for, as far as their operator permits them.

use std::sync::Arc;

use mortise_models::conversation::{ContentPart, Conversation, Message, Role};
use mortise_plugin::{Allowance, Decision, Denial, Facts, Rewrite, SystemPlace};

use crate::check::Request;
use crate::error::ServiceError;
use crate::plugins::{DecidePolicy, RequestId};
use crate::refusal::invalid;
use crate::request::{Prompt, RequestFields};
use crate::routing_key::RoutingKey;

/// Name of the label by which the access log tells of changes.
const LABEL: &str = "rewrites";

/// Model that answers in place of the one that was asked for.
pub(crate) fn model(rewrites: &[Rewrite]) -> Option<&str> {
    rewrites.iter().find_map(|rewrite| match rewrite {
        Rewrite::Model(name) => Some(name.as_str()),
        _ => None,
    })
}

/// Add the rewrites of a later policy. Of two rewrites of one kind, the earlier policy's is made.
pub(crate) fn merge(own: &mut Vec<Rewrite>, later: Vec<Rewrite>) {
    for rewrite in later {
        if own.iter().all(|known| known.name() != rewrite.name()) {
            own.push(rewrite);
        }
    }
}

/// Change the model that facts and later policies are about, where a policy chose another one. Policies that were asked
/// `earlier` must not refuse the new model; nothing is taken for that.
///
/// # Errors
/// When one of them refuses it, cannot be asked again, or fails and is required.
pub(crate) async fn change_model(
    facts: &mut Facts,
    allowance: &Allowance,
    earlier: &[Arc<dyn DecidePolicy>],
) -> Result<(), ServiceError> {
    let model = model(&allowance.rewrites);
    let Some(model) = model.filter(|model| facts.model.as_deref() != Some(model)) else {
        return Ok(());
    };
    facts.model = Some(model.to_owned());
    let key = RoutingKey {
        tenant: allowance.principal.tenant.as_deref(),
        route: &facts.route,
        model: Some(model),
    };
    let request = RequestId::new(facts.request_id.as_str());
    for policy in earlier.iter().filter(|policy| policy.concerns(&key)) {
        match policy.identify(&request, facts.clone()).await {
            Ok(Some(Decision::Deny(denial))) => return Err(ServiceError::Denied(denial)),
            Ok(Some(Decision::Allow(_) | Decision::Abstain)) => {}
            Ok(None) => return Err(unchecked(model)),
            Err(error) if !policy.is_required() && !error.fault.is_callers() => {}
            Err(error) => return Err(error.into()),
        }
    }
    Ok(())
}

/// A model that a policy chose, and another one cannot be asked about again.
fn unchecked(model: &str) -> ServiceError {
    ServiceError::Denied(Denial {
        status: 403,
        kind: "permission_error".to_owned(),
        code: "model_not_checked".to_owned(),
        message: format!(
            "a policy of this server chose the model `{model}`, and another one cannot be asked about it again"
        ),
        retry_after_ms: None,
        headers: Vec::new(),
    })
}

/// Label the caller with the changes, for the access log.
pub(crate) fn label(allowance: &mut Allowance) {
    if allowance.rewrites.is_empty() {
        return;
    }
    let names: Vec<&str> = allowance.rewrites.iter().map(Rewrite::name).collect();
    let label = (LABEL.to_owned(), names.join(","));
    allowance.principal.labels.push(label);
}

/// The request with the changes, but for its model.
///
/// # Errors
/// When it breaks a bound with them.
pub(crate) fn rewritten(request: Request, rewrites: &[Rewrite]) -> Result<Request, ServiceError> {
    if rewrites.is_empty() {
        return Ok(request);
    }
    request.changed(|fields| {
        for rewrite in rewrites {
            rewrite_fields(fields, rewrite)?;
        }
        Ok(())
    })
}

fn rewrite_fields(fields: &mut RequestFields, rewrite: &Rewrite) -> Result<(), ServiceError> {
    match rewrite {
        Rewrite::Model(_) => {}
        Rewrite::MaxTokens(limit) => {
            if fields.max_tokens.is_none() {
                fields.max_tokens = Some(*limit);
                // It is not the caller who asked for more than there is room for.
                fields.max_tokens_fit = true;
            }
        }
        Rewrite::Temperature(value) => {
            fields.temperature.get_or_insert(f64::from(*value));
        }
        Rewrite::System { text, place } => {
            if let Prompt::Chat(chat) = &mut fields.prompt {
                let messages = chat.conversation.messages();
                if let Some(messages) = with_system(messages, text, *place) {
                    let conversation = Conversation::new(messages);
                    chat.conversation =
                        conversation.map_err(|error| invalid("messages", error.to_string()))?;
                }
            }
        }
    }
    Ok(())
}

/// The messages with a system prompt; `None` if they stay as they are.
fn with_system(messages: &[Message], text: &str, place: SystemPlace) -> Option<Vec<Message>> {
    let is_system = |message: &Message| matches!(message.role, Role::System | Role::Developer);
    let rest = match place {
        SystemPlace::IfAbsent if messages.iter().any(is_system) => return None,
        SystemPlace::IfAbsent | SystemPlace::Before => messages,
        SystemPlace::Instead => {
            let first = messages.iter().position(|message| !is_system(message));
            messages.get(first.unwrap_or(messages.len())..)?
        }
    };
    // Many chat templates take one system message only.
    if let (SystemPlace::Before, Some((first, more))) = (place, rest.split_first())
        && is_system(first)
    {
        let mut first = first.clone();
        let own = ContentPart::Text(format!("{text}\n\n"));
        first.content.insert(0, own);
        return Some(std::iter::once(first).chain(more.iter().cloned()).collect());
    }
    let own = std::iter::once(Message::text(Role::System, text));
    Some(own.chain(rest.iter().cloned()).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn said(messages: &[Message]) -> Vec<String> {
        let texts = messages.iter().map(|message| {
            let parts = message.content.iter().map(|part| match part {
                ContentPart::Text(text) => text.as_str(),
                _ => "?",
            });
            parts.collect::<String>()
        });
        texts.collect()
    }

    #[test]
    fn a_system_prompt_goes_where_its_policy_wants_it() {
        let bare = [Message::text(Role::User, "Hi")];
        let own = [
            Message::text(Role::System, "own"),
            Message::text(Role::User, "Hi"),
        ];
        for (messages, place, expected) in [
            (&bare[..], SystemPlace::IfAbsent, Some(vec!["S", "Hi"])),
            (&bare, SystemPlace::Before, Some(vec!["S", "Hi"])),
            (&bare, SystemPlace::Instead, Some(vec!["S", "Hi"])),
            (&own, SystemPlace::IfAbsent, None),
            (&own, SystemPlace::Before, Some(vec!["S\n\nown", "Hi"])),
            (&own, SystemPlace::Instead, Some(vec!["S", "Hi"])),
        ] {
            let made = with_system(messages, "S", place);
            let expected = expected.map(|texts| texts.iter().map(|t| (*t).to_owned()).collect());
            assert_eq!(made.map(|made| said(&made)), expected, "{place:?}");
        }
    }

    #[test]
    fn of_two_changes_of_one_kind_the_first_is_made() {
        let mut own = vec![Rewrite::MaxTokens(5)];
        merge(
            &mut own,
            vec![Rewrite::MaxTokens(9), Rewrite::Temperature(0.5)],
        );
        assert_eq!(own, [Rewrite::MaxTokens(5), Rewrite::Temperature(0.5)]);
        let mut allowance = Allowance {
            rewrites: own,
            ..Allowance::default()
        };
        label(&mut allowance);
        let expected = ("rewrites".to_owned(), "max_tokens,temperature".to_owned());
        assert_eq!(allowance.principal.labels, [expected]);
    }
}
