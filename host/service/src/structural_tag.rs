//! Structural tags, as xgrammar, vLLM and SGLang have them: free text with parts that follow a grammar, as one grammar in
//! llguidance's dialect of Lark.
//!
//! A mark such as `<tool_call>` may be a control token of the model. Grammars of texts never take a control token, so
//! each mark is taken in either way.

use mortise_tokenizer::SpecialToken;
use serde_json::{Map, Value, json};

use crate::gbnf;
use crate::schema_formats::without_annotations;

/// Formats within formats.
pub(crate) const MAX_DEPTH: usize = 16;
/// Formats altogether.
pub(crate) const MAX_FORMATS: usize = 512;

/// Reason for which a structural tag is refused.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TagError {
    /// Place within the structural tag, such as `format.tags[0].content`.
    pub path: String,
    /// The reason.
    pub problem: String,
}

/// A structural tag (`{"type": "structural_tag", …}`, in its old form with `structures` and `triggers` or the new one with
/// `format`) as a grammar in Lark, for a model with these control tokens.
///
/// # Errors
/// For what is malformed, or cannot be written as a grammar.
pub(crate) fn structural_tag(
    tag: &Map<String, Value>,
    control: &[SpecialToken],
) -> Result<String, TagError> {
    let mut writer = Writer {
        control,
        rules: Vec::new(),
        formats: 0,
    };
    let start = match (tag.get("format"), tag.get("structures")) {
        (Some(format), None) => writer.format(format, "format", 0, true)?,
        (None, Some(_)) => {
            let whole = older(tag)?;
            writer.format(&whole, "", 0, true)?
        }
        (Some(_), Some(_)) => {
            return Err(wrong(
                "structures",
                "goes with no `format`; give one of them",
            ));
        }
        (None, None) => return Err(wrong("format", "is missing")),
    };
    let mut lark = format!("start: {}\n", non_empty(start));
    lark.push_str("free: /(.|\\n)+/\n");
    for rule in writer.rules {
        lark.push_str(&rule);
        lark.push('\n');
    }
    Ok(lark)
}

/// The form before xgrammar 0.1.22 as the present one.
fn older(tag: &Map<String, Value>) -> Result<Value, TagError> {
    let structures = tag.get("structures").and_then(Value::as_array);
    let structures = structures.ok_or_else(|| wrong("structures", "must be a list"))?;
    let mut tags = Vec::with_capacity(structures.len());
    for (at, structure) in structures.iter().enumerate() {
        let Some(fields) = structure.as_object() else {
            return Err(wrong(&format!("structures[{at}]"), "must be an object"));
        };
        let schema = fields.get("schema").cloned().unwrap_or(json!({}));
        tags.push(json!({
            "type": "tag",
            "begin": fields.get("begin"),
            "content": {"type": "json_schema", "json_schema": schema},
            "end": fields.get("end"),
        }));
    }
    Ok(json!({"type": "triggered_tags", "triggers": tag.get("triggers"), "tags": tags}))
}

fn wrong(path: &str, problem: &str) -> TagError {
    TagError {
        path: path.to_owned(),
        problem: problem.to_owned(),
    }
}

fn member(path: &str, name: &str) -> String {
    match path {
        "" => name.to_owned(),
        path => format!("{path}.{name}"),
    }
}

fn non_empty(expression: String) -> String {
    match expression.is_empty() {
        true => "\"\"".to_owned(),
        false => expression,
    }
}

fn quote(text: &str) -> String {
    Value::from(text).to_string()
}

fn flag(fields: &Map<String, Value>, name: &str, path: &str) -> Result<bool, TagError> {
    match fields.get(name) {
        None | Some(Value::Null) => Ok(false),
        Some(Value::Bool(value)) => Ok(*value),
        Some(_) => Err(wrong(&member(path, name), "must be true or false")),
    }
}

fn text<'a>(fields: &'a Map<String, Value>, name: &str, path: &str) -> Result<&'a str, TagError> {
    let value = fields.get(name).and_then(Value::as_str);
    value.ok_or_else(|| wrong(&member(path, name), "must be a text"))
}

fn list<'a>(
    fields: &'a Map<String, Value>,
    name: &str,
    path: &str,
) -> Result<&'a Vec<Value>, TagError> {
    let value = fields.get(name).and_then(Value::as_array);
    let value = value.filter(|list| !list.is_empty());
    value.ok_or_else(|| wrong(&member(path, name), "must be a list with something in it"))
}

/// Options that would change what is taken, with the values by which they do not.
fn check_options(
    fields: &Map<String, Value>,
    path: &str,
    options: &[&str],
) -> Result<(), TagError> {
    for option in options {
        let off = match fields.get(*option) {
            None | Some(Value::Null | Value::Bool(false)) => true,
            Some(Value::Array(list)) => list.is_empty(),
            Some(Value::String(word)) => *option == "style" && word == "json",
            Some(_) => false,
        };
        if !off {
            return Err(wrong(&member(path, option), "is not supported"));
        }
    }
    Ok(())
}

/// Part of a mark.
enum Piece<'a> {
    Text(&'a str),
    Token(u32),
}

struct Writer<'a> {
    control: &'a [SpecialToken],
    rules: Vec<String>,
    formats: usize,
}

impl Writer<'_> {
    fn rule(&mut self, attributes: &str, body: &str) -> String {
        let name = format!("p{}", self.rules.len());
        self.rules.push(format!("{name}{attributes}: {body}"));
        name
    }

    /// An expression for a format. Free text is taken by one that comes `last` only: nothing else tells where it ends.
    fn format(
        &mut self,
        format: &Value,
        path: &str,
        depth: usize,
        last: bool,
    ) -> Result<String, TagError> {
        self.formats += 1;
        if depth > MAX_DEPTH || self.formats > MAX_FORMATS {
            let problem = format!(
                "has more than {MAX_FORMATS} formats, or nests them deeper than {MAX_DEPTH}"
            );
            return Err(wrong(path, &problem));
        }
        let Some(fields) = format.as_object() else {
            return Err(wrong(path, "must be an object"));
        };
        let kind = text(fields, "type", path)?;
        match kind {
            "const_string" => Ok(self.mark(text(fields, "value", path)?)),
            "json_schema" => self.schema(fields, path),
            "regex" => match text(fields, "pattern", path)? {
                "" => Ok(String::new()),
                pattern => Ok(format!("/{}/", escape_slashes(pattern))),
            },
            "grammar" => {
                let grammar = text(fields, "grammar", path)?;
                let lark = gbnf::to_lark(grammar)
                    .map_err(|problem| wrong(&member(path, "grammar"), &problem))?;
                Ok(self.rule("", &format!("%lark {{\n{lark}\n}}")))
            }
            "any_text" => {
                check_options(fields, path, &["excludes", "max_tokens", "max_chars"])?;
                match last {
                    true => Ok("(free)?".to_owned()),
                    false => Err(wrong(
                        path,
                        "cannot stand here: free text is the content of a tag, or comes last",
                    )),
                }
            }
            "sequence" | "or" => self.several(kind, fields, (path, depth), last),
            "optional" | "star" | "plus" | "repeat" => self.repeated(kind, fields, path, depth),
            "tag" => self.tag(fields, path, depth, last),
            "triggered_tags" if last => self.triggered(fields, path, depth),
            "triggered_tags" => Err(wrong(
                path,
                "cannot stand here: free text with tags comes last",
            )),
            "tags_with_separator" => self.separated(fields, path, depth),
            other => {
                let problem = format!("`{other}` is not supported");
                Err(wrong(&member(path, "type"), &problem))
            }
        }
    }

    fn schema(&mut self, fields: &Map<String, Value>, path: &str) -> Result<String, TagError> {
        check_options(fields, path, &["style", "any_order"])?;
        let mut schema = match fields.get("json_schema") {
            Some(schema @ Value::Object(_)) => schema.clone(),
            Some(Value::Bool(true)) => json!({}),
            _ => {
                return Err(wrong(
                    &member(path, "json_schema"),
                    "must be a JSON schema, an object",
                ));
            }
        };
        let stripped = without_annotations(&schema.to_string());
        let stripped = stripped.and_then(|text| serde_json::from_str(&text).ok());
        schema = stripped.unwrap_or(schema);
        if let Value::Object(fields) = &mut schema {
            // Blanks as in answers that are a schema's altogether.
            let blanks = json!({"whitespace_pattern": r"\x20|\r?\n[\x20\t]{0,24}"});
            fields.insert("x-guidance".to_owned(), blanks);
        }
        Ok(self.rule("", &format!("%json {schema}")))
    }

    fn several(
        &mut self,
        kind: &str,
        fields: &Map<String, Value>,
        (path, depth): (&str, usize),
        last: bool,
    ) -> Result<String, TagError> {
        let elements = list(fields, "elements", path)?;
        let mut parts = Vec::with_capacity(elements.len());
        for (at, element) in elements.iter().enumerate() {
            let path = format!("{}[{at}]", member(path, "elements"));
            let comes_last = last && (kind == "or" || at + 1 == elements.len());
            parts.push(self.format(element, &path, depth + 1, comes_last)?);
        }
        if kind == "or" {
            let parts: Vec<String> = parts.into_iter().map(non_empty).collect();
            return Ok(format!("({})", parts.join(" | ")));
        }
        parts.retain(|part| !part.is_empty());
        Ok(parts.join(" "))
    }

    fn repeated(
        &mut self,
        kind: &str,
        fields: &Map<String, Value>,
        path: &str,
        depth: usize,
    ) -> Result<String, TagError> {
        let content = fields.get("content").unwrap_or(&Value::Null);
        let inner = self.format(content, &member(path, "content"), depth + 1, false)?;
        let count = |name: &str| {
            let value = fields.get(name).and_then(Value::as_i64);
            let value =
                value.filter(|times| (-1..=i64::from(gbnf::MAX_REPETITION)).contains(times));
            let most = gbnf::MAX_REPETITION;
            value.ok_or_else(|| {
                wrong(
                    &member(path, name),
                    &format!("must be a number up to {most}"),
                )
            })
        };
        let times = match kind {
            "optional" => "?".to_owned(),
            "star" => "*".to_owned(),
            "plus" => "+".to_owned(),
            _ => match (count("min")?, count("max")?) {
                (min @ 0.., -1) => format!("{{{min},}}"),
                (min @ 0.., max) if max >= min.max(1) => format!("{{{min},{max}}}"),
                _ => {
                    return Err(wrong(
                        &member(path, "max"),
                        "must be at least `min`, and 1, or -1",
                    ));
                }
            },
        };
        match inner.is_empty() {
            true => Ok(inner),
            false => Ok(format!("({inner}){times}")),
        }
    }

    fn tag(
        &mut self,
        fields: &Map<String, Value>,
        path: &str,
        depth: usize,
        last: bool,
    ) -> Result<String, TagError> {
        let begin = self.mark(text(fields, "begin", path)?);
        let rest = self.behind_begin(fields, path, depth, last)?;
        Ok(format!("{begin} {rest}").trim().to_owned())
    }

    /// Content and end of a tag.
    fn behind_begin(
        &mut self,
        fields: &Map<String, Value>,
        path: &str,
        depth: usize,
        last: bool,
    ) -> Result<String, TagError> {
        let ends: Vec<&str> = match fields.get("end") {
            Some(Value::String(end)) => vec![end],
            Some(Value::Array(ends)) if !ends.is_empty() => {
                let ends: Option<Vec<&str>> = ends.iter().map(Value::as_str).collect();
                ends.ok_or_else(|| wrong(&member(path, "end"), "must be texts"))?
            }
            _ => {
                return Err(wrong(
                    &member(path, "end"),
                    "must be a text or a list of texts",
                ));
            }
        };
        let content = fields.get("content").unwrap_or(&Value::Null);
        let inside = member(path, "content");
        let free = content.get("type").and_then(Value::as_str) == Some("any_text");
        if free && !ends.iter().any(|end| end.is_empty()) {
            if let Some(content) = content.as_object() {
                check_options(content, &inside, &["excludes", "max_tokens", "max_chars"])?;
            }
            let ends: Vec<String> = ends.iter().flat_map(|end| self.until(end)).collect();
            return Ok(format!("({})", ends.join(" | ")));
        }
        let comes_last = last && ends.iter().all(|end| end.is_empty());
        let content = self.format(content, &inside, depth + 1, comes_last)?;
        let ends: Vec<String> = ends.iter().map(|end| non_empty(self.mark(end))).collect();
        let end = match ends.as_slice() {
            [only] if only == "\"\"" => String::new(),
            [only] => only.clone(),
            several => format!("({})", several.join(" | ")),
        };
        Ok(format!("{content} {end}").trim().to_owned())
    }

    fn separated(
        &mut self,
        fields: &Map<String, Value>,
        path: &str,
        depth: usize,
    ) -> Result<String, TagError> {
        let mut tags = Vec::new();
        for (at, tag) in list(fields, "tags", path)?.iter().enumerate() {
            let path = format!("{}[{at}]", member(path, "tags"));
            tags.push(non_empty(self.format(tag, &path, depth + 1, false)?));
        }
        let one = format!("({})", tags.join(" | "));
        let separator = self.mark(text(fields, "separator", path)?);
        let all = match flag(fields, "stop_after_first", path)? {
            true => one,
            false => {
                let one = self.rule("", &one);
                format!("{one} ({separator} {one})*")
            }
        };
        Ok(match flag(fields, "at_least_one", path)? {
            true => all,
            false => format!("({all})?"),
        })
    }

    /// Free text, in which a trigger begins one of the tags.
    fn triggered(
        &mut self,
        fields: &Map<String, Value>,
        path: &str,
        depth: usize,
    ) -> Result<String, TagError> {
        check_options(fields, path, &["excludes"])?;
        let triggers = list(fields, "triggers", path)?;
        let triggers: Option<Vec<&str>> = triggers.iter().map(Value::as_str).collect();
        let triggers = triggers
            .filter(|all| all.iter().all(|trigger| !trigger.is_empty()))
            .ok_or_else(|| {
                wrong(
                    &member(path, "triggers"),
                    "must be texts that are not empty",
                )
            })?;
        let mut of_trigger: Vec<Vec<String>> = vec![Vec::new(); triggers.len()];
        let (mut of_token, mut at_once) = (Vec::new(), Vec::new());
        for (at, tag) in list(fields, "tags", path)?.iter().enumerate() {
            let path = format!("{}[{at}]", member(path, "tags"));
            let Some(tag) = tag.as_object() else {
                return Err(wrong(&path, "must be an object"));
            };
            let begin = text(tag, "begin", &path)?;
            let fits = |trigger: &&&str| begin.starts_with(**trigger);
            let Some(trigger) = triggers.iter().filter(fits).max_by_key(|it| it.len()) else {
                return Err(wrong(
                    &member(&path, "begin"),
                    "begins with none of the triggers",
                ));
            };
            let rest = self.behind_begin(tag, &path, depth + 1, false)?;
            let rest = self.rule("", &non_empty(rest));
            let behind = self.mark(&begin[trigger.len()..]);
            let number = triggers.iter().position(|other| other == trigger);
            if let Some(all) = number.and_then(|number| of_trigger.get_mut(number)) {
                all.push(format!("{behind} {rest}"));
            }
            if let [Piece::Token(_), ..] = self.pieces(begin).as_slice() {
                of_token.push(format!("(free)? {} {rest}", self.tokens(begin)));
            }
            at_once.push(format!("{} {rest}", self.mark(begin)));
        }
        let mut blocks = of_token;
        for (trigger, rests) in triggers.iter().zip(of_trigger) {
            if !rests.is_empty() {
                let until = self.rule(&format!("[suffix={}]", quote(trigger)), "/(.|\\n)*/");
                blocks.push(format!("{until} ({})", rests.join(" | ")));
            }
        }
        let block = self.rule("", &blocks.join(" | "));
        let first = format!("({})", at_once.join(" | "));
        let at_least_one = flag(fields, "at_least_one", path)?;
        Ok(
            match (at_least_one, flag(fields, "stop_after_first", path)?) {
                (true, true) => first,
                (true, false) => format!("{first} ({block})* (free)?"),
                (false, true) => format!("({block} | (free)?)"),
                (false, false) => format!("({block})* (free)?"),
            },
        )
    }

    /// A mark, cut at the control tokens in it.
    fn pieces<'t>(&self, mark: &'t str) -> Vec<Piece<'t>> {
        let mut pieces = Vec::new();
        let mut rest = mark;
        while !rest.is_empty() {
            let known = self.control.iter().filter(|token| !token.text.is_empty());
            let found = known
                .filter_map(|token| Some((rest.find(&token.text)?, token)))
                .min_by_key(|(at, token)| (*at, usize::MAX - token.text.len()));
            let Some((at, token)) = found else {
                pieces.push(Piece::Text(rest));
                break;
            };
            if at > 0 {
                pieces.push(Piece::Text(&rest[..at]));
            }
            pieces.push(Piece::Token(token.id));
            rest = &rest[at + token.text.len()..];
        }
        pieces
    }

    /// A mark with its control tokens; empty for an empty one.
    fn tokens(&self, mark: &str) -> String {
        let each = self.pieces(mark).into_iter().map(|piece| match piece {
            Piece::Text(text) => quote(text),
            Piece::Token(id) => format!("<[{id}]>"),
        });
        each.collect::<Vec<String>>().join(" ")
    }

    /// A mark as text, or with its control tokens.
    fn mark(&self, mark: &str) -> String {
        let tokens = self.tokens(mark);
        match mark.is_empty() || tokens == quote(mark) {
            true => tokens,
            false => format!("({tokens} | {})", quote(mark)),
        }
    }

    /// Expressions for free text up to a mark, and the mark.
    fn until(&mut self, mark: &str) -> Vec<String> {
        let as_text = self.rule(&format!("[suffix={}]", quote(mark)), "/(.|\\n)*/");
        let mut ways = vec![as_text];
        match self.pieces(mark).as_slice() {
            [Piece::Token(_), ..] => ways.push(format!("(free)? {}", self.tokens(mark))),
            [Piece::Text(before), _, ..] => {
                let behind = self.tokens(&mark[before.len()..]);
                let until = self.rule(&format!("[suffix={}]", quote(before)), "/(.|\\n)*/");
                ways.push(format!("{until} {behind}"));
            }
            _ => {}
        }
        ways
    }
}

fn escape_slashes(regex: &str) -> String {
    let mut escaped = String::with_capacity(regex.len());
    let mut backslash = false;
    for c in regex.chars() {
        if c == '/' && !backslash {
            escaped.push('\\');
        }
        backslash = c == '\\' && !backslash;
        escaped.push(c);
    }
    escaped
}

#[cfg(test)]
mod tests;
