//! The `[traces]` table: the collector of traces. What it leaves open, the variables have that OpenTelemetry names.

use std::collections::BTreeMap;
use std::fmt;
use std::path::{Path, PathBuf};

use mortise_trace::{Encoding, TraceConfig, TraceSampling};
use percent_encoding::percent_decode_str;
use serde::Deserialize;

use super::variables::read;
use super::{ConfigError, invalid, milliseconds, variable_of, within};

/// Spans that may wait, at most.
const QUEUE_MAX: usize = 1 << 16;
/// Path of traces below a collector's base URL.
const PATH: &str = "v1/traces";

/// The table as it is written.
#[derive(Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct RawTraces {
    endpoint: Option<String>,
    protocol: Option<String>,
    headers: BTreeMap<String, String>,
    headers_env: Option<String>,
    ca_file: Option<PathBuf>,
    sample_ratio: Option<f64>,
    parent_based: Option<bool>,
    service_name: Option<String>,
    timeout_ms: u64,
    queue: usize,
}

impl Default for RawTraces {
    fn default() -> Self {
        Self {
            endpoint: None,
            protocol: None,
            headers: BTreeMap::new(),
            headers_env: None,
            ca_file: None,
            sample_ratio: None,
            parent_based: None,
            service_name: None,
            timeout_ms: 10_000,
            queue: 4096,
        }
    }
}

impl fmt::Debug for RawTraces {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Without the headers, which may be secrets.
        write!(formatter, "RawTraces({:?})", self.endpoint)
    }
}

/// Reads a variable of the environment.
type Variables<'a> = &'a dyn Fn(&str) -> Option<String>;

impl RawTraces {
    /// The collector; `None` where neither the file nor the environment names one.
    pub(crate) fn check(self, base: &Path) -> Result<Option<TraceConfig>, ConfigError> {
        let variable = |name: &str| std::env::var(name).ok().filter(|value| !value.is_empty());
        self.check_with(base, &variable)
    }

    fn check_with(
        self,
        base: &Path,
        variable: Variables<'_>,
    ) -> Result<Option<TraceConfig>, ConfigError> {
        let timeout = milliseconds("traces.timeout_ms", self.timeout_ms)?;
        let queue = within("traces.queue", self.queue, QUEUE_MAX)?;
        let sampling = self.sampling(variable)?;
        let encoding = encoding(self.protocol.as_deref(), variable)?;
        let headers = self.headers(variable)?;
        let authorities = self
            .ca_file
            .as_ref()
            .map(|file| read("traces.ca_file", &base.join(file)));
        let authorities = authorities.transpose()?;
        let disabled = variable("OTEL_SDK_DISABLED").is_some_and(|value| value == "true")
            || variable("OTEL_TRACES_EXPORTER").is_some_and(|value| value == "none");
        let from_variables = || endpoint_of(encoding, variable).filter(|_| !disabled);
        let Some(endpoint) = self.endpoint.or_else(from_variables) else {
            return Ok(None);
        };
        if !["http://", "https://"].iter().any(|scheme| {
            let rest = endpoint.strip_prefix(scheme);
            rest.is_some_and(|rest| !rest.is_empty() && !rest.starts_with('/'))
        }) {
            let message =
                "it must be an http or https URL, such as http://127.0.0.1:4318/v1/traces";
            return Err(invalid("traces.endpoint", message));
        }
        if has_credentials(&endpoint) {
            let message = "it must have no user, password or query, which logs would show; `headers` and \
                           OTEL_EXPORTER_OTLP_HEADERS take what a collector wants to see";
            return Err(invalid("traces.endpoint", message));
        }
        if encoding == Encoding::Grpc && has_path(&endpoint) {
            let message =
                "with `protocol = \"grpc\"` it has no path, such as http://127.0.0.1:4317";
            return Err(invalid("traces.endpoint", message));
        }
        Ok(Some(TraceConfig {
            endpoint,
            headers,
            encoding,
            authorities,
            timeout,
            queue,
            sampling,
            service: self
                .service_name
                .or_else(|| variable("OTEL_SERVICE_NAME"))
                .unwrap_or_else(|| "mortise".to_owned()),
        }))
    }

    fn headers(&self, variable: Variables<'_>) -> Result<Vec<(String, String)>, ConfigError> {
        let mut all: BTreeMap<String, String> = BTreeMap::new();
        for name in [
            "OTEL_EXPORTER_OTLP_HEADERS",
            "OTEL_EXPORTER_OTLP_TRACES_HEADERS",
        ] {
            if let Some(text) = variable(name) {
                all.extend(pairs(name, &text)?);
            }
        }
        if let Some(name) = &self.headers_env {
            let text = variable_of("traces.headers_env", name)?;
            all.extend(pairs("traces.headers_env", &text)?);
        }
        all.extend(self.headers.clone());
        Ok(all.into_iter().collect())
    }

    fn sampling(&self, variable: Variables<'_>) -> Result<TraceSampling, ConfigError> {
        let named = variable("OTEL_TRACES_SAMPLER");
        let named = named.as_deref().unwrap_or("parentbased_traceidratio");
        let (parent_based, kind) = match named.strip_prefix("parentbased_") {
            Some(kind) => (true, kind),
            None => (false, named),
        };
        let argument = variable("OTEL_TRACES_SAMPLER_ARG").map(|text| text.parse());
        let ratio = match (kind, argument) {
            ("always_on", _) | ("traceidratio", None) => 1.0,
            ("always_off", _) => 0.0,
            ("traceidratio", Some(Ok(ratio))) => ratio,
            ("traceidratio", Some(Err(_))) => {
                let message = "the variable OTEL_TRACES_SAMPLER_ARG must be from 0 to 1";
                return Err(invalid("traces.sample_ratio", message));
            }
            _ => {
                let message = format!(
                    "the variable OTEL_TRACES_SAMPLER is `{named}`; it must be always_on, always_off or \
                     traceidratio, with `parentbased_` before it or without"
                );
                return Err(invalid("traces.sample_ratio", message));
            }
        };
        let ratio = self.sample_ratio.unwrap_or(ratio);
        if !(0.0..=1.0).contains(&ratio) {
            let message = format!("it must be from 0 to 1; it is {ratio}");
            return Err(invalid("traces.sample_ratio", message));
        }
        Ok(TraceSampling {
            ratio,
            parent_based: self.parent_based.unwrap_or(parent_based),
        })
    }
}

/// True if an address has a part that could be secret.
fn has_credentials(endpoint: &str) -> bool {
    let address = endpoint
        .split_once("://")
        .map_or(endpoint, |(_, address)| address);
    let host = address.split(['/', '?', '#']).next().unwrap_or_default();
    host.contains('@') || address.contains(['?', '#'])
}

/// True if there is more behind the address than a slash.
fn has_path(endpoint: &str) -> bool {
    let address = endpoint
        .split_once("://")
        .map_or(endpoint, |(_, address)| address);
    let path = address.find(['/', '?', '#']).map(|at| &address[at..]);
    path.is_some_and(|path| path != "/")
}

/// The address of traces: one of their own, or below that of all signals, which is the whole of it for gRPC.
fn endpoint_of(encoding: Encoding, variable: Variables<'_>) -> Option<String> {
    let own = variable("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT");
    own.or_else(|| {
        let base = variable("OTEL_EXPORTER_OTLP_ENDPOINT")?;
        if encoding == Encoding::Grpc {
            return Some(base);
        }
        Some(format!("{}/{PATH}", base.trim_end_matches('/')))
    })
}

fn encoding(protocol: Option<&str>, variable: Variables<'_>) -> Result<Encoding, ConfigError> {
    let from_variables = || {
        let own = variable("OTEL_EXPORTER_OTLP_TRACES_PROTOCOL");
        own.or_else(|| variable("OTEL_EXPORTER_OTLP_PROTOCOL"))
    };
    let protocol = protocol.map(str::to_owned).or_else(from_variables);
    match protocol.as_deref() {
        None | Some("http/protobuf") => Ok(Encoding::Protobuf),
        Some("http/json") => Ok(Encoding::Json),
        Some("grpc") => Ok(Encoding::Grpc),
        Some(other) => Err(invalid(
            "traces.protocol",
            format!("it must be \"http/protobuf\", \"http/json\" or \"grpc\"; it is `{other}`"),
        )),
    }
}

/// Headers as OpenTelemetry's variables have them: `name=value`, with commas between them, percent-encoded.
fn pairs(key: &str, text: &str) -> Result<Vec<(String, String)>, ConfigError> {
    let parts = text.split(',').filter(|part| !part.trim().is_empty());
    let pairs = parts.map(|part| {
        let value = part.split_once('=').and_then(|(name, value)| {
            let value = percent_decode_str(value.trim()).decode_utf8().ok()?;
            Some((name.trim().to_lowercase(), value.into_owned()))
        });
        // The text may be a secret and is not repeated.
        value.ok_or_else(|| invalid(key, "it must be `name=value`, with commas between pairs"))
    });
    pairs.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(table: &str, variables: &[(&str, &str)]) -> Result<Option<TraceConfig>, ConfigError> {
        let raw: RawTraces = toml::from_str(table).expect("TOML");
        raw.check_with(Path::new("."), &|name| {
            let found = variables.iter().find(|(known, _)| *known == name);
            found.map(|(_, value)| (*value).to_owned())
        })
    }

    #[test]
    fn feature_o6_the_file_wins_over_the_variables_of_opentelemetry() {
        assert!(check("", &[]).expect("settings").is_none());
        let variables = [
            ("OTEL_EXPORTER_OTLP_ENDPOINT", "http://collector:4318/"),
            ("OTEL_EXPORTER_OTLP_HEADERS", "X-Key=a%20b, other=1"),
            ("OTEL_EXPORTER_OTLP_PROTOCOL", "http/json"),
            ("OTEL_TRACES_SAMPLER", "traceidratio"),
            ("OTEL_TRACES_SAMPLER_ARG", "0.25"),
            ("OTEL_SERVICE_NAME", "chat"),
        ];
        let found = check("", &variables).expect("settings").expect("collector");
        assert_eq!(found.endpoint, "http://collector:4318/v1/traces");
        assert_eq!(found.encoding, Encoding::Json);
        assert_eq!(
            (found.sampling.ratio, found.sampling.parent_based),
            (0.25, false)
        );
        assert_eq!(found.service, "chat");
        let header = |name: &str, value: &str| (name.to_owned(), value.to_owned());
        assert_eq!(
            found.headers,
            [header("other", "1"), header("x-key", "a b")]
        );
        let table = "endpoint = \"https://other/v1/traces\"\nprotocol = \"http/protobuf\"\n\
                     headers = { x-key = \"own\" }\nsample_ratio = 0.5\nparent_based = true";
        let found = check(table, &variables)
            .expect("settings")
            .expect("collector");
        assert_eq!(found.endpoint, "https://other/v1/traces");
        assert_eq!(found.encoding, Encoding::Protobuf);
        assert_eq!(
            (found.sampling.ratio, found.sampling.parent_based),
            (0.5, true)
        );
        assert!(found.headers.contains(&header("x-key", "own")));
        let secret = format!("{found:?}");
        assert!(
            secret.contains("x-key") && !secret.contains("own"),
            "{secret}"
        );
        let grpc = [
            ("OTEL_EXPORTER_OTLP_ENDPOINT", "http://collector:4317/"),
            ("OTEL_EXPORTER_OTLP_PROTOCOL", "grpc"),
        ];
        let found = check("", &grpc).expect("settings").expect("collector");
        assert_eq!(found.endpoint, "http://collector:4317/");
        assert_eq!(found.encoding, Encoding::Grpc);
        let off = [variables[0], ("OTEL_SDK_DISABLED", "true")];
        assert!(check("", &off).expect("settings").is_none());
    }

    #[test]
    fn feature_o6_what_is_not_spoken_is_refused_by_name() {
        for (table, variables, key, part) in [
            ("protocol = \"udp\"", &[][..], "traces.protocol", "`udp`"),
            (
                "protocol = \"grpc\"\nendpoint = \"http://collector:4317/v1/traces\"",
                &[],
                "traces.endpoint",
                "no path",
            ),
            (
                "endpoint = \"collector:4317\"",
                &[],
                "traces.endpoint",
                "URL",
            ),
            (
                "endpoint = \"http://me:secret@collector:4318/v1/traces\"",
                &[],
                "traces.endpoint",
                "no user",
            ),
            (
                "",
                &[(
                    "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT",
                    "http://collector:4318/v1/traces?key=secret",
                )],
                "traces.endpoint",
                "or query",
            ),
            ("sample_ratio = 1.5", &[], "traces.sample_ratio", "1.5"),
            ("queue = 0", &[], "traces.queue", "from 1"),
            ("timeout_ms = 0", &[], "traces.timeout_ms", "from 1"),
            (
                "",
                &[("OTEL_TRACES_SAMPLER", "jaeger_remote")],
                "traces.sample_ratio",
                "jaeger_remote",
            ),
            (
                "",
                &[("OTEL_EXPORTER_OTLP_HEADERS", "secret")],
                "OTEL_EXPORTER_OTLP_HEADERS",
                "name=value",
            ),
        ] {
            let error = check(table, variables).expect_err(table).to_string();
            assert!(error.contains(key) && error.contains(part), "{error}");
            assert!(!error.contains("secret"), "{error}");
        }
    }
}
