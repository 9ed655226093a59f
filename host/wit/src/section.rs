//! Custom sections, for compilers that cannot write any.

use wasm_encoder::{CustomSection, Section};

use crate::WitError;

/// Largest section that a server reads.
pub const MAX_SECTION_BYTES: usize = 1 << 20;

/// Append a custom section to a component. Of several with one name servers read the first.
///
/// # Errors
/// When the content is larger than servers read.
pub fn add_section(component: &mut Vec<u8>, name: &str, content: &[u8]) -> Result<(), WitError> {
    if content.len() > MAX_SECTION_BYTES {
        return Err(WitError::Section {
            name: name.to_owned(),
            bytes: content.len(),
            limit: MAX_SECTION_BYTES,
        });
    }
    let section = CustomSection {
        name: name.into(),
        data: content.into(),
    };
    // Components write custom sections as modules do.
    section.append_to(component);
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sections_are_written_as_the_format_says() {
        let mut component = b"\0asm\x0d\0\x01\0".to_vec();
        add_section(&mut component, "version", b"1.2").unwrap();
        assert_eq!(&component[8..], b"\0\x0b\x07version1.2");
        let mut component = b"\0asm\x0d\0\x01\0".to_vec();
        add_section(&mut component, "x", &[b'y'; 298]).unwrap();
        assert_eq!(&component[8..13], b"\0\xac\x02\x01x", "300 in LEB128");
        assert_eq!(component.len(), 8 + 1 + 2 + 300);
    }

    #[test]
    fn what_no_server_reads_is_refused() {
        let large = vec![b' '; MAX_SECTION_BYTES + 1];
        assert!(add_section(&mut Vec::new(), "x", &large).is_err());
    }
}
