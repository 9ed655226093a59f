//! The Debian package on the machine that the test runs on: installed with its maintainer scripts, asked for an answer, removed
//! and purged.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::packages::answers;
use crate::run;
use crate::support::skipped_because;

const PROGRAM: &str = "/usr/bin/mortise";
const SETTINGS: &str = "/etc/mortise/mortise.toml";
/// Folder by which maintainer scripts tell that systemd runs.
const SYSTEMD: &str = "/run/systemd/system";

/// Folders that systemd makes for the service, and that are made here for the program.
const FOLDERS: [&str; 2] = ["/var/lib/mortise", "/var/cache/mortise"];

/// Reason for which the package is not installed on this machine, if there is one.
fn reason_against() -> Option<String> {
    let user = Command::new("id").arg("-u").output().ok()?.stdout;
    if user != b"0\n" {
        return Some("only root installs packages".to_owned());
    }
    let mut places = ["/etc/mortise", PROGRAM].into_iter().chain(FOLDERS);
    if let Some(place) = places.find(|place| Path::new(place).exists()) {
        return Some(format!(
            "`{place}` is there, which the test would take away"
        ));
    }
    if Path::new(SYSTEMD).exists() {
        return Some("systemd runs here, and would be told of the package".to_owned());
    }
    None
}

/// A package that is installed, and what stands in for systemd; all is gone when it is dropped.
struct Installed {
    work: tempfile::TempDir,
}

impl Installed {
    fn new() -> Self {
        let work = tempfile::tempdir().expect("make a folder");
        let program = work.path().join("systemctl");
        let log = work.path().join("calls");
        let script = format!("#!/bin/sh\necho \"$*\" >> {}\n", log.display());
        fs::write(&program, script).expect("write");
        fs::set_permissions(&program, fs::Permissions::from_mode(0o755)).expect("make it run");
        fs::create_dir_all(SYSTEMD).expect("make a folder");
        for folder in FOLDERS {
            fs::create_dir_all(folder).expect("make a folder");
        }
        Self { work }
    }

    /// Run dpkg, with the program in the place of systemctl.
    fn dpkg(&self, arguments: &[&str]) -> String {
        let path = std::env::var("PATH").unwrap_or_default();
        let path = format!("{}:{path}:/usr/sbin:/sbin", self.work.path().display());
        run(Command::new("dpkg").args(arguments).env("PATH", path))
    }

    /// Requests of the scripts to systemd since the last look.
    fn asked(&self) -> Vec<String> {
        let log = self.work.path().join("calls");
        let text = fs::read_to_string(&log).unwrap_or_default();
        let _ = fs::remove_file(log);
        text.lines().map(str::to_owned).collect()
    }
}

impl Drop for Installed {
    fn drop(&mut self) {
        // What a test that failed has left; it is not there after one that passed.
        let _ = Command::new("dpkg").args(["--purge", "mortise"]).output();
        for folder in FOLDERS.iter().copied().chain(["/etc/mortise"]) {
            let _ = fs::remove_dir_all(folder);
        }
        let _ = fs::remove_dir(SYSTEMD);
        let _ = fs::remove_dir(PathBuf::from(SYSTEMD).with_file_name(""));
    }
}

/// Install the package, ask it for an answer, remove it, and purge it.
pub(crate) fn package_is_installed_and_purged(package: &Path) {
    if let Some(reason) = reason_against() {
        return skipped_because(&format!("the package is not installed: {reason}"));
    }
    let installed = Installed::new();
    let package = package.to_str().expect("a path in UTF-8");
    installed.dpkg(&["--install", package]);
    assert_eq!(
        installed.asked(),
        ["daemon-reload", "try-restart mortise.service"]
    );
    // Every file is as it was packed.
    assert_eq!(installed.dpkg(&["--verify", "mortise"]), "");
    let mode = fs::metadata("/etc/mortise/keys")
        .expect("a folder")
        .permissions();
    assert_eq!(mode.mode() & 0o777, 0o700);
    run(Command::new(PROGRAM).args(["config", "check", SETTINGS]));
    answers(Path::new(PROGRAM), &["--config", SETTINGS]);
    assert!(Path::new("/var/lib/mortise/state.db").is_file());

    // An update keeps what the operator wrote.
    let settings = fs::read_to_string(SETTINGS).expect("the settings");
    fs::write(SETTINGS, format!("{settings}\n# mine\n")).expect("write");
    installed.dpkg(&["--install", package]);
    assert!(
        fs::read_to_string(SETTINGS)
            .expect("the settings")
            .ends_with("# mine\n")
    );
    installed.asked();

    installed.dpkg(&["--remove", "mortise"]);
    assert_eq!(
        installed.asked(),
        ["disable --now mortise.socket mortise.service"]
    );
    assert!(!Path::new(PROGRAM).exists() && Path::new(SETTINGS).is_file());
    installed.dpkg(&["--purge", "mortise"]);
    assert!(!Path::new("/etc/mortise").exists());
    // State is its operator's.
    assert!(Path::new("/var/lib/mortise/state.db").is_file());
}
