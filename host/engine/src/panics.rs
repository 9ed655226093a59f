//! Panics of code that runs on behalf of one sequence, turned into errors of that sequence.

use std::any::Any;

use crate::event::SequenceError;

/// The error of a sequence on whose behalf `what` panicked.
pub(crate) fn panicked(what: &str, panic: &(dyn Any + Send)) -> SequenceError {
    SequenceError::Inference(format!("{what} panicked: {}", panic_message(panic)))
}

/// The message of a panic.
pub(crate) fn panic_message(panic: &(dyn Any + Send)) -> &str {
    match panic.downcast_ref::<&str>() {
        Some(message) => message,
        None => panic
            .downcast_ref::<String>()
            .map_or("(no message)", String::as_str),
    }
}
