//! `mortise chat` and `mortise top` in a real pseudo-terminal, which Python's standard library makes.

use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::process::{Command, Output};

use serde_json::{Value, json};

use crate::sources;
use crate::support::{Server, binary, have};

const DIM: &str = "\u{1b}[2m";
const RESET: &str = "\u{1b}[0m";

const SCRIPT: &str = r#"
default = "I heard you."
lines = [
    { when = "bell", say = "<think>\nhm \u001b]0;x\u0007\n</think>\n\nA \u001b[31mbell\u0007." },
    { when = "endless", say = "On and on. " },
]
repeat = 1
"#;

fn see(text: &str) -> Value {
    json!({"see": text})
}

fn write(text: &str) -> Value {
    json!({"type": text})
}

/// A command in a terminal, with a home of its own.
fn typed(steps: &[Value], arguments: &[&str], home: &Path, variables: &[(&str, &str)]) -> Output {
    Command::new("python3")
        .arg(sources().join("terminal/type.py"))
        .arg(Value::from(steps).to_string())
        .arg(binary())
        .args(arguments)
        .env("XDG_STATE_HOME", home)
        .env("TERM", "xterm-256color")
        .env_remove("NO_COLOR")
        .envs(variables.iter().copied())
        .output()
        .expect("start python3")
}

fn shown(output: &Output) -> String {
    let errors = String::from_utf8_lossy(&output.stderr);
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(output.status.success(), "{errors}\n{text}");
    text
}

#[test]
fn feature_z12_people_talk_with_a_model_in_a_terminal() {
    if !have(&["python3"]) {
        return;
    }
    let server = Server::scripted(SCRIPT, "");
    let home = tempfile::tempdir().expect("make a folder");
    let saved = home.path().join("saved.json");
    let notes = home.path().join("notes.txt");
    std::fs::write(&notes, "the bell").expect("write a file");
    let (saved_name, notes_name) = (saved.display().to_string(), notes.display().to_string());
    let steps = [
        see("/help lists the commands"),
        see("› "),
        write("hello\r"),
        see("I heard you."),
        see("tokens in"),
        see("› "),
        // The line before comes back by the arrow, and is edited.
        write("\u{1b}[A there\r"),
        see("I heard you."),
        see("› "),
        write("/nothing\r"),
        see("there is no command /nothing"),
        write("/model\r"),
        see("scripted"),
        write("/system Be brief.\r"),
        see("is set"),
        write(&format!("/file {notes_name}\r")),
        see("8 bytes"),
        write("what is in it?\r"),
        see("bell"),
        see("tokens in"),
        write("/retry\r"),
        see("bell"),
        see("tokens in"),
        write(&format!("/save {saved_name}\r")),
        see("It is in"),
        write("/clear\r"),
        see("forgotten"),
        write(&format!("/load {saved_name}\r")),
        see("6 messages"),
        write("/quit\r"),
    ];
    let url = server.url("");
    let output = typed(&steps, &["chat", "--url", &url], home.path(), &[]);
    let text = shown(&output);
    // Reasoning is dimmed, and nothing that the model says commands the terminal.
    assert!(text.contains(&format!("{DIM}h")), "{text:?}");
    let plain = text.replace(DIM, "").replace(RESET, "");
    assert!(plain.contains("hm \u{fffd}]0;x\u{fffd}"), "{text:?}");
    for command in ["\u{1b}]0;x", "\u{7}", "\u{1b}[31mbell"] {
        assert!(!text.contains(command), "{text:?}");
    }
    let saved: Value =
        serde_json::from_str(&std::fs::read_to_string(&saved).expect("a file")).expect("JSON");
    assert_eq!(saved["system"], "Be brief.");
    assert_eq!(saved["messages"][2]["content"], "hello there");
    assert!(
        saved["messages"][4]["content"]
            .as_str()
            .is_some_and(|text| text.contains("the bell"))
    );
    let history = home.path().join("mortise/chat_history");
    let mode = std::fs::metadata(&history)
        .expect("a history")
        .permissions()
        .mode();
    assert_eq!(mode & 0o077, 0, "{mode:o}");
    let history = std::fs::read_to_string(history).expect("a history");
    assert!(history.contains("hello there"), "{history}");
}

#[test]
fn feature_z12_an_answer_is_stopped_and_colours_left_out() {
    if !have(&["python3"]) {
        return;
    }
    let slow = format!(
        "{}token_delay_ms = 5\n",
        SCRIPT.replace("repeat = 1", "repeat = 1000")
    );
    let server = Server::scripted(&slow, "");
    let home = tempfile::tempdir().expect("make a folder");
    let steps = [
        see("› "),
        write("endless\r"),
        see("On and on. On"),
        write("\u{3}"),
        see("Stopped."),
        see("› "),
        write("\u{3}"),
        see("Ctrl-D or /quit"),
        see("› "),
        write("\u{4}"),
    ];
    let url = server.url("");
    let output = typed(
        &steps,
        &["chat", "--url", &url],
        home.path(),
        &[("NO_COLOR", "1")],
    );
    let text = shown(&output);
    assert!(!text.contains(DIM), "{text:?}");
    crate::support::until("the server ends it", || {
        server.metric("mortise_active_streams").abs() < f64::EPSILON
    });
}

#[test]
fn feature_z12_a_server_is_watched_in_a_terminal() {
    if !have(&["python3"]) {
        return;
    }
    let server = Server::start(&[]);
    let home = tempfile::tempdir().expect("make a folder");
    let steps = [
        see("\u{1b}[?1049h"),
        see("mortise-demo"),
        see("output-parser"),
        write("\u{3}"),
        see("\u{1b}[?1049l"),
    ];
    let url = server.url("");
    let output = typed(
        &steps,
        &["top", "--interval", "1", "--url", &url],
        home.path(),
        &[],
    );
    assert!(shown(&output).contains("TOKENS/S"));
}

#[test]
fn long_work_shows_how_far_it_is_in_a_terminal() {
    if !have(&["python3"]) {
        return;
    }
    let home = tempfile::tempdir().expect("make a folder");
    let sizes = [
        "--prompt",
        "8",
        "--generate",
        "8",
        "--streams",
        "1,2",
        "--repeat",
        "2",
    ];
    let bench = [&["bench"][..], &sizes].concat();
    // 2 runs of each of 2 numbers of streams and of 4 other measurements, and one that counts for nothing.
    let text = shown(&typed(
        &[see("/13"), see("again")],
        &bench,
        home.path(),
        &[],
    ));
    assert!(text.contains("prefill, 8 tokens"), "{text:?}");
    let piped = Command::new(binary())
        .args(&bench)
        .output()
        .expect("start mortise");
    assert!(
        piped.status.success() && piped.stderr.is_empty(),
        "{piped:?}"
    );

    // A model that is sent, and one that is loaded.
    let library = tempfile::tempdir().expect("make a folder");
    let key = "an admin key of the tests";
    let config = format!(
        "[admin]\nport = 0\nkey = {key:?}\n[library]\nfolder = {:?}\nmin_free_mib = 0\n",
        library.path()
    );
    let server = Server::configured(&config);
    let line = server.wait_for_log(|line| line.contains("admin side on http://"));
    let (_, address) = line.split_once("admin side on ").expect("an address");
    let admin = &address[..address.find(['"', ' ']).unwrap_or(address.len())];
    let place = ["--admin-url", admin, "--admin-key-env", "THE_KEY"];
    let model = crate::support::example::root().join("examples/demo-model/model");
    let model = model.to_str().expect("UTF-8");
    let variables = [("THE_KEY", key)];
    let upload = [&["models", "upload", model, "--name", "sent"][..], &place].concat();
    let text = shown(&typed(
        &[see("MiB"), see("sent is there")],
        &upload,
        home.path(),
        &variables,
    ));
    assert!(text.contains("sent  "), "{text:?}");
    let load = [&["models", "load", "sent"][..], &place].concat();
    shown(&typed(
        &[see("sent  "), see("sent is loaded")],
        &load,
        home.path(),
        &variables,
    ));
}

/// Run in a terminal, and through pipes, where nothing but the result may be said.
#[test]
fn measurements_of_plugins_show_how_far_they_are_in_a_terminal() {
    if !have(&["python3"]) {
        return;
    }
    let home = tempfile::tempdir().expect("make a folder");
    let cases = home.path().join("cases");
    std::fs::create_dir(&cases).expect("make a folder");
    for name in ["seventeen", "never"] {
        let case = json!({"input": {"name": "calculate", "arguments": {"expression": "1 + 16"}}, "expect": {"result": "17"}});
        std::fs::write(cases.join(format!("{name}.json")), case.to_string()).expect("write");
    }
    let plugin = crate::support::example::built("calculator");
    let (plugin, cases) = (plugin.display().to_string(), cases.display().to_string());
    for command in ["bench", "profile"] {
        let arguments = [
            "plugin", command, &plugin, "--cases", &cases, "--rounds", "400",
        ];
        // 400 rounds of each of 2 cases.
        let steps = [see("/800"), see("seventeen"), see("\"file\"")];
        let text = shown(&typed(
            &steps,
            &arguments,
            home.path(),
            &[("NO_COLOR", "1")],
        ));
        assert!(!colours(&text), "{text:?}");
        let (_, result) = text
            .rsplit_once("\u{1b}[2K")
            .expect("the bar is wiped away");
        assert!(!result.contains("/800"), "{result:?}");
        let piped = Command::new(binary()).args(arguments).output();
        let piped = piped.expect("start mortise");
        assert!(
            piped.status.success() && piped.stderr.is_empty(),
            "{piped:?}"
        );
        let result: Value = serde_json::from_slice(&piped.stdout).expect("JSON");
        assert_eq!(result["file"], plugin.as_str());
    }
}

/// Whether a text asks for colours or weights: `ESC [ … m`.
fn colours(text: &str) -> bool {
    let mut commands = text.split("\u{1b}[").skip(1);
    commands.any(|rest| {
        rest.trim_start_matches(|c: char| c.is_ascii_digit() || c == ';')
            .starts_with('m')
    })
}

#[test]
fn feature_z12_a_table_fits_a_small_terminal() {
    if !have(&["python3"]) {
        return;
    }
    let path = crate::support::model::byte_level();
    let models = (0..40).map(|number| {
        format!(
            "[[models]]\nname = \"a-model-with-a-long-name-{number}\"\npath = {path:?}\nbackend = \"scripted\"\n\
             [models.script]\ndefault = \"a\"\n"
        )
    });
    let server = Server::configured(&models.collect::<String>());
    let home = tempfile::tempdir().expect("make a folder");
    let steps = [see("and 33 more models"), see("FAULTS"), write("\u{3}")];
    let output = typed(
        &steps,
        &["top", "--interval", "1", "--url", &server.url("")],
        home.path(),
        &[("TYPE_SIZE", "24x80")],
    );
    let text = shown(&output);
    let screens = text.split("\u{1b}[H\u{1b}[J").skip(1);
    for screen in screens {
        let (screen, _) = screen.split_once("\u{1b}[?25h").unwrap_or((screen, ""));
        let lines: Vec<&str> = screen.lines().collect();
        assert!(lines.len() < 24, "{} lines:\n{screen}", lines.len());
        let widest = lines
            .iter()
            .map(|line| line.trim_end().chars().count())
            .max();
        assert!(widest <= Some(80), "{widest:?}:\n{screen}");
    }
}

#[test]
fn feature_z12_a_server_that_comes_back_is_watched_again() {
    use std::io::{BufRead as _, BufReader};
    let mut server = Server::start(&[]);
    let url = server.url("");
    let mut top = Command::new(binary())
        .args(["top", "--json", "--interval", "1", "--url", &url])
        .stdout(std::process::Stdio::piped())
        .spawn()
        .expect("start mortise");
    let lines = BufReader::new(top.stdout.take().expect("piped")).lines();
    let mut looks =
        lines.map(|line| serde_json::from_str::<Value>(&line.expect("a line")).expect("JSON"));
    assert!(looks.next().expect("a look")["version"].is_string());
    server.signal("KILL");
    server.wait();
    let lost = looks
        .find(|look| look["error"].is_string())
        .expect("a look");
    assert!(
        lost["error"].to_string().contains("does not answer"),
        "{lost}"
    );
    let (_, port) = url.rsplit_once(':').expect("a port");
    let mut again = Command::new(binary())
        .args(["serve", "--port", port])
        .stderr(std::process::Stdio::null())
        .spawn()
        .expect("start mortise");
    let seen = looks.any(|look| look["version"].is_string());
    for process in [&mut top, &mut again] {
        process.kill().expect("it runs");
        process.wait().expect("it ends");
    }
    assert!(seen);
}
