//! Models of other servers.

use super::*;

#[test]
fn keys_of_conversations_are_none_of_models_that_embed_elsewhere() {
    let table = |model: &str, upstream: &str| {
        format!(
            "[[models]]\nname = \"m\"\n{model}\n[models.upstream]\nurls = [\"http://a/v1\"]\n{upstream}"
        )
    };
    let embeds = "capability = \"embed\"\n";
    let config = load(&table("prompts = { query = \"q: \" }", embeds)).expect("a configuration");
    let upstream = config.models[0].upstream.as_ref().expect("an upstream");
    assert_eq!(upstream.capability, Capability::Embed);
    assert_eq!(upstream.embedding_batch, 64);
    assert_eq!(config.models[0].prompts["query"], "q: ");
    for (model, more, key) in [
        ("", "thinking = \"enabled\"", "upstream.thinking"),
        (
            "",
            "forward_image_urls = true",
            "upstream.forward_image_urls",
        ),
        (
            "",
            "max_tokens_field = \"max_completion_tokens\"",
            "upstream.max_tokens_field",
        ),
        ("", "embedding_batch = 0", "upstream.embedding_batch"),
        ("", "embedding_batch = 4096", "upstream.embedding_batch"),
        ("path = \"x\"", "render = \"here\"", "upstream.render"),
        ("prompts = { a = \"b\" }", "api = \"mortise\"", "prompts"),
        (
            "default_prompt = \"a\"",
            "api = \"mortise\"",
            "default_prompt",
        ),
        ("pooling = \"last\"", "", "pooling"),
    ] {
        refused(
            &table(model, &format!("{embeds}{more}")),
            &[&format!("`models[0].{key}`")],
        );
    }
    // And the other way round.
    refused(
        &table("", "embedding_batch = 8"),
        &["`models[0].upstream.embedding_batch`"],
    );
    refused(
        &table("prompts = { a = \"b\" }", ""),
        &["`models[0].prompts`"],
    );
}

#[test]
fn those_on_standby_are_others_than_the_first() {
    let table = |standby: &str| {
        format!(
            "[[models]]\nname = \"m\"\n[models.upstream]\nurls = [\"http://a/v1\"]\nstandby = {standby}\n"
        )
    };
    let config = load(&table("[\"http://b/v1\", \"http://c/v1\"]")).expect("a configuration");
    let upstream = config.models[0].upstream.as_ref().expect("an upstream");
    let urls: Vec<_> = upstream.standby.iter().map(|url| url.as_str()).collect();
    assert_eq!(urls, ["http://b/v1", "http://c/v1"]);
    assert_eq!(upstream.max_retries, 2, "each other one is asked once");
    let many: Vec<String> = (0..64)
        .map(|number| format!("http://h{number}/v1"))
        .collect();
    for standby in [
        "[\"http://a/v1/\"]".to_owned(),
        "[\"nowhere\"]".to_owned(),
        format!("{many:?}"),
    ] {
        refused(&table(&standby), &["`models[0].upstream.standby`"]);
    }
}
