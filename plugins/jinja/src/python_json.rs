//! JSON as Python's `json.dumps` writes it: that is what models saw in training.

use std::fmt::Write;

use minijinja::value::{Kwargs, Rest, ValueKind};
use minijinja::{Error, ErrorKind, Value};

/// Nesting that is still written.
const MAX_DEPTH: usize = 200;

/// Options of the writer.
struct Style {
    ensure_ascii: bool,
    indent: Option<String>,
    item_separator: String,
    key_separator: String,
    sort_keys: bool,
}

/// The filter `tojson(ensure_ascii=False, indent=None, separators=None, sort_keys=False)`.
pub(crate) fn tojson(value: &Value, args: Rest<Value>, kwargs: Kwargs) -> Result<String, Error> {
    let argument = |index: usize, name: &str| -> Result<Option<Value>, Error> {
        let named: Option<Value> = kwargs.get(name)?;
        Ok(args
            .get(index)
            .cloned()
            .or(named)
            .filter(|value| !value.is_none() && !value.is_undefined()))
    };
    let ensure_ascii = argument(0, "ensure_ascii")?.is_some_and(|value| value.is_true());
    let indent = match argument(1, "indent")? {
        None => None,
        Some(value) => match value.as_str() {
            Some(text) => Some(text.to_owned()),
            None => Some(" ".repeat(value.as_usize().unwrap_or(0).min(64))),
        },
    };
    let separators = argument(2, "separators")?;
    let sort_keys = argument(3, "sort_keys")?.is_some_and(|value| value.is_true());
    kwargs.assert_all_used()?;
    let (item_separator, key_separator) = match separators {
        Some(pair) => (
            pair.get_item_by_index(0)?.to_string(),
            pair.get_item_by_index(1)?.to_string(),
        ),
        None if indent.is_some() => (",".to_owned(), ": ".to_owned()),
        None => (", ".to_owned(), ": ".to_owned()),
    };
    let style = Style {
        ensure_ascii,
        indent,
        item_separator,
        key_separator,
        sort_keys,
    };
    let mut out = String::new();
    write_value(&mut out, value, &style, 0)?;
    Ok(out)
}

fn write_value(out: &mut String, value: &Value, style: &Style, depth: usize) -> Result<(), Error> {
    if depth > MAX_DEPTH {
        return Err(unserializable("a value nested this deeply"));
    }
    match value.kind() {
        ValueKind::None => out.push_str("null"),
        ValueKind::Bool => out.push_str(if value.is_true() { "true" } else { "false" }),
        ValueKind::Number => write_number(out, value),
        ValueKind::String => write_string(out, value.as_str().unwrap_or_default(), style),
        ValueKind::Seq | ValueKind::Iterable => {
            let items: Vec<Value> = value.try_iter()?.checked().collect::<Result<_, _>>()?;
            write_list(out, "[", "]", style, depth, items.len(), |out, index| {
                write_value(out, &items[index], style, depth + 1)
            })?;
        }
        ValueKind::Map => write_map(out, value, style, depth)?,
        kind => return Err(unserializable(&format!("a value of type {kind}"))),
    }
    Ok(())
}

fn write_map(out: &mut String, value: &Value, style: &Style, depth: usize) -> Result<(), Error> {
    let mut fields = Vec::new();
    for key in value.try_iter()?.checked() {
        let key = key?;
        let field = value.get_item(&key)?;
        let name = match key.kind() {
            ValueKind::String => key.as_str().unwrap_or_default().to_owned(),
            ValueKind::None => "null".to_owned(),
            ValueKind::Bool => if key.is_true() { "true" } else { "false" }.to_owned(),
            _ => key.to_string(),
        };
        fields.push((name, field));
    }
    if style.sort_keys {
        fields.sort_by(|left, right| left.0.cmp(&right.0));
    }
    write_list(out, "{", "}", style, depth, fields.len(), |out, index| {
        let (name, field) = &fields[index];
        write_string(out, name, style);
        out.push_str(&style.key_separator);
        write_value(out, field, style, depth + 1)
    })
}

fn write_list(
    out: &mut String,
    open: &str,
    close: &str,
    style: &Style,
    depth: usize,
    length: usize,
    mut item: impl FnMut(&mut String, usize) -> Result<(), Error>,
) -> Result<(), Error> {
    out.push_str(open);
    for index in 0..length {
        if index > 0 {
            out.push_str(&style.item_separator);
        }
        new_line(out, style, depth + 1);
        item(out, index)?;
    }
    if length > 0 {
        new_line(out, style, depth);
    }
    out.push_str(close);
    Ok(())
}

fn new_line(out: &mut String, style: &Style, depth: usize) {
    if let Some(indent) = &style.indent {
        out.push('\n');
        for _ in 0..depth {
            out.push_str(indent);
        }
    }
}

fn write_number(out: &mut String, value: &Value) {
    match f64::try_from(value.clone()) {
        Ok(float) if !value.is_integer() => out.push_str(&python_float(float)),
        _ => {
            let _ = write!(out, "{value}");
        }
    }
}

/// The shortest text that reads back as the same number, with Python's choice of exponents.
fn python_float(float: f64) -> String {
    if float.is_nan() {
        return "NaN".to_owned();
    }
    if float.is_infinite() {
        return if float > 0.0 { "Infinity" } else { "-Infinity" }.to_owned();
    }
    let scientific = format!("{float:e}");
    let (digits, exponent) = scientific.split_once('e').unwrap_or((&scientific, "0"));
    let power: i32 = exponent.parse().unwrap_or(0);
    if float == 0.0 || (-4..16).contains(&power) {
        let plain = format!("{float}");
        if plain.contains('.') {
            plain
        } else {
            plain + ".0"
        }
    } else {
        let sign = if power < 0 { '-' } else { '+' };
        format!("{digits}e{sign}{:02}", power.abs())
    }
}

fn write_string(out: &mut String, text: &str, style: &Style) {
    out.push('"');
    for character in text.chars() {
        match character {
            '"' => out.push_str("\\\""),
            '\\' => out.push_str("\\\\"),
            '\n' => out.push_str("\\n"),
            '\r' => out.push_str("\\r"),
            '\t' => out.push_str("\\t"),
            '\u{8}' => out.push_str("\\b"),
            '\u{c}' => out.push_str("\\f"),
            // The breaks of `marks` pass: they are taken out of the finished text.
            '\u{FDD0}'..='\u{FDEF}' => out.push(character),
            _ if u32::from(character) < 0x20 || (style.ensure_ascii && !character.is_ascii()) => {
                for unit in character.encode_utf16(&mut [0; 2]) {
                    let _ = write!(out, "\\u{unit:04x}");
                }
            }
            _ => out.push(character),
        }
    }
    out.push('"');
}

fn unserializable(what: &str) -> Error {
    Error::new(
        ErrorKind::InvalidOperation,
        format!("{what} cannot be written as JSON"),
    )
}

#[cfg(test)]
mod tests {
    use super::python_float;

    #[test]
    fn floats_look_as_in_python() {
        for (float, expected) in [
            (0.0, "0.0"),
            (-0.0, "-0.0"),
            (1.0, "1.0"),
            (0.1, "0.1"),
            (-2.5, "-2.5"),
            (1e15, "1000000000000000.0"),
            (1e16, "1e+16"),
            (1.5e300, "1.5e+300"),
            (0.0001, "0.0001"),
            (0.00001, "1e-05"),
        ] {
            assert_eq!(python_float(float), expected);
        }
    }
}
