//! Section J where no breaker ever opens: what keeps the neighbours unharmed is not that a broken plugin
//! is no longer called.

use std::time::Duration;

use super::guests::{GUESTS, attacks, hostile_server};
use super::*;

/// More failures in a row than any breaker lets by with its defaults, then some more.
const WAVES: [usize; 2] = [6, 2];

/// The sum of a counter or gauge of plugins over all labels that contain this.
fn sum(server: &Server, name: &str, label: &str) -> u64 {
    let page = server.get("/metrics").text();
    let lines = page.lines().filter(|line| {
        let rest = line.strip_prefix(name);
        rest.is_some_and(|rest| rest.starts_with('{') && rest.contains(label))
    });
    let values = lines.filter_map(|line| line.rsplit(' ').next()?.parse::<u64>().ok());
    values.sum()
}

fn assert_never_suspended(server: &Server) {
    assert_eq!(sum(server, "mortise_plugin_suspensions_total", ""), 0);
    let suspended = sum(server, "mortise_plugin_faults_total", "\"suspended\"");
    assert_eq!(suspended, 0);
}

#[test]
fn j1_j2_j3_j9_guests_that_break_down_without_end_are_met_each_time_anew() {
    let mut server = hostile_server(100, 16);
    let mut bystander = Bystander::new(&mut server, BYSTANDER);
    let case = Case {
        peak_mib: 512,
        ..case(
            "J9",
            "all guests at once, never suspended",
            Expected::Anything,
        )
    };
    bystander.endures(&case, |server| {
        let mut answers = Vec::new();
        for count in WAVES {
            let all = (0..GUESTS.len()).flat_map(|index| attacks(index, count));
            let answered = server.send_together(&all.collect::<Vec<_>>());
            for (at, answer) in answered.iter().enumerate() {
                let (kind, function, does, code) = GUESTS[at / count];
                let found = match answer.status() {
                    200 => String::new(),
                    _ => answer.json()["error"]["code"]
                        .as_str()
                        .expect("a code")
                        .to_owned(),
                };
                // So many at once get so little of the processors that some end by the clock.
                let by_the_clock = !code.is_empty() && found == "plugin_deadline";
                assert!(
                    found == code || by_the_clock,
                    "{kind}, {does} in {function}: {}",
                    answer.text()
                );
            }
            answers.extend(answered);
        }
        answers
    });
    assert_never_suspended(bystander.server());
}

#[test]
fn j4_answers_that_make_no_sense_are_refused_each_time_anew() {
    let grammar = format!("file = {:?}\ndeadline_ms = 20000", guest());
    let mut server = server(&[Target::saying("target", "x").bound("grammar", grammar)]);
    let mut bystander = Bystander::new(&mut server, BYSTANDER);
    for does in ["wide", "narrow", "slot", "beyond", "empty", "none"] {
        let refused = Expected::Refusal(500, "plugin_invalid_result");
        let case = case("J4", does, refused);
        bystander.endures(&case, |server| {
            let body = with(ask("target", "Hi"), "guided_regex", json!(does));
            server.send_together(&vec![Request::post(CHAT, &body); WAVES[0]])
        });
    }
    assert_never_suspended(bystander.server());
}

#[test]
fn j5_who_shares_a_plugin_with_calls_that_fail_or_are_given_up_is_served() {
    // The guest does as policy what the name of the model says, for everybody, the bystander included.
    let (file, path) = (guest(), crate::support::model::byte_level());
    let named = ["loop", "panic"].map(|name| {
        format!(
            "[[models]]\nname = {name:?}\npath = {path:?}\nbackend = \"scripted\"\n\
             [models.script]\ndefault = \"x\"\n"
        )
    });
    let mut server = Server::configured(&format!(
        "[plugins]\nwatch_ms = 0\n[[models]]\nname = \"mortise-demo\"\n{}\
         [[plugins.bindings]]\nkind = \"policy\"\nfile = {file:?}\ndeadline_ms = 200\n\
         breaker = {{ failures = 0 }}\n",
        named.concat()
    ));
    let mut bystander = Bystander::new(&mut server, BYSTANDER);
    let endless = Request::post(CHAT, &ask("loop", "Hi"));
    let failing = case(
        "J5",
        "calls of the bystander's own policy fail",
        Expected::Refusal(500, "plugin_deadline"),
    );
    bystander.endures(&failing, |server| {
        let waves = WAVES.iter();
        waves
            .flat_map(|count| server.send_together(&vec![endless.clone(); *count]))
            .collect()
    });
    let failing = case("J5", "it traps", Expected::Refusal(500, "plugin_trap"));
    bystander.endures(&failing, |server| {
        let body = ask("panic", "Hi");
        (0..WAVES[0]).map(|_| server.post(CHAT, &body)).collect()
    });
    let given_up = case("J5", "they are given up", Expected::Answer);
    bystander.endures(&given_up, |server| {
        for round in 0..40 {
            let begun = endless.begin(server.address());
            // At any time between its arrival and its deadline.
            std::thread::sleep(Duration::from_millis(round * 37 % 200));
            drop(begun);
        }
        vec![server.post(CHAT, &ask(BYSTANDER.model, "Hi"))]
    });
    assert_never_suspended(bystander.server());
}
