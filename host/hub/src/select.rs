//! Selection of the files of a repository that a model needs.

use serde::Deserialize;

use crate::error::HubError;
use crate::reference::ModelReference;

/// Small files beside the weights that are fetched where they are present.
const BESIDE_WEIGHTS: [&str; 9] = [
    "config.json",
    "generation_config.json",
    "tokenizer.json",
    "tokenizer_config.json",
    "special_tokens_map.json",
    "chat_template.jinja",
    "additional_chat_templates/rag.jinja",
    "additional_chat_templates/tool_use.jinja",
    "modules.json",
];
/// Folders of the `sentence-transformers` layout whose configuration says how to pool.
const POOLING: &str = "1_Pooling/config.json";
const WEIGHTS: &str = "model.safetensors";
pub(crate) const WEIGHTS_INDEX: &str = "model.safetensors.index.json";
/// Taken in this order where the caller names none.
const PREFERRED_QUANTS: [&str; 3] = ["Q4_K_M", "Q8_0", "Q4_0"];

/// Files to fetch.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Selection {
    /// One GGUF file, or the parts of one model in order.
    Gguf(Vec<String>),
    /// A Hugging Face folder. `sharded`: the index names the further files.
    Folder { files: Vec<String>, sharded: bool },
}

/// Choose among a repository's files.
pub(crate) fn select(reference: &ModelReference, files: &[String]) -> Result<Selection, HubError> {
    let none = |problem: String| HubError::NoModel {
        repository: reference.repository.clone(),
        problem,
    };
    let has = |name: &str| files.iter().any(|file| file == name);
    let ggufs: Vec<&String> = files.iter().filter(|file| is_gguf(file)).collect();
    if let Some(quant) = &reference.quant {
        return choose_gguf(&ggufs, quant).map_err(none);
    }
    let sharded = !has(WEIGHTS) && has(WEIGHTS_INDEX);
    if has("config.json") && (has(WEIGHTS) || sharded) {
        let mut wanted: Vec<String> = BESIDE_WEIGHTS
            .iter()
            .chain([&POOLING])
            .filter(|name| has(name))
            .map(|name| (*name).to_owned())
            .collect();
        let weights = if sharded { WEIGHTS_INDEX } else { WEIGHTS };
        wanted.push(weights.to_owned());
        return Ok(Selection::Folder {
            files: wanted,
            sharded,
        });
    }
    match ggufs.as_slice() {
        [] => Err(none(
            "it has neither config.json with safetensors weights nor a GGUF file".to_owned(),
        )),
        [one] => choose_gguf(&[one], "").map_err(none),
        // All of them where they are one model.
        _ => [""]
            .iter()
            .chain(&PREFERRED_QUANTS)
            .find_map(|quant| choose_gguf(&ggufs, quant).ok())
            .ok_or_else(|| {
                none(format!(
                    "name one of its files after a colon: {}",
                    listed(&ggufs)
                ))
            }),
    }
}

fn is_gguf(file: &str) -> bool {
    let lower = file.to_ascii_lowercase();
    // Projectors of vision models are no models of their own.
    lower.ends_with(".gguf") && !lower.contains("mmproj")
}

fn choose_gguf(ggufs: &[&String], quant: &str) -> Result<Selection, String> {
    let matching: Vec<&&String> = ggufs.iter().filter(|file| has_part(file, quant)).collect();
    match matching.as_slice() {
        [] if ggufs.is_empty() => {
            Err("it has no GGUF files, so no quantisation can be chosen".to_owned())
        }
        [] => Err(format!(
            "no GGUF file is a {quant}; there are {}",
            listed(ggufs)
        )),
        files if files.iter().any(|file| part_of(file).is_some()) => whole_split(files),
        [one] => Ok(Selection::Gguf(vec![(**one).clone()])),
        several => {
            let names: Vec<&str> = several.iter().map(|file| file.as_str()).collect();
            Err(format!(
                "several GGUF files are a {quant}: {}",
                names.join(", ")
            ))
        }
    }
}

/// Whether the quantisation stands in the name as a part of its own: `Q4_K` is not in `Q4_K_M`.
fn has_part(file: &str, quant: &str) -> bool {
    if quant.is_empty() {
        return true;
    }
    let (file, quant) = (file.to_ascii_lowercase(), quant.to_ascii_lowercase());
    let delimits =
        |byte: Option<&u8>| !byte.is_some_and(|byte| byte.is_ascii_alphanumeric() || *byte == b'_');
    file.match_indices(&quant).any(|(at, _)| {
        let before = at
            .checked_sub(1)
            .and_then(|before| file.as_bytes().get(before));
        delimits(before) && delimits(file.as_bytes().get(at + quant.len()))
    })
}

/// The parts of one model, if they are all there and nothing else is.
fn whole_split(files: &[&&String]) -> Result<Selection, String> {
    let mut files: Vec<String> = files.iter().map(|file| (**file).clone()).collect();
    files.sort_unstable();
    let of_one = files.first().and_then(|first| {
        let (stem, _, count) = part_of(first)?;
        let expected = (1..=count).map(|number| Some((stem, number, count)));
        Some(expected.eq(files.iter().map(|file| part_of(file))))
    });
    match of_one {
        Some(true) => Ok(Selection::Gguf(files)),
        _ => Err(format!(
            "these files are not all parts of one model: {}",
            listed(&files.iter().collect::<Vec<_>>())
        )),
    }
}

/// Stem, number and count of a split file such as `…-00001-of-00003.gguf`.
fn part_of(file: &str) -> Option<(&str, usize, usize)> {
    let number = |digits: &str| {
        let right = digits.len() == 5 && digits.bytes().all(|byte| byte.is_ascii_digit());
        right.then(|| digits.parse().ok()).flatten()
    };
    let (rest, count) = file.strip_suffix(".gguf")?.rsplit_once("-of-")?;
    let (stem, part) = rest.rsplit_once('-')?;
    Some((stem, number(part)?, number(count)?))
}

fn listed(files: &[&String]) -> String {
    const MOST: usize = 20;
    let mut names: Vec<&str> = files.iter().take(MOST).map(|file| file.as_str()).collect();
    if files.len() > MOST {
        names.push("…");
    }
    names.join(", ")
}

/// The files that an index of shards names, each once.
pub(crate) fn shards(index: &[u8]) -> Result<Vec<String>, String> {
    #[derive(Deserialize)]
    struct Index {
        weight_map: std::collections::BTreeMap<String, String>,
    }
    let index: Index = serde_json::from_slice(index).map_err(|error| error.to_string())?;
    let mut files: Vec<String> = index.weight_map.into_values().collect();
    files.sort_unstable();
    files.dedup();
    Ok(files)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn choose(reference: &str, files: &[&str]) -> Result<Selection, String> {
        let files: Vec<String> = files.iter().map(|file| (*file).to_owned()).collect();
        select(&reference.parse().expect("a reference"), &files).map_err(|error| error.to_string())
    }

    #[test]
    fn a_folder_is_its_weights_and_what_explains_them() {
        let files = [
            "README.md",
            "config.json",
            "model.safetensors",
            "tokenizer.json",
            "pytorch_model.bin",
            "x.gguf",
        ];
        let expected = ["config.json", "tokenizer.json", "model.safetensors"]
            .map(str::to_owned)
            .to_vec();
        assert_eq!(
            choose("a/b", &files),
            Ok(Selection::Folder {
                files: expected,
                sharded: false
            })
        );
        let files = [
            "config.json",
            "model.safetensors.index.json",
            "model-00001-of-00002.safetensors",
        ];
        let Ok(Selection::Folder {
            files,
            sharded: true,
        }) = choose("a/b", &files)
        else {
            panic!("sharded weights are a folder");
        };
        assert_eq!(files, ["config.json", "model.safetensors.index.json"]);
    }

    #[test]
    fn feature_b11_a_quantisation_or_a_file_is_named_behind_the_colon() {
        let files = [
            "m-Q4_K_S.gguf",
            "m-Q4_K_M.gguf",
            "m.q8_0.gguf",
            "mmproj-Q8_0.gguf",
        ];
        let gguf = |name: &str| Ok(Selection::Gguf(vec![name.to_owned()]));
        assert_eq!(choose("a/b:q4_k_m", &files), gguf("m-Q4_K_M.gguf"));
        assert_eq!(choose("a/b:Q8_0", &files), gguf("m.q8_0.gguf"));
        assert_eq!(choose("a/b:m.q8_0.gguf", &files), gguf("m.q8_0.gguf"));
        assert_eq!(choose("a/b", &files), gguf("m-Q4_K_M.gguf"));
        let error = choose("a/b:Q4_K", &files).expect_err("no such file");
        assert!(error.contains("m-Q4_K_S.gguf"), "{error}");
        assert_eq!(choose("a/b", &["only.gguf"]), gguf("only.gguf"));
    }

    #[test]
    fn what_cannot_be_served_says_why() {
        for (reference, files, says) in [
            ("a/b", &["README.md"][..], "neither"),
            ("a/b:Q4_0", &["config.json"][..], "no GGUF files"),
            (
                "a/b:Q4_0",
                &["m-Q4_0-00001-of-00003.gguf", "m-Q4_0-00003-of-00003.gguf"][..],
                "not all parts",
            ),
            (
                "a/b",
                &["x-Q2_K.gguf", "x-Q3_K_M.gguf"][..],
                "after a colon",
            ),
            ("a/b:Q2_K", &["x-Q2_K.gguf", "y-Q2_K.gguf"][..], "several"),
        ] {
            let error = choose(reference, files).expect_err(says);
            assert!(error.contains(says), "{error}");
        }
    }

    #[test]
    fn all_parts_of_a_split_model_are_one_choice() {
        let files = [
            "q4/m-Q4_K_M-00002-of-00002.gguf",
            "q4/m-Q4_K_M-00001-of-00002.gguf",
            "m-Q8_0.gguf",
        ];
        let expected = vec![files[1].to_owned(), files[0].to_owned()];
        for reference in ["a/b", "a/b:Q4_K_M"] {
            assert_eq!(
                choose(reference, &files),
                Ok(Selection::Gguf(expected.clone()))
            );
        }
        assert_eq!(choose("a/b", &files[..2]), Ok(Selection::Gguf(expected)));
        let error = choose("a/b:Q4_K_M", &[&files[..], &["m-Q4_K_M.gguf"]].concat());
        assert!(error.is_err_and(|error| error.contains("not all parts")));
    }

    #[test]
    fn an_index_names_each_shard_once() {
        let index = br#"{"metadata":{},"weight_map":{"a":"2.safetensors","b":"1.safetensors","c":"2.safetensors"}}"#;
        assert_eq!(
            shards(index),
            Ok(vec!["1.safetensors".to_owned(), "2.safetensors".to_owned()])
        );
        assert!(shards(b"[]").is_err());
    }
}
