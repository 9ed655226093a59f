//! The WIT world `document-reader` over [`crate::pages`].

#[allow(
    unsafe_code,
    missing_docs,
    unreachable_pub,
    clippy::all,
    reason = "generated from wit/reader.wit"
)]
mod bindings {
    wit_bindgen::generate!({
        path: "wit",
        world: "document-reader",
    });
    use super::Reader;
    export!(Reader);
}

struct Reader;

impl bindings::exports::mortise::reader::pdf::Guest for Reader {
    fn read(file: Vec<u8>) -> Result<Vec<String>, String> {
        crate::pages(file).map_err(|error| error.to_string())
    }
}
