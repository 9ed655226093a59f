//! The server under siege, and how its callers reach it.

use std::net::{IpAddr, Ipv4Addr};
use std::path::Path;
use std::time::Duration;

use serde_json::{Value, json};

use crate::confinement::Confinement;
use crate::elsewhere;
use crate::support::client::{Request, Response, connect_from};
use crate::support::upstream::FakeUpstream;
use crate::support::{Server, example, until};

/// Prompts of the well-behaved tenant.
pub(crate) const TENANT_PROMPTS: [&str; 3] =
    ["One, two, three,", "What is mortise?", "Once upon a time"];

const TENANT_ADDRESS: IpAddr = IpAddr::V4(Ipv4Addr::new(127, 0, 0, 7));
const ATTACKER_ADDRESS: IpAddr = IpAddr::V4(Ipv4Addr::new(127, 0, 0, 66));

const CONFIG: &str = "
[server]
drain_seconds = 5
[limits]
max_batch = 8
max_body_bytes_in_flight = 33554432
[engine]
kv_cache_mib = 16
[store]
path = 'STATE/state.db'
max_mib = 64
tenant_max_mib = 16
tenant_max_records = 2000
max_file_mib = 4
[response_cache]
max_mib = 4
tenant_max_mib = 2
[[response_cache.rules]]
tenants = [\"attacker\"]
[admin]
port = 0
key = \"the key of the admin side\"
[plugins]
dir = 'PLUGINS'
watch_ms = 200
[[plugins.bindings]]
kind = \"guardrail\"
file = 'GUEST'
models = [\"hostile\"]
on_failure = \"open\"
settings = { watch = \"overflow\" }
memory_mib = 16
[[plugins.bindings]]
kind = \"grammar\"
file = 'GUEST'
models = [\"hostile\"]
memory_mib = 16
instances = 2
[[plugins.bindings]]
kind = \"policy\"
file = 'GUEST'
tenants = [\"rogue\"]
memory_mib = 16
instances = 2
[[models]]
name = \"mortise-demo\"
path = 'DEMO'
[[models]]
name = \"embeds\"
path = 'DEMO'
pooling = \"last\"
[[models]]
name = \"hostile\"
path = 'DEMO'
backend = \"scripted\"
[models.script]
default = \"Hello there, wörld.\"
[[models]]
name = \"elsewhere\"
[models.upstream]
urls = ['UPSTREAM']
model = \"m\"
[[auth.api_keys]]
id = \"tenant\"
key = \"tenant-key\"
tenant = \"tenant\"
[[auth.api_keys]]
id = \"attacker\"
key = \"attacker-key\"
tenant = \"attacker\"
[[auth.api_keys]]
id = \"poor\"
key = \"poor-key\"
tenant = \"poor\"
tokens_per_minute = 500
[[auth.api_keys]]
id = \"rogue\"
key = \"rogue-key\"
tenant = \"rogue\"
";

/// A confined server, and its plugin folder.
pub(crate) struct Ground {
    server: Server,
    plugins: tempfile::TempDir,
    _state: tempfile::TempDir,
    _upstream: FakeUpstream,
    admin: String,
}

impl Ground {
    pub(crate) fn new(confinement: &Confinement) -> Self {
        let folder = || tempfile::tempdir().expect("make a folder");
        let (plugins, state, upstream) = (folder(), folder(), elsewhere::upstream());
        let demo = example::root().join("examples/demo-model/model");
        let text = |path: &Path| path.to_str().expect("UTF-8").to_owned();
        let config = CONFIG
            .replace("PLUGINS", &text(plugins.path()))
            .replace("STATE", &text(state.path()))
            .replace("GUEST", &text(example::every_kind()))
            .replace("DEMO", &text(&demo))
            .replace("UPSTREAM", &upstream.url());
        let server = Server::wrapped(&config, &confinement.wrapper());
        let line = server.wait_for_log(|line| line.contains("admin side on http://"));
        let (_, address) = line.split_once("http://").expect("an address");
        let end = address.find(['"', ' ', '\u{1b}']).unwrap_or(address.len());
        let admin = address[..end].to_owned();
        Self {
            server,
            plugins,
            _state: state,
            _upstream: upstream,
            admin,
        }
    }

    pub(crate) fn address(&self) -> &str {
        self.server.address()
    }

    /// `HOST:PORT` of the admin side.
    pub(crate) fn admin(&self) -> &str {
        &self.admin
    }

    pub(crate) fn plugins(&self) -> &Path {
        self.plugins.path()
    }

    pub(crate) fn hang_up(&self) {
        self.server.signal("HUP");
    }

    pub(crate) fn stall_log(&self, stalled: bool) {
        self.server.stall_log(stalled);
    }

    /// A connection of the attacker's; `None` where the server takes none.
    pub(crate) fn connect(&self) -> Option<std::net::TcpStream> {
        let stream = connect_from(Some(ATTACKER_ADDRESS), self.address()).ok()?;
        stream
            .set_read_timeout(Some(Duration::from_secs(10)))
            .ok()?;
        stream
            .set_write_timeout(Some(Duration::from_secs(10)))
            .ok()?;
        Some(stream)
    }

    fn request(key: &str, path: &str, body: &Value) -> Request {
        let request = Request::post(path, body).header("authorization", &format!("Bearer {key}"));
        let source = if key == "tenant-key" {
            TENANT_ADDRESS
        } else {
            ATTACKER_ADDRESS
        };
        request.from(source)
    }

    /// Ask and wait for the answer.
    pub(crate) fn ask(&self, key: &str, path: &str, body: &Value) -> Response {
        self.server.send(&Self::request(key, path, body))
    }

    /// An answer to the tenant, in whole, and what makes it the same each time.
    pub(crate) fn tenant_answer(&self, at: usize) -> Result<String, String> {
        let body = json!({
            "model": "mortise-demo", "prompt": TENANT_PROMPTS[at], "max_tokens": 12,
            "temperature": 0, "seed": 7, "logprobs": 1,
        });
        let response = self.ask("tenant-key", "/v1/completions", &body);
        if response.status() != 200 {
            return Err(format!("{}: {}", response.status(), response.text()));
        }
        Ok(response.json()["choices"].to_string())
    }

    pub(crate) fn resident_mib(&self) -> u64 {
        self.status_mib("VmRSS:")
    }

    pub(crate) fn peak_mib(&self) -> u64 {
        self.status_mib("VmHWM:")
    }

    fn status_mib(&self, name: &str) -> u64 {
        let path = format!("/proc/{}/status", self.server.pid());
        let status = std::fs::read_to_string(path).expect("its status");
        let line = status.lines().find(|line| line.starts_with(name));
        let kib = line.and_then(|line| line.split_whitespace().nth(1)?.parse::<u64>().ok());
        kib.expect("a number") >> 10
    }

    /// Wait until nothing of the attackers' is left in the engine.
    pub(crate) fn calm(&self) {
        self.stall_log(false);
        let gauges = ["batch_size_decode{", "queue_depth{", "kv_blocks_used{"];
        let gauges = gauges.map(|name| format!("mortise_{name}"));
        until("nothing is left behind", || {
            gauges.iter().all(|gauge| self.server.metric(gauge) == 0.0)
        });
    }

    pub(crate) fn assert_sound(&mut self) {
        self.server.assert_sound();
    }
}
