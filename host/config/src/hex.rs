//! Bytes in hexadecimal digits.

/// 32 bytes of 64 hexadecimal digits.
pub(super) fn hex_32(text: &str) -> Option<[u8; 32]> {
    let digits = text.as_bytes().as_chunks::<2>();
    let bytes: Option<Vec<u8>> = digits.0.iter().map(|pair| hex_byte(*pair)).collect();
    bytes
        .filter(|_| digits.1.is_empty())
        .and_then(|bytes| bytes.try_into().ok())
}

fn hex_byte(digits: [u8; 2]) -> Option<u8> {
    let digit = |byte: u8| char::from(byte).to_digit(16);
    u8::try_from(digit(digits[0])? * 16 + digit(digits[1])?).ok()
}
