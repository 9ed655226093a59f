//! The examples in Python and JavaScript serve; and random exceptions that are put into them: where they were raised and with what words stands in
//! the log, on the admin side and in `mortise plugin run`, and nothing of it in the answer to a caller.

use std::fmt::Write as _;
use std::path::Path;
use std::process::Command;

use serde_json::{Value, json};

use crate::examples::{build, passes, serving};
use crate::support::client::Request;
use crate::support::{Server, binary, have, wait_for};

/// Exceptions of each language, unless `MORTISE_EXCEPTIONS` says how many.
const EXCEPTIONS: usize = 24;

/// Exceptions that `mortise plugin run` is asked for, too: each is a process.
const RUN: usize = 2;

const KEY: &str = "an-admin-key-of-some-length";

/// Statements that raise, with what must be told of them. `WORD` is another one each time.
const PYTHON: [(&str, &str); 13] = [
    ("raise ValueError('WORD')", "ValueError: WORD"),
    (
        "raise RuntimeError('WORD\\nsecond')",
        "RuntimeError: WORD second",
    ),
    ("return {}['WORD']", "KeyError: 'WORD'"),
    ("return int('WORD')", "base 10: 'WORD'"),
    ("return None.WORD", "has no attribute 'WORD'"),
    ("return WORD", "NameError: name 'WORD'"),
    ("assert False, 'WORD'", "AssertionError: WORD"),
    (
        "return json.loads('WORD')",
        "JSONDecodeError: Expecting value",
    ),
    ("return [][1] or 'WORD'", "IndexError: list index"),
    ("return 1 // 0 or 'WORD'", "ZeroDivisionError: "),
    ("raise SystemExit('WORD')", "SystemExit: WORD"),
    ("raise Odd('WORD')", "Odd"),
    ("import WORD", "No module named 'WORD'"),
];

const JAVASCRIPT: [(&str, &str); 9] = [
    ("throw new TypeError('WORD');", "TypeError: WORD"),
    ("throw new Error('WORD\\nsecond');", "Error: WORD second"),
    ("return null.WORD;", "property 'WORD' of null"),
    ("return undefined.WORD();", "WORD"),
    ("return WORD;", "ReferenceError: WORD is not defined"),
    ("return JSON.parse('WORD');", "SyntaxError: "),
    (
        "return new Array(-1, 'WORD'.length).fill(0).at(0).WORD();",
        "TypeError: ",
    ),
    ("return 'WORD'.repeat(-1);", "RangeError: "),
    ("return decodeURIComponent('%WORD');", "URIError: "),
];

/// A function that raises.
struct Fault {
    function: String,
    /// Calls between the policy and the statement.
    depth: usize,
    word: String,
    line: usize,
    told: String,
}

impl Fault {
    /// File and line that are told. QuickJS notes no line where a property is read: it tells that of the call before.
    fn place(&self, source: &str) -> String {
        match self.told.contains("property '") {
            true => format!("{source}:"),
            false => format!("{source}:{}", self.line),
        }
    }
}

/// Random faults, the same ones in every run, and a module of functions that have them. `write` puts a
/// function together of its name and its statement.
fn faults(
    statements: &[(&str, &str)],
    module: &mut String,
    write: impl Fn(&str, &str) -> String,
) -> Vec<Fault> {
    let count = std::env::var("MORTISE_EXCEPTIONS").ok();
    let count = count.map_or(EXCEPTIONS, |count| count.parse().expect("a number"));
    let mut random = 0x9e37_79b9_u64;
    let mut draw = |below: usize| {
        random = random
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        usize::try_from(random >> 33).expect("31 bits") % below
    };
    let mut faults = Vec::new();
    for number in 0..count {
        let (statement, told) = statements[draw(statements.len())];
        let word = format!("needle{number}x{}", draw(1_000_000));
        let function = format!("fault{number}");
        module.push_str(&"\n".repeat(draw(3)));
        let text = write(&function, &statement.replace("WORD", &word));
        // The statement stands on the line before the last one.
        let line = module.lines().count() + text.lines().count() - 1;
        module.push_str(&text);
        faults.push(Fault {
            function,
            depth: draw(6),
            line,
            told: told.replace("WORD", &word),
            word,
        });
    }
    faults
}

/// A server with the policy, which breaks down as often as it is asked to, and its admin side.
fn server(file: &Path, settings: &str) -> (Server, String) {
    let more = format!(
        "breaker = {{ failures = 100000, window_ms = 1000 }}\n[admin]\nport = 0\nkey = {KEY:?}\n"
    );
    let server = serving(file, settings, &more);
    let line = server.wait_for_log(|line| line.contains("admin side on http://"));
    let (_, address) = line.split_once("http://").expect("an address");
    (server, address.trim().to_owned())
}

/// Row of the admin side about the breakdown that belongs to a request.
fn breakdown(admin: &str, id: &str) -> Value {
    let request = Request::get("/v1/admin/plugins");
    let request = request.header("authorization", &format!("Bearer {KEY}"));
    wait_for(|| {
        let status = request.send(admin).ok();
        let mut told = status["breakdowns"].as_array().expect("a list").iter();
        let found = told
            .find(|breakdown| breakdown["request_id"] == id)
            .cloned();
        found.ok_or_else(|| format!("{id}: {status}"))
    })
}

/// Ask for each fault, and look for it everywhere.
fn each_is_told(served: &(Server, String), source: &str, trace: &str, faults: &[Fault]) {
    let (server, admin) = served;
    for fault in faults {
        let place = fault.place(source);
        let id = format!("id-{}", fault.word);
        let body =
            json!({"model": "mortise-demo", "messages": [{"role": "user", "content": "Hi"}]});
        let request = Request::post("/v1/chat/completions", &body)
            .header("x-fault", &fault.function)
            .header("x-depth", &fault.depth.to_string())
            .header("x-request-id", &id);
        let answer = server.send(&request);
        let said = answer.text().replace(&id, "");
        assert_eq!(answer.status(), 500, "{said}");
        for word in [&*fault.word, source, trace, "plugin.py", "plugin.js"] {
            assert!(!said.contains(word), "{word:?} is told a caller: {said}");
        }
        let line = server.wait_for_log(|line| {
            line.contains(&id) && line.contains("a plugin says that it failed")
        });
        assert!(
            line.contains(&place) && line.contains(&fault.told),
            "{place}: {line}"
        );
        let kept = breakdown(admin, &id);
        let (text, printed) = (kept["text"].to_string(), &kept["printed"]);
        assert!(text.contains(&place), "{place}: {kept}");
        let printed = printed.as_str().expect("a text");
        assert!(printed.contains(trace), "{printed}");
    }
}

/// Run the plugin for some of the faults, and look for them in what is printed.
fn each_is_told_to_its_author(
    file: &Path,
    settings: &str,
    source: &str,
    trace: &str,
    faults: &[Fault],
) {
    for fault in &faults[..RUN] {
        let printed = run(file, settings, fault);
        let place = fault.place(source);
        assert!(
            printed.contains(&place) && printed.contains(&fault.told),
            "{printed}"
        );
        assert!(printed.contains(trace), "{printed}");
        assert!(printed.contains("plugin info: at work"), "{printed}");
    }
}

/// The status of a chat request with one header.
fn status(server: &Server, header: (&str, &str)) -> u16 {
    let messages = json!([{"role": "user", "content": "Hi"}]);
    let body = json!({"model": "mortise-demo", "messages": messages, "max_tokens": 1});
    let request = Request::post("/v1/chat/completions", &body);
    server.send(&request.header(header.0, header.1)).status()
}

/// Output of `mortise plugin run` about it.
fn run(file: &Path, settings: &str, fault: &Fault) -> String {
    let folder = file.parent().expect("a folder");
    let input = folder.join("fault.json");
    let headers = json!({"x-fault": fault.function, "x-depth": fault.depth.to_string()});
    std::fs::write(&input, json!({"headers": headers}).to_string()).expect("write the input");
    let output = Command::new(binary())
        .args(["plugin", "run", "--settings", settings, "--cache"])
        .arg(folder.join("build").join("cache"))
        .arg(file)
        .arg("--input")
        .arg(&input)
        .output()
        .expect("run mortise");
    assert!(!output.status.success());
    String::from_utf8_lossy(&output.stderr).into_owned()
}

const PYTHON_CALLS: &str = "
import recipes
_authorize = Policy.authorize
def _faulty(self, facts):
    headers = dict(facts.headers)
    if 'x-fault' not in headers:
        return _authorize(self, facts)
    print('at work')
    return getattr(recipes, headers['x-fault'])(int(headers['x-depth']))
Policy.authorize = _faulty
";

#[test]
fn what_python_raises_is_told_to_whoever_runs_the_plugin_and_to_no_caller() {
    if !have(&["python3", "make"]) {
        return;
    }
    let mut module =
        "import json\n\nclass Odd(Exception):\n    def __str__(self):\n        raise RuntimeError('no text')\n"
            .to_owned();
    let faults = faults(&PYTHON, &mut module, |name, statement| {
        format!(
            "def {name}(depth):\n    if depth > 0:\n        return {name}(depth - 1)\n    {statement}\n\n"
        )
    });
    let put_in = [("recipes.py", &*module), ("plugin.py", PYTHON_CALLS)];
    let (_folder, file) = build("model-menu-python", "policy", "python", "make", &put_in);
    passes(&file);
    let settings = "{ menu = { acme = [\"small-*\"], \"*\" = [\"mortise-*\"] } }";
    let served = server(&file, settings);
    assert_eq!(status(&served.0, ("x-tenant", "acme")), 403);
    assert_eq!(status(&served.0, ("x-tenant", "umbrella")), 200);
    let trace = "Traceback (most recent call last)";
    each_is_told(&served, "recipes.py", trace, &faults);
    each_is_told_to_its_author(&file, r#"{"menu": {}}"#, "recipes.py", trace, &faults);
}

const JAVASCRIPT_CALLS: &str = "
import * as recipes from './recipes.js';
const authorize = policy.authorize;
policy.authorize = (facts) => {
  const headers = Object.fromEntries(facts.headers);
  if (headers['x-fault'] === undefined) return authorize(facts);
  console.log('at work');
  return recipes[headers['x-fault']](Number(headers['x-depth']));
};
";

#[test]
fn what_javascript_throws_is_told_to_whoever_runs_the_plugin_and_to_no_caller() {
    if !have(&["node", "npm"]) {
        return;
    }
    let mut module = String::new();
    let faults = faults(&JAVASCRIPT, &mut module, |name, statement| {
        let mut text = format!("export function {name}(depth) {{\n");
        let _ = writeln!(
            text,
            "  if (depth > 0) return {name}(depth - 1);\n  {statement}\n}}"
        );
        text
    });
    let put_in = [("recipes.js", &*module), ("plugin.js", JAVASCRIPT_CALLS)];
    let make = "npm install --silent --no-audit --no-fund\nnpm run build --silent";
    let (_folder, file) = build("token-cap-js", "policy", "js", make, &put_in);
    passes(&file);
    let settings = "{ plans = { free = { max_tokens = 10 } } }";
    let served = server(&file, settings);
    assert_eq!(status(&served.0, ("x-plan", "gold")), 403);
    assert_eq!(status(&served.0, ("x-plan", "free")), 200);
    each_is_told(&served, "recipes.js", "(recipes.js:", &faults);
    each_is_told_to_its_author(
        &file,
        r#"{"plans": {}}"#,
        "recipes.js",
        "(recipes.js:",
        &faults,
    );
}
