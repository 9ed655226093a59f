//! Custom sections, for compilers that cannot write any.

use wasm_encoder::{CustomSection, Section};

use crate::WitError;

/// Append a custom section to a component. Of several with one name servers read the first. `limit` is the largest
/// section that they read, in bytes.
///
/// # Errors
/// When the content is larger.
pub fn add_section(
    component: &mut Vec<u8>,
    name: &str,
    content: &[u8],
    limit: usize,
) -> Result<(), WitError> {
    if content.len() > limit {
        return Err(WitError::Section {
            name: name.to_owned(),
            bytes: content.len(),
            limit,
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
        add_section(&mut component, "version", b"1.2", 300).unwrap();
        assert_eq!(&component[8..], b"\0\x0b\x07version1.2");
        let mut component = b"\0asm\x0d\0\x01\0".to_vec();
        add_section(&mut component, "x", &[b'y'; 298], 300).unwrap();
        assert_eq!(&component[8..13], b"\0\xac\x02\x01x", "300 in LEB128");
        assert_eq!(component.len(), 8 + 1 + 2 + 300);
    }

    #[test]
    fn what_no_server_reads_is_refused() {
        assert!(add_section(&mut Vec::new(), "x", b"12345", 4).is_err());
        assert!(add_section(&mut Vec::new(), "x", b"1234", 4).is_ok());
    }
}
