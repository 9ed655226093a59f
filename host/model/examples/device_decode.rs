//! Decoding speed of a GPU: models of random weights by greedy steps that choose on the device, with
//! matrices and caches of several kinds. Prints one line of JSON for each measurement;
//! `kernels/bench/gpu.sh` runs it.
//!
//! ```text
//! device_decode FOLDER [NAME ...]
//! ```
//!
//! Names are those of [`CASES`]. Weights are written to the folder, up to 17 GB at a time. Speed does
//! not depend on their values.

use std::fs::File;
use std::io::{BufWriter, Write};
use std::path::Path;
use std::sync::Arc;
use std::time::Instant;

use mortise_cuda::{Buffer, Device, memory};
use mortise_model::{
    DeviceModel, DeviceSettings, KvType, LogitRows, ModelFolder, ModelInput, SampleParams,
    SequenceInput, TokenSource, WeightPrecision,
};
use serde_json::{Map, Value, json};

type Outcome<T> = Result<T, Box<dyn std::error::Error>>;

/// Tokens of a prompt, and tokens that are timed.
const PROMPT: usize = 64;
const STEPS: usize = 128;
/// Runs of each measurement; the median counts.
const RUNS: usize = 5;
const BLOCK: usize = 16;

#[derive(Debug, PartialEq, Eq)]
struct Shape {
    vocabulary: usize,
    layers: usize,
    hidden: usize,
    intermediate: usize,
    heads: usize,
    kv_heads: usize,
    dim: usize,
    tied: bool,
    /// Experts, those of a token, and their width.
    experts: Option<[usize; 3]>,
}

/// Llama 3.2 1B.
const SMALL: Shape = Shape {
    vocabulary: 128_256,
    layers: 16,
    hidden: 2048,
    intermediate: 8192,
    heads: 32,
    kv_heads: 8,
    dim: 64,
    tied: true,
    experts: None,
};

/// Llama 3.1 8B.
const LARGE: Shape = Shape {
    layers: 32,
    hidden: 4096,
    intermediate: 14_336,
    dim: 128,
    tied: false,
    ..SMALL
};

/// Twelve of the 48 layers of Qwen3-30B-A3B.
const EXPERTS: Shape = Shape {
    vocabulary: 151_936,
    layers: 12,
    hidden: 2048,
    intermediate: 6144,
    heads: 32,
    kv_heads: 4,
    dim: 128,
    tied: false,
    experts: Some([128, 8, 768]),
};

/// Number format of the layers' matrices in the file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Stored {
    Bf16,
    /// E4M3, a scale for each block of 128 by 128.
    Fp8,
}

struct Case {
    name: &'static str,
    shape: Shape,
    stored: Stored,
    precision: WeightPrecision,
    kv_type: KvType,
}

const fn case(name: &'static str, shape: Shape) -> Case {
    Case {
        name,
        shape,
        stored: Stored::Bf16,
        precision: WeightPrecision::AsStored,
        kv_type: KvType::Bf16,
    }
}

/// Cases that are measured. Cases of one model file are neighbours.
const CASES: [Case; 8] = [
    case("1b", SMALL),
    Case {
        kv_type: KvType::Q8_0,
        ..case("1b-kv-q8_0", SMALL)
    },
    Case {
        precision: WeightPrecision::Q8_0,
        ..case("1b-q8_0", SMALL)
    },
    Case {
        precision: WeightPrecision::Q4K,
        ..case("1b-q4_k", SMALL)
    },
    case("8b", LARGE),
    Case {
        stored: Stored::Fp8,
        ..case("8b-fp8", LARGE)
    },
    case("experts", EXPERTS),
    Case {
        precision: WeightPrecision::Q8_0,
        ..case("experts-q8_0", EXPERTS)
    },
];

fn main() -> Outcome<()> {
    let names: Vec<&str> = CASES.iter().map(|case| case.name).collect();
    let usage = format!(
        "usage: device_decode FOLDER [NAME ...], of {}",
        names.join(", ")
    );
    let mut arguments = std::env::args().skip(1);
    let folder = arguments.next().ok_or(usage.clone())?;
    let wanted: Vec<String> = arguments.collect();
    if wanted.iter().any(|name| !names.contains(&&**name)) {
        return Err(usage.into());
    }
    let device = mortise_cuda::open(0)?;
    let copied = copy_bandwidth(&device)?;
    println!(
        "{}",
        json!({ "device": device.name(), "copy_bytes_per_second": copied })
    );
    let is_wanted = |case: &&Case| wanted.is_empty() || wanted.iter().any(|name| name == case.name);
    let cases: Vec<&Case> = CASES.iter().filter(is_wanted).collect();
    let path = Path::new(&folder).join("model");
    for (index, case) in cases.iter().enumerate() {
        let same_file = |other: &&Case| other.shape == case.shape && other.stored == case.stored;
        if index == 0 || !same_file(&cases[index - 1]) {
            write_model(case, &path)?;
        }
        measure(case, &path, &device, copied)?;
        if !cases.get(index + 1).is_some_and(same_file) {
            std::fs::remove_dir_all(&path)?;
        }
    }
    Ok(())
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

/// Bytes read and written in a second by a copy within the device's memory.
fn copy_bandwidth(device: &Arc<dyn Device>) -> Outcome<f64> {
    const BYTES: usize = 4 << 30;
    const COPIES: usize = 10;
    let (from, to) = (
        Buffer::<u8>::zeros(device, BYTES)?,
        Buffer::zeros(device, BYTES)?,
    );
    let mut rates = Vec::new();
    for _ in 0..=RUNS {
        device.synchronize()?;
        let begun = Instant::now();
        for _ in 0..COPIES {
            memory::copy(&**device, from.all(), to.all())?;
        }
        device.synchronize()?;
        rates.push((2 * COPIES * BYTES) as f64 / begun.elapsed().as_secs_f64());
    }
    // The first run loads the kernel.
    Ok(median(rates.split_off(1)))
}

/// Names of tensors, without `.weight`, and their sides.
fn tensors(shape: &Shape) -> Vec<(String, Vec<usize>)> {
    let (hidden, width) = (shape.hidden, shape.intermediate);
    let (queries, keys) = (shape.heads * shape.dim, shape.kv_heads * shape.dim);
    let mut tensors = vec![
        (
            "model.embed_tokens".to_owned(),
            vec![shape.vocabulary, hidden],
        ),
        ("model.norm".to_owned(), vec![hidden]),
    ];
    if !shape.tied {
        tensors.push(("lm_head".to_owned(), vec![shape.vocabulary, hidden]));
    }
    let gated = |prefix: &str, width: usize| {
        [
            (format!("{prefix}gate_proj"), vec![width, hidden]),
            (format!("{prefix}up_proj"), vec![width, hidden]),
            (format!("{prefix}down_proj"), vec![hidden, width]),
        ]
    };
    for layer in 0..shape.layers {
        let parts = [
            ("input_layernorm", vec![hidden]),
            ("self_attn.q_proj", vec![queries, hidden]),
            ("self_attn.k_proj", vec![keys, hidden]),
            ("self_attn.v_proj", vec![keys, hidden]),
            ("self_attn.o_proj", vec![hidden, queries]),
            ("post_attention_layernorm", vec![hidden]),
        ];
        let mut parts: Vec<_> = parts.map(|(part, sides)| (part.to_owned(), sides)).into();
        match shape.experts {
            None => parts.extend(gated("mlp.", width)),
            Some([experts, _, width]) => {
                let norms = ["self_attn.q_norm", "self_attn.k_norm"];
                parts.extend(norms.map(|norm| (norm.to_owned(), vec![shape.dim])));
                parts.push(("mlp.gate".to_owned(), vec![experts, hidden]));
                for expert in 0..experts {
                    parts.extend(gated(&format!("mlp.experts.{expert}."), width));
                }
            }
        }
        let prefix = format!("model.layers.{layer}.");
        tensors.extend(
            parts
                .into_iter()
                .map(|(part, sides)| (prefix.clone() + &part, sides)),
        );
    }
    tensors
}

fn config(case: &Case) -> Value {
    let shape = &case.shape;
    let mut config = json!({
        "architectures": ["LlamaForCausalLM"],
        "hidden_size": shape.hidden,
        "intermediate_size": shape.intermediate,
        "num_hidden_layers": shape.layers,
        "num_attention_heads": shape.heads,
        "num_key_value_heads": shape.kv_heads,
        "head_dim": shape.dim,
        "vocab_size": shape.vocabulary,
        "max_position_embeddings": 4096,
        "rms_norm_eps": 1e-5,
        "rope_theta": 500_000.0,
        "tie_word_embeddings": shape.tied,
        "hidden_act": "silu",
    });
    if let Some([experts, chosen, width]) = shape.experts {
        config["architectures"] = json!(["Qwen3MoeForCausalLM"]);
        config["num_experts"] = json!(experts);
        config["num_experts_per_tok"] = json!(chosen);
        config["moe_intermediate_size"] = json!(width);
        config["norm_topk_prob"] = json!(true);
    }
    if case.stored == Stored::Fp8 {
        config["quantization_config"] =
            json!({ "quant_method": "fp8", "fmt": "e4m3", "weight_block_size": [128, 128] });
    }
    config
}

/// A Hugging Face folder of random weights.
fn write_model(case: &Case, path: &Path) -> Outcome<()> {
    std::fs::create_dir_all(path)?;
    std::fs::write(path.join("config.json"), config(case).to_string())?;
    let mut header = Map::new();
    let mut parts: Vec<(usize, &[u8])> = Vec::new();
    let mut end = 0;
    // Numbers between 2^-6 and 2^-5 in bf16, and between 1/2 and 1 in E4M3, of either sign, over and over.
    let (halves, eighths) = (
        random(|bits| 0x3c80 | bits & 0x807f),
        random(|bits| 0x3030 | bits & 0x8787),
    );
    let scale = 0.03125f32.to_le_bytes().repeat(1 << 20);
    for (name, sides) in tensors(&case.shape) {
        let mut add = |name: String, dtype: &str, size: usize, sides: &[usize], pattern| {
            let begin = end;
            end += size * sides.iter().product::<usize>();
            let entry = json!({ "dtype": dtype, "shape": sides, "data_offsets": [begin, end] });
            header.insert(name, entry);
            parts.push((end - begin, pattern));
        };
        if case.stored == Stored::Fp8 && name.ends_with("_proj") {
            let blocks: Vec<usize> = sides.iter().map(|side| side.div_ceil(128)).collect();
            add(format!("{name}.weight"), "F8_E4M3", 1, &sides, &eighths[..]);
            add(
                format!("{name}.weight_scale_inv"),
                "F32",
                4,
                &blocks,
                &scale,
            );
        } else {
            add(format!("{name}.weight"), "BF16", 2, &sides, &halves[..]);
        }
    }
    let header = serde_json::to_vec(&header)?;
    let mut file = BufWriter::new(File::create(path.join("model.safetensors"))?);
    file.write_all(&(header.len() as u64).to_le_bytes())?;
    file.write_all(&header)?;
    for (mut left, pattern) in parts {
        while left > 0 {
            let part = left.min(pattern.len());
            file.write_all(&pattern[..part])?;
            left -= part;
        }
    }
    Ok(file.flush()?)
}

/// 32 MiB of numbers that look random.
fn random(number: impl Fn(u16) -> u16) -> Vec<u8> {
    let mut state = 1u32;
    let numbers = std::iter::repeat_with(|| {
        state ^= state << 13;
        state ^= state >> 17;
        state ^= state << 5;
        number(state as u16).to_le_bytes()
    });
    numbers.take(16 << 20).flatten().collect()
}

fn measure(case: &Case, path: &Path, device: &Arc<dyn Device>, copied: f64) -> Outcome<()> {
    const STREAMS: [usize; 4] = [1, 8, 32, 128];
    let blocks_each = (PROMPT + STEPS).div_ceil(BLOCK);
    let settings = DeviceSettings {
        precision: case.precision,
        context: 4096,
        blocks: blocks_each * STREAMS[STREAMS.len() - 1],
        kv_type: case.kv_type,
    };
    let begun = Instant::now();
    let mut model = DeviceModel::load(&ModelFolder::open(path)?, Arc::clone(device), settings)?;
    device.synchronize()?;
    let loaded = begun.elapsed().as_secs_f64();
    let bytes = model.bytes_per_token();
    for streams in STREAMS {
        let mut rates = Vec::new();
        let mut prefill = Vec::new();
        for run in 0..=RUNS {
            let table = |stream: usize| -> Vec<u32> {
                let first = stream * blocks_each;
                (first..first + blocks_each)
                    .map(|block| block as u32)
                    .collect()
            };
            let prompt: Vec<u32> = (0..PROMPT)
                .map(|i| ((i * 31 + run) % case.shape.vocabulary) as u32)
                .collect();
            let begun = Instant::now();
            for stream in 0..streams {
                let mut input = ModelInput::new();
                input.push(SequenceInput {
                    tokens: &prompt,
                    first_position: 0,
                    block_table: &table(stream),
                    logits: LogitRows::None,
                });
                model.forward(&input)?;
            }
            device.synchronize()?;
            prefill.push((streams * PROMPT) as f64 / begun.elapsed().as_secs_f64());
            let begun = Instant::now();
            decode(&mut model, streams, table)?;
            let elapsed = begun.elapsed().as_secs_f64();
            rates.push((streams * STEPS) as f64 / elapsed);
        }
        let rate = median(rates.split_off(1));
        // Several tokens read the experts of each.
        let same_weights = streams == 1 || case.shape.experts.is_none();
        let read = same_weights.then_some(rate / streams as f64 * bytes as f64);
        println!(
            "{}",
            json!({
                "model": case.name,
                "streams": streams,
                "tokens_per_second": rate,
                "weight_bytes_of_a_token": bytes,
                "part_of_copy_bandwidth": read.map(|read| read / copied),
                "prefill_tokens_per_second": median(prefill.split_off(1)),
                "load_seconds": loaded,
            })
        );
    }
    Ok(())
}

/// Decode as the engine does: each step is queued before it is known what the last one chose.
fn decode(
    model: &mut DeviceModel,
    streams: usize,
    table: impl Fn(usize) -> Vec<u32>,
) -> Outcome<()> {
    let greedy = |row| SampleParams {
        row,
        adjustments: Vec::new(),
        mask: None,
        temperature: 0.0,
        top_k: 0,
        min_p: 0.0,
        top_p: 1.0,
        random: 0,
        reported: None,
    };
    let mut sources = Vec::new();
    for step in 0..STEPS {
        let mut input = ModelInput::new();
        for stream in 0..streams {
            input.push(SequenceInput {
                tokens: &[(stream + 1) as u32],
                first_position: PROMPT + step,
                block_table: &table(stream),
                logits: LogitRows::Last,
            });
        }
        model.queue(&input, &sources)?;
        model.sample((0..streams).map(greedy).collect())?;
        sources = (0..streams)
            .map(|row| TokenSource { row, sample: row })
            .collect();
        if step > 0 {
            assert_eq!(model.sampled()?.len(), streams);
        }
    }
    assert_eq!(model.sampled()?.len(), streams);
    Ok(())
}
