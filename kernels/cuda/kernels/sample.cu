// From rows of logits to tokens.
#include "device.cuh"

struct ChooseParams {
    const float *logits;
    // Bits of the tokens that may be chosen, `words` for each row; null is all tokens.
    const unsigned *masks;
    int *tokens;
    // If not null, the tokens go to place `*step` of each row's `history_stride` places here too.
    int *history;
    const int *step;
    int history_stride;
    int vocabulary;
    int words;
};

DEVICE bool allowed(const ChooseParams &p, int row, int token) {
    if (p.masks == nullptr) return true;
    const int word = token / 32;
    return word < p.words && (p.masks[(size_t)row * p.words + word] >> (token % 32) & 1);
}

// The allowed token with the highest logit, the lowest of such; -1 if none is above minus infinity.
// A block of at most 1024 threads for each row. Dynamic shared memory: a float and an int a warp.
DEVICE void choose_best(const ChooseParams &p) {
    let_next_begin();
    wait_for_last();
    const float *logits = p.logits + (size_t)blockIdx.x * p.vocabulary;
    const unsigned lane = threadIdx.x % WARP, warp = threadIdx.x / WARP;
    const unsigned warps = blockDim.x / WARP;
    float *highest = (float *)shared_memory;
    int *best = (int *)(highest + warps);
    // An infinity without a header.
    const float none = -__uint_as_float(0x7f800000u);
    float most = none;
    int token = -1;
    for (int i = threadIdx.x; i < p.vocabulary; i += blockDim.x) {
        const float logit = logits[i];
        if (logit > most && allowed(p, blockIdx.x, i)) {
            most = logit;
            token = i;
        }
    }
    // Among equals the lower token; one that is none is higher than all as an unsigned number.
    for (int mask = 16; mask > 0; mask >>= 1) {
        const float other = __shfl_xor_sync(WHOLE_WARP, most, mask);
        const int other_token = __shfl_xor_sync(WHOLE_WARP, token, mask);
        if (other > most || (other == most && (unsigned)other_token < (unsigned)token)) {
            most = other;
            token = other_token;
        }
    }
    if (lane == 0) {
        highest[warp] = most;
        best[warp] = token;
    }
    __syncthreads();
    if (threadIdx.x == 0) {
        for (unsigned w = 1; w < warps; w++)
            if (highest[w] > most || (highest[w] == most && (unsigned)best[w] < (unsigned)token)) {
                most = highest[w];
                token = best[w];
            }
        p.tokens[blockIdx.x] = token;
        if (p.history != nullptr) p.history[blockIdx.x * p.history_stride + *p.step] = token;
    }
}
KERNEL(choose_best_rows, ChooseParams, choose_best)
