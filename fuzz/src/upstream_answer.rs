//! The streamed answer of an upstream server: the first byte is the size of the pieces that it comes in.

use mortise_models::OutputEvent;
use mortise_upstream::AnswerReader;

/// Run on one input.
pub fn run(bytes: &[u8]) {
    let Some((size, stream)) = bytes.split_first() else {
        return;
    };
    let mut reader = AnswerReader::default();
    let mut events = Vec::new();
    let mut defect = None;
    for piece in stream.chunks(usize::from(*size).max(1)) {
        match reader.feed(piece, &mut events) {
            Ok(false) => {}
            Ok(true) => break,
            Err(error) => {
                defect = Some(error);
                break;
            }
        }
    }
    reader.end(defect, &mut events);
    let last = |event: &OutputEvent| !matches!(event, OutputEvent::Delta { .. });
    assert_eq!(events.iter().filter(|event| last(event)).count(), 1, "one end");
    assert!(events.last().is_some_and(last), "the end comes last");
}
