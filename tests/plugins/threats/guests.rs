//! Section J: guests in the place of plugins, and what they cost the bystander.

use super::*;

/// A guest in the place of a plugin of one model, and the code of the error that its caller gets.
pub(super) const GUESTS: [(&str, &str, &str, &str); 14] = [
    ("chat-template", "render", "loop", "plugin_deadline"),
    ("chat-template", "render", "calls", "plugin_deadline"),
    ("chat-template", "render", "bomb", "plugin_memory"),
    ("chat-template", "render", "overflow", "plugin_stack"),
    ("chat-template", "render", "panic", "plugin_trap"),
    ("chat-template", "render", "wild", "plugin_trap"),
    ("output-parser", "open", "loop", "plugin_deadline"),
    ("output-parser", "feed", "loop", "plugin_deadline"),
    ("output-parser", "feed", "bomb", "plugin_memory"),
    ("grammar", "compile", "loop", "plugin_deadline"),
    ("grammar", "compile", "bomb", "plugin_memory"),
    ("policy", "authorize", "loop", "plugin_deadline"),
    ("policy", "authorize", "overflow-plain", "plugin_stack"),
    ("policy", "authorize", "chatter", ""),
];

/// One target for each of the guests, with the MiB of memory that each is granted, and the milliseconds of
/// those that use them up.
pub(super) fn hostile_server(deadline_ms: u32, memory_mib: u32) -> Server {
    let file = guest();
    let targets: Vec<Target> = GUESTS
        .iter()
        .enumerate()
        .map(|(index, (kind, function, does, code))| {
            // What ends otherwise has the time for it on a busy machine too.
            let deadline_ms = match *code {
                "plugin_deadline" => deadline_ms,
                _ => 5000,
            };
            let more = format!(
                "file = {file:?}\ndeadline_ms = {deadline_ms}\nmemory_mib = {memory_mib}\nsettings = {{ {function} = {does:?} }}"
            );
            Target::saying(&format!("hostile-{index}"), "{}").bound(kind, more)
        })
        .collect();
    server(&targets)
}

/// Requests that run into the guest.
pub(super) fn attacks(index: usize, count: usize) -> Vec<Request> {
    let body = ask(&format!("hostile-{index}"), "Hi");
    let body = match GUESTS[index].0 {
        "grammar" => with(body, "response_format", json!({"type": "json_object"})),
        _ => body,
    };
    vec![Request::post(CHAT, &body); count]
}

fn guest_case(index: usize) -> Case<'static> {
    let (_, _, does, code) = GUESTS[index];
    Case {
        id: "J",
        what: does,
        expected: match code {
            "" => Expected::Answer,
            code => Expected::Refusal(500, code),
        },
        peak_mib: 512,
        canary: None,
    }
}

#[test]
fn j1_j2_j3_hostile_guests_cost_their_own_requests_only() {
    let mut server = hostile_server(300, 64);
    let mut bystander = Bystander::new(&mut server, BYSTANDER);
    for index in 0..GUESTS.len() {
        bystander.endures(&guest_case(index), |server| {
            server.send_together(&attacks(index, 3))
        });
    }
}

/// Not a test: what the guests cost the bystander, as `docs/plugins/abuse.md` shows it. Run it on a
/// machine that does nothing else:
/// `MORTISE_WRITE_PAGES=1 cargo test --release -p mortise --test plugins_folder -- --ignored soak --nocapture`.
#[test]
#[ignore = "measures; it takes minutes and wants the machine to itself"]
fn soak() {
    let mut server = hostile_server(300, 64);
    let mut bystander = Bystander::new(&mut server, BYSTANDER);
    // What the first use of anything takes stays; it is not the attacks'.
    for index in 0..GUESTS.len() {
        bystander.endures(&guest_case(index), |server| {
            server.send_together(&attacks(index, 2))
        });
    }
    let quiet = bystander.endures(&case("", "quiet", Expected::Anything), |_| {
        std::thread::sleep(std::time::Duration::from_secs(20));
        Vec::new()
    });
    let mut rows = format!(
        "| the guest | requests | p99 of the bystander | against {:.0} ms in quiet | memory before and after |\n|---|---|---|---|---|\n",
        quiet.p99().as_secs_f64() * 1e3
    );
    for (index, (kind, function, does, code)) in GUESTS.iter().enumerate() {
        let mut count = 0;
        // Whoever breaks down again and again gets so little of the processors that some end by the clock.
        let errors = [(500, *code), (500, "plugin_deadline")];
        let case = Case {
            expected: match *code {
                "" => Expected::Answer,
                _ => Expected::Either(&errors),
            },
            ..guest_case(index)
        };
        let figures = bystander.endures(&case, |server| {
            let begun = std::time::Instant::now();
            let mut answers = Vec::new();
            while begun.elapsed().as_secs() < 10 {
                answers.extend(server.send_together(&attacks(index, 2)));
            }
            count = answers.len();
            answers
        });
        rows.push_str(&format!(
            "| {kind}: `{does}` in `{function}` | {count} | {:.0} ms | {:.2} | {} MiB, {} MiB |\n",
            figures.p99().as_secs_f64() * 1e3,
            figures.p99().as_secs_f64() / quiet.p99().as_secs_f64(),
            figures.memory.0,
            figures.memory.1,
        ));
    }
    println!("{rows}");
    if std::env::var_os("MORTISE_WRITE_PAGES").is_some_and(|value| value == "1") {
        let path =
            std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/plugins/abuse.md");
        let old = std::fs::read_to_string(&path).expect("the page");
        let (before, rest) = old.split_once("<!-- soak -->\n").expect("its beginning");
        let (_, after) = rest.split_once("<!-- /soak -->").expect("its end");
        let new = format!("{before}<!-- soak -->\n{rows}<!-- /soak -->{after}");
        std::fs::write(&path, new).expect("write the page");
    }
}
