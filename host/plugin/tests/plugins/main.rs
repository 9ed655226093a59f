//! Plugins through the public interface: those that behave, and those that do their worst.

mod abuse;
mod attacks;
mod behaving;
mod guests;
mod instances;
mod loading;
mod swap;
mod tools;
