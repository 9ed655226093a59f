//! `mortise plugin test --like-model`: a chat template against the model's own, text for text and token for
//! token, over a corpus of conversations.

use std::path::Path;

use anyhow::{Context as _, bail, ensure};
use mortise_harness::{Harness, PluginUnderTest, model_files, model_template, print};
use mortise_plugin::Kind;
use serde_json::{Map, Value, json};

/// Conversations that are rendered, by name: requests as `mortise plugin run` reads them.
const CONVERSATIONS: &str = include_str!("like/conversations.json");

/// Characters that are shown on each side of a difference.
const SHOWN: usize = 30;

/// A line for each conversation, and a failure if one is rendered otherwise than the model's own template
/// does.
pub(crate) fn like_model(
    subject: &PluginUnderTest,
    settings: &Value,
    model: &Path,
) -> anyhow::Result<()> {
    ensure!(
        subject.component.kinds().contains(&Kind::ChatTemplate),
        "--like-model: the plugin is no chat template"
    );
    let files = model_files(Some(model))?;
    let token = |id: u32| files.tokenizer.decode(&[id], true);
    let reference = model_template(model_files(Some(model))?)?;
    let (theirs, own) = (reference.harness(&json!({}))?, subject.harness(settings)?);
    let conversations: Map<String, Value> =
        serde_json::from_str(CONVERSATIONS).context("the corpus is damaged")?;
    let mut different = 0;
    for (name, conversation) in &conversations {
        let line = match compare(&theirs, &own, conversation, token) {
            None => format!("ok      like the model: {name}\n"),
            Some(difference) => {
                different += 1;
                format!("FAILED  like the model: {name}: {difference}\n")
            }
        };
        print(&line)?;
    }
    match different {
        0 => Ok(()),
        _ => bail!(
            "the model's own template renders {different} of {} conversations otherwise",
            conversations.len()
        ),
    }
}

/// The first difference of a conversation, if there is one. Where the model's own template refuses, any
/// answer will do.
fn compare(
    theirs: &Harness,
    own: &Harness,
    conversation: &Value,
    token: impl Fn(u32) -> String,
) -> Option<String> {
    let wanted = theirs.template(conversation.clone()).ok()?;
    let said = match own.template(conversation.clone()) {
        Ok(said) => said,
        Err(error) => return Some(format!("the plugin refuses it: {error:#}")),
    };
    let text = |rendered: &Value| rendered["prompt"].as_str().unwrap_or_default().to_owned();
    let tokens = |rendered: &Value| -> Vec<u32> {
        let ids = rendered["tokens"].as_array().into_iter().flatten();
        ids.filter_map(|id| u32::try_from(id.as_u64()?).ok())
            .collect()
    };
    texts(&text(&wanted), &text(&said))
        .or_else(|| token_lists(&tokens(&wanted), &tokens(&said), token))
        .or_else(|| {
            let opens = |rendered: &Value| rendered["opens_reasoning"] == json!(true);
            (opens(&wanted) != opens(&said)).then(|| {
                format!(
                    "`opens_reasoning` is {} and should be {}",
                    opens(&said),
                    opens(&wanted)
                )
            })
        })
}

/// The place at which two texts part, with what stands there.
fn texts(wanted: &str, said: &str) -> Option<String> {
    if wanted == said {
        return None;
    }
    let alike = wanted.chars().zip(said.chars()).take_while(|(a, b)| a == b);
    let at = alike.count();
    let shown = |text: &str| -> String {
        text.chars()
            .skip(at.saturating_sub(SHOWN))
            .take(2 * SHOWN)
            .collect()
    };
    Some(format!(
        "the text differs at character {at}: the model's has {:?}, the plugin's {:?}",
        shown(wanted),
        shown(said)
    ))
}

/// The place at which two lists of tokens part, where the texts are equal.
fn token_lists(wanted: &[u32], said: &[u32], token: impl Fn(u32) -> String) -> Option<String> {
    if wanted == said {
        return None;
    }
    let alike = wanted.iter().zip(said).take_while(|(a, b)| a == b);
    let at = alike.count();
    let shown = |list: &[u32]| match list.get(at) {
        Some(id) => format!("{id} {:?}", token(*id)),
        None => "the end".to_owned(),
    };
    Some(format!(
        "the text is the same and token {at} differs: the model's is {}, the plugin's {}; a marker that is \
         one token belongs in a special segment, and what a caller wrote in a plain one",
        shown(wanted),
        shown(said)
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn differences_are_told_where_they_begin() {
        assert_eq!(texts("abc", "abc"), None);
        let told = texts("Höhe: 1", "Höhe: 2").expect("a difference");
        assert!(
            told.contains("character 6") && told.contains("\"Höhe: 2\""),
            "{told}"
        );
        assert!(
            texts("ab", "abc")
                .expect("a difference")
                .contains("character 2")
        );
        let names = |id: u32| format!("t{id}");
        assert_eq!(token_lists(&[1, 2], &[1, 2], names), None);
        let told = token_lists(&[1, 2, 3], &[1, 4, 5, 3], names).expect("a difference");
        assert!(
            told.contains("token 1 differs: the model's is 2 \"t2\", the plugin's 4 \"t4\""),
            "{told}"
        );
        let told = token_lists(&[1], &[1, 2], names).expect("a difference");
        assert!(told.contains("the model's is the end"), "{told}");
    }
}
