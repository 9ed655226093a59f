//! A page that shows a document to people: plain HTML, made once, without scripts and without anything from
//! elsewhere.

use std::fmt::Write as _;

use serde_json::{Map, Value};

/// The look of the page, which has an address of its own, so that the page needs no inline styles.
pub(crate) const STYLE: &str = "\
:root{color-scheme:light dark}
body{font:15px/1.5 system-ui,sans-serif;max-width:60rem;margin:2rem auto;padding:0 1rem}
code,pre{font:13px/1.45 ui-monospace,monospace}
pre{overflow-x:auto;padding:.6rem;border:1px solid #8884;border-radius:4px}
summary{cursor:pointer;padding:.3rem 0}
summary b{display:inline-block;min-width:4.2rem}
details details{margin-left:1rem}
table{border-collapse:collapse}
td{padding:.1rem .8rem .1rem 0;vertical-align:top}
nav a{margin-right:1rem}
";

/// The page of a document.
pub(crate) fn page(document: &Value) -> String {
    let title = text(&document["info"]["title"]);
    let mut out = format!(
        "<!doctype html>\n<html lang=\"en\"><head><meta charset=\"utf-8\">\
         <meta name=\"viewport\" content=\"width=device-width\"><title>{title}</title>\
         <link rel=\"stylesheet\" href=\"/docs/style.css\"></head><body>\n\
         <h1>{title} <small>{}</small></h1>\n<p>{}</p>\n\
         <p><a href=\"/openapi.json\">openapi.json</a></p>\n<nav>",
        text(&document["info"]["version"]),
        text(&document["info"]["description"]),
    );
    let empty = Vec::new();
    let tags = document["tags"].as_array().unwrap_or(&empty);
    for (at, tag) in tags.iter().enumerate() {
        // Writing to a text does not fail, here and below.
        let _ = write!(out, "<a href=\"#t{at}\">{}</a>", text(&tag["name"]));
    }
    out.push_str("<a href=\"#types\">Types</a></nav>\n");
    for (at, tag) in tags.iter().enumerate() {
        let (name, about) = (text(&tag["name"]), text(&tag["description"]));
        let _ = writeln!(out, "<h2 id=\"t{at}\">{name}</h2>\n<p>{about}</p>");
        write_operations(document, &tag["name"], &mut out);
    }
    out.push_str("<h2 id=\"types\">Types</h2>\n");
    for (name, schema) in members(&document["components"]["schemas"]) {
        let name = escaped(name);
        let _ = write!(
            out,
            "<details id=\"s-{name}\"><summary><code>{name}</code></summary>"
        );
        write_schema(schema, &mut out);
        out.push_str("</details>\n");
    }
    out.push_str("</body></html>\n");
    out
}

fn write_operations(document: &Value, tag: &Value, out: &mut String) {
    for (path, methods) in members(&document["paths"]) {
        for (method, operation) in members(methods) {
            if operation["tags"][0] != *tag {
                continue;
            }
            let _ = write!(
                out,
                "<details><summary><b>{}</b><code>{}</code> {}</summary>",
                method.to_uppercase(),
                escaped(path),
                text(&operation["summary"]),
            );
            write_operation(operation, out);
            out.push_str("</details>\n");
        }
    }
}

fn write_operation(operation: &Value, out: &mut String) {
    out.push_str("<table>");
    for parameter in operation["parameters"].as_array().into_iter().flatten() {
        let _ = write!(
            out,
            "<tr><td><code>{}</code></td><td>{}</td><td>{}</td></tr>",
            text(&parameter["name"]),
            text(&parameter["in"]),
            text(&parameter["description"]),
        );
    }
    out.push_str("</table>");
    for (media, content) in members(&operation["requestBody"]["content"]) {
        let _ = write!(out, "<p>Body: {}</p>", escaped(media));
        write_schema(&content["schema"], out);
    }
    for (status, response) in members(&operation["responses"]) {
        let content = members(&response["content"]);
        if response["content"].is_null() {
            continue;
        }
        for (media, content) in content {
            let _ = write!(out, "<p>{}: {}</p>", escaped(status), escaped(media));
            let item = &content["x-item-schema"];
            write_schema(
                if item.is_null() {
                    &content["schema"]
                } else {
                    item
                },
                out,
            );
        }
    }
    let refusals = members(&operation["responses"]);
    let refusals = refusals.filter(|(_, response)| response["content"].is_null());
    let refusals: Vec<String> = refusals.map(|(status, _)| escaped(status)).collect();
    let _ = write!(out, "<p>Otherwise: {}</p>", refusals.join(", "));
}

/// A schema as it stands, or a link to the type that it names.
fn write_schema(schema: &Value, out: &mut String) {
    if let Some(reference) = schema["$ref"].as_str() {
        let name = reference.rsplit('/').next().unwrap_or_default();
        let name = escaped(name);
        let _ = write!(out, "<p><a href=\"#s-{name}\"><code>{name}</code></a></p>");
        return;
    }
    let json = serde_json::to_string_pretty(schema).unwrap_or_default();
    let _ = write!(out, "<pre>{}</pre>", escaped(&json));
}

fn members(value: &Value) -> impl Iterator<Item = (&String, &Value)> {
    value.as_object().into_iter().flat_map(Map::iter)
}

fn text(value: &Value) -> String {
    escaped(value.as_str().unwrap_or_default())
}

fn escaped(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for character in text.chars() {
        match character {
            '&' => out.push_str("&amp;"),
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '"' => out.push_str("&quot;"),
            other => out.push(other),
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn nothing_of_a_document_is_markup() {
        let document = json!({
            "info": {"title": "<script>", "version": "1", "description": "a & b"},
            "tags": [{"name": "T", "description": "\"x\""}],
            "paths": {"/a": {"get": {"tags": ["T"], "summary": "<b>", "responses": {}}}},
            "components": {"schemas": {"Row": {"type": "object"}}},
        });
        let page = page(&document);
        assert!(!page.contains("<script") && page.contains("&lt;script&gt;"));
        assert!(page.contains("<summary><b>GET</b><code>/a</code> &lt;b&gt;</summary>"));
        assert!(page.contains("id=\"s-Row\""));
    }
}
