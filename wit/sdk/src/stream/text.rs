//! The text of an answer, as far as it has come.

use std::cell::{Cell, RefCell};
use std::future::poll_fn;
use std::rc::Rc;
use std::task::Poll;

use super::MAX_NAME_BYTES;
use crate::output_parser::{CallArguments, CallBegin, Event};
use crate::tools::{Tool, Tools};

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
}

/// The calls of the answer so far.
#[derive(Debug, Default)]
struct Calls {
    begun: Cell<u32>,
    /// The present call is one too many, and dropped.
    muted: Cell<bool>,
    /// Nothing but blanks has come since the last call.
    just_ended: Cell<bool>,
}

/// The text of an answer, read from beginning to end by the function that knows its format. See the
/// [module](super).
#[derive(Debug)]
pub struct Text {
    shared: Rc<RefCell<Shared>>,
    calls: Rc<Calls>,
    tools: Rc<Tools>,
    opens_reasoning: bool,
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

    /// The other end of the same text.
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

    /// The same with several marks: which one it was. Give longer marks before those that they begin
    /// with.
    pub async fn content_until_any(&mut self, marks: &[&str]) -> Option<usize> {
        if !(self.calls.just_ended.get() && self.held_is_blank()) {
            self.pass_on(Event::Content);
        }
        let found = self.pass_until(marks, Event::Content).await;
        if found.is_none() && self.calls.just_ended.get() {
            self.drop_held();
        } else if found.is_none() {
            self.pass_on(Event::Content);
        }
        found
    }

    /// Pass on a block of reasoning, if the answer begins with one or the prompt opened one. Blanks
    /// around it and its marks are dropped.
    pub async fn reasoning(&mut self, opening: &str, closing: &str) {
        let here = self.position();
        self.space().await;
        let opened = self.mark(opening).await.is_some();
        if !opened && !self.opens_reasoning {
            self.back_to(here);
            return;
        }
        self.space().await;
        self.drop_held();
        if self
            .pass_until(&[closing], Event::Reasoning)
            .await
            .is_some()
        {
            self.space().await;
        }
        self.drop_held();
    }

    /// Pass on what is read until a mark or the end; blanks only when something follows them, where a mark
    /// may come behind them or a call has just ended.
    async fn pass_until(&mut self, marks: &[&str], event: fn(String) -> Event) -> Option<usize> {
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
    fn skip_plain(&mut self, marks: &[&str], blanks_wait: bool) -> bool {
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

    fn held_is_blank(&self) -> bool {
        let shared = self.shared.borrow();
        shared.text[shared.held..shared.at].trim().is_empty()
    }

    fn pass_on(&mut self, event: fn(String) -> Event) {
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

    // Calls.

    /// A whole call with its arguments, which must be a JSON object. `None`, and nothing is said, if the
    /// tool was not declared.
    pub fn call(&mut self, name: &str, id: Option<String>, arguments: &str) -> Option<()> {
        self.begin(name, id)?;
        self.push_arguments(arguments);
        self.finish();
        Some(())
    }

    pub(super) fn begin(&mut self, name: &str, id: Option<String>) -> Option<()> {
        self.tools.get(name)?;
        let index = self.calls.begun.get();
        let muted = index > 0 && !self.tools.parallel();
        self.calls.muted.set(muted);
        if !muted {
            self.calls.begun.set(index + 1);
            let name = name.to_owned();
            let begin = CallBegin { index, id, name };
            self.shared
                .borrow_mut()
                .events
                .push(Event::CallBegin(begin));
        }
        self.drop_held();
        self.calls.just_ended.set(false);
        Some(())
    }

    /// More arguments of the call that has begun. What was read is thereby passed on.
    pub(super) fn push_arguments(&mut self, text: &str) {
        self.drop_held();
        if self.calls.muted.get() {
            return;
        }
        let present = self.calls.begun.get().saturating_sub(1);
        let events = &mut self.shared.borrow_mut().events;
        match events.last_mut() {
            Some(Event::CallArguments(last)) if last.index == present => last.delta.push_str(text),
            _ => events.push(Event::CallArguments(CallArguments {
                index: present,
                delta: text.to_owned(),
            })),
        }
    }

    pub(super) fn finish(&mut self) {
        self.drop_held();
        self.calls.just_ended.set(true);
        if !self.calls.muted.get() {
            let present = self.calls.begun.get().saturating_sub(1);
            self.shared
                .borrow_mut()
                .events
                .push(Event::CallEnd(present));
        }
    }
}
