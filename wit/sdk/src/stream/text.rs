//! The text of an answer, as far as it has come.

use std::cell::{Cell, RefCell};
use std::future::poll_fn;
use std::rc::Rc;
use std::task::Poll;

use super::MAX_NAME_BYTES;
use crate::output_parser::Event;
use crate::tools::{Tool, Tools};

/// Bytes that may be read again in any answer, where no call came of a mark.
const REREAD_FREELY: usize = 4096;

/// Bytes that may be read again for each byte of the answer, besides.
const REREAD_SHARE: usize = 3;

/// State that the reading function and the session that feeds it share.
#[derive(Debug, Default)]
struct Shared {
    /// Text that has come and is still needed.
    text: String,
    /// Bytes of the answer before `text`.
    before: usize,
    /// Offset in `text` of what was read and not passed on.
    held: usize,
    /// Offset in `text` at which reading goes on; never before `held`.
    at: usize,
    ended: bool,
    events: Vec<Event>,
    /// Look-ups of a character or a mark so far.
    reads: usize,
}

impl Shared {
    fn rest(&self) -> &str {
        &self.text[self.at..]
    }

    /// End of the held text without the blanks that it ends in.
    fn end_of_words(&self) -> usize {
        self.held + self.text[self.held..self.at].trim_end().len()
    }
}

/// The calls of the answer so far, and where the reader stands between them.
#[derive(Debug, Default)]
pub(super) struct Calls {
    pub(super) begun: Cell<u32>,
    /// Flag: the present call is one too many, and dropped.
    pub(super) muted: Cell<bool>,
    /// Flag: only blanks have come since the last call.
    pub(super) just_ended: Cell<bool>,
    /// Flag: text between calls is reasoning, until a call begins: the answer ends in a block that nothing closes.
    pub(super) thinking: Cell<bool>,
    /// Position behind the last mark that text was passed on up to.
    marked: Cell<usize>,
    /// Bytes that were read again because no call came of a mark.
    reread: Cell<usize>,
}

/// The text of an answer, read from beginning to end by the function that knows its format. See the
/// [module](super).
#[derive(Debug)]
pub struct Text {
    shared: Rc<RefCell<Shared>>,
    pub(super) calls: Rc<Calls>,
    tools: Rc<Tools>,
    pub(super) opens_reasoning: bool,
}

impl Text {
    pub(super) fn new(tools: Tools, opens_reasoning: bool) -> Self {
        Self {
            shared: Rc::default(),
            calls: Rc::default(),
            tools: Rc::new(tools),
            opens_reasoning,
        }
    }

    /// Reader of the same text, for the function that knows the format.
    pub(super) fn reader(&self) -> Self {
        Self {
            shared: Rc::clone(&self.shared),
            calls: Rc::clone(&self.calls),
            tools: Rc::clone(&self.tools),
            opens_reasoning: self.opens_reasoning,
        }
    }

    pub(super) fn append(&self, text: &str) {
        let shared = &mut *self.shared.borrow_mut();
        // What was passed on goes when it is the larger part, so that each byte is moved at most once
        // on average.
        if shared.held > shared.text.len() / 2 {
            shared.text.drain(..shared.held);
            shared.before += shared.held;
            shared.at -= shared.held;
            shared.held = 0;
        }
        shared.text.push_str(text);
    }

    pub(super) fn end(&self) {
        self.shared.borrow_mut().ended = true;
    }

    pub(super) fn reads(&self) -> usize {
        self.shared.borrow().reads
    }

    pub(super) fn take_events(&self) -> Vec<Event> {
        std::mem::take(&mut self.shared.borrow_mut().events)
    }

    /// The tools that may be called.
    pub fn tools(&self) -> &Tools {
        &self.tools
    }

    /// The tool of this name, if it may be called.
    pub fn tool(&self, name: &str) -> Option<Tool> {
        self.tools.get(name).cloned()
    }

    // Reading.

    /// The next character, which stays; `None` at the end of the answer.
    pub async fn peek(&mut self) -> Option<char> {
        poll_fn(|_| {
            let shared = &mut *self.shared.borrow_mut();
            shared.reads += 1;
            match shared.rest().chars().next() {
                None if !shared.ended => Poll::Pending,
                next => Poll::Ready(next),
            }
        })
        .await
    }

    /// Read one character; `None` at the end of the answer.
    pub async fn next(&mut self) -> Option<char> {
        let next = self.peek().await?;
        self.shared.borrow_mut().at += next.len_utf8();
        Some(next)
    }

    /// Whether the text goes on with `mark`. Nothing is read.
    pub async fn is_at(&mut self, mark: &str) -> bool {
        poll_fn(|_| {
            let shared = &mut *self.shared.borrow_mut();
            shared.reads += 1;
            let rest = shared.rest();
            if rest.len() < mark.len() && mark.starts_with(rest) && !shared.ended {
                return Poll::Pending;
            }
            Poll::Ready(rest.starts_with(mark))
        })
        .await
    }

    /// Read `mark`, which must come next.
    pub async fn mark(&mut self, mark: &str) -> Option<()> {
        let is_there = self.is_at(mark).await;
        is_there.then(|| self.shared.borrow_mut().at += mark.len())
    }

    /// Read blanks, if there are any.
    pub async fn space(&mut self) {
        while self.peek().await.is_some_and(char::is_whitespace) {
            self.next().await;
        }
    }

    /// Read blanks and then `mark`, if it is there; otherwise nothing.
    pub async fn follows(&mut self, mark: &str) -> bool {
        let here = self.position();
        self.space().await;
        let found = self.mark(mark).await.is_some();
        if !found {
            self.back_to(here);
        }
        found
    }

    /// Read up to and including `mark`; the text before it. `None` if the answer ends first.
    pub async fn text_until(&mut self, mark: &str) -> Option<String> {
        let mut text = String::new();
        while self.mark(mark).await.is_none() {
            text.push(self.next().await?);
        }
        Some(text)
    }

    /// Read a name, a key or an id up to and including the first of some marks; the text, and which
    /// mark it was. `None` for what is longer than [`MAX_NAME_BYTES`] or holds a control character.
    pub async fn name_until(&mut self, marks: &[&str]) -> Option<(String, usize)> {
        let mut text = String::new();
        loop {
            for (index, mark) in marks.iter().enumerate() {
                if self.mark(mark).await.is_some() {
                    return Some((text, index));
                }
            }
            let c = self.next().await.filter(|c| !c.is_control())?;
            text.push(c);
            if text.len() > MAX_NAME_BYTES {
                return None;
            }
        }
    }

    /// Position of the reader, in bytes from the beginning of the answer.
    pub fn position(&self) -> usize {
        let shared = self.shared.borrow();
        shared.before + shared.at
    }

    /// Read again from a former [`position`](Self::position), or from where held text begins if that
    /// is later: what was passed on is not taken back.
    pub fn back_to(&mut self, position: usize) {
        let shared = &mut *self.shared.borrow_mut();
        let at = position.saturating_sub(shared.before);
        shared.at = at.clamp(shared.held, shared.at);
    }

    // Passing on.

    /// Pass text on as content up to `mark`, and read the mark. `false` if the answer ended first.
    /// Blanks before the mark are held with it.
    pub async fn content_until(&mut self, mark: &str) -> bool {
        self.content_until_any(&[mark]).await.is_some()
    }

    /// Pass text on as content up to one of several marks, and read the mark; the index of that mark. `None` if the
    /// answer ended first. Give longer marks before marks that they begin with.
    ///
    /// If no call came of what was read since the last mark, the text behind that mark is looked through
    /// for marks as well: a false start does not swallow the call that follows.
    pub async fn content_until_any(&mut self, marks: &[&str]) -> Option<usize> {
        self.give_up();
        let thinking = self.calls.thinking.get();
        let kind = if thinking {
            Event::Reasoning
        } else {
            Event::Content
        };
        if !(self.calls.just_ended.get() && self.held_is_blank()) {
            self.pass_on(kind);
        }
        let found = self.pass_until(marks, kind).await;
        if found.is_some() {
            self.calls.marked.set(self.position());
        } else if thinking || self.calls.just_ended.get() {
            self.drop_held();
        } else {
            self.pass_on(kind);
        }
        found
    }

    /// Go back to the last mark, or to what was passed on since, if that is later.
    fn give_up(&mut self) {
        let passed_on = {
            let shared = self.shared.borrow();
            shared.before + shared.held
        };
        self.read_again_from(passed_on.max(self.calls.marked.get()));
    }

    /// [`back_to`](Self::back_to) where it does not matter how often: `false`, and nothing happens, in
    /// answers that are written to be read again and again.
    pub(crate) fn read_again_from(&mut self, position: usize) -> bool {
        let at = self.position();
        let again = self.calls.reread.get() + at.saturating_sub(position);
        let cheap = again <= REREAD_FREELY + REREAD_SHARE * at;
        if cheap && position < at {
            self.calls.reread.set(again);
            self.back_to(position);
        }
        cheap
    }

    /// Pass on what is read until a mark or the end; blanks only when something follows them, where a mark
    /// may come behind them or a call has just ended.
    pub(crate) async fn pass_until(
        &mut self,
        marks: &[&str],
        event: fn(String) -> Event,
    ) -> Option<usize> {
        loop {
            let blanks_wait = !marks.is_empty() || self.calls.just_ended.get();
            if self.skip_plain(marks, blanks_wait) {
                self.pass_on(event);
            }
            for (index, mark) in marks.iter().enumerate() {
                if self.mark(mark).await.is_some() {
                    return Some(index);
                }
            }
            let next = self.next().await?;
            if !(blanks_wait && next.is_whitespace()) {
                self.pass_on(event);
            }
        }
    }

    /// Read at once what has come and is neither a blank that waits nor the beginning of a mark. Whether
    /// there was any. Most text is such, and is not worth waiting for character by character.
    pub(super) fn skip_plain(&mut self, marks: &[&str], blanks_wait: bool) -> bool {
        let shared = &mut *self.shared.borrow_mut();
        shared.reads += 1;
        let stops = |c: char| {
            blanks_wait && c.is_whitespace() || marks.iter().any(|mark| mark.starts_with(c))
        };
        let rest = shared.rest();
        let plain = rest.find(stops).unwrap_or(rest.len());
        shared.at += plain;
        plain > 0
    }

    /// Read the blanks and the mark behind a call and drop them, if they are there; or the beginning of
    /// the mark, if the answer ends in it.
    pub async fn close(&mut self, mark: &str) -> bool {
        let here = self.position();
        self.space().await;
        let found = self.mark(mark).await.is_some();
        let cut_off = || {
            let shared = self.shared.borrow();
            shared.ended && mark.starts_with(shared.rest())
        };
        if !found && cut_off() {
            while self.next().await.is_some() {}
        } else if !found {
            self.back_to(here);
            return false;
        }
        self.drop_held();
        found
    }

    /// Drop what was read and not passed on: it belongs to the format and says nothing.
    pub fn drop_held(&mut self) {
        let shared = &mut *self.shared.borrow_mut();
        shared.held = shared.at;
    }

    /// Pass on what is held but the blanks at its end, which are dropped.
    pub(super) fn pass_on_words(&mut self, event: fn(String) -> Event) {
        let at = {
            let shared = &mut *self.shared.borrow_mut();
            let end = shared.end_of_words();
            std::mem::replace(&mut shared.at, end)
        };
        self.pass_on(event);
        self.shared.borrow_mut().at = at;
        self.drop_held();
    }

    pub(super) fn push(&self, event: Event) {
        self.shared.borrow_mut().events.push(event);
    }

    /// The event that was passed on last, if it has not been taken yet.
    pub(super) fn amend_last<R>(&self, amend: impl FnOnce(Option<&mut Event>) -> R) -> R {
        amend(self.shared.borrow_mut().events.last_mut())
    }

    pub(super) fn held_is_blank(&self) -> bool {
        let shared = self.shared.borrow();
        shared.text[shared.held..shared.at].trim().is_empty()
    }

    pub(super) fn pass_on(&mut self, event: fn(String) -> Event) {
        let shared = &mut *self.shared.borrow_mut();
        let held = &shared.text[shared.held..shared.at];
        shared.held = shared.at;
        if held.is_empty() {
            return;
        }
        self.calls.just_ended.set(false);
        match (event(String::new()), shared.events.last_mut()) {
            (Event::Content(_), Some(Event::Content(last)))
            | (Event::Reasoning(_), Some(Event::Reasoning(last))) => last.push_str(held),
            _ => shared.events.push(event(held.to_owned())),
        }
    }
}
