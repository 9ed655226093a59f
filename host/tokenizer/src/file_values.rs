//! Values of a JSON file, counted before it is parsed: each takes far more memory than its bytes.

use crate::error::{TokenizerError, malformed};

/// Most values of one file. The most in use are about 2,000,000: each merge as a list of two.
const MAX_FILE_VALUES: usize = 1 << 22;
/// Most objects of one file: added tokens, and steps of normalizers, decoders and post-processors. The most in use are
/// about 6,500.
const MAX_FILE_OBJECTS: usize = 1 << 19;

/// Refuse a file of more values than there is memory for.
pub(crate) fn check_values(file: &'static str, bytes: &[u8]) -> Result<(), TokenizerError> {
    let (mut values, mut objects) = (0_usize, 0_usize);
    let mut rest = bytes.iter();
    while let Some(byte) = rest.next() {
        match byte {
            b'"' => skip_string(&mut rest),
            b',' | b'[' => values += 1,
            b'{' => {
                values += 1;
                objects += 1;
            }
            _ => {}
        }
    }
    for (what, count, most) in [
        ("values", values, MAX_FILE_VALUES),
        ("objects", objects, MAX_FILE_OBJECTS),
    ] {
        if count > most {
            let reason = format!("it has {count} {what}; at most {most} are read");
            return Err(malformed(file, reason));
        }
    }
    Ok(())
}

/// Go on behind the end of a string.
fn skip_string(rest: &mut std::slice::Iter<'_, u8>) {
    while let Some(byte) = rest.next() {
        match byte {
            b'\\' => {
                rest.next();
            }
            b'"' => return,
            _ => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refusal(bytes: &str) -> Option<String> {
        let checked = check_values("tokenizer.json", bytes.as_bytes());
        checked.err().map(|error| error.to_string())
    }

    #[test]
    fn values_are_counted_outside_of_strings() {
        let many = |item: &str, count: usize| format!("[{}]", vec![item; count].join(","));
        assert_eq!(refusal(&many("[\"{,[\\\"\",0]", 1_300_000)), None);
        assert_eq!(refusal(&many("{}", 524_288)), None);
        let objects = refusal(&many("{\"type\":\"NFC\"}", 524_289)).expect("a refusal");
        assert!(objects.contains("524289 objects"), "{objects}");
        let values = refusal(&many("[\"\",0]", 1_500_000)).expect("a refusal");
        assert!(values.contains("values; at most 4194304"), "{values}");
        for odd in ["", "\"", "\"\\", "[[["] {
            assert_eq!(refusal(odd), None);
        }
    }
}
