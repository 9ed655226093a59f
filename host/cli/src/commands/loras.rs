//! `mortise loras …`: the LoRA adapters of a running server, over its admin side.

use std::fmt::Write as _;

use mortise_harness::{print_as, print_json};
use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};
use serde_json::{Value, json};

use super::models::text;
use crate::admin_args::LorasCommand;
use crate::admin_client::AdminClient;

/// Do what the command line says.
pub(crate) fn run(command: LorasCommand) -> anyhow::Result<()> {
    match command {
        LorasCommand::List { server, json } => {
            let adapters = AdminClient::of(&server)?.get("/v1/admin/loras")?;
            print_as(json, &adapters, table)
        }
        LorasCommand::Show {
            model,
            adapter,
            server,
        } => print_json(&AdminClient::of(&server)?.get(&format!(
            "/v1/admin/loras/{}?base_model={}",
            utf8_percent_encode(&adapter, NON_ALPHANUMERIC),
            utf8_percent_encode(&model, NON_ALPHANUMERIC)
        ))?),
        LorasCommand::Load {
            model,
            adapter,
            path,
            scale,
            server,
            json,
        } => {
            let body = json!({
                "base_model": model,
                "lora_id": adapter,
                "path": path,
                "scale": scale,
            });
            let loaded = AdminClient::of(&server)?.post("/v1/admin/loras/load", &body)?;
            print_as(json, &loaded, |loaded| {
                let status = text(&loaded["status"]);
                let time = &loaded["load_time_ms"];
                format!("{model}:{adapter} is {status} after {time} ms\n")
            })
        }
        LorasCommand::Unload {
            model,
            adapter,
            server,
            json,
        } => {
            let body = json!({"base_model": model, "lora_id": adapter});
            let unloaded = AdminClient::of(&server)?.post("/v1/admin/loras/unload", &body)?;
            print_as(json, &unloaded, |unloaded| {
                format!("{model}:{adapter} is {}\n", text(&unloaded["status"]))
            })
        }
    }
}

/// Adapters in columns.
fn table(adapters: &Value) -> String {
    let rows = adapters["loras"].as_array().map_or(&[][..], Vec::as_slice);
    let name = |row: &Value| format!("{}:{}", text(&row["base_model"]), text(&row["lora_id"]));
    let wide = rows.iter().map(|row| name(row).chars().count());
    let wide = wide.max().unwrap_or(0).max("NAME".len());
    let mut lines = format!(
        "{:wide$}  {:9}  {:>5}  {:>8}  LAST ERROR\n",
        "NAME", "STATE", "RANK", "REQUESTS"
    );
    for row in rows {
        let rank = row["rank"].as_u64();
        let mut line = format!(
            "{:wide$}  {:9}  {:>5}  {:>8}  {}",
            name(row),
            text(&row["status"]),
            rank.map_or("-".to_owned(), |rank| rank.to_string()),
            row["usage_count"].to_string(),
            row["last_error"].as_str().unwrap_or_default(),
        );
        line.truncate(line.trim_end().len());
        let _ = writeln!(lines, "{line}");
    }
    lines
}
