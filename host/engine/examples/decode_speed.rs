//! Decode throughput of the engine, on random weights.
//!
//! ```text
//! cargo run --release -p mortise-engine --example decode_speed -- [SEQUENCES] [THREADS] [f32|bf16|q8_0] [ADAPTERS]
//! ```
//!
//! Sequences take turns with so many LoRA adapters of rank 16 that adapt every matrix; without any, none is applied. With
//! two and more, requests one after another are timed as well: with the adapter of the one before, and with another.
//! The model has about 7 million parameters: the size of the demo model. Speed does not depend on
//! the values of weights.

use std::sync::Arc;
use std::time::Instant;

use mortise_engine::{
    Engine, EngineConfig, EngineHandle, SamplingParams, SequenceRequest, Share, TokenEvent,
};
use mortise_model::{Adapter, Decoder, ModelFolder, WeightPrecision};

const PROMPT_TOKENS: usize = 64;
const OUTPUT_TOKENS: u32 = 200;
const CONFIG: &str = r#"{
    "architectures": ["Qwen3ForCausalLM"], "vocab_size": 4096, "hidden_size": 256,
    "intermediate_size": 768, "num_hidden_layers": 7, "num_attention_heads": 8,
    "num_key_value_heads": 4, "head_dim": 32, "max_position_embeddings": 1024,
    "tie_word_embeddings": true
}"#;

/// Matrices of a layer: name, outputs, inputs.
const MATRICES: [(&str, usize, usize); 7] = [
    ("self_attn.q_proj", 256, 256),
    ("self_attn.k_proj", 128, 256),
    ("self_attn.v_proj", 128, 256),
    ("self_attn.o_proj", 256, 256),
    ("mlp.gate_proj", 768, 256),
    ("mlp.up_proj", 768, 256),
    ("mlp.down_proj", 256, 768),
];
const RANK: usize = 16;
const ADAPTER: &str =
    r#"{"peft_type": "LORA", "r": 16, "lora_alpha": 16, "target_modules": "all-linear"}"#;

/// A safetensors file with the tensors that `CONFIG` asks for.
fn weights() -> Vec<u8> {
    let mut shapes = vec![
        ("model.embed_tokens.weight".to_owned(), vec![4096, 256]),
        ("model.norm.weight".to_owned(), vec![256]),
    ];
    for layer in 0..7 {
        let norms = [
            ("input_layernorm", 256),
            ("post_attention_layernorm", 256),
            ("self_attn.q_norm", 32),
            ("self_attn.k_norm", 32),
        ];
        let norms = norms.map(|(name, width)| (name, vec![width]));
        let matrices = MATRICES.map(|(name, outputs, inputs)| (name, vec![outputs, inputs]));
        for (name, shape) in norms.into_iter().chain(matrices) {
            shapes.push((format!("model.layers.{layer}.{name}.weight"), shape));
        }
    }
    let file = tensors(shapes);
    eprintln!("{:.1} million parameters", file.len() as f64 / 2e6);
    file
}

/// A safetensors file with the tensors of an adapter.
fn adapter_tensors() -> Vec<u8> {
    let mut shapes = Vec::new();
    for layer in 0..7 {
        for (name, outputs, inputs) in MATRICES {
            let path = format!("base_model.model.model.layers.{layer}.{name}");
            shapes.push((format!("{path}.lora_A.weight"), vec![RANK, inputs]));
            shapes.push((format!("{path}.lora_B.weight"), vec![outputs, RANK]));
        }
    }
    tensors(shapes)
}

/// A safetensors file with random matrices, and vectors of ones.
fn tensors(shapes: Vec<(String, Vec<usize>)>) -> Vec<u8> {
    let (mut header, mut numbers, mut state) = (Vec::new(), Vec::new(), 1u32);
    for (name, shape) in shapes {
        let count: usize = shape.iter().product();
        let (start, end) = (2 * numbers.len(), 2 * (numbers.len() + count));
        header.push(format!(
            r#""{name}":{{"dtype":"BF16","shape":{shape:?},"data_offsets":[{start},{end}]}}"#
        ));
        numbers.extend((0..count).map(|_| {
            state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            let value = (state >> 8) as f32 / (1 << 23) as f32 - 1.0;
            (if shape.len() == 1 {
                1.0f32
            } else {
                value * 0.1
            }
            .to_bits()
                >> 16) as u16
        }));
    }
    let header = format!("{{{}}}", header.join(","));
    let mut file = (header.len() as u64).to_le_bytes().to_vec();
    file.extend(header.as_bytes());
    file.extend(numbers.iter().flat_map(|number| number.to_le_bytes()));
    file
}

fn request(seed: u32) -> SequenceRequest {
    SequenceRequest {
        prompt: (0..PROMPT_TOKENS as u32)
            .map(|i| (i * 61 + seed * 17) % 4096)
            .collect(),
        max_tokens: OUTPUT_TOKENS,
        stop_tokens: Vec::new(),
        sampling: SamplingParams {
            seed: Some(u64::from(seed)),
            ..SamplingParams::default()
        },
        logprobs: None,
        prompt_logprobs: None,
        priority: 0,
        share: Share::default(),
        salt: None,
        adapter: None,
        constraint: None,
    }
}

fn load_adapters(model: &Decoder, count: usize) -> Vec<Arc<Adapter>> {
    let files = ModelFolder::embedded(&[
        ("adapter_config.json", ADAPTER.as_bytes()),
        ("adapter_model.safetensors", adapter_tensors().leak()),
    ]);
    let load = |_| Adapter::load(&files, model.spec(), 1.0).expect("the adapter is sound");
    (0..count).map(load).map(Arc::new).collect()
}

/// Requests of one block, and blocks of each kind.
const SWITCHES: (usize, usize) = (40, 20);

/// Time to the first token of requests one after another, whose adapters these are in turn.
fn first_tokens(engine: &EngineHandle, adapters: &[Arc<Adapter>], seed: &mut u32) -> Vec<f64> {
    let one = |number: usize| {
        *seed += 1;
        let request = SequenceRequest {
            adapter: Some(Arc::clone(&adapters[number % adapters.len()])),
            max_tokens: 1,
            ..request(*seed)
        };
        let begun = Instant::now();
        let mut stream = engine.submit(request).expect("the queue has room");
        while let Some(event) = stream.blocking_next() {
            if matches!(event, TokenEvent::Token(_)) {
                return begun.elapsed().as_secs_f64() * 1e3;
            }
        }
        panic!("no token")
    };
    (0..SWITCHES.0).map(one).collect()
}

/// Measure the time to first token after a switch of adapters.
fn switch_cost(engine: &EngineHandle, adapters: &[Arc<Adapter>]) {
    let (mut same, mut other, mut seed) = (Vec::new(), Vec::new(), 1000);
    // By turns, so that what else the machine does is in both.
    for _ in 0..SWITCHES.1 {
        same.extend(first_tokens(engine, &adapters[..1], &mut seed));
        other.extend(first_tokens(engine, adapters, &mut seed));
    }
    let median = |times: &mut Vec<f64>| {
        times.sort_by(f64::total_cmp);
        times[times.len() / 2]
    };
    let (same, other) = (median(&mut same), median(&mut other));
    println!(
        "first token of a prompt of {PROMPT_TOKENS} tokens, median of {}: {same:.2} ms with the adapter of the request \
         before, {other:.2} ms with another one: a switch costs {:.2} ms",
        SWITCHES.0 * SWITCHES.1,
        other - same
    );
}

fn main() {
    let mut arguments = std::env::args().skip(1);
    let mut number = |default: usize| {
        arguments
            .next()
            .and_then(|text| text.parse().ok())
            .unwrap_or(default)
    };
    let (sequences, threads) = (number(1), number(1));
    let precision = match arguments.next().as_deref() {
        Some("bf16") => WeightPrecision::Bf16,
        Some("q8_0") => WeightPrecision::Q8_0,
        _ => WeightPrecision::F32,
    };
    let adapters = arguments.next().and_then(|text| text.parse().ok());
    let adapters: usize = adapters.unwrap_or(0);
    let folder = ModelFolder::embedded(&[
        ("config.json", CONFIG.as_bytes()),
        ("model.safetensors", weights().leak()),
    ]);
    let model = Arc::new(Decoder::load(&folder, precision).expect("the model is sound"));
    let loaded = load_adapters(&model, adapters);
    let config = EngineConfig {
        threads,
        ..EngineConfig::default()
    };
    let engine = Engine::start(model, config).expect("the engine starts");
    let (begun, mut first_tokens) = (Instant::now(), None);
    let streams: Vec<_> = (0..sequences)
        .map(|seed| {
            let adapter = loaded.get(seed % adapters.max(1)).cloned();
            let request = SequenceRequest {
                adapter,
                ..request(seed as u32)
            };
            engine.submit(request).expect("the queue has room")
        })
        .collect();
    let readers: Vec<_> = streams
        .into_iter()
        .map(|mut stream| {
            std::thread::spawn(move || {
                let mut first = None;
                while let Some(event) = stream.blocking_next() {
                    if matches!(event, TokenEvent::Token(_)) {
                        first.get_or_insert_with(Instant::now);
                    }
                }
                first
            })
        })
        .collect();
    for reader in readers {
        first_tokens = first_tokens.max(reader.join().expect("the reader ends"));
    }
    let (end, first) = (Instant::now(), first_tokens.expect("there are tokens"));
    let load = engine.load();
    println!(
        "{sequences} sequences, {threads} threads, {precision:?}, {adapters} adapters: prompts {:.0} tokens/s, \
         output {:.0} tokens/s in all, {} steps",
        (sequences * PROMPT_TOKENS) as f64 / (first - begun).as_secs_f64(),
        (load.decode_tokens - sequences as u64) as f64 / (end - first).as_secs_f64(),
        load.steps
    );
    if loaded.len() > 1 {
        switch_cost(&engine, &loaded);
    }
}
