//! How fast a GPU decodes: models of random weights in bf16, of the shapes of Llama 3.2 1B and
//! Llama 3.1 8B, by greedy steps that choose on the device. Prints one line of JSON for each
//! measurement; `kernels/bench/gpu.sh` runs it.
//!
//! ```text
//! device_decode FOLDER [1b] [8b]
//! ```
//!
//! Weights are written to the folder: 2.5 GB and 16 GB. Speed does not depend on their values.

use std::fs::File;
use std::io::{BufWriter, Write};
use std::path::Path;
use std::sync::Arc;
use std::time::Instant;

use mortise_cuda::{Buffer, Device, memory};
use mortise_model::{
    Choice, DeviceModel, DeviceSettings, KvType, LogitRows, ModelFolder, ModelInput, SequenceInput,
    TokenSource, WeightPrecision,
};
use serde_json::{Map, json};

type Outcome<T> = Result<T, Box<dyn std::error::Error>>;

/// Tokens of a prompt, and tokens that are timed.
const PROMPT: usize = 64;
const STEPS: usize = 128;
/// Runs of each measurement; the median counts.
const RUNS: usize = 5;
const VOCABULARY: usize = 128_256;
const BLOCK: usize = 16;

struct Shape {
    name: &'static str,
    layers: usize,
    hidden: usize,
    intermediate: usize,
    heads: usize,
    dim: usize,
    tied: bool,
}

const SHAPES: [Shape; 2] = [
    Shape {
        name: "1b",
        layers: 16,
        hidden: 2048,
        intermediate: 8192,
        heads: 32,
        dim: 64,
        tied: true,
    },
    Shape {
        name: "8b",
        layers: 32,
        hidden: 4096,
        intermediate: 14_336,
        heads: 32,
        dim: 128,
        tied: false,
    },
];
const KV_HEADS: usize = 8;

fn main() -> Outcome<()> {
    let mut arguments = std::env::args().skip(1);
    let folder = arguments
        .next()
        .ok_or("usage: device_decode FOLDER [1b] [8b]")?;
    let wanted: Vec<String> = arguments.collect();
    let device = mortise_cuda::open(0)?;
    let copied = copy_bandwidth(&device)?;
    println!(
        "{}",
        json!({ "device": device.name(), "copy_bytes_per_second": copied })
    );
    for shape in &SHAPES {
        if wanted.is_empty() || wanted.iter().any(|name| name == shape.name) {
            let path = Path::new(&folder).join(shape.name);
            write_model(shape, &path)?;
            measure(shape, &path, &device, copied)?;
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

fn tensors(shape: &Shape) -> Vec<(String, Vec<usize>)> {
    let (hidden, width) = (shape.hidden, shape.intermediate);
    let (queries, keys) = (shape.heads * shape.dim, KV_HEADS * shape.dim);
    let mut tensors = vec![
        ("model.embed_tokens".to_owned(), vec![VOCABULARY, hidden]),
        ("model.norm".to_owned(), vec![hidden]),
    ];
    if !shape.tied {
        tensors.push(("lm_head".to_owned(), vec![VOCABULARY, hidden]));
    }
    for layer in 0..shape.layers {
        let parts = [
            ("input_layernorm", vec![hidden]),
            ("self_attn.q_proj", vec![queries, hidden]),
            ("self_attn.k_proj", vec![keys, hidden]),
            ("self_attn.v_proj", vec![keys, hidden]),
            ("self_attn.o_proj", vec![hidden, queries]),
            ("post_attention_layernorm", vec![hidden]),
            ("mlp.gate_proj", vec![width, hidden]),
            ("mlp.up_proj", vec![width, hidden]),
            ("mlp.down_proj", vec![hidden, width]),
        ];
        tensors.extend(parts.map(|(part, sides)| (format!("model.layers.{layer}.{part}"), sides)));
    }
    tensors
}

/// A Hugging Face folder of random weights.
fn write_model(shape: &Shape, path: &Path) -> Outcome<()> {
    std::fs::create_dir_all(path)?;
    let config = json!({
        "architectures": ["LlamaForCausalLM"],
        "hidden_size": shape.hidden,
        "intermediate_size": shape.intermediate,
        "num_hidden_layers": shape.layers,
        "num_attention_heads": shape.heads,
        "num_key_value_heads": KV_HEADS,
        "head_dim": shape.dim,
        "vocab_size": VOCABULARY,
        "max_position_embeddings": 4096,
        "rms_norm_eps": 1e-5,
        "rope_theta": 500_000.0,
        "tie_word_embeddings": shape.tied,
        "hidden_act": "silu",
    });
    std::fs::write(path.join("config.json"), config.to_string())?;
    let mut header = Map::new();
    let mut end = 0;
    for (name, sides) in tensors(shape) {
        let begin = end;
        end += 2 * sides.iter().product::<usize>();
        let entry = json!({ "dtype": "BF16", "shape": sides, "data_offsets": [begin, end] });
        header.insert(format!("{name}.weight"), entry);
    }
    let header = serde_json::to_vec(&header)?;
    let mut file = BufWriter::new(File::create(path.join("model.safetensors"))?);
    file.write_all(&(header.len() as u64).to_le_bytes())?;
    file.write_all(&header)?;
    // Numbers between 2^-6 and 2^-5, of either sign, over and over.
    let mut state = 1u32;
    let numbers: Vec<u8> = std::iter::repeat_with(|| {
        state ^= state << 13;
        state ^= state >> 17;
        state ^= state << 5;
        (0x3c80 | (state & 0x807f) as u16).to_le_bytes()
    })
    .take(16 << 20)
    .flatten()
    .collect();
    let mut left = end;
    while left > 0 {
        let part = left.min(numbers.len());
        file.write_all(&numbers[..part])?;
        left -= part;
    }
    Ok(file.flush()?)
}

fn measure(shape: &Shape, path: &Path, device: &Arc<dyn Device>, copied: f64) -> Outcome<()> {
    const STREAMS: [usize; 4] = [1, 8, 32, 128];
    let blocks_each = (PROMPT + STEPS).div_ceil(BLOCK);
    let settings = DeviceSettings {
        precision: WeightPrecision::AsStored,
        context: 4096,
        blocks: blocks_each * STREAMS[STREAMS.len() - 1],
        kv_type: KvType::Bf16,
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
                .map(|i| ((i * 31 + run) % VOCABULARY) as u32)
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
        let read = rate / streams as f64 * bytes as f64;
        println!(
            "{}",
            json!({
                "shape": shape.name,
                "streams": streams,
                "tokens_per_second": rate,
                "weight_bytes_per_step": bytes,
                "part_of_copy_bandwidth": read / copied,
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
    let greedy = |row| Choice {
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
        model.choose((0..streams).map(greedy).collect())?;
        sources = (0..streams)
            .map(|row| TokenSource { row, choice: row })
            .collect();
        if step > 0 {
            assert_eq!(model.chosen()?.len(), streams);
        }
    }
    assert_eq!(model.chosen()?.len(), streams);
    Ok(())
}
