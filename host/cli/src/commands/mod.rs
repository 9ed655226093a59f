//! The commands, one file each.

pub(crate) mod audit;
pub(crate) mod check;
pub(crate) mod devices;
pub(crate) mod health;
pub(crate) mod inspect;
pub(crate) mod keys;
mod library;
pub(crate) mod loras;
pub(crate) mod models;
pub(crate) mod plugins;
pub(crate) mod shell;
pub(crate) mod store;
pub(crate) mod text;
