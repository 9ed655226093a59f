//! Calls that a reader passes on.

use super::Text;
use crate::output_parser::{CallArguments, CallBegin, Event};

impl Text {
    /// A whole call with its arguments, which must be a JSON object. `None`, and nothing is said, if the
    /// tool was not declared.
    pub fn call(&mut self, name: &str, id: Option<String>, arguments: &str) -> Option<()> {
        self.begin(name, id)?;
        self.push_arguments(arguments);
        self.finish();
        Some(())
    }

    pub(super) fn begin(&mut self, name: &str, id: Option<String>) -> Option<()> {
        self.tools().get(name)?;
        let index = self.calls.begun.get();
        let muted = index > 0 && !self.tools().parallel();
        self.calls.muted.set(muted);
        if !muted {
            self.calls.begun.set(index + 1);
            let name = name.to_owned();
            self.push(Event::CallBegin(CallBegin { index, id, name }));
        }
        self.drop_held();
        self.calls.just_ended.set(false);
        self.calls.thinking.set(false);
        Some(())
    }

    /// More arguments of the call that has begun. What was read is thereby passed on.
    pub(super) fn push_arguments(&mut self, text: &str) {
        self.drop_held();
        if self.calls.muted.get() {
            return;
        }
        let present = self.calls.begun.get().saturating_sub(1);
        let more = || {
            Event::CallArguments(CallArguments {
                index: present,
                delta: text.to_owned(),
            })
        };
        let joined = self.amend_last(|last| match last {
            Some(Event::CallArguments(last)) if last.index == present => {
                last.delta.push_str(text);
                true
            }
            _ => false,
        });
        if !joined {
            self.push(more());
        }
    }

    pub(super) fn finish(&mut self) {
        self.drop_held();
        self.calls.just_ended.set(true);
        if !self.calls.muted.get() {
            let present = self.calls.begun.get().saturating_sub(1);
            self.push(Event::CallEnd(present));
        }
    }
}
