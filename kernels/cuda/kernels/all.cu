// All kernels in one file, so that they are compiled to one image for each architecture.
#include "attention.cu"
#include "choose.cu"
#include "linear.cu"
#include "memory.cu"
#include "rows.cu"
