//! Patterns of model names and routes: `*` stands for any text, everything else for itself. The host matches
//! assignments with the same crate.

use wildmatch::WildMatchPattern;

/// Character for one character: there is none, so one that no name has.
const NO_WILDCARD: char = '\0';

/// Whether `text` follows `pattern`. Time grows with the product of the lengths at worst.
pub(crate) fn matches(pattern: &str, text: &str) -> bool {
    WildMatchPattern::<'*', NO_WILDCARD>::new(pattern).matches(text)
}

#[cfg(test)]
mod tests {
    use super::matches;

    #[test]
    fn stars_stand_for_any_text() {
        for (pattern, text, expected) in [
            ("*", "", true),
            ("*", "qwen3", true),
            ("qwen3", "qwen3", true),
            ("qwen3", "qwen35", false),
            ("qwen*", "qwen3-8b", true),
            ("*-instruct", "llama-instruct", true),
            ("*-instruct", "llama-instruct-2", false),
            ("a*b*c", "a-b-b-c", true),
            ("a*b*c", "a-c-b", false),
            ("", "", true),
            ("", "x", false),
        ] {
            assert_eq!(matches(pattern, text), expected, "{pattern} {text}");
        }
    }
}
