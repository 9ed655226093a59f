//! Counters of limits and of money: those of one process, and those that several hosts share through Valkey.

use mortise_test_support as support;

mod homes;
mod hosts;
mod kills;
mod spend;
mod together;
