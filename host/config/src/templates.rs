//! Chat templates that requests may choose by name.

use std::collections::BTreeMap;
use std::path::Path;

use mortise_plugin_manager::{Kind, TemplateSource};

use super::raw::RawTemplate;
use super::{ConfigError, invalid};

/// Templates of one binding.
const MAX_TEMPLATES: usize = 32;
/// Bytes of a name.
const MAX_NAME_BYTES: usize = 64;
/// Bytes of a template.
const MAX_TEMPLATE_BYTES: u64 = 1 << 20;

/// The templates of a binding, those of files read.
pub(super) fn check_templates(
    key: &str,
    kind: Kind,
    raw: BTreeMap<String, RawTemplate>,
    base: &Path,
) -> Result<BTreeMap<String, TemplateSource>, ConfigError> {
    if kind != Kind::ChatTemplate && !raw.is_empty() {
        return Err(invalid(key, "only a chat template has it"));
    }
    if raw.len() > MAX_TEMPLATES {
        let message = format!("it has {} templates; at most {MAX_TEMPLATES}", raw.len());
        return Err(invalid(key, message));
    }
    raw.into_iter()
        .map(|(name, template)| {
            let key = format!("{key}.{name}");
            let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"._-".contains(&byte);
            if name.is_empty() || name.len() > MAX_NAME_BYTES || !name.bytes().all(plain) {
                let message = format!(
                    "a name has letters, digits, `.`, `_` and `-`, at most {MAX_NAME_BYTES} of them"
                );
                return Err(invalid(&key, message));
            }
            let source = source(&key, template, base)?;
            Ok((name, source))
        })
        .collect()
}

fn source(key: &str, raw: RawTemplate, base: &Path) -> Result<TemplateSource, ConfigError> {
    match (raw.file, raw.text, raw.own) {
        (Some(file), None, None) => {
            let path = base.join(file);
            let wrong = |problem: String| invalid(key, format!("`{}`: {problem}", path.display()));
            let text = mortise_files::read_text(&path, MAX_TEMPLATE_BYTES);
            text.map(TemplateSource::Text)
                .map_err(|error| wrong(error.to_string()))
        }
        (None, Some(text), None) => Ok(TemplateSource::Text(text)),
        (None, None, Some(name)) => Ok(TemplateSource::Own(name)),
        _ => Err(invalid(
            key,
            "give one of `file`, a path; `text`, the template itself; `own`, the name that the model's files give it",
        )),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn raw(text: &str) -> RawTemplate {
        toml::from_str(text).expect("a template")
    }

    #[test]
    fn feature_p1_a_template_comes_from_one_place() {
        let folder = tempfile::tempdir().expect("a folder");
        std::fs::write(folder.path().join("short.jinja"), "{{ messages }}").expect("written");
        let read = |name: &str, text: &str| {
            let templates = BTreeMap::from([(name.to_owned(), raw(text))]);
            check_templates("t", Kind::ChatTemplate, templates, folder.path())
                .map(|all| all[name].clone())
                .map_err(|error| error.to_string())
        };
        let text = TemplateSource::Text("{{ messages }}".to_owned());
        assert_eq!(read("a", "file = 'short.jinja'"), Ok(text.clone()));
        assert_eq!(read("a-1.b_", "text = '{{ messages }}'"), Ok(text));
        let own = TemplateSource::Own("rag".to_owned());
        assert_eq!(read("a", "own = 'rag'"), Ok(own));
        for (name, text, said) in [
            ("a", "", "give one of"),
            ("a", "own = 'x'\ntext = 'y'", "give one of"),
            ("a", "file = 'none.jinja'", "none.jinja"),
            ("{{ 1 }}", "text = 'y'", "a name has"),
        ] {
            let error = read(name, text).expect_err(text);
            assert!(error.contains(said), "{error}");
        }
        let other = BTreeMap::from([("a".to_owned(), raw("text = 'x'"))]);
        assert!(check_templates("t", Kind::Grammar, other, folder.path()).is_err());
    }
}
