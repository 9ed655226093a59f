//! Metrics of connections and request bodies, for Prometheus.

use crate::body_budget::BodyBudget;
use crate::connections::ConnectionTable;
use crate::health::{Check, CheckState};
use crate::tls::TlsServer;

/// Add the families of this module to a page in Prometheus' text format.
pub(super) fn append(
    page: &mut String,
    connections: &ConnectionTable,
    bodies: &BodyBudget,
    tls: Option<&TlsServer>,
    checks: &[Check],
) {
    // A family without a source is absent.
    let handshakes = tls.map(|tls| {
        (
            "mortise_tls_handshakes_failed_total",
            "counter",
            "TLS handshakes of the main listener that failed",
            tls.failed(),
        )
    });
    for (name, kind, help, value) in [
        (
            "mortise_connections",
            "gauge",
            "Connections open",
            connections.open() as u64,
        ),
        (
            "mortise_connections_evicted_total",
            "counter",
            "Connections without a complete request that were ended to make room for others",
            connections.evicted(),
        ),
        (
            "mortise_connections_refused_total",
            "counter",
            "Connections closed at once for lack of room",
            connections.refused(),
        ),
        (
            "mortise_request_body_bytes",
            "gauge",
            "Memory reserved for the bodies of requests in flight",
            bodies.used() as u64,
        ),
        (
            "mortise_request_bodies_refused_total",
            "counter",
            "Requests refused since memory for bodies had run out",
            bodies.refused(),
        ),
    ]
    .into_iter()
    .chain(handshakes)
    {
        page.push_str(&format!(
            "# HELP {name} {help}\n# TYPE {name} {kind}\n{name} {value}\n"
        ));
    }
    let family = "mortise_check_state";
    page.push_str(&format!(
        "# HELP {family} 1 for the state that a part of the server is in\n# TYPE {family} gauge\n"
    ));
    for check in checks {
        for state in [CheckState::Ok, CheckState::Degraded, CheckState::Failed] {
            let (name, word) = (check.name, state.name());
            let value = u8::from(check.state == state);
            page.push_str(&format!(
                "{family}{{check=\"{name}\",state=\"{word}\"}} {value}\n"
            ));
        }
    }
}
