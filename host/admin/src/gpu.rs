//! `GET /v1/admin/gpu-memory`: memory of the machine's GPUs, beside what its models are estimated to take.
//!
//! NVIDIA's tool is asked and not the driver: it tells of all GPUs and of the processes of others, and the server
//! needs no GPU of its own for it.

use std::process::Stdio;
use std::sync::Arc;
use std::time::Duration;

use axum::extract::State;
use axum::response::Response;
use http::StatusCode;
use mortise_http::json_response;
use serde_json::{Value, json};
use tokio::io::AsyncReadExt as _;
use tokio::process::Command;

use crate::Admin;
use crate::limits::MAX_GPU_TOOL_BYTES;
use crate::row::row;

const TOOL: &str = "nvidia-smi";
const ARGUMENTS: [&str; 2] = [
    "--query-gpu=index,name,memory.used,memory.total",
    "--format=csv,noheader,nounits",
];
/// Time for the tool: it waits for a driver that hangs.
const PATIENCE: Duration = Duration::from_secs(5);
/// Fields of a model's row that are about its memory.
const FIELDS: [&str; 7] = [
    "name",
    "runtime_state",
    "is_loaded",
    "loaded_replicas",
    "vram_estimate_mib",
    "vram_estimate_replica_count",
    "vram_estimate_source",
];

/// Memory of GPUs and models; `error` says why there are no GPUs in it.
pub(crate) async fn memory(State(admin): State<Arc<Admin>>) -> Response {
    let (gpus, error) = match ask(TOOL, &ARGUMENTS, PATIENCE).await {
        Ok(gpus) => (gpus, None),
        Err(error) => (Vec::new(), Some(error)),
    };
    let models = admin.models.statuses();
    let models = models.iter().map(|model| {
        let all = row(model);
        let field = |name: &&str| ((*name).to_owned(), all[*name].clone());
        Value::Object(FIELDS.iter().map(field).collect())
    });
    let models: Vec<Value> = models.collect();
    let body = json!({"gpus": gpus, "models": models, "error": error});
    json_response(StatusCode::OK, &body)
}

/// Rows of all GPUs, or why there are none.
async fn ask(tool: &str, arguments: &[&str], patience: Duration) -> Result<Vec<Value>, String> {
    let text = tokio::time::timeout(patience, output(tool, arguments)).await;
    let text = text.map_err(|_| format!("`{tool}` did not answer within {patience:?}"))??;
    text.lines()
        .filter(|line| !line.trim().is_empty())
        .map(|line| gpu(line).ok_or_else(|| format!("`{tool}` wrote a line that is no GPU's")))
        .collect()
}

async fn output(tool: &str, arguments: &[&str]) -> Result<String, String> {
    let failed = |error: std::io::Error| match error.kind() {
        std::io::ErrorKind::NotFound => format!("`{tool}` is not installed"),
        _ => format!("`{tool}` cannot be run: {error}"),
    };
    let mut child = Command::new(tool)
        .args(arguments)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .kill_on_drop(true)
        .spawn()
        .map_err(failed)?;
    let mut text = Vec::new();
    if let Some(stdout) = child.stdout.take() {
        let mut bounded = stdout.take(MAX_GPU_TOOL_BYTES);
        bounded.read_to_end(&mut text).await.map_err(failed)?;
    }
    let status = child.wait().await.map_err(failed)?;
    if !status.success() {
        return Err(format!("`{tool}` failed: {status}"));
    }
    Ok(String::from_utf8_lossy(&text).into_owned())
}

/// `0, NVIDIA H100 80GB HBM3, 1024, 81559`; a figure that the GPU does not tell is null.
fn gpu(line: &str) -> Option<Value> {
    let (index, rest) = line.split_once(',')?;
    let (rest, total) = rest.rsplit_once(',')?;
    let (name, used) = rest.rsplit_once(',')?;
    let index: u32 = index.trim().parse().ok()?;
    let figure = |text: &str| text.trim().parse::<u32>().ok();
    let (used, total) = (figure(used), figure(total));
    let share = match (used, total) {
        (Some(used), Some(total)) if total > 0 => {
            let share = f64::from(used) / f64::from(total);
            Some((share * 1e4).round() / 1e4)
        }
        _ => None,
    };
    Some(json!({
        "index": index,
        "name": name.trim(),
        "used_mib": used,
        "total_mib": total,
        "used_over_total": share,
    }))
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use serde_json::{Value, json};

    use super::ask;

    const LONG: Duration = Duration::from_secs(60);

    /// Ask a tool that runs these lines of a shell.
    async fn told(script: &str, patience: Duration) -> Result<Vec<Value>, String> {
        ask("sh", &["-c", script], patience).await
    }

    #[tokio::test]
    async fn feature_e12_gpus_are_told_with_their_memory() {
        let lines = "echo '0, NVIDIA H100, 80GB, 1024, 4096'; echo '1, Old card, [N/A], 2048'";
        let gpus = told(lines, LONG).await.unwrap();
        let expected = [
            json!({"index": 0, "name": "NVIDIA H100, 80GB", "used_mib": 1024, "total_mib": 4096,
                   "used_over_total": 0.25}),
            json!({"index": 1, "name": "Old card", "used_mib": null, "total_mib": 2048,
                   "used_over_total": null}),
        ];
        assert_eq!(gpus, expected);
    }

    #[tokio::test]
    async fn feature_e12_a_tool_that_is_absent_fails_or_hangs_is_named() {
        let absent = ask("/absent/nvidia-smi", &[], LONG).await.unwrap_err();
        assert_eq!(absent, "`/absent/nvidia-smi` is not installed");
        for (script, patience, expected) in [
            ("exit 9", LONG, "failed: exit status: 9"),
            (
                "exec sleep 600",
                Duration::from_millis(50),
                "did not answer",
            ),
            ("echo No devices were found", LONG, "no GPU's"),
            ("exec yes", LONG, "failed: signal"),
        ] {
            let error = told(script, patience).await.unwrap_err();
            assert!(error.contains(expected), "{script}: {error}");
        }
    }
}
