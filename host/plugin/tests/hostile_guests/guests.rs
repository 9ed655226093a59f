//! The guests of `tests/guests`, built once for each test run.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::{Arc, OnceLock};

use mortise_plugin::{
    Binding, BreakerLimits, CallContext, ChatTemplate, Component, ComponentSource, ComponentTools,
    Deadlines, Fault, Grammar, HostConfig, Limits, ModelDescription, OutputParser, ParserSetup,
    PluginError, PluginHost, Policy, Secret, Segment, TemplateInput, Vocabulary,
};

/// Build a guest and read it. All guests share a target folder, hence one file name.
fn build(feature: &str) -> Vec<u8> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let _alone = alone(&root);
    let target = Command::new(root.join("host/bundle/add-target")).output();
    let target = target.expect("run host/bundle/add-target");
    assert!(
        target.status.success(),
        "{}",
        String::from_utf8_lossy(&target.stderr)
    );
    let folder = root.join("tests/guests");
    let target = root.join("target/guests");
    let mut command = Command::new(env!("CARGO"));
    command
        .args([
            "build",
            "--locked",
            "--release",
            "--target",
            "wasm32-wasip2",
        ])
        .args(["--features", feature])
        .current_dir(&folder)
        .env("CARGO_TARGET_DIR", &target)
        // Flags for the machine are not flags for WebAssembly.
        .env_remove("RUSTFLAGS")
        .env_remove("CARGO_ENCODED_RUSTFLAGS")
        .env_remove("CARGO_BUILD_TARGET");
    let output = command.output().expect("cargo runs");
    assert!(
        output.status.success(),
        "building the test guests failed:\n{}",
        String::from_utf8_lossy(&output.stderr)
    );
    std::fs::read(target.join("wasm32-wasip2/release/guests.wasm")).expect("the guest was built")
}

/// Lock on the guests, which other test programs build to the same file (`tests/support/src/example.rs`).
fn alone(root: &Path) -> File {
    let target = root.join("target/guests");
    std::fs::create_dir_all(&target).expect("make a folder below target/");
    let lock = File::create(target.join("guests.lock")).expect("make the lock of guests");
    lock.lock().expect("lock the guests");
    lock
}

/// The guest of all kinds, as bytes.
pub(crate) fn every_kind() -> &'static [u8] {
    static WASM: OnceLock<Vec<u8>> = OnceLock::new();
    WASM.get_or_init(|| build("every-kind"))
}

/// A chat template that imports the clock.
pub(crate) fn greedy_template() -> Vec<u8> {
    build("greedy-template")
}

/// A policy that tells limits of callers.
pub(crate) fn telling_policy() -> &'static [u8] {
    static WASM: OnceLock<Vec<u8>> = OnceLock::new();
    WASM.get_or_init(|| build("telling-policy"))
}

/// A component whose start function does not return.
pub(crate) fn endless_start() -> Vec<u8> {
    build("endless-start")
}

/// A file in a temporary folder.
pub(crate) fn file(name: &str, wasm: &[u8]) -> (tempfile::TempDir, PathBuf) {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join(name);
    std::fs::write(&path, wasm).unwrap();
    (folder, path)
}

/// A host, and the guest of all kinds loaded into it.
pub(crate) struct Fixture {
    pub host: PluginHost,
    pub component: Arc<Component>,
}

/// One host for all tests that do not look at its numbers.
pub(crate) fn shared() -> &'static Fixture {
    static FIXTURE: OnceLock<Fixture> = OnceLock::new();
    FIXTURE.get_or_init(fresh)
}

/// A host of the test's own.
pub(crate) fn fresh() -> Fixture {
    let host = PluginHost::new(HostConfig::default()).unwrap();
    let component = host.load(source("guest", every_kind())).unwrap();
    Fixture { host, component }
}

pub(crate) fn source(name: &str, wasm: &[u8]) -> ComponentSource {
    ComponentSource::Bytes {
        name: name.to_owned(),
        wasm: wasm.to_vec(),
    }
}

/// Limits whose deadlines are met even on a machine that is busy with other things.
pub(crate) fn limits() -> Limits {
    Limits {
        deadlines: deadlines(30_000),
        checkout_wait_ms: 30_000,
        // Attacks come by the dozen, and each must be met by itself.
        breaker: BreakerLimits {
            failures: 0,
            ..BreakerLimits::default()
        },
        // However long a preparation takes, every instance is prepared; `snapshots.rs` has the others.
        keep_prepared_from_us: u64::MAX,
        ..Limits::default()
    }
}

/// The deadline of every call under [`hasty`].
pub(crate) const HASTY_MS: u64 = 150;

/// A binding whose calls are stopped soon, for guests that do not return.
pub(crate) fn hasty() -> Binding {
    let mut binding = binding();
    binding.limits.deadlines = Deadlines {
        prepare_ms: 30_000,
        ..deadlines(HASTY_MS)
    };
    binding
}

fn deadlines(all_ms: u64) -> Deadlines {
    Deadlines {
        prepare_ms: all_ms,
        render_ms: all_ms,
        constraint_ms: all_ms,
        feed_ms: all_ms,
        close_ms: all_ms,
        compile_ms: all_ms,
        mask_ms: all_ms,
        authorize_ms: all_ms,
        account_ms: all_ms,
        tool_ms: all_ms,
        check_ms: all_ms,
        chunk_ms: all_ms,
        retrieve_ms: all_ms,
    }
}

/// A binding with everything that the kinds may be granted. The vocabulary has 70 tokens, so that
/// the last of its three mask words is used in part.
pub(crate) fn binding() -> Binding {
    let count = 70u32;
    Binding {
        model: Some(Arc::new(ModelDescription {
            name: "demo".to_owned(),
            ..ModelDescription::default()
        })),
        vocabulary: Some(Arc::new(Vocabulary {
            bytes: vec![b'a'; count as usize],
            offsets: (0..=count).collect(),
            eos: vec![69],
            control: vec![69],
            digest: "d".to_owned(),
        })),
        secrets: vec![
            Secret::new("first", "sesame"),
            Secret::new("second", "mellon"),
        ],
        limits: limits(),
        ..Binding::default()
    }
}

impl Fixture {
    pub(crate) async fn template(&self, binding: Binding) -> ChatTemplate {
        ChatTemplate::bind(&self.host, &self.component, binding)
            .await
            .unwrap()
    }

    pub(crate) async fn parser(&self, binding: Binding) -> OutputParser {
        OutputParser::bind(&self.host, &self.component, binding)
            .await
            .unwrap()
    }

    pub(crate) async fn grammar(&self, binding: Binding) -> Grammar {
        Grammar::bind(&self.host, &self.component, binding)
            .await
            .unwrap()
    }

    pub(crate) async fn tools(&self, binding: Binding) -> ComponentTools {
        ComponentTools::bind(&self.host, &self.component, binding)
            .await
            .unwrap()
    }

    pub(crate) async fn policy(&self, binding: Binding) -> Policy {
        Policy::bind(&self.host, &self.component, binding)
            .await
            .unwrap()
    }
}

/// A setup in which the tool `f` may be called.
pub(crate) fn setup() -> ParserSetup {
    ParserSetup {
        tools: r#"[{"type":"function","function":{"name":"f"}}]"#.to_owned(),
        ..ParserSetup::default()
    }
}

pub(crate) fn context() -> CallContext {
    CallContext::new("request-1")
}

/// Tell the template to do something, and return the plain text of its prompt.
pub(crate) async fn render(template: &ChatTemplate, command: &str) -> Result<String, PluginError> {
    let input = TemplateInput {
        messages: command.to_owned(),
        ..TemplateInput::default()
    };
    let prompt = template.render(&context(), input).await?;
    let plain = prompt.segments.iter().filter_map(|segment| match segment {
        Segment::Plain(text) => Some(text.as_str()),
        Segment::Special(_) => None,
    });
    Ok(plain.collect())
}

/// The fault of a failed call, after checking that the error names plugin, version and function.
pub(crate) fn fault_of(error: PluginError, function: &str) -> Fault {
    let version = shared().component.version();
    let text = error.to_string();
    assert!(text.contains("`guest`"), "{text}");
    assert!(text.contains(version) && version.len() == 12, "{text}");
    assert_eq!(error.function, function);
    error.fault
}

/// Hold a page of `docs/plugins` to what a test knows: the text between `<!-- NAME -->` and
/// `<!-- /NAME -->`. With `MORTISE_WRITE_PAGES=1` it is written anew.
#[track_caller]
pub(crate) fn hold_page(page: &str, name: &str, text: &str) {
    let path = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../../docs/plugins")
        .join(page);
    let old = std::fs::read_to_string(&path).expect("the page");
    let (before, rest) = old
        .split_once(&format!("<!-- {name} -->\n"))
        .expect("its beginning");
    let (_, after) = rest
        .split_once(&format!("<!-- /{name} -->"))
        .expect("its end");
    let new = format!("{before}<!-- {name} -->\n{text}<!-- /{name} -->{after}");
    if std::env::var_os("MORTISE_WRITE_PAGES").is_some_and(|value| value == "1") {
        std::fs::write(&path, &new).expect("write the page");
    }
    assert!(
        old == new || std::fs::read_to_string(&path).is_ok_and(|now| now == new),
        "docs/plugins/{page} is out of date; run this test with MORTISE_WRITE_PAGES=1"
    );
}
