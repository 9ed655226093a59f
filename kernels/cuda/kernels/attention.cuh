// What attention over the blocks of the cache is told, and how it reads them. A block holds 16 tokens; of
// each head the keys, and elsewhere the values, of one token after the other.
#pragma once

#include "cache.cuh"

struct AttentionParams {
    // Rows that begin with their queries.
    const float *queries;
    const void *keys;
    const void *values;
    float *out;
    // Position of each row; negative for padding rows.
    const int *positions;
    // Where in the block tables each row's begins.
    const int *tables;
    const int *blocks;
    // A score for each head that takes part and has no value, or null.
    const float *sinks;
    // Of `decode_attention`: room for `2 + dim` floats for each row, head and split, and a count of
    // splits for each row and head of keys, which is 0 before and after.
    float *partials;
    unsigned *tickets;
    // Of `prefill_attention`: first row and number of rows of each tile.
    const int *tiles;
    int stride;
    int heads;
    int kv_heads;
    int dim;
    // Positions that a row sees, its own included; 0 is all.
    int window;
    float scale;
    // 0 is none.
    float soft_cap;
    // Tokens of a split, a multiple of 32. Splits begin at multiples of it, so that a row's result
    // does not depend on the rows beside it.
    int split_tokens;
};

DEVICE int first_seen(const AttentionParams &p, int position) {
    return p.window > 0 && position >= p.window ? position + 1 - p.window : 0;
}

// A token's key or value of a head in the cache.
template <class Kept>
DEVICE typename Kept::Token token_of(const AttentionParams &p, const void *cache, const int *table,
                                     int token, int kv_head) {
    const size_t block = table[token / BLOCK_TOKENS];
    const size_t head = block * p.kv_heads + kv_head;
    const unsigned char *from = (const unsigned char *)cache + head * Kept::bytes(p.dim);
    return Kept::token(from, token % BLOCK_TOKENS, p.dim);
}

// Tokens whose scores are computed at once: one a lane.
constexpr int TOKENS = 32;
