//! Progress of long commands. Whoever starts them draws it.

use std::sync::Arc;

/// Display of work that has steps; it is gone when it is dropped.
pub trait ShowSteps: Send + Sync {
    /// The part of the work that begins.
    fn begin(&self, part: &str);

    /// Count more steps that are done.
    fn advance(&self, steps: u64);

    /// Print a line on standard error beside the display.
    fn print_line(&self, line: &str);
}

/// Opens a display of so many steps.
pub type OpenSteps = fn(u64) -> Arc<dyn ShowSteps>;
