//! Limits of issued keys with their use: over admin, by events, on the command line.

use std::process::Command;

use serde_json::{Value, json};

use crate::support::client::Request;
use crate::support::{example, until};
use crate::{KEY, Managed, asked, code, scripted};

const KEYS: &str = "/v1/admin/keys";

fn managed(more: &str) -> Managed {
    let slow = "default = \"And so on. \"\nrepeat = 100000\ntoken_delay_ms = 5";
    let models = scripted("one", "default = \"Hello.\"", "") + &scripted("slow", slow, "");
    Managed::start(&format!("{more}\n{models}"))
}

/// Issue a key; the header with its secret.
fn issue(managed: &Managed, body: &Value) -> String {
    let made = managed.ask(Request::post(KEYS, body));
    assert_eq!(made.status(), 201, "{}", made.text());
    format!("Bearer {}", made.json()["key"].as_str().expect("a secret"))
}

fn of(managed: &Managed, id: &str) -> Value {
    managed
        .ask(Request::get(&format!("{KEYS}/{id}/quotas")))
        .ok()
}

/// Numbers of a limit: the limit itself, what is used, and what is left.
fn numbers(row: &Value, name: &str, shared_by: &Value) -> [u64; 3] {
    let quotas = row["quotas"].as_array().expect("limits").iter();
    let mut quotas =
        quotas.filter(|quota| quota["name"] == name && quota["shared_by"] == *shared_by);
    let quota = quotas.next().unwrap_or_else(|| panic!("no {name}: {row}"));
    ["limit", "used", "remaining"].map(|field| quota[field].as_u64().expect("a number"))
}

fn own(row: &Value, name: &str) -> [u64; 3] {
    numbers(row, name, &Value::Null)
}

#[test]
fn feature_z1_the_use_of_limits_is_told_by_key_and_limit() {
    let managed = managed("[[auth.tenants]]\nname = \"acme\"\nrequests_per_day = 1000\n");
    let terms = json!({
        "models": ["one", "slow"], "requests_per_day": 50, "tokens_per_day": 100_000, "max_concurrent": 2,
        "max_tokens": 30_000,
    });
    let ann = issue(
        &managed,
        &json!({"id": "ann", "tenant": "acme", "terms": terms}),
    );
    let ben = issue(&managed, &json!({"id": "ben", "tenant": "acme"}));
    let row = of(&managed, "ann");
    assert_eq!((&row["id"], &row["reason"]), (&json!("ann"), &Value::Null));
    assert_eq!(row["quotas"].as_array().map(Vec::len), Some(4), "{row}");
    for quota in row["quotas"].as_array().expect("limits") {
        assert_eq!(
            (&quota["used"], &quota["remaining"]),
            (&json!(0), &quota["limit"]),
            "{quota}"
        );
        assert_eq!(
            (&quota["resets_at"], &quota["policy"]),
            (&Value::Null, &json!("policy"))
        );
    }

    let mut used = 0;
    for _ in 0..2 {
        let request = Request::post("/v1/chat/completions", &asked("one"));
        let answer = managed.server.send(&request.header("authorization", &ann));
        used += answer.ok()["usage"]["total_tokens"]
            .as_u64()
            .expect("usage");
        let left = answer
            .header("x-ratelimit-remaining-requests-day")
            .map(str::to_owned);
        let [_, _, remaining] = own(&of(&managed, "ann"), "requests_per_day");
        assert_eq!(
            left,
            Some(remaining.to_string()),
            "the headers say the same"
        );
    }
    // What was reserved and not used is given back when the answer has ended.
    until("the reservation is settled", || {
        own(&of(&managed, "ann"), "tokens_per_day")[1] == used
    });
    let row = of(&managed, "ann");
    assert_eq!(own(&row, "requests_per_day"), [50, 2, 48]);
    assert_eq!(own(&row, "max_concurrent"), [2, 0, 2]);
    assert_eq!(own(&row, "tokens_per_day"), [100_000, used, 100_000 - used]);
    let tenants = json!("tenant acme");
    assert_eq!(numbers(&row, "requests_per_day", &tenants), [1000, 2, 998]);
    let quotas = row["quotas"].as_array().expect("limits");
    let day = quotas
        .iter()
        .find(|quota| quota["unit"] == "requests")
        .expect("requests");
    let now = std::time::SystemTime::UNIX_EPOCH
        .elapsed()
        .expect("a clock")
        .as_secs();
    // Two of fifty come back in two fiftieths of a day, from the first of them on.
    let resets = day["resets_at"].as_u64().expect("a time");
    assert!((now..=now + 3_457).contains(&resets), "{resets}, now {now}");
    assert_eq!(day["period_ms"], 86_400_000);

    // An answer under way holds a place, and the other key shares the tenant's limit only.
    let body = json!({"model": "slow", "stream": true, "messages": [{"role": "user", "content": "Go on"}]});
    let request = Request::post("/v1/chat/completions", &body).header("authorization", &ann);
    let mut under_way = request.begin(managed.server.address());
    assert_eq!(under_way.head().status, 200);
    under_way.chunk().expect("a piece of the answer");
    let row = of(&managed, "ann");
    assert_eq!(own(&row, "max_concurrent"), [2, 1, 1]);
    let places = row["quotas"].as_array().expect("limits").iter();
    let mut places = places.filter(|quota| quota["unit"] == "answers");
    let ends = places
        .next()
        .map(|quota| (quota["period_ms"].clone(), quota["resets_at"].clone()));
    assert_eq!(
        ends,
        Some((Value::Null, Value::Null)),
        "nobody knows when answers end"
    );
    drop(under_way);
    until("the place is free", || {
        own(&of(&managed, "ann"), "max_concurrent")[1] == 0
    });
    let request = Request::post("/v1/chat/completions", &asked("one"));
    managed
        .server
        .send(&request.header("authorization", &ben))
        .ok();
    let row = of(&managed, "ben");
    assert_eq!(row["quotas"].as_array().map(Vec::len), Some(1), "{row}");
    assert_eq!(numbers(&row, "requests_per_day", &tenants), [1000, 4, 996]);
    assert_eq!(
        own(&of(&managed, "ann"), "requests_per_day"),
        [50, 3, 47],
        "looking takes nothing"
    );
}

#[test]
fn feature_z1_the_use_of_limits_is_listed_followed_and_printed() {
    let managed = managed("");
    let terms = json!({"requests_per_day": 50});
    let ann = issue(&managed, &json!({"id": "ann", "terms": terms}));
    for id in ["ben", "cyn"] {
        issue(&managed, &json!({"id": id}));
    }
    let list = |query: &str| managed.ask(Request::get(&format!("/v1/admin/quotas{query}")));
    let ids = |query: &str| {
        let rows = list(query).ok();
        assert_eq!(rows["has_more"], false);
        let rows = rows["data"].as_array().expect("rows").clone();
        rows.iter()
            .map(|row| row["id"].as_str().expect("an id").to_owned())
            .collect::<Vec<_>>()
    };
    assert_eq!(ids(""), ["ann", "ben", "cyn"]);
    assert_eq!(ids("?after=ann"), ["ben", "cyn"]);
    assert_eq!(ids("?after=b"), ["ben", "cyn"]);
    assert_eq!(ids("?after=cyn"), [""; 0]);
    assert_eq!(code(&list("?first=ann")), (400, "invalid_query".to_owned()));
    let absent = managed.ask(Request::get(&format!("{KEYS}/nobody/quotas")));
    assert_eq!(code(&absent), (404, "unknown_key".to_owned()));
    assert_eq!(
        of(&managed, "ben")["quotas"],
        json!([]),
        "no limit is not an unknown one"
    );

    let key = format!("Bearer {KEY}");
    let follow = Request::get("/v1/admin/events?topics=quotas").header("authorization", &key);
    let mut events = follow.begin(&managed.admin);
    assert_eq!(events.head().status, 200);
    let mut text = String::new();
    let mut come = |wanted: &str| {
        while !text.contains(wanted) {
            text.push_str(&String::from_utf8_lossy(
                &events.chunk().expect("the stream goes on"),
            ));
        }
        std::mem::take(&mut text)
    };
    let first = come("\n\n");
    assert!(
        first.contains("event: quotas\n") && first.contains("\"id\":\"cyn\""),
        "{first}"
    );
    let request = Request::post("/v1/chat/completions", &asked("one"));
    managed
        .server
        .send(&request.header("authorization", &ann))
        .ok();
    let later = come("\"used\":1");
    assert!(
        !later.contains("\"id\":\"ben\""),
        "only what has changed: {later}"
    );

    managed
        .ask(Request::post(&format!("{KEYS}/ben/revoke"), &json!({})))
        .ok();
    let row = of(&managed, "ben");
    assert_eq!(row["quotas"], Value::Null);
    assert!(
        row["reason"]
            .as_str()
            .is_some_and(|reason| reason.contains("revoked")),
        "{row}"
    );
    let printed = |more: &[&str]| {
        let output = Command::new(crate::support::binary())
            .args([
                "keys",
                "list",
                "--admin-url",
                &format!("http://{}", managed.admin),
            ])
            .args(["--admin-key-env", "ADMIN_KEY"])
            .args(more)
            .env("ADMIN_KEY", KEY)
            .output()
            .expect("run mortise");
        assert!(output.status.success(), "{output:?}");
        String::from_utf8(output.stdout).expect("UTF-8")
    };
    let rows: Value = serde_json::from_str(&printed(&["--json"])).expect("JSON");
    assert_eq!(own(&rows["data"][0], "requests_per_day"), [50, 1, 49]);
    assert_eq!(rows["data"][0]["quotas_reason"], Value::Null);
    assert!(rows["data"][1]["quotas_reason"].is_string(), "{rows}");
    let table = printed(&[]);
    let line = |id: &str| {
        table
            .lines()
            .find(|line| line.starts_with(id))
            .expect("a line")
            .to_owned()
    };
    assert!(line("ann").contains("requests_per_day 1 of 50"), "{table}");
    assert!(
        line("ben").contains("unknown: the key is revoked"),
        "{table}"
    );
    assert!(line("cyn").contains("no limit"), "{table}");
}

#[test]
fn feature_z1_a_policy_that_does_not_tell_limits_has_no_number_made_up_for_it() {
    let quota = example::built("daily-quota");
    let file = quota.to_str().expect("UTF-8");
    let bound = format!(
        "[[plugins.bindings]]\nkind = \"policy\"\nfile = {file:?}\nsettings = {{ requests = 5 }}\n"
    );
    let managed = managed(&bound);
    issue(
        &managed,
        &json!({"id": "ann", "terms": {"requests_per_day": 50}}),
    );
    let row = of(&managed, "ann");
    let reason = row["reason"].as_str().expect("a reason").to_owned();
    assert!(
        reason.contains("daily_quota") && reason.contains("does not tell"),
        "{row}"
    );
    let told = row["quotas"].as_array().map(Vec::len);
    // The default policy stands beside it or not; what it tells is its own.
    assert!(told.is_none() || told == Some(1), "{row}");
}
