//! Absurd numbers in every numeric field of model files: each is refused by its name, or makes no
//! difference to memory. Alone in its program, since it measures the process.
#![cfg(target_os = "linux")]

mod gguf_numbers;

use std::error::Error;
use std::fs;
use std::path::{Path, PathBuf};

use gguf_numbers::Header;
use mortise_model::{
    Decoder, Embedder, EmbedderOptions, GenerationConfig, KvCache, KvType, LogitRows, ModelFolder,
    ModelInput, SequenceInput, WeightPrecision, vocabulary_size,
};
use serde_json::{Value, json};

/// Most memory that all loads together may add to the peak of the process. The models have less than
/// 1 MiB each; the least of the absurd sizes would take 2 GiB.
const MEMORY_MAX: u64 = 96 << 20;

/// Models that between them have every kind of field.
const FOLDERS: [&str; 9] = [
    "qwen2-bias",
    "gemma3-two-ropes",
    "phi3-longrope-long",
    "smollm3-fourth",
    "qwen3-moe-mixed",
    "qwen2-moe-shared",
    "gpt-oss-mxfp4",
    "deepseek-v2-groups",
    "deepseek-v3",
];
const GGUF_FILES: [&str; 7] = [
    "llama-rope-scaled",
    "gemma3-two-ropes",
    "granite-multipliers",
    "phi3-longrope-long",
    "qwen3-moe-mixed",
    "gpt-oss-sinks",
    "deepseek-v3",
];

/// Ends of GGUF keys whose values are checked as part of other fields, and the names of those.
const DERIVED: [(&str, &str); 7] = [
    ("rope.dimension_count", "`short_factor`"),
    ("rope.dimension_count", "`qk_nope_head_dim`"),
    ("rope.scaling.attn_factor", "rope.scaling.yarn_attn_factor`"),
    ("rope.scaling.yarn_log_multiplier", "`mscale`"),
    ("expert_feed_forward_length", ".feed_forward_length`"),
    ("attention.key_length_mla", "`qk_nope_head_dim`"),
    ("attention.value_length_mla", "`v_head_dim`"),
];

fn data(folder: &str) -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR"))
        .join("../../tests")
        .join(folder)
        .join("data")
}

/// Peak resident memory of the process, in bytes.
fn peak() -> u64 {
    let status = fs::read_to_string("/proc/self/status").unwrap();
    let line = status
        .lines()
        .find(|line| line.starts_with("VmHWM:"))
        .unwrap();
    let kibibytes = line.split_whitespace().nth(1).unwrap();
    kibibytes.parse::<u64>().unwrap() << 10
}

fn absurd() -> Vec<Value> {
    vec![
        json!(1_u64 << 31),
        json!(1_u64 << 33),
        json!(1_u64 << 62),
        json!(u64::MAX),
        json!(i64::MIN),
        json!(-1),
        json!(0),
        json!(1e300),
    ]
}

/// Load a model as a server does, and compute a token if it loads.
fn load(folder: &ModelFolder) -> Result<(), String> {
    let explain = |error: &dyn Error| {
        let mut text = error.to_string();
        let mut source = error.source();
        while let Some(cause) = source {
            text = format!("{text}: {cause}");
            source = cause.source();
        }
        text
    };
    let vocabulary = vocabulary_size(folder).map_err(|error| explain(&error))?;
    assert!(vocabulary.is_some_and(|tokens| tokens < 1 << 20));
    GenerationConfig::read(folder, vocabulary.unwrap_or(0)).map_err(|error| explain(&error))?;
    let options = EmbedderOptions::default();
    if Embedder::describes(folder, options).map_err(|error| explain(&error))? {
        let embedder = Embedder::load(folder, WeightPrecision::AsStored, options);
        let embedder = embedder.map_err(|error| explain(&error))?;
        embedder.embed(&[&[0]]).map_err(|error| explain(&error))?;
        return Ok(());
    }
    let model =
        Decoder::load(folder, WeightPrecision::AsStored).map_err(|error| explain(&error))?;
    let mut cache = KvCache::new(model.spec(), 1, KvType::F32).unwrap();
    let mut input = ModelInput::new();
    input.push(SequenceInput {
        tokens: &[0],
        first_position: 0,
        block_table: &[0],
        logits: LogitRows::Last,
    });
    assert_eq!(model.forward(&input, &mut cache).unwrap().rows().len(), 1);
    Ok(())
}

/// An error names the field, or the tensor that contradicts it. A 0, which may be a right value by
/// itself, can also contradict another field.
fn unnamed(name: &str, value: &Value, result: Result<(), String>) -> Option<String> {
    let error = result.err()?;
    let derived = |(key, field): &(&str, &str)| name.ends_with(key) && error.contains(field);
    let named = error.contains(name) || error.contains("tensor `") || DERIVED.iter().any(derived);
    let contradicts = *value == json!(0) && error.contains('`');
    (!named && !contradicts).then(|| format!("{name} is {value}: {error}"))
}

/// Pointers to all numbers of a JSON value.
fn numbers(value: &Value, at: &str, found: &mut Vec<String>) {
    match value {
        Value::Number(_) => found.push(at.to_owned()),
        Value::Array(list) => {
            // All entries of a list are read alike.
            if let Some(last) = list.len().checked_sub(1) {
                numbers(&list[last], &format!("{at}/{last}"), found);
            }
        }
        Value::Object(members) => {
            for (name, value) in members {
                numbers(value, &format!("{at}/{name}"), found);
            }
        }
        _ => {}
    }
}

/// The name of the field that a pointer leads to; of an entry of a list, that of the list.
fn field(pointer: &str) -> &str {
    let mut parts = pointer.rsplit('/');
    parts
        .find(|part| part.parse::<usize>().is_err())
        .unwrap_or_default()
}

/// Files of a folder, for as long as the program runs.
fn files(folder: &Path) -> Vec<(&'static str, &'static [u8])> {
    let mut files = Vec::new();
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_file() {
            let name = path.file_name().unwrap().to_str().unwrap().to_owned();
            let bytes: &[u8] = fs::read(&path).unwrap().leak();
            files.push((&*name.leak(), bytes));
        }
    }
    files
}

fn check_folder(folder: &Path, wrong: &mut Vec<String>) -> usize {
    let files = files(folder);
    let original = ModelFolder::embedded(&files);
    load(&original).unwrap();
    let mut cases = 0;
    for file in ["config.json", "generation_config.json"] {
        let Some(place) = files.iter().position(|(name, _)| *name == file) else {
            continue;
        };
        let content: Value = serde_json::from_slice(files[place].1).unwrap();
        let mut pointers = Vec::new();
        numbers(&content, "", &mut pointers);
        for pointer in pointers {
            for value in absurd() {
                let mut changed = content.clone();
                *changed.pointer_mut(&pointer).unwrap() = value.clone();
                let mut files = files.clone();
                files[place].1 = changed.to_string().into_bytes().leak();
                let result = load(&ModelFolder::embedded(&files));
                wrong.extend(unnamed(field(&pointer), &value, result));
                cases += 1;
            }
        }
    }
    cases
}

fn check_gguf(path: &Path, wrong: &mut Vec<String>) -> usize {
    let whole = fs::read(path).unwrap();
    let header = Header::read(&whole);
    let folder = tempfile::tempdir().unwrap();
    let to = folder.path().join("model.gguf");
    let mut cases = 0;
    for entry in header.numbers() {
        for value in absurd() {
            fs::write(&to, header.with(entry, &value)).unwrap();
            let result = match ModelFolder::open(&to) {
                Ok(folder) => load(&folder),
                Err(error) => Err(format!("{error}: {:?}", error.source())),
            };
            wrong.extend(unnamed(&entry.key, &value, result));
            cases += 1;
        }
    }
    cases
}

#[test]
fn numbers_of_model_files_are_refused_by_name_or_take_no_memory() {
    let parity = data("parity");
    let folders = FOLDERS.map(|name| parity.join(name));
    let embeddings = data("embeddings");
    let before = peak();
    let (mut cases, mut wrong) = (0, Vec::new());
    for folder in folders.iter().chain([&embeddings.join("tiny-bert")]) {
        cases += check_folder(folder, &mut wrong);
    }
    for name in GGUF_FILES {
        cases += check_gguf(&data("gguf").join(format!("{name}.gguf")), &mut wrong);
    }
    cases += check_gguf(&embeddings.join("tiny-bert.gguf"), &mut wrong);
    let grown = peak() - before;
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    assert!(cases > 2000, "{cases} cases");
    assert!(grown < MEMORY_MAX, "{grown} bytes");
    check_embedding_shapes();
    check_large_headers();
}

fn safetensors(header: &str, data: usize) -> Vec<u8> {
    let length = (header.len() as u64).to_le_bytes();
    [&length[..], header.as_bytes(), &vec![0; data][..]].concat()
}

fn vocabulary_of(weights: Vec<u8>) -> Result<Option<usize>, String> {
    let weights: &[u8] = weights.leak();
    let folder = ModelFolder::embedded(&[("model.safetensors", weights)]);
    vocabulary_size(&folder).map_err(|error| error.to_string())
}

/// The size of a vocabulary is that of a tensor that has bytes in the file.
fn check_embedding_shapes() {
    let embedding = |shape: &str, bytes: usize| {
        let tensor = format!(r#"{{"dtype":"BF16","shape":{shape},"data_offsets":[0,{bytes}]}}"#);
        let header = format!(r#"{{"model.embed_tokens.weight":{tensor}}}"#);
        vocabulary_of(safetensors(&header, bytes))
    };
    assert_eq!(embedding("[3,2]", 12), Ok(Some(3)));
    for shape in [
        "[4611686018427387904,0]",
        "[0,2]",
        "[0]",
        "[]",
        "[2147483648,0]",
    ] {
        let bytes = if shape == "[]" { 2 } else { 0 };
        let error = embedding(shape, bytes).unwrap_err();
        assert!(
            error.contains("a token embedding has 1 to 4194304 rows"),
            "{error}"
        );
    }
    let many = embedding("[4194305,1]", 2 * 4_194_305).unwrap_err();
    assert!(many.contains("1 to 4194304 rows"), "{many}");
    assert_eq!(
        vocabulary_of(safetensors("{}", 0)).unwrap_err(),
        "tensor `model.embed_tokens.weight` is missing from the weights"
    );
    assert_eq!(vocabulary_size(&ModelFolder::embedded(&[])).unwrap(), None);
}

/// Lists in headers and fields of an index that nobody reads are not kept in memory.
fn check_large_headers() {
    let zeros = vec!["0"; 8 << 20].join(",");
    let before = peak();
    let header = format!(r#"{{"a":{{"dtype":"U8","shape":[{zeros}],"data_offsets":[0,0]}}}}"#);
    let size = header.len() as u64;
    let error = vocabulary_of(safetensors(&header, 0)).unwrap_err();
    assert!(error.contains("at most 8 sizes"), "{error}");
    drop(header);
    let index = format!(r#"{{"metadata":[{zeros}],"weight_map":{{}}}}"#);
    let index: &[u8] = index.into_bytes().leak();
    let folder = ModelFolder::embedded(&[("model.safetensors.index.json", index)]);
    let error = vocabulary_size(&folder).unwrap_err().to_string();
    assert!(error.contains("embed_tokens"), "{error}");
    // The files themselves stand in memory, with a copy while they are made.
    let grown = peak() - before;
    assert!(grown < 4 * size + MEMORY_MAX, "{grown} bytes");
}
