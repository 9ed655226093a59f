//! A running server, asked as any of its clients asks it.

use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context as _, bail};
use clap::Args;
use mortise_config::variable_of;
use serde_json::Value;
use ureq::Agent;

use crate::admin_tls::trusting;
use crate::advice::Advise as _;

const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);
/// A server that says nothing for so long has failed; streams say something four times as often.
const SILENCE_MAX: Duration = Duration::from_secs(60);

/// Read the address of a server from the command line.
pub(crate) fn server_url(text: &str) -> Result<String, String> {
    match text.split_once("://") {
        Some(("http" | "https", rest)) if !rest.is_empty() => Ok(text.to_owned()),
        Some(_) => Err("it must begin with `http://` or `https://`".to_owned()),
        None => Err(format!(
            "it must begin with `http://` or `https://`; did you mean `http://{text}`?"
        )),
    }
}

/// The server, and who asks.
#[derive(Debug, Args)]
pub(crate) struct ServerTarget {
    /// The address of the server
    #[arg(long, value_name = "URL", value_parser = server_url, default_value = "http://127.0.0.1:8080")]
    url: String,
    /// The environment variable that holds the API key
    #[arg(long, value_name = "VARIABLE")]
    api_key_env: Option<String>,
    /// With TLS: certificates (PEM) of the authorities that are believed, if it is not the public ones
    #[arg(long, value_name = "FILE")]
    ca: Option<PathBuf>,
}

/// A server that can be asked.
pub(crate) struct ServerClient {
    /// The address without a path.
    pub(crate) url: String,
    key: Option<String>,
    agent: Agent,
}

/// An answer whose body is still to be read.
pub(crate) type ServerResponse = ureq::http::Response<ureq::Body>;

impl ServerClient {
    pub(crate) fn of(target: &ServerTarget) -> anyhow::Result<Self> {
        let name = target.api_key_env.as_deref();
        let key = name
            .map(|name| variable_of("--api-key-env", name))
            .transpose()?;
        let url = target.url.trim_end_matches('/').trim_end_matches("/v1");
        let tls = trusting(target.ca.as_deref())?;
        let agent = Agent::config_builder()
            .tls_config(tls.build())
            .http_status_as_error(false)
            .timeout_connect(Some(CONNECT_TIMEOUT))
            .timeout_per_read(Some(SILENCE_MAX))
            .build()
            .new_agent();
        Ok(Self {
            url: url.to_owned(),
            key,
            agent,
        })
    }

    /// The text at a path.
    pub(crate) fn text(&self, path: &str) -> anyhow::Result<String> {
        let url = format!("{}{path}", self.url);
        let mut request = self.agent.get(&url);
        if let Some(key) = &self.key {
            request = request.header("authorization", format!("Bearer {key}"));
        }
        let mut response = self.answered(request.call())?;
        let text = response.body_mut().read_to_string();
        text.with_context(|| format!("`{url}` broke off"))
    }

    /// The JSON at a path.
    pub(crate) fn json(&self, path: &str) -> anyhow::Result<Value> {
        let text = self.text(path)?;
        serde_json::from_str(&text)
            .with_context(|| format!("`{}{path}` answers no JSON; is it a mortise?", self.url))
    }

    /// Send JSON to a path.
    pub(crate) fn post(&self, path: &str, body: &Value) -> anyhow::Result<ServerResponse> {
        let mut request = self.agent.post(format!("{}{path}", self.url));
        request = request.header("content-type", "application/json");
        if let Some(key) = &self.key {
            request = request.header("authorization", format!("Bearer {key}"));
        }
        self.answered(request.send(body.to_string()))
    }

    /// Names of the models that the caller may use.
    fn models(&self) -> String {
        let list = self.json("/v1/models").unwrap_or_default();
        let models = list["data"].as_array().into_iter().flatten();
        let names: Vec<&str> = models.filter_map(|model| model["id"].as_str()).collect();
        match names.is_empty() {
            true => "`GET /v1/models` lists them".to_owned(),
            false => names.join(", "),
        }
    }

    /// An answer that is no refusal.
    fn answered(
        &self,
        response: Result<ServerResponse, ureq::Error>,
    ) -> anyhow::Result<ServerResponse> {
        let response = response.with_context(|| format!("`{}` does not answer", self.url));
        let mut response = response
            .advise(|| "`mortise serve` starts a server, --url names another".to_owned())?;
        let status = response.status();
        if status.is_success() {
            return Ok(response);
        }
        let text = response.body_mut().read_to_string().unwrap_or_default();
        let body: Value = serde_json::from_str(&text).unwrap_or_default();
        let told = body["error"]["message"].as_str().unwrap_or(text.trim());
        match status.as_u16() {
            401 => bail!("{told}; --api-key-env names the variable with your key"),
            404 if body["error"]["code"] == "model_not_found" => {
                bail!("{told}; --model names another: {}", self.models())
            }
            _ => bail!("{told} ({status})"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_taken_with_and_without_their_version() {
        for url in [
            "http://a:1",
            "http://a:1/",
            "http://a:1/v1",
            "http://a:1/v1/",
        ] {
            let target = ServerTarget {
                url: url.to_owned(),
                api_key_env: None,
                ca: None,
            };
            let caller = ServerClient::of(&target).expect("a caller");
            assert_eq!(caller.url, "http://a:1", "{url}");
        }
    }
}
