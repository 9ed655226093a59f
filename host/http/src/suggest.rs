//! Finds the known name nearest to an unknown one, for messages.

/// Names at least this similar are worth suggesting; 1 is equal.
const LEAST_SIMILARITY: f64 = 0.75;

/// The known name that is most like `name`, if any is close.
pub fn nearest<'a>(name: &str, known: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    // The distance is quadratic, and a name may be as long as a body.
    if name.len() > 100 {
        return None;
    }
    let lower = name.to_lowercase();
    known
        .into_iter()
        .map(|candidate| (strsim::jaro_winkler(&lower, candidate), candidate))
        .filter(|(similarity, _)| *similarity >= LEAST_SIMILARITY)
        .max_by(|left, right| left.0.total_cmp(&right.0))
        .map(|(_, candidate)| candidate)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn suggests_only_what_is_close() {
        let known = ["temperature", "top_p", "max_tokens"];
        assert_eq!(nearest("temprature", known), Some("temperature"));
        assert_eq!(nearest("maxTokens", known), Some("max_tokens"));
        assert_eq!(nearest("zzz", known), None);
        assert_eq!(nearest(&"t".repeat(1000), known), None);
    }
}
