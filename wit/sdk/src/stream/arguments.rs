//! Readers of calls and their arguments: JSON and tags.

use serde_json::Value;

use super::{MAX_NAME_BYTES, Text};
use crate::json::{Scanner, Step};
use crate::tools::{Arguments, Tool};

/// The keys of a call that is written as one JSON object.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CallKeys {
    /// Keys of the name.
    pub name: &'static [&'static str],
    /// Keys of the arguments: an object, the text of one, or null.
    pub arguments: &'static [&'static str],
    /// Keys of the model's id for the call.
    pub id: &'static [&'static str],
    /// Any key besides these and `type` shows that the object is no call. For formats without marks,
    /// where any object of an answer could be taken for one.
    pub only: bool,
}

impl Default for CallKeys {
    /// `name`, `arguments` or `parameters`, and `id`, among others.
    fn default() -> Self {
        Self {
            name: &["name"],
            arguments: &["arguments", "parameters"],
            id: &["id"],
            only: false,
        }
    }
}

/// A control character as strings in JSON have it.
fn escaped(c: char) -> String {
    match c {
        '\n' => "\\n".to_owned(),
        '\r' => "\\r".to_owned(),
        '\t' => "\\t".to_owned(),
        c => format!("\\u{:04x}", u32::from(c)),
    }
}

/// Parts of a JSON call that have been read.
#[derive(Default)]
struct JsonCall {
    name: Option<String>,
    id: Option<String>,
    /// Arguments that came before the name.
    early: Option<String>,
    said: bool,
}

impl Text {
    /// Read the JSON object of the arguments of a call. `None` if the tool was not declared, or no JSON object
    /// stands here.
    ///
    /// The call is passed on once the object is whole, so that no caller sees a call whose arguments turn
    /// out not to be JSON. Only where a call is forced, and a grammar therefore holds the text to JSON, are
    /// the arguments passed on as they come; should they stop being JSON or the answer end, the call is
    /// left open. Control characters inside strings are escaped.
    pub async fn json_arguments(&mut self, name: &str, id: Option<String>) -> Option<()> {
        self.space().await;
        if self.peek().await? != '{' {
            return None;
        }
        self.tools().get(name)?;
        if !self.tools().forced() {
            let arguments = self.json_object_text().await?;
            return self.call(name, id, &arguments);
        }
        self.begin(name, id)?;
        let mut scanner = Scanner::new();
        loop {
            let c = self.peek().await?;
            if scanner.in_text() && c < ' ' {
                self.next().await;
                self.push_arguments(&escaped(c));
                continue;
            }
            let step = scanner.feed(c);
            if matches!(step, Step::Wrong | Step::Past) {
                return None;
            }
            self.next().await;
            self.push_arguments(c.encode_utf8(&mut [0; 4]));
            if step == Step::Last {
                self.finish();
                return Some(());
            }
        }
    }

    /// Read calls that are written as JSON objects: one, or a list. `None` if the first thing that is
    /// no call of a declared tool comes before the end.
    pub async fn json_calls(&mut self, keys: CallKeys) -> Option<()> {
        self.space().await;
        if self.peek().await? != '[' {
            return self.json_call(keys).await;
        }
        self.next().await;
        loop {
            self.json_call(keys).await?;
            self.space().await;
            match self.peek().await {
                Some(',') => self.next().await,
                Some(']') => {
                    self.next().await;
                    self.drop_held();
                    return Some(());
                }
                _ => return None,
            };
        }
    }

    /// Read one call that is written as a JSON object, keys in any order. `None` if it is no call of a
    /// declared tool.
    pub async fn json_call(&mut self, keys: CallKeys) -> Option<()> {
        let mut call = JsonCall::default();
        self.symbol('{').await?;
        if self.symbol('}').await.is_some() {
            return None;
        }
        loop {
            let key = self.json_name().await?;
            self.symbol(':').await?;
            self.space().await;
            self.json_field(keys, &key, &mut call).await?;
            if self.symbol(',').await.is_none() {
                break;
            }
        }
        self.symbol('}').await?;
        if !call.said {
            let arguments = call.early.as_deref().unwrap_or("{}");
            self.call(&call.name?, call.id, arguments)?;
        }
        self.drop_held();
        Some(())
    }

    async fn json_field(&mut self, keys: CallKeys, key: &str, call: &mut JsonCall) -> Option<()> {
        if keys.name.contains(&key) {
            if call.name.is_some() {
                return None;
            }
            let name = self.json_name().await?;
            self.tools().get(&name)?;
            // With arguments that came early the call is complete; what follows changes nothing.
            if let Some(arguments) = call.early.take() {
                self.call(&name, call.id.take(), &arguments)?;
                call.said = true;
            }
            call.name = Some(name);
        } else if keys.arguments.contains(&key) {
            if call.said || call.early.is_some() {
                return None;
            }
            let streams = self.peek().await? == '{';
            match &call.name {
                Some(name) if streams => self.json_arguments(name, call.id.take()).await?,
                Some(name) => {
                    let arguments = self.json_object_text().await?;
                    self.call(name, call.id.take(), &arguments)?;
                }
                None => call.early = Some(self.json_object_text().await?),
            }
            call.said = call.name.is_some();
        } else if keys.id.contains(&key) && self.peek().await? == '"' {
            call.id = Some(self.json_name().await?);
        } else if keys.only && key != "type" && !keys.id.contains(&key) {
            return None;
        } else {
            self.json_text().await?;
        }
        Some(())
    }

    /// Arguments as an object, as a string that holds one, or as null.
    async fn json_object_text(&mut self) -> Option<String> {
        let text = self.json_text().await?;
        match serde_json::from_str(&text).ok()? {
            Value::Object(_) => Some(text),
            Value::Null => Some("{}".to_owned()),
            Value::String(inner) if inner.trim().is_empty() => Some("{}".to_owned()),
            Value::String(inner) => {
                let inner = inner.trim();
                let object = serde_json::from_str::<Value>(inner).ok()?;
                object.is_object().then(|| inner.to_owned())
            }
            _ => None,
        }
    }

    /// Read one JSON value; its text. A number must be followed by something. Two things that models write
    /// and JSON does not have are mended, since they can mean nothing else: control characters inside
    /// strings are escaped, and a comma before the end of a list or object is left out.
    pub async fn json_text(&mut self) -> Option<String> {
        self.space().await;
        let mut scanner = Scanner::new();
        let mut text = String::new();
        loop {
            let c = self.peek().await?;
            if scanner.in_text() && c < ' ' {
                self.next().await;
                text.push_str(&escaped(c));
                continue;
            }
            if c == ',' && scanner.at_separator() {
                self.next().await;
                let mut blanks = String::new();
                let blank = |c: char| matches!(c, ' ' | '\t' | '\n' | '\r');
                while self.peek().await.is_some_and(blank) {
                    blanks.extend(self.next().await);
                }
                let trailing = matches!(self.peek().await?, ']' | '}');
                if !trailing && scanner.feed(c) != Step::More {
                    return None;
                }
                text.push_str(if trailing { "" } else { "," });
                text.push_str(&blanks);
                continue;
            }
            match scanner.feed(c) {
                Step::Wrong => return None,
                Step::Past => return Some(text),
                step => {
                    text.push(c);
                    self.next().await;
                    if step == Step::Last {
                        return Some(text);
                    }
                }
            }
        }
    }

    /// A JSON string of the length of a name, without its quotes.
    pub(crate) async fn json_name(&mut self) -> Option<String> {
        self.space().await;
        self.mark("\"").await?;
        let mut raw = String::from('"');
        let mut escaped = false;
        loop {
            let c = self.next().await?;
            raw.push(c);
            if raw.len() > MAX_NAME_BYTES + 2 {
                return None;
            }
            if c == '"' && !escaped {
                return serde_json::from_str(&raw).ok();
            }
            escaped = c == '\\' && !escaped;
        }
    }

    /// Read blanks and one character, if it is there; otherwise nothing.
    pub(crate) async fn symbol(&mut self, symbol: char) -> Option<()> {
        self.follows(symbol.encode_utf8(&mut [0; 4]))
            .await
            .then_some(())
    }

    /// Read arguments that are written between tags, any number of them: `key` is what stands before
    /// and behind a key, `value` what stands before and behind its value. The schema of the tool says
    /// what a value is; a text is kept byte for byte. A line break that the tags themselves write beside
    /// a value is given with them, `("\n", "\n</parameter>")`; models may leave it out.
    ///
    /// ```
    /// # use mortise_plugin_sdk::stream::Text;
    /// # use mortise_plugin_sdk::tools::{Arguments, Tool};
    /// // <parameter=city>Bonn</parameter>
    /// async fn parameters(text: &mut Text, tool: &Tool) -> Option<Arguments> {
    ///     text.tagged_arguments(tool, ("<parameter=", ">"), ("", "</parameter>")).await
    /// }
    /// ```
    pub async fn tagged_arguments(
        &mut self,
        tool: &Tool,
        key: (&str, &str),
        value: (&str, &str),
    ) -> Option<Arguments> {
        let mut arguments = Arguments::default();
        while self.follows(key.0).await {
            let (name, _) = self.name_until(&[key.1]).await?;
            let name = name.trim();
            let value = self.tagged_value(tool, name, value).await?;
            arguments.add(name.to_owned(), value)?;
        }
        Some(arguments)
    }

    /// Read the value of the argument `key` with the marks around it, as
    /// [`tagged_arguments`](Self::tagged_arguments) does.
    pub async fn tagged_value(
        &mut self,
        tool: &Tool,
        key: &str,
        (open, close): (&str, &str),
    ) -> Option<Value> {
        let breaks = open.ends_with('\n');
        let open = open.trim_end_matches('\n');
        let close = close.trim_start_matches('\n');
        if !open.is_empty() && !self.follows(open).await {
            return None;
        }
        // A text within a list may hold the closing mark.
        if tool.is_structured(key) {
            let here = self.position();
            if let Some(value) = self.json_value_before(close).await {
                return Some(value);
            }
            if !self.read_again_from(here) {
                return None;
            }
        }
        let text = self.text_until(close).await?;
        let text = match text.strip_prefix('\n') {
            Some(inner) if breaks => inner.strip_suffix('\n').unwrap_or(inner),
            _ => &text,
        };
        Some(tool.typed(key, text))
    }

    /// Read a list or object and `close` behind it.
    pub(crate) async fn json_value_before(&mut self, close: &str) -> Option<Value> {
        self.space().await;
        if !matches!(self.peek().await?, '[' | '{') {
            return None;
        }
        let text = self.json_text().await?;
        let closed = self.follows(close).await;
        closed.then(|| serde_json::from_str(&text).ok()).flatten()
    }
}
