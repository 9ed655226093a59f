// All kernels in one file, so that they are compiled to one image for each architecture.
#include "attention.cu"
#include "experts.cu"
#include "linear.cu"
#include "memory.cu"
#include "prefill.cu"
#include "rows.cu"
#include "sample.cu"
