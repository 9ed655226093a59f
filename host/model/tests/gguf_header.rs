//! Wrong GGUF files: each is refused with one clear error. The letters are those of the project's
//! list of attacks.

use std::path::PathBuf;
use std::sync::{Arc, OnceLock};

use mortise_model::gguf::{Gguf, Value};
use mortise_model::{Decoder, FileBytes, ModelFolder, WeightPrecision};
use mortise_test_support::gguf_file::{self, F32, GgufFile, array, sized, text, texts, u32};
use proptest::prelude::*;

fn parse(bytes: Vec<u8>) -> Result<Gguf, String> {
    Gguf::parse(Arc::new(FileBytes::from(bytes))).map_err(|error| error.to_string())
}

fn refused(what: &str, bytes: Vec<u8>, expected: &str) {
    let error = parse(bytes).expect_err(what);
    assert!(
        error.contains(expected),
        "{what}: `{error}` does not say `{expected}`"
    );
}

/// A right file with an entry of each kind and two tensors.
fn right() -> GgufFile {
    let mut file = GgufFile::default();
    file.entry("general.architecture", text("llama"));
    file.entry("llama.block_count", u32(1));
    file.entry("tokenizer.ggml.tokens", texts(&["a", "b", "é"]));
    file.tensor("first", &[3, 4], F32, vec![1; 48]);
    file.tensor("second", &[5], F32, vec![2; 20]);
    file
}

fn spoiled(spoil: impl FnOnce(&mut GgufFile)) -> Vec<u8> {
    let mut file = right();
    spoil(&mut file);
    file.bytes()
}

#[test]
fn a_right_file_is_read() {
    for version in [2, 3] {
        let gguf = parse(spoiled(|file| file.version = version)).unwrap();
        assert_eq!(gguf.version(), version);
        assert_eq!(gguf.architecture().unwrap(), "llama");
        let metadata = gguf.metadata();
        assert_eq!(metadata.count("llama.block_count").unwrap(), Some(1));
        let tokens = metadata.array("tokenizer.ggml.tokens").unwrap().unwrap();
        let tokens: Vec<&str> = tokens.texts().map(Result::unwrap).collect();
        assert_eq!(tokens, ["a", "b", "é"]);
        assert_eq!(metadata.get("no.such.key").unwrap(), None);
        assert!(metadata.text("llama.block_count").is_err());
        let shapes: Vec<_> = gguf.tensors().iter().map(|t| t.shape.clone()).collect();
        assert_eq!(shapes, [vec![3, 4], vec![5]]);
        assert_eq!(gguf.tensor("second").unwrap().bytes(), 20);
    }
}

#[test]
fn a1_headers_that_announce_nonsense() {
    let mut swapped = right().bytes();
    swapped[..4].copy_from_slice(b"FUGG");
    refused("magic", swapped, "does not begin with `GGUF`");
    for version in [0, 1, 4, u32::MAX] {
        refused(
            "version",
            spoiled(|file| file.version = version),
            "versions 2 and 3",
        );
    }
    refused(
        "byte order",
        spoiled(|file| file.version = 3_u32.swap_bytes()),
        "big-endian",
    );
    for count in [u64::MAX, 1 << 40, 1 << 20] {
        refused(
            "tensors",
            spoiled(|file| file.tensor_count = Some(count)),
            "tensors; at most",
        );
        refused(
            "entries",
            spoiled(|file| file.entry_count = Some(count)),
            "entries of metadata; at most",
        );
    }
    // More than there are, within the limit.
    refused("tensors", spoiled(|file| file.tensor_count = Some(9)), "");
    refused("entries", spoiled(|file| file.entry_count = Some(9)), "");
}

#[test]
fn a1_files_cut_anywhere_in_the_header() {
    let whole = right().bytes();
    let header = whole.len() - 48 - 16 - 20 - 12;
    for length in 0..header {
        assert!(parse(whole[..length].to_vec()).is_err(), "cut at {length}");
    }
    let real = std::fs::read(data("qwen2-bias")).unwrap();
    for length in (0..4096).chain([real.len() - 1, real.len() - 4096]) {
        assert!(
            parse(real[..length].to_vec()).is_err(),
            "real file cut at {length}"
        );
    }
}

#[test]
fn a2_lengths_and_nesting() {
    let entry = |value: Vec<u8>| spoiled(|file| file.entry("x", value));
    let lengths = |length: u64| {
        let mut long = 8_u32.to_le_bytes().to_vec();
        long.extend(length.to_le_bytes());
        long
    };
    refused("text", entry(lengths(u64::MAX)), "bytes of text; at most");
    refused(
        "text",
        entry(lengths(1 << 20)),
        "ends within the value of `x`",
    );
    refused(
        "texts",
        entry(array(8, 1 << 40, &[])),
        "elements of an array; at most",
    );
    refused(
        "texts",
        entry(array(8, 1 << 22, &[])),
        "ends within the elements of `x`",
    );
    refused(
        "numbers",
        entry(array(10, u64::MAX, &[])),
        "elements of an array; at most",
    );
    refused(
        "numbers",
        entry(array(10, 1 << 22, &[])),
        "ends within the elements of `x`",
    );
    let one = array(8, 1, &(u64::MAX - 7).to_le_bytes());
    refused("element", entry(one), "bytes of text; at most");
    let mut nested = Vec::new();
    for _ in 0..10_000 {
        nested.extend([&9_u32.to_le_bytes()[..], &1_u64.to_le_bytes()[..]].concat());
    }
    refused(
        "nesting",
        entry([&9_u32.to_le_bytes()[..], &nested].concat()),
        "array of arrays",
    );
    refused("type", entry(77_u32.to_le_bytes().to_vec()), "has type 77");
    refused("element type", entry(array(77, 1, &[0; 8])), "has type 77");
    let long_key = spoiled(|file| file.entry(&"k".repeat(70_000), u32(1)));
    refused("key", long_key, "bytes of text; at most 65535");
    refused(
        "no key",
        spoiled(|file| file.entry("", u32(1))),
        "empty key",
    );
    refused(
        "twice",
        spoiled(|file| file.entry("llama.block_count", u32(2))),
        "is there twice",
    );
    let latin = spoiled(|file| file.entries.push((vec![b'k', 0xE9], u32(1))));
    refused("key", latin, "the key of entry 3 is not UTF-8");
    // Text is looked at when it is asked for.
    let value = [&8_u32.to_le_bytes()[..], &sized(&[0xFF, 0xFE])].concat();
    let gguf = parse(entry(value)).unwrap();
    assert!(gguf.metadata().text("x").is_err());
    let elements = gguf_file::array(8, 2, &[sized(b"good"), sized(&[0x80])].concat());
    let gguf = parse(entry(elements)).unwrap();
    let texts: Vec<_> = gguf
        .metadata()
        .array("x")
        .unwrap()
        .unwrap()
        .texts()
        .collect();
    assert!(texts[0].is_ok() && texts[1].is_err());
}

#[test]
fn a3_shapes_and_types() {
    let sides = |sides: &[u64]| spoiled(|file| file.tensors[0].sides = sides.to_vec());
    for nonsense in [
        &[u64::MAX, u64::MAX][..],
        &[1 << 32, 1 << 32],
        &[1 << 62, 2, 2],
        &[4, 0],
        &[0],
        &[u64::MAX / 4 + 1],
        &[1 << 63],
    ] {
        refused("sides", sides(nonsense), "which make no sense");
    }
    // A negative side, as signed readers see it; 576 PB from a small file.
    refused(
        "negative",
        sides(&[(-4_i64) as u64, 3]),
        "which make no sense",
    );
    refused("large", sides(&[1 << 57]), "the file ends before");
    refused("five", sides(&[1, 1, 1, 1, 12]), "has 5 dimensions");
    refused("none", sides(&[]), "has 0 dimensions");
    for kind in [4, 5, 9, 31, 38, 250, u32::MAX] {
        let other = spoiled(|file| file.tensors[0].kind = kind);
        refused("type", other, "which is not known");
    }
    let partial = spoiled(|file| file.tensors[0].kind = 12);
    refused("block", partial, "blocks of 256 (Q4_K) do not fill");
}

#[test]
fn a4_places_outside_the_file_and_overlaps() {
    let offset = |offset: u64| spoiled(|file| file.tensors[1].offset = Some(offset));
    refused("beyond", offset(1 << 20), "the file ends before");
    refused("wrapping", offset(u64::MAX - 31), "the file ends before");
    refused("half beyond", offset(96), "the file ends before");
    refused("overlap", offset(32), "overlaps tensor `first`");
    refused("same", offset(0), "overlaps tensor");
    let twice = spoiled(|file| file.tensors[1].name = b"first".to_vec());
    refused("twice", twice, "is there twice");
    let long = spoiled(|file| file.tensors[1].name = vec![b'n'; 65]);
    refused("name", long, "bytes of text; at most 64");
    let whole = right().bytes();
    refused(
        "cut",
        whole[..whole.len() - 32].to_vec(),
        "the file ends before",
    );
}

#[test]
fn a5_alignment() {
    for alignment in [0, 1, 3, 4, 48, 1 << 31] {
        let file = spoiled(|file| file.entry("general.alignment", u32(alignment)));
        refused("alignment", file, "expected a power of two");
    }
    for value in [
        text("32"),
        gguf_file::f32(32.0),
        array(4, 1, &[32, 0, 0, 0]),
    ] {
        let file = spoiled(|file| file.entry("general.alignment", value));
        refused("type", file, "must be an unsigned integer of 32 bits");
    }
    // Written for 32, announced as 64.
    let inconsistent = spoiled(|file| {
        file.entry("general.alignment", u32(64));
        file.tensors[1].offset = Some(96);
    });
    refused("inconsistent", inconsistent, "no multiple of 64");
    let odd = spoiled(|file| file.tensors[1].offset = Some(65));
    refused("odd", odd, "no multiple of 32");
    let wide = spoiled(|file| {
        file.alignment = 256;
        file.entry("general.alignment", u32(256));
    });
    assert_eq!(parse(wide).unwrap().tensor("second").unwrap().bytes(), 20);
}

#[test]
fn a9_shapes_that_make_no_model_name_the_key() {
    let bytes = std::fs::read(data("qwen2-bias")).unwrap();
    let change = |key: &str, value: u32| {
        let mut bytes = bytes.clone();
        let at = bytes
            .windows(key.len())
            .position(|window| window == key.as_bytes())
            .unwrap()
            + key.len();
        assert_eq!(
            bytes[at..at + 4],
            4_u32.to_le_bytes(),
            "an unsigned integer"
        );
        bytes[at + 4..at + 8].copy_from_slice(&value.to_le_bytes());
        bytes
    };
    for (key, value) in [
        ("qwen2.attention.head_count", 0),
        ("qwen2.attention.head_count", 7),
        ("qwen2.block_count", 1_000_000_000),
        ("qwen2.embedding_length", 0),
        ("qwen2.context_length", u32::MAX),
    ] {
        let error = load(&change(key, value)).expect_err(key);
        assert!(error.contains("qwen2."), "{key}: {error}");
    }
    let error = load(&change("qwen2.block_count", 3)).expect_err("a layer that is not there");
    assert!(
        error.contains("`blk.2.attn_norm.weight` is missing"),
        "{error}"
    );
    let error = load(&change("qwen2.feed_forward_length", 80)).expect_err("wrong shape");
    assert!(error.contains("has shape [72, 48]"), "{error}");
}

fn data(name: &str) -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR"))
        .join("../../tests/gguf/data")
        .join(format!("{name}.gguf"))
}

fn load(bytes: &[u8]) -> Result<Decoder, String> {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("model.gguf");
    std::fs::write(&path, bytes).unwrap();
    let folder = ModelFolder::open(path).map_err(|error| chain(&error))?;
    Decoder::load(&folder, WeightPrecision::AsStored).map_err(|error| chain(&error))
}

fn chain(error: &dyn std::error::Error) -> String {
    match error.source() {
        Some(source) => format!("{error}: {}", chain(source)),
        None => error.to_string(),
    }
}

#[test]
fn files_that_are_no_model_say_why() {
    for (what, bytes, expected) in [
        ("empty", Vec::new(), "ends within its first bytes"),
        (
            "text",
            b"hello, world".to_vec(),
            "does not begin with `GGUF`",
        ),
        (
            "no architecture",
            GgufFile::default().bytes(),
            "`general.architecture` is missing",
        ),
    ] {
        let error = load(&bytes).expect_err(what);
        assert!(error.contains(expected), "{what}: {error}");
    }
    let foreign = spoiled(|file| file.entries[0].1 = text("mamba"));
    let error = load(&foreign).expect_err("an unknown architecture");
    assert!(
        error.contains("architecture `mamba` is not supported"),
        "{error}"
    );
    let split = spoiled(|file| file.entry("split.count", u32(3)));
    let error = load(&split).expect_err("one of several");
    assert!(error.contains("is one of 3; name it"), "{error}");
}

/// Read everything that a header leads to.
fn walk(gguf: &Gguf) {
    let metadata = gguf.metadata();
    for key in metadata.keys() {
        if let Ok(Some(Value::Array(array))) = metadata.get(key) {
            array.values().for_each(drop);
        }
    }
    for tensor in gguf.tensors() {
        assert!(tensor.shape.iter().all(|side| *side > 0));
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2_000))]

    #[test]
    fn a10_mutants_of_a_header_are_read_or_refused(
        changes in proptest::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..6),
        cut in proptest::option::of(any::<prop::sample::Index>()),
    ) {
        static WHOLE: OnceLock<Vec<u8>> = OnceLock::new();
        let mut bytes = WHOLE.get_or_init(|| right().bytes()).clone();
        for (at, byte) in changes {
            let at = at.index(bytes.len());
            bytes[at] = byte;
        }
        if let Some(cut) = cut {
            bytes.truncate(cut.index(bytes.len()));
        }
        if let Ok(gguf) = parse(bytes) {
            walk(&gguf);
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]

    #[test]
    fn a10_mutants_of_a_model_load_or_are_refused(
        changes in proptest::collection::vec((0_usize..2_000, any::<u8>()), 1..4),
    ) {
        static WHOLE: OnceLock<Vec<u8>> = OnceLock::new();
        let mut bytes = WHOLE
            .get_or_init(|| std::fs::read(data("llama-rope-scaled-q8_0")).unwrap())
            .clone();
        for (at, byte) in changes {
            bytes[at] = byte;
        }
        let _ = load(&bytes);
    }
}
