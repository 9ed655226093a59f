//! Our fused path against a plain forward pass written with candle, operation by operation.

use std::collections::HashMap;
use std::path::PathBuf;

use candle_core::{D, DType, Device, Result, Tensor};
use mortise_model::{
    Decoder, KvCache, KvType, LogitRows, ModelFolder, ModelInput, ModelSpec, QkNorm, RopeScaling,
    SequenceInput, WeightPrecision,
};

struct Reference {
    spec: ModelSpec,
    tensors: HashMap<String, Tensor>,
}

impl Reference {
    fn load(folder: &PathBuf, spec: &ModelSpec) -> Result<Self> {
        let mut tensors = HashMap::new();
        for entry in std::fs::read_dir(folder)? {
            let path = entry?.path();
            let name = path
                .file_name()
                .unwrap_or_default()
                .to_string_lossy()
                .into_owned();
            if name.starts_with("model") && name.ends_with(".safetensors") {
                for (name, tensor) in candle_core::safetensors::load(&path, &Device::Cpu)? {
                    tensors.insert(name, tensor.to_dtype(DType::F32)?);
                }
            }
        }
        Ok(Self {
            spec: spec.clone(),
            tensors,
        })
    }

    fn linear(&self, x: &Tensor, name: &str) -> Result<Tensor> {
        let out = x.matmul(&self.tensors[&format!("{name}.weight")].t()?)?;
        match self.tensors.get(&format!("{name}.bias")) {
            Some(bias) => out.broadcast_add(bias),
            None => Ok(out),
        }
    }

    fn norm(&self, x: &Tensor, name: &str) -> Result<Tensor> {
        let mean = (x.sqr()?.sum_keepdim(D::Minus1)? / x.dim(D::Minus1)? as f64)?;
        let root = (mean + f64::from(self.spec.norm_epsilon))?.sqrt()?;
        x.broadcast_div(&root)?
            .broadcast_mul(&self.tensors[&format!("{name}.weight")])
    }

    /// Turn `[heads, tokens, head_dim]`.
    fn rope(&self, x: &Tensor) -> Result<Tensor> {
        let (_, tokens, head_dim) = x.dims3()?;
        let half = head_dim / 2;
        let angles: Vec<f32> = (0..tokens)
            .flat_map(|position| (0..half).map(move |pair| (position, pair)))
            .map(|(position, pair)| {
                let exponent = -2.0 * pair as f64 / head_dim as f64;
                position as f32 * self.spec.ropes[0].theta.powf(exponent) as f32
            })
            .collect();
        let angles = Tensor::from_vec(angles, (tokens, half), &Device::Cpu)?;
        let (low, high) = (
            x.narrow(D::Minus1, 0, half)?,
            x.narrow(D::Minus1, half, half)?,
        );
        let (cos, sin) = (angles.cos()?, angles.sin()?);
        let turned_low = (low.broadcast_mul(&cos)? - high.broadcast_mul(&sin)?)?;
        let turned_high = (high.broadcast_mul(&cos)? + low.broadcast_mul(&sin)?)?;
        Tensor::cat(&[turned_low, turned_high], D::Minus1)
    }

    /// `[tokens, heads * head_dim]` to `[heads, tokens, head_dim]`.
    fn heads(&self, x: &Tensor, heads: usize) -> Result<Tensor> {
        x.reshape((x.dim(0)?, heads, self.spec.head_dim))?
            .transpose(0, 1)?
            .contiguous()
    }

    fn attention(&self, x: &Tensor, layer: &str) -> Result<Tensor> {
        let spec = &self.spec;
        let tokens = x.dim(0)?;
        let part = |name: &str, heads| {
            self.heads(
                &self.linear(x, &format!("{layer}.self_attn.{name}_proj"))?,
                heads,
            )
        };
        let (mut query, mut key) = (part("q", spec.heads)?, part("k", spec.kv_heads)?);
        if spec.attention.qk_norm == QkNorm::PerHead {
            query = self.norm(&query, &format!("{layer}.self_attn.q_norm"))?;
            key = self.norm(&key, &format!("{layer}.self_attn.k_norm"))?;
        }
        let group = spec.heads / spec.kv_heads;
        let repeat = |x: Tensor| {
            let shape = (spec.kv_heads, group, tokens, spec.head_dim);
            x.unsqueeze(1)?
                .broadcast_as(shape)?
                .reshape((spec.heads, tokens, spec.head_dim))
        };
        let (query, key) = (self.rope(&query)?, repeat(self.rope(&key)?)?);
        let value = repeat(part("v", spec.kv_heads)?)?;
        let scores = (query.matmul(&key.t()?.contiguous()?)? / (spec.head_dim as f64).sqrt())?;
        let mask: Vec<f32> = (0..tokens * tokens)
            .map(|i| {
                if i % tokens > i / tokens {
                    f32::NEG_INFINITY
                } else {
                    0.0
                }
            })
            .collect();
        let scores =
            scores.broadcast_add(&Tensor::from_vec(mask, (tokens, tokens), &Device::Cpu)?)?;
        let weights = scores
            .broadcast_sub(&scores.max_keepdim(D::Minus1)?)?
            .exp()?;
        let weights = weights.broadcast_div(&weights.sum_keepdim(D::Minus1)?)?;
        let out = weights
            .matmul(&value)?
            .transpose(0, 1)?
            .reshape((tokens, ()))?;
        self.linear(&out, &format!("{layer}.self_attn.o_proj"))
    }

    fn forward(&self, tokens: &[u32]) -> Result<Vec<Vec<f32>>> {
        let embedding = &self.tensors["model.embed_tokens.weight"];
        let mut x = embedding.index_select(&Tensor::new(tokens, &Device::Cpu)?, 0)?;
        for layer in 0..self.spec.layers {
            let layer = format!("model.layers.{layer}");
            let normed = self.norm(&x, &format!("{layer}.input_layernorm"))?;
            x = (x + self.attention(&normed, &layer)?)?;
            let normed = self.norm(&x, &format!("{layer}.post_attention_layernorm"))?;
            let gate = self
                .linear(&normed, &format!("{layer}.mlp.gate_proj"))?
                .silu()?;
            let up = self.linear(&normed, &format!("{layer}.mlp.up_proj"))?;
            x = (x + self.linear(&(gate * up)?, &format!("{layer}.mlp.down_proj"))?)?;
        }
        let x = self.norm(&x, "model.norm")?;
        let head = self.tensors.get("lm_head.weight").unwrap_or(embedding);
        x.matmul(&head.t()?)?.to_vec2()
    }
}

#[test]
fn the_fused_path_agrees_with_candle() {
    for name in ["qwen2-bias", "qwen3-qk-norm", "mistral-plain"] {
        let path = PathBuf::from(env!("CARGO_MANIFEST_DIR"))
            .join("../../tests/parity/data")
            .join(name);
        let folder = ModelFolder::open(&path).unwrap();
        let model = Decoder::load(&folder, WeightPrecision::F32).unwrap();
        assert_eq!(model.spec().ropes[0].scaling, RopeScaling::None);
        let tokens: Vec<u32> = (0..50).map(|i| (i * 37 + 11) % 144).collect();
        let mut cache = KvCache::new(model.spec(), 4, KvType::F32).unwrap();
        let mut input = ModelInput::new();
        input.push(SequenceInput {
            tokens: &tokens,
            first_position: 0,
            block_table: &[2, 0, 3, 1],
            logits: LogitRows::All,
        });
        let found = model.forward(&input, &mut cache).unwrap();
        let expected = Reference::load(&path, model.spec())
            .unwrap()
            .forward(&tokens)
            .unwrap();
        assert_eq!(found.rows().len(), expected.len());
        for (row, (found, expected)) in found.rows().zip(&expected).enumerate() {
            for (found, expected) in found.iter().zip(expected) {
                assert!(
                    (found - expected).abs() < 1e-3,
                    "{name}, row {row}: {found} is not {expected}"
                );
            }
        }
    }
}
