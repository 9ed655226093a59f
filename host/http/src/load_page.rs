//! Metrics of connections and request bodies, for Prometheus.

use crate::body_budget::BodyBudget;
use crate::connections::ConnectionTable;

/// Add the families of this module to a page in Prometheus' text format.
pub(super) fn append(page: &mut String, connections: &ConnectionTable, bodies: &BodyBudget) {
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
    ] {
        page.push_str(&format!(
            "# HELP {name} {help}\n# TYPE {name} {kind}\n{name} {value}\n"
        ));
    }
}
