// Right kernels whose order comes from shuffles, __syncwarp, numbered barriers and cp.async.

__device__ __forceinline__ void copy_async(float *to, const float *from)
{
    unsigned at = (unsigned)__cvta_generic_to_shared(to);
    asm volatile("cp.async.ca.shared.global [%0], [%1], 4;" :: "r"(at), "l"(from) : "memory");
}

__global__ void shuffle_sum(const float *x, float *out)
{
    __shared__ float sums[8];
    int t = threadIdx.x, lane = t % 32, warp = t / 32;
    float v = x[t];
    for (int i = 16; i > 0; i /= 2) v += __shfl_down_sync(~0u, v, i);
    if (lane == 0) sums[warp] = v;
    __syncthreads();
    if (warp == 0) {
        v = lane < 8 ? sums[lane] : 0.0f;
        for (int i = 4; i > 0; i /= 2) v += __shfl_down_sync(~0u, v, i);
        if (lane == 0) *out = v;
    }
}

__global__ void shuffle_scan(const float *x, float *out)
{
    __shared__ float ends[4];
    int t = threadIdx.x, lane = t % 32, warp = t / 32;
    float v = x[t];
    for (int i = 1; i < 32; i *= 2) {
        float below = __shfl_up_sync(~0u, v, i);
        if (lane >= i) v += below;
    }
    if (lane == 31) ends[warp] = v;
    __syncthreads();
    for (int w = 0; w < warp; ++w) v += ends[w];
    out[t] = v;
}

__global__ void syncwarp_sum(const float *x, float *out)
{
    __shared__ float s[32];
    int lane = threadIdx.x;
    s[lane] = x[lane];
    __syncwarp();
    for (int i = 16; i > 0; i /= 2) {
        float other = s[(lane + i) % 32];
        __syncwarp();
        s[lane] += other;
        __syncwarp();
    }
    if (lane == 0) *out = s[0];
}

// The sixteen lanes of each half exchange among themselves, and only they wait.
__global__ void halves_that_meet(const float *x, float *out)
{
    __shared__ float s[32];
    int lane = threadIdx.x;
    s[lane] = x[lane];
    __syncwarp(lane < 16 ? 0x0000ffffu : 0xffff0000u);
    out[lane] = s[lane ^ 15];
}

// One warp only: __syncwarp is enough, where each warp keeps to its own part.
__global__ void a_part_for_each_warp(const float *x, float *out)
{
    __shared__ float s[4][32];
    int t = threadIdx.x, lane = t % 32, warp = t / 32;
    s[warp][lane] = x[t];
    __syncwarp();
    out[t] = s[warp][31 - lane];
}

__global__ void named_barriers_of_halves(const float *x, float *out)
{
    __shared__ float s[128];
    int t = threadIdx.x, half = t / 64;
    s[t] = x[t];
    for (int i = 0; i < 3; ++i) {
        asm volatile("bar.sync %0, 64;" :: "r"(1 + half) : "memory");
        float v = s[half * 64 + (t + 33) % 64];
        asm volatile("bar.sync %0, 64;" :: "r"(1 + half) : "memory");
        s[t] = v + 1.0f;
    }
    out[t] = s[t];
}

// Warp 0 fills a box, warp 1 empties it; barrier 1 says "empty", barrier 2 "full".
__global__ void producer_and_consumer(const float *x, float *out, int n)
{
    __shared__ float box[32];
    int lane = threadIdx.x % 32;
    if (threadIdx.x < 32) {
        for (int i = 0; i < n; ++i) {
            asm volatile("bar.sync 1, 64;" ::: "memory");
            box[lane] = x[32 * i + lane];
            asm volatile("bar.arrive 2, 64;" ::: "memory");
        }
    } else {
        float sum = 0.0f;
        asm volatile("bar.arrive 1, 64;" ::: "memory");
        for (int i = 0; i < n; ++i) {
            asm volatile("bar.sync 2, 64;" ::: "memory");
            sum = 3.0f * sum + box[31 - lane];
            if (i + 1 < n) asm volatile("bar.arrive 1, 64;" ::: "memory");
        }
        out[lane] = sum;
    }
}

__global__ void cp_async_with_wait_and_barrier(const float *x, float *out)
{
    __shared__ float s[128];
    int t = threadIdx.x;
    copy_async(&s[t], x + t);
    asm volatile("cp.async.wait_all;" ::: "memory");
    __syncthreads();
    out[t] = s[127 - t];
}

// Three stages: while one is used, the copies into the two others are on their way.
__global__ void cp_async_pipeline(const float *x, float *out, int steps)
{
    __shared__ float s[3][64];
    int t = threadIdx.x;
    for (int i = 0; i < 2; ++i) {
        copy_async(&s[i][t], x + 64 * i + t);
        asm volatile("cp.async.commit_group;" ::: "memory");
    }
    float sum = 0.0f;
    for (int i = 0; i < steps; ++i) {
        asm volatile("cp.async.wait_group 1;" ::: "memory");
        __syncthreads();
        if (i + 2 < steps) copy_async(&s[(i + 2) % 3][t], x + 64 * (i + 2) + t);
        asm volatile("cp.async.commit_group;" ::: "memory");
        sum = 2.0f * sum + s[i % 3][63 - t];
    }
    out[t] = sum;
}

// D = A * B + 0 for 16 x 16 halves of A and 16 x 8 of B, by ldmatrix and mma.
__global__ void tensor_core(const unsigned *a, const unsigned *b, float *d)
{
    __shared__ __align__(16) unsigned As[16][8], Bs[8][8];     // two halves in each
    int lane = threadIdx.x;
    for (int i = lane; i < 128; i += 32) As[i / 8][i % 8] = a[i];
    for (int i = lane; i < 64; i += 32) Bs[i / 8][i % 8] = b[i];
    __syncwarp();
    unsigned f0, f1, f2, f3, g0, g1;
    unsigned at = (unsigned)__cvta_generic_to_shared(&As[lane % 16][lane / 16 * 4]);
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0,%1,%2,%3}, [%4];"
                 : "=r"(f0), "=r"(f1), "=r"(f2), "=r"(f3) : "r"(at) : "memory");
    at = (unsigned)__cvta_generic_to_shared(&Bs[lane % 8][lane / 8 % 2 * 4]);
    asm volatile("ldmatrix.sync.aligned.m8n8.x2.shared.b16 {%0,%1}, [%2];"
                 : "=r"(g0), "=r"(g1) : "r"(at) : "memory");
    float d0 = 0.0f, d1 = 0.0f, d2 = 0.0f, d3 = 0.0f;
    asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0,%1,%2,%3}, "
                 "{%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
                 : "+f"(d0), "+f"(d1), "+f"(d2), "+f"(d3)
                 : "r"(f0), "r"(f1), "r"(f2), "r"(f3), "r"(g0), "r"(g1));
    int row = lane / 4, col = lane % 4 * 2;
    d[row * 8 + col] = d0;
    d[row * 8 + col + 1] = d1;
    d[(row + 8) * 8 + col] = d2;
    d[(row + 8) * 8 + col + 1] = d3;
}
