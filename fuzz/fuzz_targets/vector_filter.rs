//! A filter of a search in a vector store, a zero byte, and the attributes of a file.

#![no_main]

use libfuzzer_sys::fuzz_target;
use mortise_retrieval::{Filter, attributes_of};

fuzz_target!(|bytes: &[u8]| {
    let Some(end) = bytes.iter().position(|byte| *byte == 0) else {
        return;
    };
    let filter = serde_json::from_slice(&bytes[..end]).ok();
    let attributes = serde_json::from_slice(&bytes[end + 1..]).ok();
    let filter = filter.and_then(|value| Filter::of(&value, "filters").ok());
    let attributes = attributes.and_then(|object| attributes_of(&object, "attributes").ok());
    if let (Some(filter), Some(attributes)) = (filter, attributes) {
        assert_eq!(filter.admits(&attributes), filter.admits(&attributes));
    }
});
