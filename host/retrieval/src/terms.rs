//! Words of a text, as they are looked up.

/// Words of a text in lower case: letters and digits that stand together. In scripts without blanks, each pair of
/// neighbours counts.
pub(crate) fn terms(text: &str) -> impl Iterator<Item = String> + '_ {
    text.split(|character: char| !character.is_alphanumeric())
        .filter(|word| !word.is_empty())
        .flat_map(|word| {
            let word = word.to_lowercase();
            match word.chars().any(is_unspaced) {
                false => vec![word],
                true => pairs(&word),
            }
        })
}

/// True if a letter belongs to a script that puts no blanks between words.
fn is_unspaced(character: char) -> bool {
    matches!(u32::from(character), 0x0E00..=0x0EFF | 0x3040..=0x30FF | 0x3400..=0x9FFF | 0xF900..=0xFAFF)
}

fn pairs(word: &str) -> Vec<String> {
    let letters: Vec<char> = word.chars().collect();
    match letters.len() {
        1 => vec![word.to_owned()],
        _ => letters
            .windows(2)
            .map(|pair| pair.iter().collect())
            .collect(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_are_letters_and_digits_regardless_of_case() {
        let found: Vec<String> = terms("Clause 3.4: Größe, don't—stop!").collect();
        assert_eq!(found, ["clause", "3", "4", "größe", "don", "t", "stop"]);
        let found: Vec<String> = terms("東京都 x").collect();
        assert_eq!(found, ["東京", "京都", "x"]);
    }
}
