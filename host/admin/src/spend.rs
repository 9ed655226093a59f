//! Totals of what requests cost, today and the day before.

use std::collections::BTreeMap;
use std::sync::Arc;

use axum::extract::State;
use axum::response::Response;
use http::StatusCode;
use mortise_http::contract::Operation;
use mortise_http::{Problem, json_response};
use mortise_spend::{AccountTotals, Book, DayTotals};
use serde_json::{Value, json};

use crate::Admin;

/// Totals, and the currency that they are in.
#[derive(Debug, Clone)]
pub struct Spending {
    /// Totals of this host.
    pub book: Arc<Book>,
    /// Name of the currency.
    pub currency: String,
}

/// Operation that shows them.
pub(crate) fn operation() -> Operation {
    let summary = "What requests cost today and the day before, by account and by model.";
    Operation::get("/v1/admin/spend", "getSpend", summary)
        .refuses(&[401, 403, 404])
        .answers(200, "Spend")
}

/// Totals of today and of the day before.
pub(crate) async fn show(State(admin): State<Arc<Admin>>) -> Result<Response, Problem> {
    let Some(spending) = &admin.spending else {
        let message = "nothing costs anything here; give models prices with `[[spend.prices]]`";
        return Err(Problem::new(StatusCode::NOT_FOUND, "no_prices", message));
    };
    let days = spending.book.days();
    let days: Vec<Value> = days.iter().filter(|day| day.day > 0).map(day).collect();
    let body = json!({"object": "spend", "currency": spending.currency, "days": days});
    Ok(json_response(StatusCode::OK, &body))
}

fn day(totals: &DayTotals) -> Value {
    json!({
        "begins_at": totals.day * 86_400,
        "accounts": lines("account", &totals.accounts),
        "models": lines("model", &totals.models),
    })
}

fn lines(name: &str, lines: &BTreeMap<String, AccountTotals>) -> Vec<Value> {
    let row = |(key, line): (&String, &AccountTotals)| {
        json!({
            name: key,
            "requests": line.requests,
            "reserved": line.reserved.to_string(),
            "settled": line.settled.to_string(),
            "released": line.released.to_string(),
            "unknown_usage": line.unknown,
            "refused": line.refused,
        })
    };
    lines.iter().map(row).collect()
}
