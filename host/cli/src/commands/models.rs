//! `mortise models …`: the models of a running server, over its admin side.

use std::fmt::Write as _;
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::thread;
use std::time::Duration;

use anyhow::bail;
use mortise_harness::{print_as, print_json};
use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};
use serde_json::{Map, Value, json};

use super::library;
use crate::admin_args::ModelsCommand;
use crate::admin_client::AdminClient;
use crate::progress::Progress;

/// Pause between two looks at a load.
const LOOK_EVERY: Duration = Duration::from_millis(500);

/// Do what the command line says.
pub(crate) fn run(command: ModelsCommand) -> anyhow::Result<()> {
    match command {
        ModelsCommand::List { server, json } => print_as(
            json,
            &AdminClient::of(&server)?.get("/v1/admin/models")?,
            table,
        ),
        ModelsCommand::Show { model, server } => {
            let path = format!("/v1/admin/models/{}", encoded(&model));
            print_json(&AdminClient::of(&server)?.get(&path)?)
        }
        ModelsCommand::Load {
            model,
            settings,
            server,
            json,
        } => {
            let body = json!({"model": model, "overrides": overrides(&settings)?});
            let row = watched_load(&AdminClient::of(&server)?, &model, &body)?;
            print_as(json, &row, |row| loaded(&model, row))
        }
        ModelsCommand::Pull {
            model,
            detach,
            server,
            json,
        } => {
            let pull = library::pull(&AdminClient::of(&server)?, &model, detach)?;
            print_as(json, &pull, |pull| pulled(pull, detach))
        }
        ModelsCommand::Upload {
            file,
            name,
            sha256,
            server,
            json,
        } => {
            let row = library::upload(&AdminClient::of(&server)?, &file, name, sha256)?;
            print_as(json, &row, sent)
        }
        ModelsCommand::Rm {
            model,
            server,
            json,
        } => {
            let path = format!("/v1/admin/models/{}", encoded(&model));
            let removed = AdminClient::of(&server)?.delete(&path)?;
            print_as(json, &removed, |_| format!("{model} is removed\n"))
        }
        ModelsCommand::Rescan { server, json } => {
            let report = AdminClient::of(&server)?.post("/v1/admin/models/rescan", &json!({}))?;
            print_as(json, &report, changes)
        }
        ModelsCommand::Queues { server, json } => {
            let admin = AdminClient::of(&server)?;
            print_as(json, &admin.get("/v1/admin/queues")?, queue_table)
        }
        ModelsCommand::Unload {
            model,
            server,
            json,
        } => {
            let body = json!({"model": model});
            let row = AdminClient::of(&server)?.post("/v1/models/unload", &body)?;
            let state = text(&row["runtime_state"]);
            print_as(json, &row, |_| format!("{model} is {state}\n"))
        }
    }
}

/// The end of a load.
fn loaded(model: &str, row: &Value) -> String {
    let (state, time) = (text(&row["runtime_state"]), &row["load_time_ms"]);
    format!("{model} is {state} after {time} ms\n")
}

/// The end of a pull, or its number where nobody waits for the end.
fn pulled(pull: &Value, detached: bool) -> String {
    match detached {
        true => format!("{}\n", text(&pull["id"])),
        false => format!(
            "{} is there; load it with `mortise models load`\n",
            text(&pull["model"])
        ),
    }
}

/// The end of an upload.
fn sent(row: &Value) -> String {
    let (name, digest) = (text(&row["name"]), text(&row["checksum"]));
    format!("{name} is there, {digest}\n")
}

fn encoded(name: &str) -> String {
    utf8_percent_encode(name, NON_ALPHANUMERIC).to_string()
}

/// Load a model, and show meanwhile how far the server says that it is.
fn watched_load(server: &AdminClient, model: &str, body: &Value) -> anyhow::Result<Value> {
    let shown = Progress::spinner(&format!("{model}  waiting"));
    let path = &format!("/v1/admin/models/{}", encoded(model));
    let (ended, end) = channel::<()>();
    thread::scope(|scope| {
        let shown = &shown;
        let watch = move || {
            while end.recv_timeout(LOOK_EVERY) == Err(RecvTimeoutError::Timeout) {
                // The load itself tells what is wrong.
                let Ok(row) = server.get(path) else { continue };
                let stage = &row["progress"];
                match (stage["file"].as_str(), text(&stage["stage"])) {
                    (Some(file), _) => {
                        let bytes = |key: &str| stage[key].as_u64().unwrap_or(0);
                        shown.bytes(file, bytes("bytes_done"), bytes("bytes_total"));
                    }
                    (None, "") => {}
                    (None, stage) => shown.stage(&format!("{model}  {stage}")),
                }
            }
        };
        scope.spawn(watch);
        let loaded = server.post("/v1/models/load", body);
        drop(ended);
        loaded
    })
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
    for warning in report["warnings"].as_array().into_iter().flatten() {
        let _ = writeln!(lines, "warning  {}", text(warning));
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
            row["inflight_requests"].to_string(),
            row["vram_estimate_mib"].to_string(),
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
