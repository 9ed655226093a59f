//! Renders conversations with the Jinja template of a model, byte for byte as Hugging Face's
//! `transformers` would, and keeps apart what the template wrote from what the caller wrote.
//!
//! The caller's text can never become a control token: before rendering, every look-alike in it is
//! broken by a noncharacter ([`marks`]); after rendering, whatever control token stands unbroken
//! was written by the template ([`segments`]); then the breaks are taken out again.

pub mod render;
pub mod segments;

mod conversation;
mod environment;
mod marks;
mod methods;
mod probe;
mod python_json;
mod strftime;
mod template;
mod thinking;
