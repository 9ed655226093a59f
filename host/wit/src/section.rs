//! Custom sections, for compilers that cannot write any.

use crate::WitError;

/// Largest section that a server reads.
pub const MAX_SECTION_BYTES: usize = 1 << 20;

/// The id of a custom section, in core modules and components alike.
const CUSTOM_SECTION: u8 = 0;

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
    let mut body = leb128(name.len());
    body.extend_from_slice(name.as_bytes());
    body.extend_from_slice(content);
    component.push(CUSTOM_SECTION);
    component.extend(leb128(body.len()));
    component.extend(body);
    Ok(())
}

/// An unsigned number in LEB128.
fn leb128(mut value: usize) -> Vec<u8> {
    let mut bytes = Vec::new();
    loop {
        let low = (value & 0x7f) as u8;
        value >>= 7;
        if value == 0 {
            bytes.push(low);
            return bytes;
        }
        bytes.push(low | 0x80);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sections_are_written_as_the_format_says() {
        let mut component = b"\0asm\x0d\0\x01\0".to_vec();
        add_section(&mut component, "version", b"1.2").unwrap();
        assert_eq!(&component[8..], b"\0\x0b\x07version1.2");
        assert_eq!(leb128(300), [0xac, 0x02]);
    }

    #[test]
    fn what_no_server_reads_is_refused() {
        let large = vec![b' '; MAX_SECTION_BYTES + 1];
        assert!(add_section(&mut Vec::new(), "x", &large).is_err());
    }
}
