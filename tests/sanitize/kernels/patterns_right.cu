// More right kernels, in usual patterns: reductions, scans, pipelines, groups, flags, locks.

#include <cooperative_groups.h>
#include <cooperative_groups/reduce.h>
#include <cuda_pipeline.h>
namespace cg = cooperative_groups;

// Block reduction: shuffles, one shared slot a warp, first warp adds up.
extern "C" __global__ void block_reduce(const float *x, float *out)
{
    __shared__ float part[32];
    int t = threadIdx.x, lane = t % 32, warp = t / 32;
    float v = x[blockIdx.x * blockDim.x + t];
    for (int d = 16; d; d /= 2) v += __shfl_down_sync(~0u, v, d);
    if (lane == 0) part[warp] = v;
    __syncthreads();
    if (warp == 0) {
        v = lane < blockDim.x / 32 ? part[lane] : 0.0f;
        for (int d = 16; d; d /= 2) v += __shfl_down_sync(~0u, v, d);
        if (lane == 0) out[blockIdx.x] = v;
    }
}

// Blelloch scan.
extern "C" __global__ void blelloch(const float *x, float *out)
{
    __shared__ float s[128];
    int t = threadIdx.x;
    s[2 * t] = x[2 * t];
    s[2 * t + 1] = x[2 * t + 1];
    int offset = 1;
    for (int d = 64; d > 0; d /= 2) {
        __syncthreads();
        if (t < d) s[offset * (2 * t + 2) - 1] += s[offset * (2 * t + 1) - 1];
        offset *= 2;
    }
    if (t == 0) s[127] = 0;
    for (int d = 1; d < 128; d *= 2) {
        offset /= 2;
        __syncthreads();
        if (t < d) {
            int a = offset * (2 * t + 1) - 1, b = offset * (2 * t + 2) - 1;
            float old = s[a];
            s[a] = s[b];
            s[b] += old;
        }
    }
    __syncthreads();
    out[2 * t] = s[2 * t];
    out[2 * t + 1] = s[2 * t + 1];
}

// Scan: warps by shuffles, warp totals by the first warp, two barriers.
extern "C" __global__ void two_level_scan(const float *x, float *out)
{
    __shared__ float total[4];
    int t = threadIdx.x, lane = t % 32, warp = t / 32;
    float v = x[t];
    for (int d = 1; d < 32; d *= 2) {
        float o = __shfl_up_sync(~0u, v, d);
        if (lane >= d) v += o;
    }
    if (lane == 31) total[warp] = v;
    __syncthreads();
    if (warp == 0 && lane < 4) {
        float w = total[lane];
        for (int d = 1; d < 4; d *= 2) {
            float o = __shfl_up_sync(15u, w, d);
            if (lane >= d) w += o;
        }
        total[lane] = w;
    }
    __syncthreads();
    out[t] = v + (warp ? total[warp - 1] : 0);
}

// Producer warp and consumer warp, two slots, four named barriers.
extern "C" __global__ void two_slots(const float *x, float *out, int n)
{
    __shared__ float s[2][32];
    int t = threadIdx.x % 32;
    if (threadIdx.x < 32) {
        for (int k = 0; k < n; ++k) {
            int b = k % 2;
            if (k >= 2) asm volatile("bar.sync %0, 64;" :: "r"(3 + b) : "memory");  // empty
            s[b][t] = x[32 * k + t];
            __threadfence_block();
            asm volatile("bar.arrive %0, 64;" :: "r"(1 + b) : "memory");            // full
        }
    } else {
        float sum = 0;
        for (int k = 0; k < n; ++k) {
            int b = k % 2;
            asm volatile("bar.sync %0, 64;" :: "r"(1 + b) : "memory");
            sum = 3 * sum + s[b][31 - t];
            if (k + 2 < n) asm volatile("bar.arrive %0, 64;" :: "r"(3 + b) : "memory");
        }
        out[t] = sum;
    }
}

// Cooperative groups: reduce in tiles, then the block.
extern "C" __global__ void groups(const float *x, float *out)
{
    __shared__ float part[8];
    auto block = cg::this_thread_block();
    auto tile = cg::tiled_partition<16>(block);
    float v = cg::reduce(tile, x[block.thread_rank()], cg::plus<float>());
    if (tile.thread_rank() == 0) part[tile.meta_group_rank()] = v;
    block.sync();
    if (tile.meta_group_rank() == 0) {
        float w = tile.thread_rank() < 8 ? part[tile.thread_rank()] : 0;
        w = cg::reduce(tile, w, cg::plus<float>());
        if (tile.thread_rank() == 0) *out = w;
    }
}

// Lanes that are active form a group, exchange through shared memory and sync that group.
extern "C" __global__ void coalesced(const float *x, float *out)
{
    __shared__ float s[64];
    int t = threadIdx.x;
    if (t % 3 == 0) {
        auto g = cg::coalesced_threads();
        int base = t / 32 * 32;
        s[base + g.thread_rank()] = x[t];
        g.sync();
        out[t] = s[base + g.size() - 1 - g.thread_rank()];
        g.sync();
    } else out[t] = 0;
}

// Cp.async, three stages of 16 bytes, one barrier a step.
extern "C" __global__ void three_stages(const float4 *x, float *out, int n)
{
    __shared__ float4 s[3][64];
    int t = threadIdx.x;
    float sum = 0;
    for (int k = 0; k < 2; ++k) {
        if (k < n) __pipeline_memcpy_async(&s[k][t], &x[64 * k + t], 16);
        __pipeline_commit();
    }
    for (int k = 0; k < n; ++k) {
        __pipeline_wait_prior(1);
        __syncthreads();
        if (k + 2 < n) __pipeline_memcpy_async(&s[(k + 2) % 3][t], &x[64 * (k + 2) + t], 16);
        __pipeline_commit();
        float4 v = s[k % 3][63 - t];
        sum = 2 * sum + v.x + v.y + v.z + v.w;
    }
    out[t] = sum;
}

// Flags between blocks, volatile, with fences.
extern "C" __global__ void volatile_flag(const float *x, float *data, volatile int *flag,
                                         float *out)
{
    if (blockIdx.x == 0) {
        data[threadIdx.x] = x[threadIdx.x];
        __threadfence();
        __syncthreads();
        if (threadIdx.x == 0) *flag = 1;
    } else {
        if (threadIdx.x == 0) { while (*flag == 0) { } __threadfence(); }
        __syncthreads();
        out[threadIdx.x] = data[63 - threadIdx.x];
    }
}

// Volatile, warp-synchronous with __syncwarp.
extern "C" __global__ void volatile_warp(const float *x, float *out)
{
    __shared__ volatile float s[64];
    int t = threadIdx.x;
    s[t] = x[t];
    __syncthreads();
    if (t < 32) {
        float v = s[t];
        for (int d = 32; d; d /= 2) {
            v += s[t + d];
            __syncwarp();
            s[t] = v;
            __syncwarp();
        }
        if (t == 0) *out = s[0];
    }
}

// Dynamic shared memory, three arrays of other types.
extern "C" __global__ void carved(const float *x, float *out)
{
    extern __shared__ char some_bytes[];
    double *d = (double *)some_bytes;
    float *f = (float *)(d + 64);
    unsigned char *c = (unsigned char *)(f + 64);
    int t = threadIdx.x;
    d[t] = x[t]; f[t] = 2 * x[t]; c[t] = t;
    __syncthreads();
    out[t] = d[63 - t] + f[63 - t] + c[63 - t];
}

// 48 x 3 threads, the warps cross rows.
extern "C" __global__ void forty_eight(const float *x, float *out)
{
    __shared__ float s[3][48];
    int tx = threadIdx.x, ty = threadIdx.y;
    s[ty][tx] = x[48 * ty + tx];
    __syncthreads();
    out[48 * ty + tx] = s[2 - ty][47 - tx];
}

// 33 threads, the lone lane in its own warp takes part in barriers.
extern "C" __global__ void lone_lane(const float *x, float *out)
{
    __shared__ float s[33];
    int t = threadIdx.x;
    s[t] = x[t];
    __syncthreads();
    float v = s[32 - t];
    __syncthreads();
    s[t] = v + 1;
    __syncthreads();
    out[t] = s[(t + 1) % 33];
}

// Lanes leave early; those that stay name themselves.
extern "C" __global__ void leave_and_name(const float *x, float *out, int n)
{
    __shared__ float s[32];
    int t = threadIdx.x;
    if (t >= n) return;
    unsigned mask = (1u << n) - 1;
    s[t] = x[t];
    __syncwarp(mask);
    out[t] = s[n - 1 - t];
}

// Shared histogram with atomics, cleared with a barrier.
extern "C" __global__ void shared_histogram(const int *x, int *count)
{
    __shared__ int s[8];
    int t = threadIdx.x;
    if (t < 8) s[t] = 0;
    __syncthreads();
    atomicAdd(&s[x[blockIdx.x * 64 + t] % 8], 1);
    __syncthreads();
    if (t < 8) atomicAdd(&count[t], s[t]);
}

// A lock around plain arithmetic.
extern "C" __global__ void locked(const float *x, float *sum, int *lock)
{
    if (threadIdx.x == 0) {
        while (atomicCAS(lock, 0, 1) != 0) { }
        __threadfence();
        sum[0] += x[blockIdx.x]; sum[1] += 1;
        __threadfence();
        atomicExch(lock, 0);
    }
}

// Ping-pong between two global arrays inside one block.
extern "C" __global__ void jacobi(float *a, float *b, int n)
{
    int t = threadIdx.x;
    for (int k = 0; k < n; ++k) {
        float *from = k % 2 ? b : a, *to = k % 2 ? a : b;
        to[t] = t == 0 || t == 63 ? from[t] : (from[t - 1] + from[t + 1]) / 2;
        __syncthreads();
    }
}

// Warps wait for one another by a counter in shared memory.
extern "C" __global__ void turns(const float *x, float *out)
{
    __shared__ int turn;
    __shared__ float sum;
    int t = threadIdx.x, warp = t / 32;
    if (t == 0) { turn = 0; sum = 0; }
    __syncthreads();
    if (t % 32 == 0) {
        while (atomicAdd(&turn, 0) != warp) { }
        __threadfence_block();
        sum = 2 * sum + x[warp];
        __threadfence_block();
        atomicAdd(&turn, 1);
    }
    __syncthreads();
    out[t] = sum;
}

// Matrix transposed in place, pairs by the same thread.
extern "C" __global__ void transpose_in_place(float *x)
{
    int i = threadIdx.y, j = threadIdx.x;
    if (i < j) {
        float a = x[16 * i + j], b = x[16 * j + i];
        x[16 * i + j] = b;
        x[16 * j + i] = a;
    }
}

// Barrier with a vote decides when to stop.
extern "C" __global__ void until_sorted(float *x)
{
    __shared__ float s[64];
    int t = threadIdx.x;
    s[t] = x[t] < 32 ? x[t] + 32 : 63 - x[t];   // not sorted
    for (int odd = 0, still = 2; still; odd = !odd) {
        __syncthreads();
        int swapped = 0, k = 2 * t + odd;
        if (k + 1 < 64) {
            float a = s[k], b = s[k + 1];
            if (a > b) { s[k] = b; s[k + 1] = a; swapped = 1; }
        }
        still = __syncthreads_or(swapped) ? 2 : still - 1;
    }
    x[t] = s[t];
}
