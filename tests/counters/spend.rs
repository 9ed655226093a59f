//! Spend: prices, budgets and totals of requests, for local and remote models.

use serde_json::{Value, json};

use crate::support::client::{Request, Response};
use crate::support::valkey::Valkey;
use crate::support::{Server, until};

const CHAT: &str = "/v1/chat/completions";
const ADMIN: &str = "an-admin-key-of-some-length";

/// Prices of one unit a thousand tokens in, and two out: a token costs 1,000 and 2,000 millionths.
const PRICES: &str = "[spend]\ncurrency = \"EUR\"\n[[spend.prices]]\nmodel = \"scripted\"\ninput = \"1000\"\n\
                      cached_input = \"500\"\noutput = \"2000\"\n";

const KEYS: &str = "[admin]\nport = 0\nkey = \"an-admin-key-of-some-length\"\n\
                    [[auth.api_keys]]\nid = \"a\"\nkey = \"sk-a\"\ntenant = \"t\"\n\
                    [[auth.api_keys]]\nid = \"b\"\nkey = \"sk-b\"\ntenant = \"t\"\n";

/// Tokens of an answer, all that may be.
const ANSWER: u64 = 4;

fn priced(more: &str, budgets: &str) -> Server {
    let script = "default = \"One two three four five six.\"\n";
    Server::scripted(script, &format!("{more}{KEYS}{PRICES}{budgets}"))
}

fn ask_for(key: &str, model: &str, max_tokens: u64) -> Request {
    let messages = json!([{"role": "user", "content": "Hi"}]);
    let body = json!({"model": model, "max_tokens": max_tokens, "messages": messages});
    Request::post(CHAT, &body).header("authorization", &format!("Bearer {key}"))
}

fn ask(key: &str) -> Request {
    ask_for(key, "scripted", ANSWER)
}

/// The page of the admin side about what requests cost.
fn page(server: &Server) -> Value {
    let line = server.wait_for_log(|line| line.contains("admin side on http://"));
    let (_, address) = line
        .split_once("admin side on http://")
        .expect("an address");
    let end = address.find(['"', ' ']).unwrap_or(address.len());
    let request = Request::get("/v1/admin/spend").header("x-admin-token", ADMIN);
    request.send(&address[..end]).ok()
}

/// A row of today.
fn row(server: &Server, kind: &str, name: &str, value: &str) -> Value {
    let page = page(server);
    let rows = page["days"][0][kind].as_array().expect("rows").clone();
    let row = rows.into_iter().find(|row| row[name] == value);
    row.unwrap_or_else(|| panic!("no row {value} in {page}"))
}

/// Millionths that an answer cost by the prices.
fn cost(answer: &Value) -> u64 {
    let usage = &answer["usage"];
    let number = |value: &Value| value.as_u64().unwrap_or(0);
    let cached = number(&usage["prompt_tokens_details"]["cached_tokens"]);
    (number(&usage["prompt_tokens"]) - cached) * 1_000
        + cached * 500
        + number(&usage["completion_tokens"]) * 2_000
}

fn text(micros: u64) -> String {
    format!("{}.{:06}", micros / 1_000_000, micros % 1_000_000)
}

fn code(response: &Response) -> (u16, String) {
    let code = response.json()["error"]["code"]
        .as_str()
        .unwrap_or_default()
        .to_owned();
    (response.status(), code)
}

#[test]
fn feature_b15_requests_cost_what_their_prices_say() {
    let server = priced("", "");
    let first = cost(&server.send(&ask("sk-a")).ok());
    let second = cost(&server.send(&ask("sk-b")).ok());
    assert!(first > 0);
    until("both are settled", || {
        row(&server, "accounts", "account", "tenant t")["settled"] == text(first + second)
    });
    let row_of_a = row(&server, "accounts", "account", "caller a");
    assert_eq!(
        (&row_of_a["settled"], &row_of_a["reserved"]),
        (&json!(text(first)), &json!("0.000000"))
    );
    assert_eq!(row(&server, "models", "model", "scripted")["requests"], 2);
    assert_eq!(page(&server)["currency"], "EUR");
    let charged = server.metric("mortise_spend_micros_total{model=\"scripted\",currency=\"EUR\"}");
    assert!((charged - (first + second) as f64).abs() < 0.5, "{charged}");
    let line = server.wait_for_log(|line| line.contains("cost_micros"));
    assert!(line.contains(&first.to_string()), "{line}");
    // A refused request costs nothing.
    let wrong = server.send(&ask_for("sk-a", "scripted", 1 << 30));
    assert!(
        wrong.status() == 200 || wrong.status() == 400,
        "{}",
        wrong.text()
    );
}

#[test]
fn feature_b15_a_budget_of_the_day_is_kept_to_under_64_clients() {
    let price = cost(&priced("", "").send(&ask("sk-a")).ok());
    // All that may be generated is, so what is reserved is what is settled; eleven fit, and half of one more.
    let day = text(price * 23 / 2);
    let budget = format!("[[spend.budgets]]\ntenants = [\"*\"]\nper_day = {day:?}\n");
    let server = priced("", &budget);
    let statuses: Vec<u16> = std::thread::scope(|scope| {
        let clients: Vec<_> = (0..64)
            .map(|client| {
                let key = if client % 2 == 0 { "sk-a" } else { "sk-b" };
                let server = &server;
                scope.spawn(move || server.send(&ask(key)).status())
            })
            .collect();
        clients
            .into_iter()
            .map(|client| client.join().expect("a client"))
            .collect()
    });
    let served = statuses.iter().filter(|status| **status == 200).count();
    assert_eq!(served, 11, "{statuses:?}");
    let refused = server.send(&ask("sk-a"));
    assert_eq!(code(&refused), (429, "budget_exceeded".to_owned()));
    assert!(refused.header("retry-after").is_some());
    let message = refused.json()["error"]["message"].to_string();
    assert!(
        message.contains(&day) && message.contains("EUR") && message.contains("tenant t"),
        "{message}"
    );
    assert_eq!(
        row(&server, "accounts", "account", "tenant t")["refused"],
        54
    );
}

#[test]
fn feature_b15_what_can_never_be_paid_is_forbidden() {
    let budgets = "[[spend.budgets]]\ncallers = [\"a\"]\nper_request = \"0.1\"\n\
                   [[models]]\nname = \"unpriced\"\nbackend = \"scripted\"\n\
                   [models.script]\nkind = \"conversation\"\ndefault = \"All is well.\"\n";
    let server = priced("", budgets);
    assert_eq!(server.send(&ask("sk-a")).status(), 200);
    let dear = server.send(&ask_for("sk-a", "scripted", 100));
    assert_eq!(code(&dear), (403, "request_over_budget".to_owned()));
    assert_eq!(
        server.send(&ask_for("sk-b", "scripted", 100)).status(),
        200,
        "no budget, no bound"
    );
    let unpriced = server.send(&ask_for("sk-a", "unpriced", 4));
    assert_eq!(code(&unpriced), (403, "model_not_priced".to_owned()));
    assert_eq!(server.send(&ask_for("sk-b", "unpriced", 4)).status(), 200);
}

#[test]
fn feature_b15_hosts_share_a_budget() {
    let Some(valkey) = Valkey::start() else {
        return;
    };
    let shared = format!("[valkey]\nurl = {:?}\ntimeout_ms = 20000\n", valkey.url());
    let price = cost(&priced("", "").send(&ask("sk-a")).ok());
    let budget = format!(
        "[[spend.budgets]]\ncallers = [\"*\"]\nper_day = {:?}\n",
        text(price * 5 / 2)
    );
    let hosts = [(); 2].map(|()| priced(&shared, &budget));
    assert_eq!(hosts[0].send(&ask("sk-a")).status(), 200);
    assert_eq!(hosts[1].send(&ask("sk-a")).status(), 200);
    for host in &hosts {
        assert_eq!(
            code(&host.send(&ask("sk-a"))),
            (429, "budget_exceeded".to_owned())
        );
        assert_eq!(
            host.send(&ask("sk-b")).status(),
            200,
            "each caller has its own"
        );
    }
    drop(valkey);
    let lost = hosts[0].send(&ask("sk-b"));
    assert_eq!(
        code(&lost),
        (503, "counters_unavailable".to_owned()),
        "no money goes out unseen"
    );
}

#[test]
fn feature_b15_a_budget_survives_sigkill_but_for_the_last_second() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("state.db");
    let kept = format!("[store]\npath = {path:?}\n");
    let price = cost(&priced("", "").send(&ask("sk-a")).ok());
    let budget = format!(
        "[[spend.budgets]]\ncallers = [\"*\"]\nper_day = {:?}\n",
        text(price * 3 / 2)
    );
    let mut server = priced(&kept, &budget);
    assert_eq!(server.send(&ask("sk-a")).status(), 200);
    until("the budget is written", || {
        let bytes = [path.clone(), path.with_extension("db-wal")].map(std::fs::read);
        let bytes = bytes.into_iter().flatten().flatten().collect::<Vec<u8>>();
        bytes.windows(12).any(|part| part == b"day.caller a")
    });
    server.signal("KILL");
    server.wait();
    let server = priced(&kept, &budget);
    assert_eq!(
        code(&server.send(&ask("sk-a"))),
        (429, "budget_exceeded".to_owned())
    );
}

#[test]
fn feature_b15_a_remote_model_costs_what_its_server_counts() {
    let remote = Server::scripted("default = \"One two three four five six.\"\n", "");
    let config = format!(
        "{KEYS}{}[[models]]\nname = \"scripted\"\n[models.upstream]\nurls = [\"http://{}/v1\"]\nmodel = \"scripted\"\n\
         health_check = \"config-only\"\n",
        PRICES,
        remote.address()
    );
    let server = Server::configured(&config);
    let price = cost(&server.send(&ask("sk-a")).ok());
    assert!(price > 0);
    until("it is settled", || {
        row(&server, "accounts", "account", "caller a")["settled"] == text(price)
    });
    let line = row(&server, "models", "model", "scripted");
    assert_eq!(line["unknown_usage"], 0, "{line}");
    // A server that is not there has counted nothing, and what was reserved is released.
    drop(remote);
    assert_ne!(server.send(&ask("sk-a")).status(), 200);
    until("it is released", || {
        let line = row(&server, "accounts", "account", "caller a");
        line["reserved"] == "0.000000" && line["settled"] == text(price) && line["requests"] == 2
    });
}

/// Events of a ledger, with the millionths that were settled.
fn ledger(path: &std::path::Path) -> Vec<(String, Option<u64>)> {
    let text = std::fs::read_to_string(path).unwrap_or_default();
    let lines = text.lines().map(|line| {
        let entry: Value = serde_json::from_str(line).expect("a line of JSON");
        let event = entry["event"].as_str().expect("an event").to_owned();
        (event, entry["settled_micros"].as_u64())
    });
    lines.collect()
}

#[test]
fn feature_b15_a_ledger_has_each_reservation_and_its_end_over_a_kill() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("money.jsonl");
    let spend = format!("[spend]\nledger = {path:?}\nledger_required = true\n");
    let priced = |delay: u64| {
        let script =
            format!("token_delay_ms = {delay}\ndefault = \"One two three four five six.\"\n");
        let prices = PRICES.replacen("[spend]\n", &spend, 1);
        Server::scripted(&script, &format!("{KEYS}{prices}"))
    };
    let server = priced(0);
    let cost = cost(&server.send(&ask("sk-a")).ok());
    until("it is settled", || {
        ledger(&path)
            == [
                ("reserved".to_owned(), None),
                ("settled".to_owned(), Some(cost)),
            ]
    });
    drop(server);
    let mut server = priced(60_000);
    let under_way = ask("sk-b").begin(server.address());
    until("another one is reserved", || ledger(&path).len() == 3);
    server.signal("KILL");
    server.wait();
    drop(under_way);
    std::fs::OpenOptions::new()
        .append(true)
        .open(&path)
        .and_then(|mut file| std::io::Write::write_all(&mut file, b"{\"event\":\"sett"))
        .expect("half a line");
    let server = priced(0);
    server.send(&ask("sk-a")).ok();
    let events = || ledger(&path).into_iter().map(|(event, _)| event);
    until("the next one is settled", || events().count() == 6);
    let expected = [
        "reserved",
        "settled",
        "reserved",
        "abandoned",
        "reserved",
        "settled",
    ];
    assert!(events().eq(expected), "{:?}", ledger(&path));
    // It was moved away, and no other can be made: nothing runs that it does not know.
    let gone = folder.path().with_extension("gone");
    std::fs::rename(folder.path(), &gone).expect("rename");
    let refused = server.send(&ask("sk-a"));
    assert_eq!(code(&refused), (503, "model_unavailable".to_owned()));
    std::fs::rename(&gone, folder.path()).expect("rename");
    server.send(&ask("sk-a")).ok();
}
