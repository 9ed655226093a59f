"""A small Qwen3-style decoder in plain torch, written for training on a CPU.

Parameter names are those of `Qwen3ForCausalLM`, so the state dict is the
checkpoint: nothing is renamed or reshaped when it is exported.
"""

from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import nn


@dataclass
class Config:
    vocab_size: int = 2048
    hidden_size: int = 192
    intermediate_size: int = 512
    num_hidden_layers: int = 5
    num_attention_heads: int = 4
    num_key_value_heads: int = 2
    head_dim: int = 64
    rope_theta: float = 10000.0
    rms_norm_eps: float = 1e-6
    max_position_embeddings: int = 2048


class RMSNorm(nn.Module):
    def __init__(self, size, eps):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(size))
        self.eps = eps

    def forward(self, x):
        y = x.float()
        y = y * torch.rsqrt(y.pow(2).mean(-1, keepdim=True) + self.eps)
        return (y * self.weight).to(x.dtype)


class Linear(nn.Module):
    """Weights are kept in float32 and multiplied in the activations' type."""

    def __init__(self, n_in, n_out):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(n_out, n_in) * n_in**-0.5)

    def forward(self, x):
        return F.linear(x, self.weight.to(x.dtype))


def rotate(x, cos, sin):
    a, b = x.chunk(2, dim=-1)
    return x * cos + torch.cat((-b, a), dim=-1) * sin


class Attention(nn.Module):
    def __init__(self, c):
        super().__init__()
        self.heads, self.kv_heads, self.head_dim = c.num_attention_heads, c.num_key_value_heads, c.head_dim
        self.q_proj = Linear(c.hidden_size, self.heads * c.head_dim)
        self.k_proj = Linear(c.hidden_size, self.kv_heads * c.head_dim)
        self.v_proj = Linear(c.hidden_size, self.kv_heads * c.head_dim)
        self.o_proj = Linear(self.heads * c.head_dim, c.hidden_size)
        self.q_norm = RMSNorm(c.head_dim, c.rms_norm_eps)
        self.k_norm = RMSNorm(c.head_dim, c.rms_norm_eps)

    def forward(self, x, cos, sin):
        b, t, _ = x.shape
        q = self.q_norm(self.q_proj(x).view(b, t, self.heads, self.head_dim)).transpose(1, 2)
        k = self.k_norm(self.k_proj(x).view(b, t, self.kv_heads, self.head_dim)).transpose(1, 2)
        v = self.v_proj(x).view(b, t, self.kv_heads, self.head_dim).transpose(1, 2)
        q, k = rotate(q, cos, sin), rotate(k, cos, sin)
        n = self.heads // self.kv_heads
        k, v = k.repeat_interleave(n, dim=1), v.repeat_interleave(n, dim=1)
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        return self.o_proj(y.transpose(1, 2).reshape(b, t, -1))


class MLP(nn.Module):
    def __init__(self, c):
        super().__init__()
        self.gate_proj = Linear(c.hidden_size, c.intermediate_size)
        self.up_proj = Linear(c.hidden_size, c.intermediate_size)
        self.down_proj = Linear(c.intermediate_size, c.hidden_size)

    def forward(self, x):
        return self.down_proj(F.silu(self.gate_proj(x)) * self.up_proj(x))


class Layer(nn.Module):
    def __init__(self, c):
        super().__init__()
        self.input_layernorm = RMSNorm(c.hidden_size, c.rms_norm_eps)
        self.self_attn = Attention(c)
        self.post_attention_layernorm = RMSNorm(c.hidden_size, c.rms_norm_eps)
        self.mlp = MLP(c)

    def forward(self, x, cos, sin):
        x = x + self.self_attn(self.input_layernorm(x), cos, sin)
        return x + self.mlp(self.post_attention_layernorm(x))


class Embedding(nn.Module):
    def __init__(self, n, size):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(n, size) * 0.02)


class Decoder(nn.Module):
    def __init__(self, c):
        super().__init__()
        self.embed_tokens = Embedding(c.vocab_size, c.hidden_size)
        self.layers = nn.ModuleList(Layer(c) for _ in range(c.num_hidden_layers))
        self.norm = RMSNorm(c.hidden_size, c.rms_norm_eps)


class DemoModel(nn.Module):
    def __init__(self, config, dtype=torch.bfloat16):
        super().__init__()
        self.config, self.dtype = config, dtype
        self.model = Decoder(config)
        for layer in self.model.layers:  # residual branches start small
            for out in (layer.self_attn.o_proj, layer.mlp.down_proj):
                out.weight.data.mul_((2 * config.num_hidden_layers) ** -0.5)
        inverse = config.rope_theta ** (-torch.arange(0, config.head_dim, 2).float() / config.head_dim)
        angle = torch.outer(torch.arange(config.max_position_embeddings).float(), inverse)
        angle = torch.cat((angle, angle), dim=-1)
        self.register_buffer("cos", angle.cos(), persistent=False)
        self.register_buffer("sin", angle.sin(), persistent=False)

    def hidden(self, ids):
        m = self.model
        t = ids.shape[1]
        cos, sin = self.cos[:t].to(self.dtype), self.sin[:t].to(self.dtype)
        x = F.embedding(ids, m.embed_tokens.weight).to(self.dtype)
        for layer in m.layers:
            x = layer(x, cos, sin)
        return m.norm(x)

    def logits(self, hidden):
        return F.linear(hidden, self.model.embed_tokens.weight.to(hidden.dtype))

    def loss(self, ids, targets, weights):
        """Mean cross entropy; only positions with a weight reach the output matrix."""
        hidden = self.hidden(ids).flatten(0, 1)
        keep = weights.flatten().nonzero().squeeze(1)
        logits = self.logits(hidden[keep]).float()
        losses = F.cross_entropy(logits, targets.flatten()[keep], reduction="none")
        w = weights.flatten()[keep]
        return (losses * w).sum() / w.sum()
