//! The admin side of a running server, as commands ask it.

use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context as _, bail};
use mortise_config::{Config, Overrides, config_files, variable_of};
use serde_json::Value;
use ureq::Agent;

use crate::admin_args::{AdminServer, Against};
use crate::admin_tls::{AdminTls, tls_config};
use crate::advice::{Advise as _, UsageError};

const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);

/// The admin side of a server.
pub(crate) struct AdminClient {
    url: String,
    key: String,
    agent: Agent,
}

impl AdminClient {
    pub(crate) fn of(server: &AdminServer) -> anyhow::Result<Self> {
        let (url, key) = match (
            &server.admin_url,
            &server.admin_key_env,
            config_files(server.config.clone()).as_slice(),
        ) {
            (Some(url), Some(variable), _) => {
                (url.clone(), variable_of("--admin-key-env", variable)?)
            }
            (_, _, files @ [file, ..]) => {
                let admin = Config::load(files, Overrides::default())?.admin;
                let admin = admin.with_context(|| {
                    format!(
                        "`{}` configures no admin side; give it a table `[admin]` with `port` and `key_env`, and \
                         start `mortise serve --config` with it",
                        file.display()
                    )
                })?;
                let address = std::net::SocketAddr::new(admin.host, admin.port);
                let scheme = if admin.tls.is_some() { "https" } else { "http" };
                (format!("{scheme}://{address}"), admin.key)
            }
            _ => {
                let missing = "no server is named: give --config (or MORTISE_CONFIG) with the configuration of its \
                               `mortise serve --config`, whose table `[admin]` has address and key, or --admin-url and \
                               --admin-key-env";
                return Err(UsageError(missing.to_owned()).into());
            }
        };
        Self::at(&url, key, &server.tls)
    }

    /// The server that files are to be compared with, at its address.
    pub(crate) fn of_comparison(
        url: &str,
        against: &Against,
        files: &[PathBuf],
    ) -> anyhow::Result<Self> {
        let key = match &against.admin_key_env {
            Some(variable) => variable_of("--admin-key-env", variable)?,
            None => {
                let admin = Config::load(files, Overrides::default())?.admin;
                let admin = admin.context(
                    "the files have no admin key; give --admin-key-env with that of the server",
                )?;
                admin.key
            }
        };
        Self::at(url, key, &against.tls)
    }

    fn at(url: &str, key: String, tls: &AdminTls) -> anyhow::Result<Self> {
        let agent = Agent::config_builder()
            .http_status_as_error(false)
            .timeout_connect(Some(CONNECT_TIMEOUT))
            .tls_config(tls_config(tls)?)
            .build()
            .new_agent();
        Ok(Self {
            url: url.trim_end_matches('/').to_owned(),
            key,
            agent,
        })
    }

    pub(crate) fn get(&self, path: &str) -> anyhow::Result<Value> {
        let url = format!("{}{path}", self.url);
        let request = self.agent.get(&url).header("x-admin-token", &self.key);
        answer(&url, request.call())
    }

    pub(crate) fn post(&self, path: &str, body: &Value) -> anyhow::Result<Value> {
        let url = format!("{}{path}", self.url);
        let request = self.agent.post(&url).header("x-admin-token", &self.key);
        let request = request.header("content-type", "application/json");
        answer(&url, request.send(body.to_string()))
    }

    pub(crate) fn delete(&self, path: &str) -> anyhow::Result<Value> {
        let url = format!("{}{path}", self.url);
        let request = self.agent.delete(&url).header("x-admin-token", &self.key);
        answer(&url, request.call())
    }

    /// Send a part of a file, of a length that is known.
    pub(crate) fn put_range(
        &self,
        path: &str,
        range: &str,
        length: u64,
        mut part: impl std::io::Read,
    ) -> anyhow::Result<Value> {
        let url = format!("{}{path}", self.url);
        let request = self.agent.put(&url).header("x-admin-token", &self.key);
        let request = request
            .header("content-range", range)
            .header("content-length", length.to_string())
            .header("content-type", "application/octet-stream");
        answer(&url, request.send(ureq::SendBody::from_reader(&mut part)))
    }
}

type Response = ureq::http::Response<ureq::Body>;

/// The body of an answer; its error if it is one.
fn answer(url: &str, response: Result<Response, ureq::Error>) -> anyhow::Result<Value> {
    let response = response.with_context(|| format!("`{url}` does not answer"));
    let mut response = response.advise(|| {
        "start the server with `mortise serve --config FILE`, or name its admin side with --admin-url"
            .to_owned()
    })?;
    let status = response.status();
    let body = response.body_mut().read_to_string();
    let body = body.with_context(|| format!("`{url}` broke off"))?;
    let body: Value = serde_json::from_str(&body)
        .with_context(|| format!("`{url}` answers {status} and no JSON; is it an admin side?"))?;
    let error = &body["error"];
    let Some(message) = error["message"].as_str() else {
        return Ok(body);
    };
    match error["code"].as_str() {
        Some("missing_admin_key" | "forbidden") => {
            bail!("{message}; --admin-key-env names the variable with the key of `[admin]`")
        }
        Some("unknown_route") => bail!(
            "{message}; `{url}` is no admin side: `[admin]` in the server's configuration has its port"
        ),
        Some("unknown_model") => bail!("{message}; `mortise models list` lists all"),
        _ => bail!("{message}"),
    }
}
