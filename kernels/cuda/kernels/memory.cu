// Copies within the device's memory.
#include "device.cuh"

struct CopyParams {
    const uint4 *from;
    uint4 *to;
    unsigned long long length;
};

DEVICE void copy(const CopyParams &p) {
    let_next_begin();
    wait_for_last();
    const unsigned long long step = (unsigned long long)gridDim.x * blockDim.x;
    for (unsigned long long i = (unsigned long long)blockIdx.x * blockDim.x + threadIdx.x;
         i < p.length; i += step)
        p.to[i] = p.from[i];
}
KERNEL(copy_16_bytes, CopyParams, copy)
