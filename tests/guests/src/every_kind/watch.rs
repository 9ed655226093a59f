//! The guest as a guardrail: texts say what it makes of them.

use super::exports::mortise::plugin::guardrail;
use super::mortise::plugin::types::{Fault, Finish};
use super::{Guest, act_on_setting, setting};
use crate::behaviour::act;

impl guardrail::Guest for Guest {
    type Session = Watch;

    fn describe() -> guardrail::Traits {
        act_on_setting("describe-traits");
        let blind = setting("traits").as_deref() == Some("none");
        guardrail::Traits {
            input: !blind,
            content: !blind,
            reasoning: !blind,
            call_arguments: !blind,
        }
    }

    fn check_input(
        context: guardrail::Context,
        messages: String,
    ) -> Result<guardrail::Verdict, Fault> {
        act_on_setting("check-input");
        judge(&messages, &context)
    }

    fn open(context: guardrail::Context) -> Result<Option<guardrail::Session>, Fault> {
        act_on_setting("open-watch");
        if context.model == "unwatched" {
            return Ok(None);
        }
        Ok(Some(guardrail::Session::new(Watch { context })))
    }
}

pub struct Watch {
    context: guardrail::Context,
}

impl Drop for Watch {
    fn drop(&mut self) {
        act_on_setting("drop");
    }
}

impl guardrail::GuestSession for Watch {
    fn feed(
        &self,
        part: guardrail::Part,
        text: String,
        held: u32,
    ) -> Result<guardrail::Verdict, Fault> {
        act_on_setting("watch");
        match text.as_str() {
            "part?" => Ok(refuse("told", &format!("{part:?}"))),
            "held?" => Ok(refuse("told", &held.to_string())),
            _ => judge(&text, &self.context),
        }
    }

    fn close(&self, reason: Finish, held: u32) -> Result<guardrail::Verdict, Fault> {
        act_on_setting("close-watch");
        Ok(match setting("last").as_deref() {
            Some("refuse") => refuse("last", &format!("{reason:?} {held}")),
            Some("replace") => guardrail::Verdict::Replace("mended".to_owned()),
            _ => guardrail::Verdict::Pass,
        })
    }
}

/// The verdict that a text asks for by the words in it.
fn judge(text: &str, context: &guardrail::Context) -> Result<guardrail::Verdict, Fault> {
    let asks = |word: &str| text.contains(word);
    Ok(match () {
        () if asks("undecided!") => guardrail::Verdict::Undecided,
        () if asks("replace!") => guardrail::Verdict::Replace(text.replace("replace!", "[-]")),
        () if asks("bloat!") => guardrail::Verdict::Replace("x".repeat(16 << 20)),
        () if asks("refuse!") => refuse("test", "no"),
        () if asks("essay!") => refuse("test", &"é".repeat(1 << 20)),
        () if asks("label!") => refuse("a b\n", "no"),
        () if asks("context?") => refuse("told", &format!("{context:?}")),
        () if asks("invalid!") => return Err(Fault::Invalid("no such text".to_owned())),
        () if asks("internal!") => return Err(Fault::Internal("out of order".to_owned())),
        () => {
            act(text);
            guardrail::Verdict::Pass
        }
    })
}

fn refuse(code: &str, message: &str) -> guardrail::Verdict {
    guardrail::Verdict::Refuse(guardrail::Refusal {
        code: code.to_owned(),
        message: message.to_owned(),
    })
}
