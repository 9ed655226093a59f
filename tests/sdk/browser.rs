//! The playground in a real browser, Debian's Chromium, on the demo model with a tool, on scripted models, and behind a key; and
//! the page of the admin side. The driver and the judge of accessibility come from npm.

use std::io::{BufRead as _, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::{Mutex, PoisonError};

use crate::support::{Server, example, have, kept, model};
use crate::{run, sources};

const PROGRAM: &str = "chromium";

/// File of the changes that the admin side keeps.
const KEPT: &str = "kept.toml";

const ADMIN_KEY: &str = "an admin key of the tests";

const MARKDOWN: &str = "<think>\\nLet me think of 1 < 2.\\n</think>\\n\\n## A title\\n\\nSome **bold** text, a \
    [link](https://example.com/).\\n\\n- one\\n- two & three\\n\\n| a | b |\\n|---|---|\\n| 1 | 2 |\\n\\n```rust\\nif \
    a < b { **no** }\\n```\\n";

/// Text of a model that searches in documents once, and cites what it found.
const FINDER: &str = "default = \"Nothing.\"\nlines = [\n\
    { when = \"Passages of documents\", say = \"It ends after a year [1].\" },\n\
    { when = \"zebra\", say = \"<tool_call>\\n{\\\"name\\\": \\\"file_search\\\", \\\"arguments\\\": {\\\"query\\\": \\\"zebra\\\"}}\\n</tool_call>\" },\n]";

/// A model that is to be elsewhere, where nobody listens.
const FARAWAY: &str = "[[models]]\nname = \"faraway\"\n[models.upstream]\n\
    urls = [\"http://127.0.0.1:9/v1\"]\nmodel = \"m\"\nhealth_check = \"config-only\"\n";

/// The demo model's files as a model that makes vectors.
fn embeds() -> String {
    let demo = example::root().join("examples/demo-model/model");
    format!("[[models]]\nname = \"embeds\"\npath = {demo:?}\npooling = \"last\"\n")
}

/// Models that say what the tests expect. The name of one is markup.
fn scripted() -> Server {
    scripted_with("")
}

/// Models that say what the tests expect, on a server with further configuration.
fn scripted_with(more: &str) -> Server {
    let files = model::byte_level();
    let of = |name: &str, script: &str| {
        format!(
            "[[models]]\nname = \"{name}\"\npath = {files:?}\nbackend = \"scripted\"\n[models.script]\n{script}\n"
        )
    };
    let lines = format!("lines = [{{ when = \"markdown\", say = \"{MARKDOWN}\" }}]");
    let markup = "<think>\\n<script>globalThis.ran=1</script>\\n</think>\\n\\n<img src=x onerror=globalThis.ran=1>";
    Server::configured(
        &[
            more.to_owned(),
            of("scripted", &lines),
            of("other", "default = \"I am the other model.\""),
            of(
                "slow",
                "default = \"And so on. \"\nrepeat = 1000\ntoken_delay_ms = 5",
            ),
            of(
                "hostile <img src=x onerror=globalThis.ran=1>",
                &format!("default = \"{markup}\""),
            ),
            of("finder", FINDER),
            embeds(),
        ]
        .concat(),
    )
}

/// A hub with the demo model's files as `org/tiny`.
struct Hub(Child, String);

impl Hub {
    fn start() -> Self {
        const SCRIPT: &str = "import pathlib, sys\n\
            sys.path.insert(0, sys.argv[1])\n\
            import fake_hub\n\
            server = fake_hub.serve({p.name: p.read_bytes() for p in pathlib.Path(sys.argv[2]).iterdir()})\n\
            print(server.server_port, flush=True)\n\
            server.serve_forever()";
        let mut child = Command::new("python3")
            .args(["-B", "-c", SCRIPT])
            .arg(sources().join("python"))
            .arg(example::root().join("examples/demo-model/model"))
            .stdout(Stdio::piped())
            .spawn()
            .expect("start a hub");
        let mut port = String::new();
        let said = child.stdout.take().expect("its output");
        BufReader::new(said).read_line(&mut port).expect("a port");
        Self(child, format!("http://127.0.0.1:{}", port.trim()))
    }
}

impl Drop for Hub {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// A server with an admin side that keeps an audit log in `folder` and takes plugins, and the address of that side.
fn managed(folder: &Path, more: &str, variables: &[(&str, &Path)]) -> (Server, String) {
    let files = model::byte_level();
    let (log, plugins) = (folder.join("audit.jsonl"), folder.join("plugins"));
    let kept = folder.join(KEPT);
    std::fs::create_dir(&plugins).expect("make a folder");
    let of = |name: &str, more: &str, script: &str| {
        format!(
            "[[models]]\nname = \"{name}\"\npath = {files:?}\nbackend = \"scripted\"\n{more}[models.script]\n{script}\n"
        )
    };
    let config = format!(
        "[admin]\nport = 0\nkey = {ADMIN_KEY:?}\npersist = {kept:?}\n[audit]\nfile = {log:?}\n\
         [plugins]\ndir = {plugins:?}\nwatch_ms = 0\nupload = true\n{more}{}{}{}",
        of(
            "slow",
            "",
            "default = \"And so on. \"\nrepeat = 100000\ntoken_delay_ms = 10",
        ),
        of(
            "other",
            "enabled = false\nreplica_max = 3\n",
            "default = \"I am the other model.\"",
        ),
        embeds(),
    );
    let server = Server::configured_with(&config, variables);
    let line = server.wait_for_log(|line| line.contains("admin side on http://"));
    let (_, address) = line.split_once("admin side on ").expect("an address");
    let end = address.find(['"', ' ']).unwrap_or(address.len());
    let admin = format!("{}/", &address[..end]);
    (server, admin)
}

/// Path of a program, which the driver does not look for itself.
fn found(program: &str) -> PathBuf {
    let folders = std::env::var_os("PATH").unwrap_or_default();
    let mut paths = std::env::split_paths(&folders).map(|folder| folder.join(program));
    paths
        .find(|path| path.is_file())
        .expect("a program on the path")
}

/// The tests with what they need, installed below `target/` once.
fn installed() -> PathBuf {
    static INSTALLING: Mutex<()> = Mutex::new(());
    let _alone = INSTALLING.lock().unwrap_or_else(PoisonError::into_inner);
    let work = kept("sdk-browser");
    let source = sources().join("browser");
    for entry in std::fs::read_dir(&source).expect("list the tests") {
        let file = entry.expect("an entry").path();
        let to = work.join(file.file_name().expect("a name"));
        let content = std::fs::read(&file).expect("read");
        // Tests side by side read the files.
        if std::fs::read(&to).ok().as_ref() != Some(&content) {
            std::fs::write(to, content).expect("write");
        }
    }
    let wanted = std::fs::read(source.join("package-lock.json")).expect("read the versions");
    let stamp = work.join("installed.json");
    if std::fs::read(&stamp).ok().as_ref() != Some(&wanted) {
        run(Command::new("npm")
            .args(["ci", "--no-audit", "--no-fund"])
            .env("npm_config_cache", work.join("npm-cache"))
            .current_dir(&work));
        std::fs::write(stamp, wanted).expect("write the stamp");
    }
    work
}

/// Let a Chromium of its own go through tests, with what they ask for.
fn drive(tests: &str, asked: &[(&str, &str)]) {
    let work = installed();
    let mut command = Command::new("node");
    command.arg("--test").arg(format!("{tests}.test.mjs"));
    command.current_dir(&work);
    command.env("MORTISE_CHROMIUM", found(PROGRAM));
    println!("{}", run(command.envs(asked.iter().copied())));
}

/// True if there is all that the tests need.
fn ready() -> bool {
    have(&["node", "npm", PROGRAM])
}

/// Let a Chromium of its own go through tests of the page of the admin side.
fn drive_admin(tests: &str, more: &[(&str, &str)]) {
    drive_managed(tests, more, "", &[]);
}

/// Let a Chromium of its own go through tests of the page of the admin side, on a server with further configuration and
/// variables.
fn drive_managed(tests: &str, more: &[(&str, &str)], config: &str, variables: &[(&str, &Path)]) {
    let records = tempfile::tempdir().expect("make a folder");
    let (managed, admin) = managed(records.path(), config, variables);
    let (api, kept) = (managed.url("/"), records.path().join(KEPT));
    let asked = [
        ("MORTISE_KEPT", kept.to_str().expect("UTF-8")),
        ("MORTISE_ADMIN_URL", admin.as_str()),
        ("MORTISE_ADMIN_API_URL", &api),
        ("MORTISE_ADMIN_KEY", ADMIN_KEY),
    ];
    drive(tests, &[&asked, more].concat());
}

#[test]
fn feature_z12_people_talk_with_scripted_models_in_a_browser() {
    if ready() {
        let scripted = scripted();
        drive(
            "playground",
            &[("MORTISE_SCRIPTED_URL", &scripted.url("/"))],
        );
    }
}

#[test]
fn feature_z12_conversations_and_settings_are_kept_in_a_browser() {
    if ready() {
        let scripted = scripted();
        let asked = [("MORTISE_SCRIPTED_URL", &*scripted.url("/"))];
        drive("playground-kept", &asked);
    }
}

#[test]
fn feature_z12_people_talk_over_plain_http_in_a_browser() {
    if !ready() {
        return;
    }
    // Under a name that is not the machine's own, pages have what those of another machine have.
    let scripted = scripted_with("[server]\nallowed_hosts = [\"mortise.test\"]\n");
    let url = scripted.url("/").replace("127.0.0.1", "mortise.test");
    drive("playground-plain", &[("MORTISE_PLAIN_URL", &url)]);
}

#[test]
fn feature_z12_people_talk_with_the_demo_model_in_a_browser() {
    if !ready() {
        return;
    }
    let plugins = tempfile::tempdir().expect("make a folder");
    let calculator = example::built("calculator");
    std::fs::copy(&calculator, plugins.path().join("calculator.wasm")).expect("copy the plugin");
    let demo = Server::start(&["--plugins", plugins.path().to_str().expect("UTF-8")]);
    let locked = Server::start(&["--api-key", "the-key"]);
    let (demo_url, locked_url) = (demo.url("/"), locked.url("/"));
    let asked = [
        ("MORTISE_DEMO_URL", demo_url.as_str()),
        ("MORTISE_LOCKED_URL", &locked_url),
    ];
    drive("playground-demo", &asked);
}

#[test]
fn feature_z12_texts_of_models_and_files_stay_texts_in_a_browser() {
    if ready() {
        let scripted = scripted();
        drive("hostile", &[("MORTISE_SCRIPTED_URL", &scripted.url("/"))]);
    }
}

#[test]
fn feature_z13_operators_use_the_page_in_a_browser() {
    if ready() && have(&["python3"]) {
        let (hub, library) = (Hub::start(), tempfile::tempdir().expect("make a folder"));
        let config = format!(
            "[library]\nfolder = {:?}\nmin_free_mib = 0\n",
            library.path()
        );
        let variables = [("HF_ENDPOINT", Path::new(&hub.1))];
        drive_managed("admin", &[], &config, &variables);
    }
}

/// 200 models that are loaded.
fn many() -> String {
    let files = model::byte_level();
    let models = (0..200).map(|at| {
        format!(
            "[[models]]\nname = \"model-{at}\"\npath = {files:?}\nbackend = \"scripted\"\n\
             [models.script]\ndefault = \"And so on. \"\nrepeat = 20\ntoken_delay_ms = 5\n"
        )
    });
    models.collect()
}

/// Models that answer with 10,000 tokens as fast as they can.
fn long() -> Server {
    let files = model::byte_level();
    let fast = |name: &str, script: &str| {
        format!(
            "[[models]]\nname = \"{name}\"\npath = {files:?}\nbackend = \"scripted\"\n[models.script]\n{script}\n"
        )
    };
    let markdown = "- **one** `two` [three](https://example.com/) four\\n- five\\n\\n| a | b |\\n|---|---|\\n| 1 | 2 |\\n\\n";
    let code = "let a = b * c;\\n".repeat(750);
    let models = [
        fast(
            "text",
            "default = \"And so on. And so on.\\n\\n\"\nrepeat = 450",
        ),
        fast(
            "markdown",
            &format!("default = \"{markdown}\"\nrepeat = 112"),
        ),
        // One block without an end.
        fast(
            "paragraph",
            "default = \"And so on, and so on. \"\nrepeat = 500",
        ),
        fast(
            "spans",
            "default = \"And **so** on, `and` [so](https://example.com/) on_and_on, 2 * 3. \"\nrepeat = 180",
        ),
        fast("code", &format!("default = \"```rust\\n{code}\"")),
    ];
    Server::configured(&models.concat())
}

#[test]
fn feature_z12_long_answers_are_little_work_in_a_browser() {
    if ready() {
        let answers = long();
        drive(
            "playground-long",
            &[("MORTISE_SCRIPTED_URL", &answers.url("/"))],
        );
    }
}

/// A measurement, which prints its figures: `-- --ignored figures_of_the_pages --nocapture`.
#[test]
#[ignore = "a measurement"]
fn figures_of_the_pages() {
    if !ready() {
        return;
    }
    let answers = long();
    drive_managed(
        "figures",
        &[("MORTISE_SCRIPTED_URL", &answers.url("/"))],
        &many(),
        &[],
    );
}

#[test]
fn feature_z13_operators_change_plugins_in_a_browser() {
    if ready() {
        let calculator = example::built("calculator");
        let plugin = calculator.to_str().expect("UTF-8");
        drive_admin("admin-plugins", &[("MORTISE_PLUGIN", plugin)]);
    }
}

#[test]
fn feature_z13_operators_see_what_changes_elsewhere_in_a_browser() {
    if ready() {
        drive_managed("admin-live", &[], FARAWAY, &[]);
    }
}

#[test]
fn feature_z13_operators_see_the_memory_of_gpus_in_a_browser() {
    if ready() {
        drive_admin("admin-gpu", &[]);
    }
}

#[test]
fn feature_z13_operators_use_small_screens_in_a_browser() {
    if ready() {
        drive_admin("admin-narrow", &[]);
    }
}

#[test]
fn feature_z13_texts_of_servers_stay_texts_in_a_browser() {
    if ready() {
        drive_admin("admin-hostile", &[]);
    }
}
