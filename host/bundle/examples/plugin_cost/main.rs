//! Cost of the default plugins; `docs/plugins/cost.md` has figures.
//!
//! ```sh
//! cargo build --release --workspace --example plugin_cost
//! target/release/examples/plugin_cost            # both tables
//! target/release/examples/plugin_cost masks      # or `requests`
//! ```

use std::error::Error;
use std::sync::Arc;
use std::time::{Duration, Instant};

use mortise_plugin::{Component, Kind, PluginHost};

#[allow(dead_code, reason = "the test uses more of it")]
#[path = "../../../../tests/masks/corpus.rs"]
mod corpus;
mod masks;
mod requests;

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn Error>> {
    let wanted = std::env::args().nth(1);
    let is_wanted = |name: &str| wanted.as_deref().is_none_or(|wanted| wanted == name);
    if is_wanted("requests") {
        requests::measure().await?;
        println!();
    }
    if is_wanted("masks") {
        masks::measure().await?;
    }
    Ok(())
}

/// The default plugin of a kind.
fn default_plugin(host: &PluginHost, kind: Kind) -> Result<Arc<Component>, Box<dyn Error>> {
    for source in mortise_bundle::plugins() {
        let component = host.load(source)?;
        if component.kinds() == [kind] {
            return Ok(component);
        }
    }
    Err(format!("no default plugin is a {kind}").into())
}

/// Times of the same thing.
#[derive(Default)]
struct Times(Vec<Duration>);

impl Times {
    /// Times of `rounds` rounds.
    async fn of<T, E: Error + 'static>(
        rounds: usize,
        mut round: impl AsyncFnMut() -> Result<T, E>,
    ) -> Result<Self, Box<dyn Error>> {
        let mut times = Self::default();
        for _ in 0..rounds {
            let begun = Instant::now();
            let result = round().await?;
            times.0.push(begun.elapsed());
            drop(result);
            // What the result leaves behind, such as a matcher, is given back by a task.
            tokio::task::yield_now().await;
        }
        Ok(times)
    }

    /// Percentile of the times: the time that `percent` in 100 of them do not exceed.
    fn below(&self, percent: usize) -> Duration {
        let mut sorted = self.0.clone();
        sorted.sort_unstable();
        sorted[(sorted.len() * percent).div_ceil(100).max(1) - 1]
    }

    fn mean(&self) -> Duration {
        self.0.iter().sum::<Duration>() / u32::try_from(self.0.len()).unwrap_or(u32::MAX)
    }

    /// A line of a table.
    fn print(&self, what: &str) {
        println!(
            "| {what} | {:.1?} | {:.1?} |",
            self.below(50),
            self.below(99)
        );
    }
}
