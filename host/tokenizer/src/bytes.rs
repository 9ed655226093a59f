//! The alphabet of byte-level tokenizers: every byte written as one printable character.

/// The byte that a character of the alphabet stands for.
pub(crate) fn byte_of(character: char) -> Option<u8> {
    let code = u32::from(character);
    match code {
        // Printable bytes stand for themselves.
        0x21..=0x7E | 0xA1..=0xAC | 0xAE..=0xFF => u8::try_from(code).ok(),
        // The 68 others are written as the characters from U+0100, in order.
        0x100..=0x120 => u8::try_from(code - 0x100).ok(),
        0x121..=0x142 => u8::try_from(code - 0x121 + 0x7F).ok(),
        0x143 => Some(0xAD),
        _ => None,
    }
}

/// The character of the alphabet that stands for a byte.
pub(crate) fn character_of(byte: u8) -> char {
    let code = u32::from(byte);
    let shifted = match byte {
        0x21..=0x7E | 0xA1..=0xAC | 0xAE..=0xFF => code,
        0x00..=0x20 => 0x100 + code,
        0x7F..=0xA0 => 0x121 + code - 0x7F,
        0xAD => 0x143,
    };
    char::from_u32(shifted).unwrap_or(char::REPLACEMENT_CHARACTER)
}

/// The bytes of a token text, if it is written in the alphabet.
pub(crate) fn bytes_of(text: &str) -> Option<Vec<u8>> {
    text.chars().map(byte_of).collect()
}

/// The byte that a byte-fallback token such as `<0x0A>` stands for.
pub(crate) fn fallback_byte(text: &str) -> Option<u8> {
    let digits = text.strip_prefix("<0x")?.strip_suffix('>')?;
    let plain = digits.len() == 2 && digits.bytes().all(|byte| byte.is_ascii_hexdigit());
    plain.then(|| u8::from_str_radix(digits, 16).ok()).flatten()
}

#[cfg(test)]
mod tests {
    use super::{byte_of, bytes_of, character_of, fallback_byte};

    #[test]
    fn the_alphabet_is_that_of_the_library() {
        let mut seen = [false; 256];
        for character in tokenizers::pre_tokenizers::byte_level::ByteLevel::alphabet() {
            let byte = byte_of(character).expect("in the alphabet");
            assert!(
                !std::mem::replace(&mut seen[usize::from(byte)], true),
                "{byte} twice"
            );
        }
        assert!(seen.iter().all(|&seen| seen));
        for byte in 0..=255 {
            assert_eq!(byte_of(character_of(byte)), Some(byte));
        }
        assert_eq!(byte_of('Ġ'), Some(b' '));
        assert_eq!(byte_of('Ċ'), Some(b'\n'));
        assert_eq!(byte_of('\u{144}'), None);
        assert_eq!(bytes_of("Ã©").as_deref(), Some("é".as_bytes()));
        assert_eq!(bytes_of("｜"), None);
    }

    #[test]
    fn fallback_tokens_have_two_digits() {
        assert_eq!(fallback_byte("<0x0A>"), Some(10));
        assert_eq!(fallback_byte("<0xfF>"), Some(255));
        for text in ["<0x0A", "<0x+1>", "<0x123>", "0x0A", "<0x>"] {
            assert_eq!(fallback_byte(text), None, "{text}");
        }
    }
}
