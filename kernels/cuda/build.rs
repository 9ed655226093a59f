//! With the feature `cuda`, compiles the kernels to machine code of the architectures that are named
//! below, and to PTX, which drivers translate for later ones.

use std::path::{Path, PathBuf};
use std::process::Command;

/// Machine code runs on its architecture and on later ones of the same generation.
const ARCHITECTURES: [u32; 3] = [80, 89, 90];
/// Compute capability that the PTX is compiled for.
const NEWEST: u32 = 90;

fn main() {
    println!("cargo:rerun-if-changed=kernels");
    println!("cargo:rerun-if-env-changed=CUDA_HOME");
    if std::env::var_os("CARGO_FEATURE_CUDA").is_none() {
        return;
    }
    let toolkit = toolkit();
    let nvcc = toolkit.join("bin/nvcc");
    println!("cargo:rerun-if-changed={}", nvcc.display());
    if !nvcc.is_file() {
        fail(&format!(
            "the feature `cuda` needs the CUDA compiler, and there is none at {}: run \
             kernels/cuda/fetch-toolkit, or set CUDA_HOME to an installed CUDA 13",
            nvcc.display()
        ));
    }
    compile(&nvcc, &output());
}

/// Variable of the environment that cargo sets for every build script.
fn variable(name: &str) -> PathBuf {
    std::env::var_os(name).unwrap_or_default().into()
}

fn output() -> PathBuf {
    variable("OUT_DIR").join("kernels.fatbin")
}

fn toolkit() -> PathBuf {
    match std::env::var_os("CUDA_HOME") {
        Some(home) => home.into(),
        None => variable("CARGO_MANIFEST_DIR").join("../../target/cuda-toolkit"),
    }
}

fn compile(nvcc: &Path, output: &Path) {
    let machine_code =
        ARCHITECTURES.map(|number| format!("-gencode=arch=compute_{number},code=sm_{number}"));
    let status = Command::new(nvcc)
        .args([
            "-std=c++17",
            "-O3",
            "--fatbin",
            "--threads=2",
            "-Werror=all-warnings",
        ])
        .args(machine_code)
        .arg(format!(
            "-gencode=arch=compute_{NEWEST},code=compute_{NEWEST}"
        ))
        .arg("-o")
        .arg(output)
        .arg("kernels/all.cu")
        .status();
    match status {
        Ok(status) if status.success() => {}
        Ok(status) => fail(&format!("{} ended with {status}", nvcc.display())),
        Err(error) => fail(&format!("cannot run {}: {error}", nvcc.display())),
    }
}

fn fail(problem: &str) -> ! {
    eprintln!("{problem}");
    println!("cargo::error={problem}");
    std::process::exit(1);
}
