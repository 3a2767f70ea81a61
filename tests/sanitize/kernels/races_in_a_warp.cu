// Races between the lanes of one warp: lanes need not run in lockstep (since sm_70).

__global__ void exchange_without_syncwarp(const float *x, float *out)
{
    __shared__ float s[32];
    int lane = threadIdx.x;
    s[lane] = x[lane];                             // <- 1
    out[lane] = s[31 - lane];                      // <- 2
}

__global__ void reuse_without_syncwarp(const float *x, float *out)
{
    __shared__ float s[32];
    int lane = threadIdx.x;
    s[lane] = x[lane];
    __syncwarp();
    float other = s[31 - lane];                    // <- 1
    s[lane] = 2.0f * other;                        // <- 2
    __syncwarp();
    out[lane] = s[lane];
}

// In one thread s[lane] and s[lane + i] are different words, so the compiler reads ahead: it is the
// reads that come first, whatever the loop says.
__global__ void warp_synchronous_sum(const float *x, float *out)
{
    __shared__ float s[64];
    int lane = threadIdx.x;
    s[lane] = x[lane];
    s[lane + 32] = x[lane + 32];
    __syncwarp();
    for (int i = 32; i > 0; i /= 2) s[lane] += s[lane + i];    // <- 1
    if (lane == 0) *out = s[0];
}

__global__ void lanes_store_their_number(float *out)
{
    __shared__ float s;
    int lane = threadIdx.x;
    s = lane;                                      // <- 1
    __syncwarp();
    out[lane] = s;
}

__global__ void lanes_store_to_one_global_word(float *out)
{
    *out = threadIdx.x;                            // <- 1
}

__global__ void halves_that_do_not_meet(const float *x, float *out)
{
    __shared__ float s[32];
    int lane = threadIdx.x;
    s[lane] = x[lane];                             // <- 1
    __syncwarp(lane < 16 ? 0x0000ffffu : 0xffff0000u);
    out[lane] = s[(lane + 16) % 32];               // <- 2
}
