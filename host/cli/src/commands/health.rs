//! `mortise health`: whether a running server is healthy, as an exit status.

use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context as _, bail};
use clap::Args;
use clap::builder::RangedU64ValueParser;
use mortise_harness::print_as;
use serde_json::{Value, json};
use ureq::Agent;
use ureq::unversioned::resolver::DefaultResolver;

use crate::admin_tls::trusting;
use crate::advice::Advise as _;
use crate::caller::server_url;
use crate::local_socket::LocalSockets;

/// Longest report that is read, in bytes.
const REPORT_BYTES_MAX: u64 = 1 << 20;

/// Arguments of the command line.
#[derive(Debug, Args)]
pub(crate) struct HealthArgs {
    /// The address of the server
    #[arg(long, value_name = "URL", value_parser = server_url, default_value = "http://127.0.0.1:8080")]
    url: String,
    /// With TLS: certificates (PEM) of the authorities that are believed, if it is not the public ones
    #[arg(long, value_name = "FILE", conflicts_with = "socket")]
    ca: Option<PathBuf>,
    /// The server's socket in the file system (`server.socket`), in place of its address
    #[arg(long, value_name = "FILE", conflicts_with = "url")]
    socket: Option<PathBuf>,
    /// Ask whether new work is welcome: models are loaded, and no part that the server needs has failed
    #[arg(long)]
    ready: bool,
    /// Seconds that the answer may take
    #[arg(long, value_name = "SECONDS", default_value_t = 5, value_parser = RangedU64ValueParser::<u64>::new().range(1..=3600))]
    timeout: u64,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

/// Do what the command line says.
pub(crate) fn run(args: &HealthArgs) -> anyhow::Result<()> {
    let place = match &args.socket {
        Some(path) => path.display().to_string(),
        None => args.url.clone(),
    };
    let (status, mut report) = ask(args, &place)?;
    report["server"] = json!(place);
    print_as(args.json, &report, lines)?;
    if (200..300).contains(&status) {
        return Ok(());
    }
    Err(anyhow::anyhow!(
        "`{place}` answers {status}: {}",
        failed(&report)
    ))
    .advise(|| "the server's log says why, and `mortise models list` which model failed".to_owned())
}

/// Status and body of the report.
fn ask(args: &HealthArgs, place: &str) -> anyhow::Result<(u16, Value)> {
    let path = if args.ready { "/ready" } else { "/health" };
    let (agent, url) = match &args.socket {
        Some(socket) => (over_socket(socket, args.timeout), "http://127.0.0.1"),
        None => (over_network(args)?, args.url.trim_end_matches('/')),
    };
    let url = format!("{}{path}", url.trim_end_matches("/v1"));
    let asked = agent.get(&url).call();
    let asked = asked.with_context(|| format!("`{place}` does not answer"));
    let mut response = asked.advise(|| {
        "`mortise serve` starts a server; --url or --socket names another, --ca its authority"
            .to_owned()
    })?;
    let status = response.status().as_u16();
    let body = response.body_mut().with_config().limit(REPORT_BYTES_MAX);
    let body = body.read_to_string();
    let body = body.with_context(|| format!("`{place}` broke off"))?;
    match serde_json::from_str(&body) {
        Ok(report @ Value::Object(_)) => Ok((status, report)),
        _ => bail!("`{place}` answers {status} and no JSON object; is it a mortise?"),
    }
}

fn over_network(args: &HealthArgs) -> anyhow::Result<Agent> {
    let tls = trusting(args.ca.as_deref())?;
    let config = Agent::config_builder()
        .tls_config(tls.build())
        .http_status_as_error(false)
        .timeout_global(Some(Duration::from_secs(args.timeout)));
    Ok(config.build().new_agent())
}

fn over_socket(path: &Path, seconds: u64) -> Agent {
    let config = Agent::config_builder()
        .http_status_as_error(false)
        .timeout_global(Some(Duration::from_secs(seconds)))
        .build();
    let sockets = LocalSockets::at(path);
    Agent::with_parts(config, sockets, DefaultResolver::default())
}

/// The report as a line: the whole, then each part.
fn lines(report: &Value) -> String {
    let status = report["status"].as_str().unwrap_or("unknown");
    let checks = report["checks"].as_object().into_iter().flatten();
    let mut line = checks.fold(status.to_owned(), |line, (name, state)| {
        format!("{line}  {name} {}", state.as_str().unwrap_or("unknown"))
    });
    line.push('\n');
    line
}

/// Parts that have failed; what the server says of itself, if none has.
fn failed(report: &Value) -> String {
    let checks = report["checks"].as_object().into_iter().flatten();
    let failed = checks.filter(|(_, state)| *state == "failed");
    let names: Vec<String> = failed
        .map(|(name, _)| format!("{name} has failed"))
        .collect();
    match names.is_empty() {
        true => report["status"].as_str().unwrap_or("unknown").to_owned(),
        false => names.join(", "),
    }
}
