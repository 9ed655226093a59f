//! Blocks of reasoning.

use super::Text;
use crate::output_parser::Event;

impl Text {
    /// Pass on a block of reasoning, if the answer begins with one or the prompt opened one. Blanks
    /// around it and its marks are dropped.
    pub async fn reasoning(&mut self, opening: &str, closing: &str) {
        self.reasoning_before(opening, closing, &[]).await;
    }

    /// Pass on a block of reasoning as [`Self::reasoning`] does, of a model that may call before it closes the block:
    /// `calls` are the marks of its calls. Calls in a block that nothing closes are calls, and the first of them ends
    /// the block. Text that looks like a call and stands before the closing mark is reasoning.
    pub async fn reasoning_before(&mut self, opening: &str, closing: &str, calls: &[&str]) {
        let here = self.position();
        self.space().await;
        let opened = self.mark(opening).await.is_some();
        if !opened && !self.opens_reasoning {
            // A closing mark that begins an answer says that there was nothing to think about.
            if self.mark(closing).await.is_some() {
                self.space().await;
                self.drop_held();
            } else {
                self.back_to(here);
            }
            return;
        }
        self.space().await;
        self.drop_held();
        let marks: Vec<&str> = [closing].into_iter().chain(calls.iter().copied()).collect();
        match self.pass_until(&marks, Event::Reasoning).await {
            None => self.drop_held(),
            Some(0) => {
                self.space().await;
                self.drop_held();
            }
            Some(mark) => {
                let call = self.position() - marks[mark].len();
                if self.skip_to(closing).await {
                    self.pass_on_words(Event::Reasoning);
                    self.mark(closing).await;
                    self.space().await;
                    self.drop_held();
                } else {
                    self.back_to(call);
                    self.calls.thinking.set(true);
                }
            }
        }
    }

    /// Read up to `mark`, which stays. `false` if the answer ends first.
    async fn skip_to(&mut self, mark: &str) -> bool {
        while !self.is_at(mark).await {
            if !self.skip_plain(&[mark], false) && self.next().await.is_none() {
                return false;
            }
        }
        true
    }
}
