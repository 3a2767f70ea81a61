// More faults, in usual patterns: scans, pipelines, groups, flags, odd blocks.

#include <cooperative_groups.h>
#include <cuda_pipeline.h>
namespace cg = cooperative_groups;

// A scan in one buffer: reads and writes between the same barriers.
extern "C" __global__ void scan_in_place(const float *x, float *out)
{
    __shared__ float s[128];
    int t = threadIdx.x;
    s[t] = x[t];
    __syncthreads();
    for (int d = 1; d < 128; d *= 2) {
        float v = t >= d ? s[t - d] : 0.0f;        // <- 1
        s[t] += v;                                 // <- 2
        __syncthreads();
    }
    out[t] = s[t];
}

// The last steps of a tree sum go without barriers, since it is one warp.
extern "C" __global__ void tree_sum_last_warp(const float *x, float *out)
{
    __shared__ float s[128];
    int t = threadIdx.x;
    s[t] = x[t];
    __syncthreads();
    for (int half = 64; half > 16; half /= 2) {
        if (t < half) s[t] += s[t + half];
        __syncthreads();
    }
    if (t < 16) {
        float v = s[t] + s[t + 16];
        s[t] = v;                                  // <- 1
        v += s[t ^ 8];                             // <- 2
        if (t == 0) *out = v;
    }
}

// Two buffers, but every third step they do not change places.
extern "C" __global__ void ping_pong_stuck(const float *x, float *out, int n)
{
    __shared__ float s[2][64];
    int t = threadIdx.x, now = 0;
    float sum = 0.0f;
    for (int k = 0; k < n; ++k) {
        s[now][t] = x[64 * k + t];                 // <- 1
        __syncthreads();
        sum += s[now][63 - t];                     // <- 2
        if (k % 3 != 2) now = 1 - now;
    }
    out[t] = sum;
}

// Each half has its barrier, but exchanges across halves.
extern "C" __global__ void tile_sync_is_not_block_sync(const float *x, float *out)
{
    __shared__ float s[64];
    auto block = cg::this_thread_block();
    auto tile = cg::tiled_partition<32>(block);
    int t = block.thread_rank();
    s[t] = x[t];                                   // <- 1
    tile.sync();
    out[t] = s[t ^ 32];                            // <- 2
}

// Sync of groups of 8, exchange within 16.
extern "C" __global__ void tile_of_eight(const float *x, float *out)
{
    __shared__ float s[32];
    auto tile = cg::tiled_partition<8>(cg::this_thread_block());
    int t = threadIdx.x;
    s[t] = x[t];                                   // <- 1
    tile.sync();
    out[t] = s[t ^ 8];                             // <- 2
}

// Waits for all but the last of three stages, one too few.
extern "C" __global__ void pipeline_waits_for_one_too_few(const float *x, float *out, int n)
{
    __shared__ float s[3][64];
    int t = threadIdx.x;
    float sum = 0.0f;
    for (int k = 0; k < 2; ++k) {
        __pipeline_memcpy_async(&s[k][t], &x[64 * k + t], 4);  // <- 1
        __pipeline_commit();
    }
    for (int k = 0; k < n; ++k) {
        __pipeline_wait_prior(2);
        __syncthreads();
        sum += s[k % 3][63 - t];                   // <- 2
        if (k + 2 < n)
            __pipeline_memcpy_async(&s[(k + 2) % 3][t], &x[64 * (k + 2) + t], 4);  // <- 3
        __pipeline_commit();
    }
    out[t] = sum;
}

// Issues into the stage that slower warps still read: no barrier between reading and the copy.
extern "C" __global__ void pipeline_overtakes(const float *x, float *out, int n)
{
    __shared__ float s[2][64];
    int t = threadIdx.x;
    float sum = 0.0f;
    __pipeline_memcpy_async(&s[0][t], &x[t], 4);
    __pipeline_commit();
    for (int k = 0; k < n; ++k) {
        if (k + 1 < n)
            __pipeline_memcpy_async(&s[(k + 1) % 2][t], &x[64 * (k + 1) + t], 4);  // <- 1
        __pipeline_commit();
        __pipeline_wait_prior(1);
        __syncthreads();
        sum += s[k % 2][63 - t];                   // <- 2
    }
    out[t] = sum;
}

// Reads its own copy without waiting.
extern "C" __global__ void own_copy_not_awaited(const float *x, float *out)
{
    __shared__ float s[64];
    int t = threadIdx.x;
    __pipeline_memcpy_async(&s[t], &x[t], 4);      // <- 1
    __pipeline_commit();
    out[t] = s[t];                                 // <- 2
    __pipeline_wait_prior(0);
}

// A flag without a fence.
extern "C" __global__ void flag_without_fence(const float *x, float *data, int *flag, float *out)
{
    if (blockIdx.x == 0) {
        data[threadIdx.x] = x[threadIdx.x];        // <- 1
        __syncthreads();
        if (threadIdx.x == 0) atomicExch(flag, 1);
    } else {
        if (threadIdx.x == 0) while (atomicAdd(flag, 0) == 0) { }
        __syncthreads();
        out[threadIdx.x] = data[63 - threadIdx.x]; // <- 2
    }
}

// Dynamic shared memory in two, the second starts too early.
extern "C" __global__ void carved_too_early(const float *x, float *out)
{
    extern __shared__ float some_floats[];
    float *a = some_floats, *b = some_floats + 60;
    int t = threadIdx.x;
    a[t] = x[t];                                   // <- 1
    b[t] = 2 * x[t];                               // <- 2
    __syncthreads();
    out[t] = a[63 - t] + b[63 - t];
}

// 48 x 2 threads: a row is not made of whole warps.
extern "C" __global__ void rows_of_48(const float *x, float *out)
{
    __shared__ float s[2][48];
    int tx = threadIdx.x, ty = threadIdx.y;
    s[ty][tx] = x[48 * ty + tx];                   // <- 1
    __syncwarp();
    out[48 * ty + tx] = s[ty][47 - tx];            // <- 2
}

// 33 threads: the last one is a warp of its own.
extern "C" __global__ void thirty_three(const float *x, float *out)
{
    __shared__ float s[33];
    int t = threadIdx.x;
    s[t] = x[t];                                   // <- 1
    __syncwarp();
    out[t] = s[32 - t];                            // <- 2
}

// A shuffle as if it were a barrier.
extern "C" __global__ void shuffle_as_barrier(const float *x, float *out)
{
    __shared__ float s[32];
    int t = threadIdx.x;
    s[t] = x[t];                                   // <- 1
    float v = __shfl_xor_sync(~0u, x[t], 1);
    out[t] = v + s[31 - t];                        // <- 2
}

// A fence as if it were a barrier.
extern "C" __global__ void fence_as_barrier(const float *x, float *out)
{
    __shared__ float s[64];
    int t = threadIdx.x;
    s[t] = x[t];                                   // <- 1
    __threadfence_block();
    out[t] = s[63 - t];                            // <- 2
}

// Threads return before the barrier, and the others read what these were to write.
extern "C" __global__ void early_exit_leaves_a_hole(const float *x, float *out, int n)
{
    __shared__ float s[64];
    int t = threadIdx.x;
    if (t >= n) return;                            // <- 1
    s[t] = x[t];
    __syncthreads();                               // <- 2
    out[t] = s[63 - t];                            // <- 3
}

// The lock protects the sum but not the last read.
extern "C" __global__ void read_outside_of_the_lock(const float *x, float *sum, int *lock,
                                                    float *out)
{
    if (threadIdx.x == 0) {
        while (atomicCAS(lock, 0, 1) != 0) { }
        __threadfence();
        *sum += x[blockIdx.x];                     // <- 2
        __threadfence();
        atomicExch(lock, 0);
    }
    if (threadIdx.x == 32) out[blockIdx.x] = *sum; // <- 1
}

// Atomics and a plain store to the same counters.
extern "C" __global__ void clears_while_counting(const int *x, int *count)
{
    __shared__ int s[8];
    int t = threadIdx.x;
    if (t < 8) s[t] = 0;                           // <- 1
    atomicAdd(&s[x[t] % 8], 1);                    // <- 2
    __syncthreads();
    if (t < 8) count[t] = s[t];
}

// A transpose whose tile is one column short.
extern "C" __global__ void transpose_short(const float *x, float *out)
{
    __shared__ float tile[16][15];
    int tx = threadIdx.x, ty = threadIdx.y;
    tile[ty][tx] = x[16 * ty + tx];                // <- 1
    __syncthreads();
    out[16 * tx + ty] = tile[ty][tx];
}

// 8-byte stores, 4-byte loads of the neighbour's half.
extern "C" __global__ void halves_of_pairs(const float *x, float *out)
{
    __shared__ float2 s[64];
    int t = threadIdx.x;
    s[t] = make_float2(x[t], -x[t]);               // <- 1
    out[t] = ((float *)s)[2 * (63 - t) + 1];       // <- 2
}

// A tile with a halo of one element on both sides, read one too far.
extern "C" __global__ void halo(const float *x, float *y)
{
    __shared__ float s[66];
    int t = threadIdx.x, k = blockIdx.x * 64 + t;
    s[t + 1] = x[k];
    if (t == 0) s[0] = blockIdx.x ? x[k - 1] : 0;
    if (t == 63) s[65] = blockIdx.x + 1 < gridDim.x ? x[k + 1] : 0;
    __syncthreads();
    y[k] = s[t] + s[t + 1] + s[t + 3];             // <- 1
}

// Two sums in a row share the warps' totals, with no barrier between reading and the next writing.
extern "C" __global__ void reduced_twice(const float *x, float *out)
{
    __shared__ float part[4];
    int t = threadIdx.x;
    for (int k = 0; k < 2; ++k) {
        float v = x[128 * k + t];
        for (int d = 16; d > 0; d /= 2) v += __shfl_down_sync(~0u, v, d);
        if (t % 32 == 0) part[t / 32] = v;         // <- 2
        __syncthreads();
        float sum = part[0] + part[1] + part[2] + part[3];  // <- 1
        if (t == 0) out[k] = sum;
    }
}

// Both threads of a pair swap it.
extern "C" __global__ void swapped_by_both(float *x)
{
    int i = threadIdx.y, j = threadIdx.x;
    float a = x[16 * i + j], b = x[16 * j + i];    // <- 1
    x[16 * i + j] = b;                             // <- 2
    x[16 * j + i] = a;                             // <- 3
}
