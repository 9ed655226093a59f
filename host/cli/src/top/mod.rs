//! `mortise top`: what a running server does, seen from its page of metrics.

mod report;
mod sample;
mod table;

use std::io::IsTerminal as _;
use std::time::{Duration, Instant};

use clap::Args;
use clap::builder::RangedU64ValueParser;
use mortise_harness::{print, print_json};
use serde_json::json;

use self::report::ServerReport;
use self::sample::Sample;
use self::table::Size;
use crate::caller::{ServerClient, ServerTarget};
use crate::interrupt::Interrupt;

/// Time between two looks for Ctrl-C.
const LOOK: Duration = Duration::from_millis(50);

/// Terminal state while the table stands on it: another screen, without a cursor; and back.
const ENTER: &str = "\x1b[?1049h\x1b[?25l";
const LEAVE: &str = "\x1b[?25h\x1b[?1049l";
/// To the first line, and all below it empty.
const HOME: &str = "\x1b[H\x1b[J";

/// Arguments of the command line.
#[derive(Debug, Args)]
pub(crate) struct TopArgs {
    #[command(flatten)]
    target: ServerTarget,
    /// Seconds between two looks, over which rates are measured
    #[arg(long, value_name = "SECONDS", default_value_t = 2, value_parser = RangedU64ValueParser::<u64>::new().range(1..=3600))]
    interval: u64,
    /// Look once, print, and end
    #[arg(long)]
    once: bool,
    /// Print JSON, one object a look
    #[arg(long)]
    json: bool,
}

/// Do what the command line says.
pub(crate) fn run(args: &TopArgs) -> anyhow::Result<()> {
    let caller = ServerClient::of(&args.target)?;
    let interval = Duration::from_secs(args.interval);
    // A server that is not there at the start is a wrong address.
    let first = Sample::take(&caller)?;
    if args.once {
        std::thread::sleep(interval);
        let report = ServerReport::between(&first, &Sample::take(&caller)?);
        return match args.json {
            true => print_json(&report.json(&caller.url)),
            false => print(&table::table(&report, &caller.url, Size::WHOLE)),
        };
    }
    let interrupt = Interrupt::listen()?;
    let live = std::io::stdout().is_terminal() && !args.json;
    let _screen = live.then(Screen::enter).transpose()?;
    let mut before = Some(first);
    while rests(interval, &interrupt) {
        // One that goes away may come back, with counters that begin anew.
        let now = match Sample::take(&caller) {
            Ok(now) => now,
            Err(error) => {
                before = None;
                lost(&error, &caller.url, args.json, live)?;
                continue;
            }
        };
        if let Some(before) = &before {
            let report = ServerReport::between(before, &now);
            match (args.json, live) {
                (true, _) => print(&format!("{}\n", report.json(&caller.url)))?,
                (false, true) => {
                    let table = table::table(&report, &caller.url, Size::of_terminal());
                    print(&format!("{HOME}{table}"))?;
                }
                (false, false) => {
                    let table = table::table(&report, &caller.url, Size::WHOLE);
                    print(&format!("{table}\n"))?;
                }
            }
        }
        before = Some(now);
    }
    Ok(())
}

/// Say that the server cannot be asked now.
fn lost(error: &anyhow::Error, url: &str, json: bool, live: bool) -> anyhow::Result<()> {
    let told = format!("{error:#}");
    match (json, live) {
        (true, _) => print(&format!("{}\n", json!({"url": url, "error": told}))),
        (false, true) => print(&format!("{HOME}{told}\n\nTrying again.\n")),
        (false, false) => {
            eprintln!("mortise: {told}; trying again");
            Ok(())
        }
    }
}

/// Wait. False if Ctrl-C comes meanwhile.
fn rests(time: Duration, interrupt: &Interrupt) -> bool {
    let begun = Instant::now();
    while begun.elapsed() < time {
        if interrupt.came() {
            return false;
        }
        std::thread::sleep(LOOK);
    }
    true
}

/// The other screen of a terminal, which is left however the command ends.
struct Screen;

impl Screen {
    fn enter() -> anyhow::Result<Self> {
        print(ENTER)?;
        Ok(Self)
    }
}

impl Drop for Screen {
    fn drop(&mut self) {
        let _ = print(LEAVE);
    }
}
