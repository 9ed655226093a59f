//! A tool that reads web pages: `fetch_url` gives the text behind a URL. Which sites it may ask is not
//! its own affair: the host sends requests to those that the operator lists and refuses all others.
//!
//! ```toml
//! [[plugins.bindings]]
//! kind = "tool"
//! file = "plugins/http_fetch.wasm"
//! http = { origins = ["https://docs.example"] }
//! settings = { sites = "The company's manual is at https://docs.example." }
//! ```
//!
//! Build: `cargo build --release --target wasm32-wasip2`. A request opts in with
//! `"server_tools": ["fetch_url"]`.

use mortise_plugin_sdk::serde_json::{Value, json};
use mortise_plugin_sdk::tool::{Context, Declaration, Failure, Tool};
use mortise_plugin_sdk::{Fault, outbound_http};
use serde::Deserialize;

mortise_plugin_sdk::export!(tool: HttpFetch, settings: "settings.schema.json");

/// Redirects that are followed, each of them a request that the host checks like the first.
const MAX_HOPS: usize = 5;

/// The settings, which are also the whole plugin.
#[derive(Deserialize)]
struct HttpFetch {
    /// Description of the sites for the model.
    #[serde(default)]
    sites: String,
    /// Characters of a page that the model is shown.
    #[serde(default = "max_characters")]
    max_characters: usize,
}

fn max_characters() -> usize {
    8000
}

impl Tool for HttpFetch {
    type Settings = Self;

    fn prepare(settings: Self) -> Result<Self, Fault> {
        Ok(settings)
    }

    fn describe(&self) -> Vec<Declaration> {
        let parameters = json!({
            "type": "object",
            "properties": {"url": {"type": "string", "description": "An absolute URL."}},
            "required": ["url"],
            "additionalProperties": false,
        });
        let description = format!("Reads the text behind a URL. {}", self.sites);
        vec![Declaration::new(
            "fetch_url",
            description.trim(),
            &parameters,
        )]
    }

    fn call(&self, _: &str, arguments: Value, _: Context) -> Result<String, Failure> {
        // The host has checked that the arguments follow the schema.
        let mut url = arguments["url"].as_str().unwrap_or_default().to_owned();
        for _ in 0..MAX_HOPS {
            let answer = ask(&url)?;
            let header = |wanted: &str| {
                let mut headers = answer.headers.iter();
                headers
                    .find(|(name, _)| name == wanted)
                    .map(|(_, value)| value.as_str())
            };
            let location = header("location").filter(|_| (300..400).contains(&answer.status));
            match location {
                Some(location) if location.contains("://") => url = location.to_owned(),
                Some(location) => {
                    let text =
                        format!("`{url}` sends to `{location}`; ask for that as a whole URL");
                    return Err(Failure::Refused(text));
                }
                None => {
                    return self.page(&url, answer.status, header("content-type"), &answer.body);
                }
            }
        }
        Err(Failure::Refused(format!("more than {MAX_HOPS} redirects")))
    }
}

fn ask(url: &str) -> Result<outbound_http::Response, Failure> {
    let request = outbound_http::Request {
        method: "GET".to_owned(),
        url: url.to_owned(),
        headers: vec![("accept".to_owned(), "text/*, application/json".to_owned())],
        body: Vec::new(),
        timeout_ms: None,
    };
    outbound_http::send(&request).map_err(|error| {
        Failure::Refused(match error {
            outbound_http::Error::Invalid(text)
            | outbound_http::Error::Denied(text)
            | outbound_http::Error::Unreachable(text) => text,
            outbound_http::Error::Timeout => "the site did not answer in time".to_owned(),
            outbound_http::Error::TooLarge => "the page is too large".to_owned(),
            outbound_http::Error::Spent => "this call has made too many requests".to_owned(),
        })
    })
}

impl HttpFetch {
    /// Part of a response that the model is shown.
    fn page(
        &self,
        url: &str,
        status: u16,
        kind: Option<&str>,
        body: &[u8],
    ) -> Result<String, Failure> {
        if status != 200 {
            return Err(Failure::Refused(format!(
                "`{url}` answered with status {status}"
            )));
        }
        let kind = kind.unwrap_or("text/plain").to_ascii_lowercase();
        if !kind.starts_with("text/") && !kind.contains("json") && !kind.contains("xml") {
            return Err(Failure::Refused(format!(
                "`{url}` is `{kind}` and not text"
            )));
        }
        let text = String::from_utf8_lossy(body);
        let limit = self.max_characters;
        Ok(match text.char_indices().nth(limit) {
            Some((end, _)) => format!("{}\n[cut after {limit} characters]", &text[..end]),
            None => text.into_owned(),
        })
    }
}
