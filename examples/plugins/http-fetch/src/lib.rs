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

use std::sync::OnceLock;

use serde_json::{Value, json};

wit_bindgen::generate!({
    path: "../../../wit/v0.2",
    world: "tool-plugin",
});

use exports::mortise::plugin::lifecycle::Guest as Lifecycle;
use exports::mortise::plugin::tool::{Context, Declaration, Failure, Guest as Tool};
use mortise::plugin::types::Fault;
use mortise::plugin::{outbound_http, settings};

/// Redirects that are followed, each of them a request that the host checks like the first.
const MAX_HOPS: usize = 5;

/// The schema of the settings, which the server checks before it runs anything of the plugin.
#[used]
#[unsafe(link_section = "mortise:settings-schema")]
static SCHEMA: [u8; include_bytes!("../settings.schema.json").len()] =
    *include_bytes!("../settings.schema.json");

struct Settings {
    /// What the model is told about the sites.
    sites: String,
    /// Characters of a page that the model is shown.
    max_characters: usize,
}

static SETTINGS: OnceLock<Settings> = OnceLock::new();

struct HttpFetch;
export!(HttpFetch);

impl Lifecycle for HttpFetch {
    fn prepare() -> Result<(), Fault> {
        let settings: Value = serde_json::from_str(&settings::get())
            .map_err(|error| Fault::Internal(error.to_string()))?;
        let max_characters = settings["max_characters"].as_u64().unwrap_or(8000);
        SETTINGS.get_or_init(|| Settings {
            sites: settings["sites"].as_str().unwrap_or_default().to_owned(),
            max_characters: usize::try_from(max_characters).unwrap_or(usize::MAX),
        });
        Ok(())
    }
}

impl Tool for HttpFetch {
    fn describe() -> Vec<Declaration> {
        let parameters = json!({
            "type": "object",
            "properties": {"url": {"type": "string", "description": "An absolute URL."}},
            "required": ["url"],
            "additionalProperties": false,
        });
        let sites = SETTINGS
            .get()
            .map_or("", |settings| settings.sites.as_str());
        vec![Declaration {
            name: "fetch_url".to_owned(),
            description: format!("Reads the text behind a URL. {sites}")
                .trim()
                .to_owned(),
            parameters: parameters.to_string(),
        }]
    }

    fn call(_name: String, arguments: String, _context: Context) -> Result<String, Failure> {
        // The host has checked that the arguments follow the schema.
        let arguments: Value = serde_json::from_str(&arguments)
            .map_err(|error| Failure::Internal(error.to_string()))?;
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
                None => return page(&url, answer.status, header("content-type"), &answer.body),
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

/// What the model is shown of an answer.
fn page(url: &str, status: u16, kind: Option<&str>, body: &[u8]) -> Result<String, Failure> {
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
    let limit = SETTINGS.get().map_or(0, |settings| settings.max_characters);
    Ok(match text.char_indices().nth(limit) {
        Some((end, _)) => format!("{}\n[cut after {limit} characters]", &text[..end]),
        None => text.into_owned(),
    })
}
