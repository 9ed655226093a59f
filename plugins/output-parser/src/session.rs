//! The state of one answer being parsed.
//!
//! Rules that the formats leave open:
//! * Reasoning counts only at the very start of an answer, or if the prompt opened it. Whitespace
//!   around it is dropped.
//! * Whitespace between content and a call, and after the last call, is dropped.
//! * A call that names an undeclared tool, or is not JSON before its arguments begin, is content,
//!   exactly as generated. If it stops being JSON later, the rest is content and the call does not
//!   end.
//! * Where one answer may hold one call only, further ones are dropped.

use std::mem;

use crate::call::{CallReader, Part, Progress, Rules};
use crate::style::{Format, Setup, Style};

const THINK: &str = "<think>";
const END_THINK: &str = "</think>";

/// What the model said.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Event {
    /// Text for the user.
    Content(String),
    /// Text of the reasoning block.
    Reasoning(String),
    /// A tool call begins.
    CallBegin {
        /// Which call, from 0.
        index: u32,
        /// The model's id for it.
        id: Option<String>,
        /// Name of the tool.
        name: String,
    },
    /// More arguments.
    CallArguments {
        /// Which call.
        index: u32,
        /// JSON text to append.
        delta: String,
    },
    /// The call is complete.
    CallEnd {
        /// Which call.
        index: u32,
    },
}

/// What to do with whitespace that has been held back.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Space {
    /// It is content.
    Keep,
    /// It is content if content follows.
    KeepBeforeContent,
    /// It separates parts of the format.
    Drop,
}

#[derive(Debug)]
enum State {
    /// Before content: at the start, after reasoning, or after a call.
    Start {
        /// Reasoning may begin here.
        think: bool,
        /// A call may begin without a mark.
        bare: bool,
        space: Space,
    },
    Reasoning {
        /// Something has been said, so whitespace counts.
        said: bool,
    },
    Content,
    Call(Box<CallReader>),
    /// A marked call has ended; its closing mark is due.
    Closing,
}

/// One answer.
#[derive(Debug)]
pub struct Session {
    format: Format,
    names: Vec<String>,
    parallel: bool,
    state: State,
    /// Whitespace whose meaning depends on what follows.
    space: String,
    /// What may become a mark.
    partial: String,
    /// A call so far, as generated, until it is known to be one.
    held: String,
    /// The call being read began without a mark.
    bare: bool,
    calls: u32,
    /// The call being read is one too many.
    muted: bool,
    events: Vec<Event>,
}

/// Open a session; none if nothing in the answer could need parsing.
pub fn open(style: &Style, setup: &Setup) -> Option<Session> {
    let reasons = style.reasons || setup.opens_reasoning;
    if setup.tools.is_empty() && !reasons {
        return None;
    }
    let state = if setup.opens_reasoning {
        State::Reasoning { said: false }
    } else {
        State::Start {
            think: reasons,
            bare: true,
            space: Space::Keep,
        }
    };
    Some(Session {
        format: style.format,
        names: setup.tools.iter().map(|tool| tool.name.clone()).collect(),
        parallel: setup.parallel,
        state,
        space: String::new(),
        partial: String::new(),
        held: String::new(),
        bare: false,
        calls: 0,
        muted: false,
        events: Vec::new(),
    })
}

impl Session {
    /// Take more text.
    pub fn feed(&mut self, text: &str) -> Vec<Event> {
        for c in text.chars() {
            self.take(c);
        }
        mem::take(&mut self.events)
    }

    /// The answer has ended: hand out what was held back.
    pub fn close(&mut self) -> Vec<Event> {
        let partial = mem::take(&mut self.partial);
        let space = mem::take(&mut self.space);
        match mem::replace(&mut self.state, State::Content) {
            State::Start { space: rule, .. } => {
                let ends_blank = partial.is_empty() && rule == Space::KeepBeforeContent;
                if rule != Space::Drop && !ends_blank {
                    self.content(&space);
                }
                self.content(&partial);
            }
            State::Content => {
                self.content(&space);
                self.content(&partial);
            }
            State::Reasoning { .. } if partial.is_empty() => {}
            State::Reasoning { .. } => {
                self.reasoning(&space);
                self.reasoning(&partial);
            }
            State::Call(_) => {
                let held = mem::take(&mut self.held);
                self.content(&held);
            }
            State::Closing => {}
        }
        mem::take(&mut self.events)
    }

    fn calls_allowed(&self) -> bool {
        !self.names.is_empty()
    }

    fn take(&mut self, c: char) {
        match mem::replace(&mut self.state, State::Content) {
            State::Start { think, bare, space } => self.start(think, bare, space, c),
            State::Reasoning { said } => self.reason(said, c),
            State::Content => self.plain(c),
            State::Call(reader) => self.call(reader, c),
            State::Closing => self.closing(c),
        }
    }

    fn start(&mut self, think: bool, bare: bool, space: Space, c: char) {
        let same = State::Start { think, bare, space };
        if self.partial.is_empty() {
            let separator = c == ';' && self.after_bare_call() && !self.space.contains(';');
            if c.is_whitespace() || separator {
                self.space.push(c);
                self.state = same;
                return;
            }
            if bare && c == '{' && self.format == Format::Llama3Json && self.calls_allowed() {
                self.begin_call(space, "", true);
                self.take(c);
                return;
            }
        }
        self.partial.push(c);
        let opening = self.format.opening();
        let marks = [
            think.then_some(THINK),
            self.calls_allowed().then_some(opening),
        ];
        match find_mark(&marks, &self.partial) {
            Mark::Whole(THINK) => {
                self.partial.clear();
                self.space.clear();
                self.state = State::Reasoning { said: false };
            }
            Mark::Whole(_) => {
                self.partial.clear();
                self.begin_call(space, opening, false);
            }
            Mark::Beginning => self.state = same,
            Mark::None => {
                self.partial.pop();
                let held = mem::take(&mut self.space);
                if space != Space::Drop {
                    self.content(&held);
                }
                let partial = mem::take(&mut self.partial);
                self.content(&partial);
                self.plain(c);
            }
        }
    }

    /// Whether a further call may follow behind a semicolon.
    fn after_bare_call(&self) -> bool {
        self.format == Format::Llama3Json && self.calls > 0 && self.held.is_empty()
    }

    fn reason(&mut self, said: bool, c: char) {
        if self.partial.is_empty() && c.is_whitespace() {
            if said {
                self.space.push(c);
            }
            self.state = State::Reasoning { said };
            return;
        }
        self.partial.push(c);
        // Some models open the block again although the prompt has done so.
        let marks = [Some(END_THINK), (!said).then_some(THINK)];
        match find_mark(&marks, &self.partial) {
            Mark::Whole(END_THINK) => {
                self.partial.clear();
                self.space.clear();
                self.state = State::Start {
                    think: false,
                    bare: true,
                    space: Space::Drop,
                };
            }
            Mark::Whole(_) => {
                self.partial.clear();
                self.state = State::Reasoning { said };
            }
            Mark::Beginning => self.state = State::Reasoning { said },
            Mark::None => {
                self.partial.pop();
                let space = mem::take(&mut self.space);
                self.reasoning(&space);
                let partial = mem::take(&mut self.partial);
                self.reasoning(&partial);
                if partial.is_empty() {
                    self.reasoning(c.encode_utf8(&mut [0; 4]));
                    self.state = State::Reasoning { said: true };
                } else {
                    self.reason(true, c);
                }
            }
        }
    }

    fn plain(&mut self, c: char) {
        self.state = State::Content;
        if !self.calls_allowed() {
            self.content(c.encode_utf8(&mut [0; 4]));
            return;
        }
        if self.partial.is_empty() && c.is_whitespace() {
            self.space.push(c);
            return;
        }
        self.partial.push(c);
        let opening = self.format.opening();
        match find_mark(&[Some(opening), None], &self.partial) {
            Mark::Whole(_) => {
                self.partial.clear();
                self.begin_call(Space::KeepBeforeContent, opening, false);
            }
            Mark::Beginning => {}
            Mark::None => {
                self.partial.pop();
                let space = mem::take(&mut self.space);
                self.content(&space);
                let partial = mem::take(&mut self.partial);
                if partial.is_empty() {
                    self.content(c.encode_utf8(&mut [0; 4]));
                } else {
                    // Marks hold their first character nowhere else, so no mark can have begun
                    // within the part that has failed.
                    self.content(&partial);
                    self.plain(c);
                }
            }
        }
    }

    /// Start to read a call behind `mark`.
    fn begin_call(&mut self, space: Space, mark: &str, bare: bool) {
        let before = mem::take(&mut self.space);
        self.held.clear();
        if space != Space::Drop {
            self.held.push_str(&before);
        }
        self.held.push_str(mark);
        self.bare = bare;
        self.muted = self.calls > 0 && !self.parallel;
        self.state = State::Call(Box::new(CallReader::new()));
    }

    fn call(&mut self, mut reader: Box<CallReader>, c: char) {
        let rules = Rules {
            names: &self.names,
            // Without a mark, any JSON object of an answer could be taken for a call.
            known_keys_only: self.bare,
        };
        let mut parts = Vec::new();
        let progress = reader.feed(c, rules, &mut parts);
        for part in parts {
            self.part(part);
        }
        let begun = reader.begun();
        if begun {
            self.held.clear();
        } else {
            self.held.push(c);
        }
        match progress {
            Progress::More => self.state = State::Call(reader),
            Progress::Done if self.format.closing().is_some() => self.state = State::Closing,
            Progress::Done => self.state = self.after_call(),
            Progress::Refused => {
                if !begun {
                    self.held.pop();
                }
                let held = mem::take(&mut self.held);
                self.content(&held);
                self.plain(c);
            }
        }
    }

    fn after_call(&mut self) -> State {
        State::Start {
            think: false,
            bare: true,
            space: Space::KeepBeforeContent,
        }
    }

    fn part(&mut self, part: Part) {
        if matches!(part, Part::Begin { .. }) && !self.muted {
            self.calls += 1;
        }
        if self.muted {
            return;
        }
        let index = self.calls.saturating_sub(1);
        match part {
            Part::Begin { id, name } => self.events.push(Event::CallBegin { index, id, name }),
            Part::End => self.events.push(Event::CallEnd { index }),
            Part::Arguments(text) => match self.events.last_mut() {
                Some(Event::CallArguments { delta, index: same }) if *same == index => {
                    delta.push_str(&text);
                }
                _ => self.events.push(Event::CallArguments { index, delta: text }),
            },
        }
    }

    fn closing(&mut self, c: char) {
        if self.partial.is_empty() && c.is_whitespace() {
            self.space.push(c);
            self.state = State::Closing;
            return;
        }
        self.partial.push(c);
        match find_mark(&[self.format.closing(), None], &self.partial) {
            Mark::Whole(_) => {
                self.partial.clear();
                self.space.clear();
                self.state = self.after_call();
            }
            Mark::Beginning => self.state = State::Closing,
            Mark::None => {
                // The closing mark was left out. What has come is looked at as what follows a call.
                let after = mem::take(&mut self.partial);
                self.state = self.after_call();
                for c in after.chars() {
                    self.take(c);
                }
            }
        }
    }

    fn content(&mut self, text: &str) {
        if text.is_empty() {
            return;
        }
        match self.events.last_mut() {
            Some(Event::Content(last)) => last.push_str(text),
            _ => self.events.push(Event::Content(text.to_owned())),
        }
    }

    fn reasoning(&mut self, text: &str) {
        if text.is_empty() {
            return;
        }
        match self.events.last_mut() {
            Some(Event::Reasoning(last)) => last.push_str(text),
            _ => self.events.push(Event::Reasoning(text.to_owned())),
        }
    }
}

/// What `text` is among marks.
enum Mark {
    Whole(&'static str),
    Beginning,
    None,
}

fn find_mark(marks: &[Option<&'static str>; 2], text: &str) -> Mark {
    let mut found = Mark::None;
    for mark in marks.iter().flatten() {
        if *mark == text {
            return Mark::Whole(mark);
        }
        if mark.starts_with(text) {
            found = Mark::Beginning;
        }
    }
    found
}
