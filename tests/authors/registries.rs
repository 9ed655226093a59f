//! Plugins in OCI registries: Debian's `docker-registry`, a layout on the disk, a mirror, the lock file.

use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};

use serde_json::{Value, json};

use crate::support::client::Request;
use crate::support::example::{built, root};
use crate::support::{Server, binary, have, wait_for};

/// `bob:sesame`, as htpasswd writes it.
const USERS: &str = "bob:$2y$05$abcdefghijklmnopqrstuuKcS.CYWVYVaLiiCKrrc0A5s3mGesJ9O\n";

/// The private key of RFC 8410, 10.3, and its public key in hexadecimal.
const KEY: &str = "-----BEGIN PRIVATE KEY-----\n\
    MC4CAQAwBQYDK2VwBCIEINTuctv5E1hK1bbY8fdp+K06/nwoy/HU++CXqI9EdVhC\n\
    -----END PRIVATE KEY-----\n";
const PUBLIC_KEY: &str = "19bf44096984cdfe8541bac167dc3b96c85086aa30b6b6cb0c5c38ad703166e1";

/// `bob:sesame` in base64.
const BOB: &str = "Ym9iOnNlc2FtZQ==";

/// Debian's registry on a free port. Dropping it kills it.
pub(crate) struct Registry {
    child: Child,
    pub(crate) name: String,
    _folder: tempfile::TempDir,
}

impl Registry {
    /// Start the registry, with the users above or for everybody.
    pub(crate) fn start(users: bool) -> Self {
        let folder = tempfile::tempdir().expect("make a folder");
        let port = TcpListener::bind("127.0.0.1:0").and_then(|listener| listener.local_addr());
        let name = format!("127.0.0.1:{}", port.expect("a port").port());
        let mut config = format!(
            "version: 0.1\nlog: {{level: error}}\nstorage:\n  filesystem: {{rootdirectory: {:?}}}\n\
             http: {{addr: {name:?}}}\n",
            folder.path()
        );
        if users {
            let file = folder.path().join("users");
            std::fs::write(&file, USERS).expect("write the users");
            config.push_str(&format!(
                "auth:\n  htpasswd: {{realm: here, path: {file:?}}}\n"
            ));
        }
        let file = folder.path().join("config.yml");
        std::fs::write(&file, config).expect("write the configuration");
        let child = Command::new("docker-registry")
            .arg("serve")
            .arg(file)
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .expect("run docker-registry");
        let registry = Self {
            child,
            name,
            _folder: folder,
        };
        wait_for(|| {
            std::net::TcpStream::connect(&registry.name)
                .map(drop)
                .map_err(|error| error.to_string())
        });
        registry
    }
}

impl Drop for Registry {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// An author or an operator, with a home and a plugin folder of their own.
pub(crate) struct Desk {
    folder: tempfile::TempDir,
}

impl Desk {
    pub(crate) fn new() -> Self {
        let folder = tempfile::tempdir().expect("make a folder");
        Self { folder }
    }

    pub(crate) fn at(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    pub(crate) fn plugins(&self) -> PathBuf {
        self.at("plugins")
    }

    /// Write the login for a registry, as `docker login` leaves it.
    pub(crate) fn log_in(&self, registry: &str, auth: &str) {
        let config = json!({"auths": {registry: {"auth": auth}}});
        std::fs::create_dir_all(self.at(".docker")).expect("make a folder");
        std::fs::write(self.at(".docker/config.json"), config.to_string()).expect("write");
    }

    fn run(&self, arguments: &[&str]) -> Output {
        Command::new(binary())
            .arg("plugin")
            .args(arguments)
            .current_dir(self.folder.path())
            .env("HOME", self.folder.path())
            .env_remove("DOCKER_CONFIG")
            .env_remove("REGISTRY_AUTH_FILE")
            .env_remove("XDG_RUNTIME_DIR")
            .env_remove("XDG_CONFIG_HOME")
            .output()
            .expect("run mortise")
    }

    /// Output of `mortise plugin`, which must succeed, as JSON.
    pub(crate) fn does(&self, arguments: &[&str]) -> Value {
        let output = self.run(arguments);
        let told = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{arguments:?}: {told}");
        serde_json::from_slice(&output.stdout).expect("JSON")
    }

    /// Error output of `mortise plugin`, which must fail without a panic.
    pub(crate) fn fails(&self, arguments: &[&str]) -> String {
        let output = self.run(arguments);
        let told = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(
            !output.status.success() && !told.contains("panicked"),
            "{arguments:?}: {told}"
        );
        told
    }

    /// Files of the plugin folder.
    pub(crate) fn installed(&self) -> Vec<String> {
        let entries = std::fs::read_dir(self.plugins()).into_iter().flatten();
        let names = entries.map(|entry| entry.expect("an entry").file_name());
        let mut names: Vec<String> = names
            .map(|name| name.to_string_lossy().into_owned())
            .collect();
        names.sort();
        names
    }

    /// A signed copy of a file, and the public key that `mortise plugin sign` tells.
    fn sign(&self, file: &Path) -> (PathBuf, String) {
        let (key, own) = (self.at("key.pem"), self.at("signed.wasm"));
        std::fs::copy(file, &own).expect("copy the plugin");
        std::fs::write(&key, KEY).expect("write the key");
        let told = self.does(&["sign", text(&own), "--key", text(&key)]);
        (own, told["public_key"].as_str().expect("a key").to_owned())
    }
}

pub(crate) fn text(path: &Path) -> &str {
    path.to_str().expect("UTF-8")
}

pub(crate) fn two_policies() -> (PathBuf, PathBuf) {
    let default = root().join("host/bundle/prebuilt/policy.wasm");
    (built("daily-quota"), default)
}

#[test]
fn feature_w2_a_plugin_goes_through_a_registry_to_a_server() {
    if !have(&["docker-registry"]) {
        return;
    }
    let registry = Registry::start(true);
    let (author, operator) = (Desk::new(), Desk::new());
    let reference = format!("{}/team/quota:1.0", registry.name);
    let (file, key) = author.sign(&two_policies().1);
    assert_eq!(key, PUBLIC_KEY);
    let told = author.fails(&["push", text(&file), &reference]);
    assert!(
        told.contains("401") && told.contains("docker login"),
        "{told}"
    );
    author.log_in(&registry.name, "Ym9iOndyb25n");
    author.fails(&["push", text(&file), &reference]);
    author.log_in(&registry.name, BOB);
    let pushed = author.does(&["push", text(&file), &reference]);
    assert_eq!(pushed["signed"], true);

    operator.fails(&["pull", &reference]);
    operator.log_in(&registry.name, BOB);
    let other = "00".repeat(32);
    let told = operator.fails(&["pull", &reference, "--trusted-key", &other]);
    assert!(told.contains("none of the trusted keys"), "{told}");
    assert!(
        operator.installed().is_empty(),
        "{:?}",
        operator.installed()
    );
    let found = operator.does(&["search", &registry.name, "quo"]);
    let found = &found["plugins"][0];
    assert_eq!(found["kinds"], "policy");
    assert_eq!(
        (&found["digest"], &found["tags"]),
        (&pushed["digest"], &json!(["1.0"]))
    );
    assert_eq!(found["wit"], "mortise:plugin@0.3.0");
    assert_eq!(
        operator.does(&["search", &registry.name, "nothing"])["plugins"],
        json!([])
    );

    let pulled = operator.does(&["pull", &reference, "--trusted-key", &key]);
    assert_eq!(pulled["plugins"][0]["manifest"], pushed["digest"]);
    assert_eq!(
        operator.installed(),
        ["mortise-plugins.lock", "quota.wasm", "quota.wasm.sig"]
    );
    let same = std::fs::read(operator.plugins().join("quota.wasm")).expect("read");
    assert!(
        same == std::fs::read(&file).expect("read"),
        "the same bytes"
    );
    let server = Server::configured(&format!(
        "[server]\nport = 0\n[plugins]\ndir = {:?}\nstrict = true\nrequire_signed = true\ntrusted_keys = [{key:?}]\n",
        operator.plugins()
    ));
    assert_eq!(server.send(&Request::get("/v1/models")).status(), 200);
}

#[test]
fn feature_w2_the_lock_file_pins_what_a_tag_stood_for() {
    if !have(&["docker-registry"]) {
        return;
    }
    let registry = Registry::start(false);
    let (author, operator) = (Desk::new(), Desk::new());
    let reference = format!("{}/policy:stable", registry.name);
    let (one, two) = two_policies();
    let first = author.does(&["push", text(&one), &reference])["digest"].clone();
    operator.does(&["pull", &reference]);
    let second = author.does(&["push", text(&two), &reference])["digest"].clone();
    assert_ne!(first, second);
    let installed = || std::fs::read(operator.plugins().join("policy.wasm")).expect("read");
    let pulled = operator.does(&["pull", &reference]);
    assert_eq!(
        (
            &pulled["plugins"][0]["manifest"],
            &pulled["plugins"][0]["changed"]
        ),
        (&first, &json!(false))
    );
    let told = operator.fails(&[
        "pull",
        &format!("{reference}@{}", second.as_str().expect("a digest")),
    ]);
    assert!(told.contains("--update"), "{told}");
    let told = operator.fails(&[
        "pull",
        &format!("{}/other:stable", registry.name),
        "--file",
        "policy.wasm",
    ]);
    assert!(told.contains("is locked to"), "{told}");
    let told = operator.fails(&["pull", &reference, "--file", "../policy.wasm"]);
    assert!(told.contains("no name such as"), "{told}");
    let pulled = operator.does(&["pull", &reference, "--update"]);
    assert_eq!(pulled["plugins"][0]["manifest"], second);
    assert!(installed() == std::fs::read(&two).expect("read"));

    // Another machine with the lock file alone gets the same, from a mirror or from a layout.
    let lock = operator.plugins().join("mortise-plugins.lock");
    let mirror = Registry::start(false);
    let layout = author.at("layout");
    let copy = format!("{}/policy:stable", mirror.name);
    author.does(&["push", text(&two), &copy]);
    author.does(&["push", text(&two), &reference, "--layout", text(&layout)]);
    author.does(&["push", text(&one), &copy, "--layout", text(&layout)]);
    drop(registry);
    for place in [["--mirror", &*mirror.name], ["--layout", text(&layout)]] {
        let machine = Desk::new();
        std::fs::create_dir_all(machine.plugins()).expect("make a folder");
        std::fs::copy(&lock, machine.plugins().join("mortise-plugins.lock")).expect("copy");
        machine.fails(&["pull"]);
        let pulled = machine.does(&["pull", place[0], place[1]]);
        assert_eq!(pulled["plugins"][0]["manifest"], second, "{place:?}");
        assert_eq!(machine.installed(), ["mortise-plugins.lock", "policy.wasm"]);
    }
    // A mirror that has another artifact by that name changes nothing.
    author.does(&["push", text(&one), &copy]);
    let machine = Desk::new();
    std::fs::create_dir_all(machine.plugins()).expect("make a folder");
    let text = std::fs::read_to_string(&lock).expect("read the lock file");
    let wrong = second
        .as_str()
        .expect("a digest")
        .replace(['a', 'b', 'c'], "0");
    let text = text.replace(second.as_str().expect("a digest"), &wrong);
    std::fs::write(machine.plugins().join("mortise-plugins.lock"), text).expect("write");
    machine.fails(&["pull", "--mirror", &mirror.name]);
    assert_eq!(machine.installed(), ["mortise-plugins.lock"]);
}

#[test]
fn feature_w2_what_is_no_plugin_is_not_pushed() {
    let author = Desk::new();
    let file = author.at("broken.wasm");
    std::fs::write(&file, b"\0asm").expect("write");
    // Nothing listens there: the plugin is looked at first.
    let told = author.fails(&["push", text(&file), "127.0.0.1:1/a:1"]);
    assert!(told.contains("broken.wasm"), "{told}");
    std::fs::write(&file, two_policies().1.to_str().expect("UTF-8")).expect("write");
    author.fails(&["sign", text(&file), "--key", text(&file)]);
    let plugins = author.plugins();
    std::fs::create_dir_all(&plugins).expect("make a folder");
    std::fs::write(plugins.join("a.wasm"), b"mine").expect("write");
    let told = author.fails(&["pull", "127.0.0.1:1/a:1"]);
    assert!(told.contains("not in the lock file"), "{told}");
}
