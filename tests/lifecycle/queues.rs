//! Queues of tenants, as operators see them.

use std::process::Command;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering::SeqCst};

use serde_json::{Value, json};

use crate::support::client::Request;
use crate::support::{binary, wait_for};
use crate::{KEY, Managed, code};

/// One place, which is full for a while.
const CONFIG: &str = "[limits]\nmax_batch = 1\n[engine.tenant_weights]\nacme = 3\n\
    [[auth.api_keys]]\nid = \"a\"\nkey = \"the key of a\"\ntenant = \"acme\"\n\
    [[auth.api_keys]]\nid = \"b\"\nkey = \"the key of b\"\ntenant = \"bmce\"\n";

/// The rows of two tenants.
fn tenants(managed: &Managed) -> [Value; 2] {
    let queues = managed.ask(Request::get("/v1/admin/queues")).ok();
    let model = &queues["data"][0];
    assert_eq!(model["model"], "mortise-demo");
    ["tenant acme", "tenant bmce"].map(|name| {
        let rows = model["tenants"].as_array().expect("tenants").iter();
        let mut rows = rows.filter(|row| row["account"] == name);
        rows.next().cloned().unwrap_or(Value::Null)
    })
}

#[test]
fn feature_q4_who_would_wait_too_long_is_refused_at_once() {
    let managed = Managed::start("[limits]\nmax_batch = 1\nmax_expected_wait_ms = 50\n");
    let body =
        json!({"model": "mortise-demo", "prompt": "One, two,", "max_tokens": 40, "min_tokens": 40});
    let ask = || managed.server.post("/v1/completions", &body);
    let (served, refused) = (AtomicUsize::new(0), AtomicUsize::new(0));
    std::thread::scope(|scope| {
        for _ in 0..16 {
            scope.spawn(|| {
                // As long as nobody is refused, the queue is not long enough, or not known.
                for _ in 0..200 {
                    let answer = ask();
                    if answer.status() == 200 {
                        served.fetch_add(1, SeqCst);
                    } else {
                        assert_eq!(code(&answer), (503, "overloaded".to_owned()));
                        let pause = answer.header("retry-after").expect("a pause");
                        assert!((1..=60).contains(&pause.parse::<u64>().expect("seconds")));
                        refused.fetch_add(1, SeqCst);
                    }
                    if refused.load(SeqCst) > 0 {
                        return;
                    }
                }
            });
        }
    });
    assert!(
        served.load(SeqCst) >= 8 && refused.load(SeqCst) > 0,
        "{served:?} {refused:?}"
    );
    // The queue is empty: nobody is refused.
    assert_eq!(ask().status(), 200);
    let refusals = "mortise_refusals_total{model=\"mortise-demo\",reason=\"overloaded\"}";
    assert!(managed.server.metric(refusals) > 0.0);
}

/// Ends callers, also when the test fails.
struct Over<'a>(&'a AtomicBool);

impl Drop for Over<'_> {
    fn drop(&mut self) {
        self.0.store(true, SeqCst);
    }
}

#[test]
fn feature_q6_queues_are_shown_by_tenant() {
    let managed = Managed::start(CONFIG);
    let body = json!({"model": "mortise-demo", "prompt": "One, two,", "max_tokens": 1500, "min_tokens": 1500});
    let answers = [AtomicU64::new(0), AtomicU64::new(0)];
    let over = AtomicBool::new(false);
    // Callers come back until all five have been seen at once, however fast the machine is.
    let call = |tenant: usize| {
        let authorization = ["Bearer the key of a", "Bearer the key of b"][tenant];
        while !over.load(SeqCst) {
            let request = Request::post("/v1/completions", &body);
            let request = request.header("authorization", authorization);
            managed.server.send(&request).ok();
            answers[tenant].fetch_add(1, SeqCst);
        }
    };
    std::thread::scope(|scope| {
        let _over = Over(&over);
        for tenant in [0, 0, 0, 1, 1] {
            scope.spawn(move || call(tenant));
        }
        // A request leaves the queue before its step counts it as running: both are waited for.
        let (acme, bmce) = wait_for(|| {
            let [acme, bmce] = tenants(&managed);
            let both = |key: &str| acme[key].as_u64().zip(bmce[key].as_u64());
            match (both("running"), both("waiting")) {
                (Some((1, 0)), Some((2, 2))) | (Some((0, 1)), Some((3, 1))) => Ok((acme, bmce)),
                _ => Err(format!("{acme} {bmce}")),
            }
        });
        assert_eq!((&acme["weight"], &bmce["weight"]), (&json!(3), &json!(1)));
        let number = |row: &Value, key: &str| row[key].as_u64().expect("a number");
        let preempted = number(&acme, "preempted") + number(&bmce, "preempted");
        assert_eq!(preempted, 0, "{acme} {bmce}");
        assert!(number(&acme, "waiting_tokens") > 0 && number(&acme, "entitled") == 1);
        let shown = Command::new(binary())
            .args([
                "models",
                "queues",
                "--admin-url",
                &format!("http://{}", managed.admin),
            ])
            .args(["--admin-key-env", "ADMIN_KEY"])
            .env("ADMIN_KEY", KEY)
            .output()
            .expect("run mortise");
        let shown = String::from_utf8_lossy(&shown.stdout).into_owned();
        for word in ["ENTITLED", "(all)", "acme", "bmce"] {
            assert!(shown.contains(word), "{word}\n{shown}");
        }
    });
    let [acme, bmce] = tenants(&managed);
    for (row, answers) in [&acme, &bmce].into_iter().zip(answers) {
        assert_eq!(row["dequeued"], answers.into_inner(), "{row}");
        assert_eq!(row["waiting"], 0);
        assert_eq!(row["running"], 0);
        assert!(
            row["waited_ms_mean"].as_f64().expect("a mean") > 0.0,
            "{row}"
        );
    }
}
