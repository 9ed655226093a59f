//! `mortise devices`, and the choice of a device.

use std::process::{Command, Output};

use serde_json::Value;

use crate::support::binary;

fn mortise(arguments: &[&str]) -> Output {
    let output = Command::new(binary()).args(arguments).output();
    output.expect("start mortise")
}

fn devices() -> Value {
    let output = mortise(&["devices", "--json"]);
    assert!(output.status.success());
    serde_json::from_slice(&output.stdout).expect("JSON")
}

#[test]
fn devices_are_listed_or_it_is_said_why_not() {
    let report = devices();
    assert!(
        report["cpu"]["cores"]
            .as_u64()
            .is_some_and(|cores| cores > 0)
    );
    assert_eq!(report["cpu"]["architecture"], std::env::consts::ARCH);
    #[cfg(target_arch = "x86_64")]
    {
        let features = report["cpu"]["features"].as_array().expect("features");
        let listed = features.iter().any(|feature| feature == "avx2");
        assert_eq!(listed, std::is_x86_feature_detected!("avx2"), "{report}");
    }
    let text = String::from_utf8(mortise(&["devices"]).stdout).expect("text");
    let gpus = report["gpus"].as_array().expect("gpus");
    match report["no_gpu_because"].as_str() {
        Some(reason) => assert!(gpus.is_empty() && text.contains(reason), "{text}"),
        None => {
            for gpu in gpus {
                let name = gpu["name"].as_str().expect("a name");
                assert!(
                    gpu["memory_bytes"].as_u64() > Some(0) && text.contains(name),
                    "{text}"
                );
            }
        }
    }
}

#[test]
fn a_gpu_that_is_not_there_is_an_error_and_auto_takes_the_processor() {
    let bench = |device| {
        let arguments = [
            "bench",
            "--json",
            "--repeat",
            "1",
            "--prompt",
            "4",
            "--generate",
            "2",
        ];
        mortise(&[&arguments[..], &["--streams", "1", "--device", device]].concat())
    };
    let refused = bench("cuda:99");
    assert_eq!(refused.status.code(), Some(1));
    let error = String::from_utf8_lossy(&refused.stderr).into_owned();
    let found = devices();
    match found["no_gpu_because"].as_str() {
        Some(reason) => assert!(error.contains(reason), "{error}"),
        None => assert!(error.contains("no GPU 99"), "{error}"),
    }
    if found["gpus"].as_array().is_some_and(Vec::is_empty) {
        let report: Value = serde_json::from_slice(&bench("auto").stdout).expect("JSON");
        assert_eq!(report["device"], "cpu", "{report}");
    }
    let wrong = bench("gpu");
    assert_eq!(wrong.status.code(), Some(2));
    assert!(String::from_utf8_lossy(&wrong.stderr).contains("cuda:N"));
}
