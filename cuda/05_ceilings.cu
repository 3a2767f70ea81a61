// Lesson 5: what the card can do at best, each thing by itself: the ceilings of a roofline.
//
//   ceiling_copy   moves bytes and computes nothing: out[i] = in[i], 16 bytes for each thread
//   ceiling_fma    computes and moves nothing: CHAINS independent chains of FMAs in each thread
//   ceiling_chase  one load after the other, each at the address that the last one found: how long
//                  a single load takes, in cycles
//
// Launch shape: ceiling_copy and ceiling_fma any one-dimensional block and grid; a thread of
// ceiling_copy takes every element that is a multiple of the whole grid further on.
// ceiling_chase block 1, grid 1.

#ifndef CHAINS
#define CHAINS 8       // enough for a scheduler to have one ready while the others wait
#endif

// The copy is made `times` times over, so that a small array takes long enough to be timed. __ldcg
// loads past the L1 cache, which would have it the second time.
__global__ void ceiling_copy(const float4 *in, float4 *out, int count, int times)
{
    for (int time = 0; time < times; ++time) {
        for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < count;
             i += gridDim.x * blockDim.x) {
            out[i] = __ldcg(&in[i]);
        }
    }
}

// 2 * CHAINS * steps operations in each thread. x and y come from memory so that the compiler
// cannot compute the result itself; nothing is written unless the sum is a number it never is.
__global__ void ceiling_fma(const float *in, float *out, int steps)
{
    float x = in[0];                               // 1: the chains grow by y each step
    float y = in[1];
    float sum[CHAINS];
    #pragma unroll
    for (int c = 0; c < CHAINS; ++c) {
        sum[c] = y * (threadIdx.x + c);
    }
    #pragma unroll 4
    for (int step = 0; step < steps; ++step) {
        #pragma unroll
        for (int c = 0; c < CHAINS; ++c) {
            sum[c] = sum[c] * x + y;               // needs the one before it, not its neighbours
        }
    }
    float total = 0.0f;
    #pragma unroll
    for (int c = 0; c < CHAINS; ++c) {
        total += sum[c];
    }
    if (total < 0.0f) {
        out[threadIdx.x] = total;
    }
    if (blockIdx.x == 0 && threadIdx.x == 0) {
        out[0] = total;                            // what the host checks
    }
}

// next[i] is the index of the element that comes after i. found[0]: cycles for all `steps` loads
// together; found[1]: where the chase ended.
__global__ void ceiling_chase(const unsigned int *next, unsigned long long *found,
                              unsigned int start, int steps)
{
    unsigned int at = start;
    long long begin = clock64();
    for (int step = 0; step < steps; ++step) {
        at = __ldcg(&next[at]);
    }
    long long cycles = clock64() - begin;
    found[0] = cycles;
    found[1] = at;                                 // so that the loads are needed
}
