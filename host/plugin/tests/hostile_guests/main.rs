//! Plugins through the public interface: those that behave, and those that do their worst.

mod abuse;
mod any_answer;
mod attacks;
mod behaving;
mod causes;
mod exercise;
mod forged;
mod guests;
mod hostile;
mod instances;
mod isolation;
mod loading;
mod observed;
mod quotas;
mod retriever;
mod snapshots;
mod swap;
mod tools;
mod versions;
