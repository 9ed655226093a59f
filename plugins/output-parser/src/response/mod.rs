//! Reader of answers by the `response_template` of a model's files, as `transformers` has it: regions between marks become
//! content, reasoning and calls. What a template has no place for is content.

mod calls;
mod content;
mod pattern;
mod spec;

use mortise_plugin_sdk::Fault;
use mortise_plugin_sdk::output_parser::{CallArguments, CallBegin, Event, Finish, Session, Setup};
use mortise_plugin_sdk::tools::Tools;
use serde_json::{Map, Value};

use pattern::{Found, Pattern, Search};
pub use spec::Template;
use spec::{Field, Mark, Role};

/// Name of the format of a model with a template of its own.
pub const NAME: &str = "response_template";

/// Bytes of a mark that is an expression.
const MAX_MARK_BYTES: usize = 1024;
/// Control tokens that are looked for outside of regions.
const MAX_FRAMES: usize = 64;

/// A template, and the tokens that frame what it describes.
#[derive(Debug)]
pub struct Reader {
    template: Template,
    /// Control tokens that say nothing where they stand outside of all regions.
    frames: Option<Pattern>,
}

impl Reader {
    /// A reader of answers. `control_tokens` are those that the model's prompts are written with.
    ///
    /// # Errors
    /// If the template makes no sense, or asks for what is not supported.
    pub fn new(
        template: &str,
        control_tokens: impl Iterator<Item = String>,
    ) -> Result<Self, String> {
        let tokens = control_tokens.filter(|text| !text.is_empty());
        let tokens: Vec<String> = tokens.take(MAX_FRAMES).collect();
        Ok(Self {
            template: Template::read(template)?,
            frames: match tokens.is_empty() {
                true => None,
                false => Some(Pattern::any_of(&tokens)?),
            },
        })
    }

    /// Marks around reasoning, if the template has them as texts.
    pub fn reasoning(&self) -> (String, String) {
        self.template.texts(Role::Reasoning)
    }

    /// Marks around content, if the template has them as texts.
    pub fn content(&self) -> (String, String) {
        self.template.texts(Role::Content)
    }

    /// The mark that calls begin with, if it is a text.
    pub fn calls(&self) -> String {
        self.template.texts(Role::Calls).0
    }

    /// True if a mark is written with this token.
    pub fn mentions(&self, token: &str) -> bool {
        self.template.mentions(token)
    }

    /// Begin to read an answer.
    ///
    /// # Errors
    /// [`Fault::Invalid`] for tools that make no sense.
    pub fn open(&'static self, setup: &Setup) -> Result<Answer, Fault> {
        let tools = Tools::allowed(setup)?;
        let field = match setup.opens_reasoning {
            true => self.template.reasoning(),
            false => None,
        };
        let mut answer = Answer {
            reader: self,
            tools,
            region: Region::new(field.or(self.template.implicit)),
            text: String::new(),
            base: 0,
            at: 0,
            watched: Vec::new(),
            events: Vec::new(),
            calls: 0,
            said: [false; 2],
            blanks: String::new(),
        };
        answer.watch(false);
        Ok(answer)
    }
}

/// Region that the text belongs to.
#[derive(Debug, Default)]
struct Region {
    /// Field of the region; `None` outside of all regions.
    field: Option<usize>,
    /// Mark that opened the region.
    mark: String,
    /// Blanks before the mark.
    before: String,
    captures: Map<String, Value>,
    /// Text so far, where it is not passed on as it comes.
    body: String,
    /// Flag: text other than blanks has been passed on.
    begun: bool,
}

impl Region {
    fn new(field: Option<usize>) -> Self {
        Self {
            field,
            ..Self::default()
        }
    }
}

/// Effect of a mark.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Effect {
    Open(usize),
    Close,
    /// The mark only frames text and is dropped; the region goes on.
    Nothing,
}

/// Reading of one answer.
#[derive(Debug)]
pub struct Answer {
    reader: &'static Reader,
    tools: Tools,
    region: Region,
    /// Text that has not been assigned to a region yet.
    text: String,
    /// Place of `text` in the answer.
    base: usize,
    /// Place up to which the text has been searched.
    at: usize,
    /// Marks that may come.
    watched: Vec<(Effect, Search<'static>)>,
    events: Vec<Event>,
    calls: u32,
    /// Content has been passed on, and reasoning.
    said: [bool; 2],
    /// Blanks that count only if something follows them.
    blanks: String,
}

impl Session for Answer {
    fn feed(&mut self, text: &str, _: &[u32]) -> Result<Vec<Event>, Fault> {
        self.text.push_str(text);
        self.go_on(false);
        Ok(std::mem::take(&mut self.events))
    }

    fn close(&mut self, _: Finish) -> Result<Vec<Event>, Fault> {
        self.go_on(true);
        Ok(std::mem::take(&mut self.events))
    }
}

impl Answer {
    fn field(&self) -> Option<&'static Field> {
        let fields = &self.reader.template.fields;
        self.region.field.and_then(|index| fields.get(index))
    }

    /// Look for the marks that may come from here on. `moving`: an empty one would be found again and again.
    fn watch(&mut self, moving: bool) {
        let reader = self.reader;
        let template = &reader.template;
        let search = |pattern| Search::new(pattern, self.base, MAX_MARK_BYTES, moving);
        let close = self.field().and_then(|field| field.close.as_ref());
        let close = close.map(|mark| (Effect::Close, search(&mark.pattern)));
        let mut watched: Vec<_> = close.into_iter().collect();
        if self.region.field == template.implicit {
            let opens = template
                .fields
                .iter()
                .enumerate()
                .filter_map(|(index, field)| {
                    let mark: &'static Mark = field.open.as_ref()?;
                    Some((Effect::Open(index), search(&mark.pattern)))
                });
            watched.extend(opens);
        }
        if self.region.field.is_none() {
            let frames = [Some(&template.anchor.pattern), reader.frames.as_ref()];
            let frames = frames.into_iter().flatten();
            watched.extend(frames.map(|pattern| (Effect::Nothing, search(pattern))));
        }
        self.at = self.base;
        self.watched = watched;
    }

    fn go_on(&mut self, ended: bool) {
        loop {
            while let Some((effect, found)) = self.mark(self.at) {
                self.take(effect, &found);
            }
            let next = self.text[self.at - self.base..].chars().next();
            if let Some(c) = next {
                for (_, search) in &mut self.watched {
                    search.step(self.at, c);
                }
                self.at += c.len_utf8();
                continue;
            }
            if !ended {
                let pending = self
                    .watched
                    .iter()
                    .map(|(_, search)| search.pending_from(self.at));
                let sure = pending.min().unwrap_or(self.at);
                self.pass_up_to(sure);
                return;
            }
            for (_, search) in &mut self.watched {
                search.finish(self.at);
            }
            match self.mark(usize::MAX) {
                Some((effect, found)) => self.take(effect, &found),
                None => break,
            }
        }
        self.pass_up_to(self.at);
        self.end_region("");
    }

    /// The mark that comes first, if that is certain with the text up to `at`.
    fn mark(&self, at: usize) -> Option<(Effect, Found)> {
        let undecided = self
            .watched
            .iter()
            .filter(|(_, search)| search.decided().is_none());
        let sure = undecided.map(|(_, search)| search.pending_from(at)).min();
        let sure = sure.unwrap_or(at).min(at);
        let decided = self.watched.iter().filter_map(|(effect, search)| {
            let found = search.decided()?;
            Some((*effect, found))
        });
        let best = decided.min_by_key(|(effect, found)| {
            (
                found.start,
                std::cmp::Reverse(found.end - found.start),
                *effect,
            )
        });
        best.filter(|(_, found)| found.start < sure)
            .map(|(effect, found)| (effect, found.clone()))
    }

    /// Follow a mark.
    fn take(&mut self, effect: Effect, found: &Found) {
        self.pass_up_to(found.start);
        let mark: String = self.text.drain(..found.end - found.start).collect();
        self.base = found.end;
        match effect {
            Effect::Nothing => {}
            Effect::Close => {
                self.end_region(&mark);
                self.region = Region::new(self.reader.template.implicit);
            }
            Effect::Open(index) => {
                let before = std::mem::take(&mut self.blanks);
                self.end_region("");
                let mut captures = Map::new();
                let field = &self.reader.template.fields[index];
                let names = field.open.iter().flat_map(|open| open.pattern.names());
                for (number, name) in names.enumerate() {
                    let place = found.group(number);
                    let text =
                        place.and_then(|(from, to)| mark.get(from - found.start..to - found.start));
                    captures.extend(text.map(|text| (name.clone(), Value::from(text))));
                }
                self.region = Region {
                    captures,
                    before,
                    ..Region::new(Some(index))
                };
                if field.role == Role::Other {
                    self.say(Role::Content, &mark, false);
                }
                self.region.mark = mark;
                self.join(field);
            }
        }
        self.watch(found.end == found.start);
    }

    /// Pass on the text that a template puts between two regions of a field.
    fn join(&mut self, field: &'static Field) {
        let said = self.said[usize::from(field.role == Role::Reasoning)];
        if let Some(join) = field.join.as_ref().filter(|_| said && field.is_text()) {
            self.say(field.role, join, false);
        }
    }

    /// Assign the text up to a place to the region.
    fn pass_up_to(&mut self, place: usize) {
        let text: String = self.text.drain(..place - self.base).collect();
        self.base = place;
        if text.is_empty() {
            return;
        }
        match self.field() {
            Some(field) if field.role == Role::Calls => self.region.body.push_str(&text),
            Some(field) if field.is_text() => {
                let strips = field.content.strips();
                self.say(field.role, &text, strips);
            }
            Some(_) => self.say(Role::Content, &text, false),
            None => self.say(Role::Content, &text, true),
        }
    }

    /// Pass on content or reasoning; blanks at both ends only if they stand between words.
    fn say(&mut self, role: Role, text: &str, strips: bool) {
        let said = usize::from(role == Role::Reasoning);
        let mut text = text;
        if strips {
            let first = !self.region.begun;
            // Behind other regions, blanks part what is said from what was.
            let parts = role == Role::Content && self.said[0] && self.region.mark.is_empty();
            if first && !parts {
                text = text.trim_start();
                self.blanks.clear();
            }
            let words = text.trim_end().len();
            let (now, later) = text.split_at(words);
            let before = match now.is_empty() {
                true => String::new(),
                false => std::mem::take(&mut self.blanks),
            };
            self.blanks.push_str(later);
            self.push(role, &before);
            text = now;
        }
        if !text.is_empty() {
            self.region.begun = true;
            self.said[said] = true;
            self.push(role, text);
        }
    }

    fn push(&mut self, role: Role, text: &str) {
        if text.is_empty() {
            return;
        }
        match (role, self.events.last_mut()) {
            (Role::Reasoning, Some(Event::Reasoning(last))) => last.push_str(text),
            (Role::Reasoning, _) => self.events.push(Event::Reasoning(text.to_owned())),
            (_, Some(Event::Content(last))) => last.push_str(text),
            (_, _) => self.events.push(Event::Content(text.to_owned())),
        }
    }

    /// End the region, at a mark or at the end of the answer.
    fn end_region(&mut self, mark: &str) {
        self.blanks.clear();
        match self.field() {
            Some(field) if field.role == Role::Calls => self.end_calls(field, mark),
            Some(field) if field.role == Role::Other => self.say(Role::Content, mark, false),
            _ => {}
        }
    }

    fn end_calls(&mut self, field: &'static Field, mark: &str) {
        let region = std::mem::take(&mut self.region);
        match calls::calls(field, &region.captures, &region.body, &self.tools) {
            None => {
                let text = format!("{}{}{}{mark}", region.before, region.mark, region.body);
                self.say(Role::Content, &text, false);
            }
            Some(calls) => {
                for call in calls {
                    let index = self.calls;
                    if index > 0 && !self.tools.parallel() {
                        break;
                    }
                    self.calls += 1;
                    let calls::Call {
                        name,
                        id,
                        arguments: delta,
                    } = call;
                    self.events.extend([
                        Event::CallBegin(CallBegin { index, id, name }),
                        Event::CallArguments(CallArguments { index, delta }),
                        Event::CallEnd(index),
                    ]);
                }
            }
        }
    }
}
