// Lesson 3: one warp reads every stride-th element of shared memory, to count its wavefronts.
//
//   strided_read  out[t] = in[t * stride] for the 32 lanes t, by way of shared memory
//
// Launch shape: block 32, grid 1. 0 <= stride <= 33; `in` has 32 * 33 elements, `out` has 32.

#ifndef ELEMENT
#define ELEMENT float  // nvcc -DELEMENT=float2 and -DELEMENT=float4: 8 and 16 bytes for each lane
#endif

__global__ void strided_read(const ELEMENT *in, ELEMENT *out, int stride)
{
    __shared__ ELEMENT elements[32 * 33];

    int lane = threadIdx.x;
    for (int i = lane; i < 32 * 33; i += 32) {
        elements[i] = in[i];
    }
    __syncthreads();                               // all is there before anyone reads

    out[lane] = elements[lane * stride];           // the read to be counted
}
