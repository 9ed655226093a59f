//! Names of GGUF files: parts of a split file, projectors, quantisations.

/// The stem of a GGUF file's name; `None` if it is no GGUF file.
pub(super) fn stem_of(file: &str) -> Option<&str> {
    let (stem, extension) = file.rsplit_once('.')?;
    (extension.eq_ignore_ascii_case("gguf") && !stem.is_empty()).then_some(stem)
}

/// A part of a file that was split: the stem of the whole, number and count, as in `name-00001-of-00003`.
pub(super) fn part_of(stem: &str) -> Option<(&str, u32, u32)> {
    const DIGITS: usize = 5;
    let number = |text: &str| {
        let digits = text.len() == DIGITS && text.bytes().all(|byte| byte.is_ascii_digit());
        digits.then(|| text.parse::<u32>().ok()).flatten()
    };
    let (rest, count) = stem.rsplit_once("-of-")?;
    let (whole, part) = rest.rsplit_once('-')?;
    let (part, count) = (number(part)?, number(count)?);
    (!whole.is_empty() && part >= 1 && part <= count).then_some((whole, part, count))
}

/// Whether a file holds a projector of images, and no model.
pub(super) fn is_projector(stem: &str) -> bool {
    stem.to_ascii_lowercase().contains("mmproj")
}

/// Preference among projectors, lowest first: bf16, f16, f32, others.
pub(super) fn projector_rank(stem: &str) -> usize {
    let tag = tag_of(stem).map(str::to_ascii_lowercase);
    let known = ["bf16", "f16", "f32"];
    let position = |tag: String| known.iter().position(|known| *known == tag);
    tag.and_then(position).unwrap_or(known.len())
}

/// The quantisation at the end of a stem, such as `Q4_K_M` in `name-Q4_K_M`.
pub(super) fn tag_of(stem: &str) -> Option<&str> {
    let tag = stem.rsplit(['-', '.']).next()?;
    let upper = tag.to_ascii_uppercase();
    let quantised = ["Q", "IQ", "TQ"].iter().any(|kind| {
        let rest = upper.strip_prefix(kind).unwrap_or_default();
        let mut bytes = rest.bytes();
        bytes.next().is_some_and(|byte| byte.is_ascii_digit())
            && bytes.all(|byte| byte.is_ascii_alphanumeric() || byte == b'_')
    });
    let float = ["F32", "F16", "BF16", "MXFP4", "MXFP4_MOE"].contains(&upper.as_str());
    (quantised || float).then_some(tag)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stems_parts_and_tags_are_told_apart() {
        assert_eq!(stem_of("a.b.GGUF"), Some("a.b"));
        for other in [".gguf", "a.bin", "gguf", "a.gguf.part"] {
            assert_eq!(stem_of(other), None, "{other}");
        }
        assert_eq!(part_of("m-Q8_0-00002-of-00003"), Some(("m-Q8_0", 2, 3)));
        for whole in [
            "m",
            "m-00000-of-00003",
            "m-00004-of-00003",
            "m-1-of-2",
            "-00001-of-00001",
        ] {
            assert_eq!(part_of(whole), None, "{whole}");
        }
        for (stem, tag) in [
            ("Qwen3-0.6B-Q8_0", Some("Q8_0")),
            ("qwen2.5-0.5b-instruct-q4_k_m", Some("q4_k_m")),
            ("model.IQ4_XS", Some("IQ4_XS")),
            ("ggml-model-f16", Some("f16")),
            ("gpt-oss-20b-MXFP4", Some("MXFP4")),
            ("Qwen", None),
            ("model-Quick", None),
        ] {
            assert_eq!(tag_of(stem), tag, "{stem}");
        }
        let mut projectors = ["mmproj-f32", "mmproj-x", "mmproj-BF16", "mmproj-model-f16"];
        projectors.sort_by_key(|stem| projector_rank(stem));
        assert_eq!(
            projectors,
            ["mmproj-BF16", "mmproj-model-f16", "mmproj-f32", "mmproj-x"]
        );
    }
}
