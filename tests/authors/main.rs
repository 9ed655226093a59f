//! Authors at work: follow the pages of `docs/plugins` from an empty folder, in each language, and
//! build the examples.
//!
//! Toolchains are the pinned ones of the templates, installed once below `target/`. Without `python3`,
//! `make`, `node` or `curl` the respective test is reported as skipped, by name, and fails
//! if `MORTISE_REQUIRE_SDKS=1` is set, as `.ci/run` does.

mod compose;
mod conformance;
mod cosign;
mod dev;
mod examples;
mod exceptions;
mod hostile_registry;
mod packages;
mod pages;
mod registries;
mod shell;
mod sources;

use mortise_test_support as support;
