//! Requests and figures of the server, as the admin side shows them.

use std::collections::HashMap;
use std::sync::Arc;

use mortise_admin::{RequestRow, ServerFigures, ServerWatch, TenantRow};
use mortise_http::AccessObserver as _;
use mortise_service::{RequestUnderWay, Service};
use mortise_telemetry::Metrics;

/// The service's requests, with what telemetry measured.
pub(crate) struct WatchedRequests {
    pub(crate) service: Arc<Service>,
    pub(crate) metrics: Arc<Metrics>,
}

impl ServerWatch for WatchedRequests {
    fn figures(&self) -> ServerFigures {
        let figures = self.metrics.figures();
        let first = self.metrics.first_tokens();
        ServerFigures {
            ended: figures.requests,
            failed: figures.failed,
            generated_tokens: self.metrics.generated_tokens(),
            first_token: first.map(|first| (first.p50, first.p95)),
        }
    }

    fn requests(&self, most: usize) -> (Vec<RequestRow>, usize) {
        let (rows, total) = self.service.under_way(most);
        (rows.into_iter().map(row).collect(), total)
    }

    fn tenants(&self, most: usize) -> Vec<TenantRow> {
        let mut tenants: HashMap<Option<String>, TenantRow> = HashMap::new();
        self.service.each_under_way(|principal, running| {
            if let Some(row) = tenants.get_mut(&principal.tenant) {
                count(row, running);
                return;
            }
            let mut row = TenantRow {
                tenant: principal.tenant.clone(),
                ..TenantRow::default()
            };
            count(&mut row, running);
            tenants.insert(principal.tenant.clone(), row);
        });
        let mut rows: Vec<TenantRow> = tenants.into_values().collect();
        rows.sort_by(|one, other| {
            let size = |row: &TenantRow| row.waiting + row.running;
            let by_size = size(other).cmp(&size(one));
            by_size.then_with(|| one.tenant.cmp(&other.tenant))
        });
        rows.truncate(most);
        rows
    }

    fn cancel(&self, id: &str) -> bool {
        self.service.cancel(id)
    }
}

fn count(row: &mut TenantRow, running: bool) {
    match running {
        true => row.running += 1,
        false => row.waiting += 1,
    }
}

fn row(request: RequestUnderWay) -> RequestRow {
    RequestRow {
        id: request.id.to_string(),
        model: request.model.to_string(),
        subject: request.principal.subject,
        tenant: request.principal.tenant,
        running: request.running,
        age: request.age,
        queued: request.queued,
        first_token: request.first_token,
        prompt_tokens: request.usage.prompt_tokens,
        completion_tokens: request.usage.completion_tokens,
    }
}
