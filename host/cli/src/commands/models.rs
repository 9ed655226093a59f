//! `mortise models …`: the models of a running server, over its admin side.

use std::fmt::Write as _;

use anyhow::bail;
use mortise_harness::{print, print_json};
use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};
use serde_json::{Map, Value, json};

use super::library;
use crate::admin_args::ModelsCommand;
use crate::admin_client::AdminClient;

/// Do what the command line says.
pub(crate) fn run(command: ModelsCommand) -> anyhow::Result<()> {
    match command {
        ModelsCommand::List { server, json } => {
            let models = AdminClient::of(&server)?.get("/v1/admin/models")?;
            match json {
                true => print_json(&models),
                false => print(&table(&models)),
            }
        }
        ModelsCommand::Show { model, server } => {
            print_json(&AdminClient::of(&server)?.get(&format!(
                "/v1/admin/models/{}",
                utf8_percent_encode(&model, NON_ALPHANUMERIC)
            ))?)
        }
        ModelsCommand::Load {
            model,
            settings,
            server,
        } => {
            let body = json!({"model": model, "overrides": overrides(&settings)?});
            let row = AdminClient::of(&server)?.post("/v1/models/load", &body)?;
            print(&format!(
                "{model} is {} after {} ms\n",
                text(&row["runtime_state"]),
                row["load_time_ms"]
            ))
        }
        ModelsCommand::Pull {
            model,
            detach,
            server,
        } => library::pull(&AdminClient::of(&server)?, &model, detach),
        ModelsCommand::Upload {
            file,
            name,
            sha256,
            server,
        } => library::upload(&AdminClient::of(&server)?, &file, name, sha256),
        ModelsCommand::Rm { model, server } => library::remove(&AdminClient::of(&server)?, &model),
        ModelsCommand::Rescan { server } => {
            let report = AdminClient::of(&server)?.post("/v1/admin/models/rescan", &json!({}))?;
            print(&changes(&report))
        }
        ModelsCommand::Queues { server, json } => {
            let queues = AdminClient::of(&server)?.get("/v1/admin/queues")?;
            match json {
                true => print_json(&queues),
                false => print(&queue_table(&queues)),
            }
        }
        ModelsCommand::Unload { model, server } => {
            let row =
                AdminClient::of(&server)?.post("/v1/models/unload", &json!({"model": model}))?;
            print(&format!("{model} is {}\n", text(&row["runtime_state"])))
        }
    }
}

/// Queues in columns, a line for each tenant of a model and one for all of them.
fn queue_table(queues: &Value) -> String {
    let models = queues["data"].as_array().map_or(&[][..], Vec::as_slice);
    let cells = |model: &str, tenant: &str, row: &Value| {
        let number = |key: &str| match &row[key] {
            Value::Null => "-".to_owned(),
            value => value.to_string(),
        };
        let keys = [
            "weight",
            "entitled",
            "running",
            "waiting",
            "preempted",
            "computed_tokens",
            "waited_ms_mean",
        ];
        let mut cells = vec![model.to_owned(), tenant.to_owned()];
        cells.extend(keys.map(number));
        cells
    };
    let head = [
        "MODEL",
        "ACCOUNT",
        "WEIGHT",
        "ENTITLED",
        "RUNNING",
        "WAITING",
        "PREEMPTED",
        "TOKENS",
        "WAITED MS",
    ];
    let mut rows = vec![head.map(str::to_owned).to_vec()];
    for model in models {
        let name = text(&model["model"]);
        let mut all = cells(name, "(all)", model);
        // The batch as a whole is what tenants are entitled to parts of.
        all[3] = model["max_running"].to_string();
        rows.push(all);
        for tenant in model["tenants"].as_array().into_iter().flatten() {
            rows.push(cells(
                name,
                tenant["account"].as_str().unwrap_or("(none)"),
                tenant,
            ));
        }
    }
    let widths: Vec<usize> = (0..head.len())
        .map(|column| {
            rows.iter()
                .map(|row| row[column].chars().count())
                .max()
                .unwrap_or(0)
        })
        .collect();
    let mut lines = String::new();
    for row in &rows {
        let cells = row.iter().zip(&widths).enumerate();
        let cells = cells.map(|(column, (cell, width))| match column {
            0 | 1 => format!("{cell:width$}"),
            _ => format!("{cell:>width$}"),
        });
        let _ = writeln!(lines, "{}", cells.collect::<Vec<_>>().join("  "));
    }
    lines
}

/// Report of a rescan, a line for each model and file.
fn changes(report: &Value) -> String {
    let mut lines = String::new();
    for kind in ["added", "removed", "updated", "in_use"] {
        for name in report["models"][kind].as_array().into_iter().flatten() {
            let _ = writeln!(lines, "{kind:8} {}", text(name));
        }
    }
    for skipped in report["skipped"].as_array().into_iter().flatten() {
        let (path, reason) = (text(&skipped["path"]), text(&skipped["reason"]));
        let _ = writeln!(lines, "skipped  {path}: {reason}");
    }
    match lines.is_empty() {
        true => "nothing has changed\n".to_owned(),
        false => lines,
    }
}

/// Settings of a load, from `KEY=VALUE`.
fn overrides(settings: &[String]) -> anyhow::Result<Value> {
    let mut overrides = Map::new();
    for setting in settings {
        let Some((key, value)) = setting.split_once('=') else {
            bail!("`--set {setting}` has no `=`; write --set KEY=VALUE");
        };
        let value = serde_json::from_str(value).unwrap_or_else(|_| Value::from(value));
        overrides.insert(key.to_owned(), value);
    }
    Ok(Value::Object(overrides))
}

/// Models in columns.
fn table(models: &Value) -> String {
    let rows = models["data"].as_array().map_or(&[][..], Vec::as_slice);
    let wide = rows.iter().map(|row| text(&row["name"]).chars().count());
    let wide = wide.max().unwrap_or(0).max("NAME".len());
    let mut lines = format!(
        "{:wide$}  {:9}  {:>8}  {:>8}  {:>8}  LAST ERROR\n",
        "NAME", "STATE", "REQUESTS", "MIB", "IDLE S"
    );
    for row in rows {
        let mut line = format!(
            "{:wide$}  {:9}  {:>8}  {:>8}  {:>8}  {}",
            text(&row["name"]),
            text(&row["runtime_state"]),
            row["inflight_requests"],
            row["vram_estimate_mib"],
            row["idle_seconds"]
                .as_u64()
                .map_or("-".to_owned(), |idle| idle.to_string()),
            row["last_error"].as_str().unwrap_or_default(),
        );
        line.truncate(line.trim_end().len());
        let _ = writeln!(lines, "{line}");
    }
    lines
}

/// A text of an answer; nothing if it is none.
pub(super) fn text(value: &Value) -> &str {
    value.as_str().unwrap_or_default()
}
