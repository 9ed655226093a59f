//! Durable state: what the server acknowledged is there after a crash.
