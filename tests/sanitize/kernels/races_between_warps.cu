// Races in shared memory between the warps of a block. A marker "<- n" names a line of a finding.

__global__ void store_then_read(const float *x, float *out)
{
    __shared__ float s[128];
    int t = threadIdx.x;
    s[t] = x[t];                                   // <- 1
    out[t] = s[127 - t];                           // <- 2
}

__global__ void read_then_store(const float *x, float *out)
{
    __shared__ float s[128];
    int t = threadIdx.x;
    s[t] = x[t];
    __syncthreads();
    float other = s[127 - t];                      // <- 1
    s[t] = other + 1.0f;                           // <- 2
    __syncthreads();
    out[t] = s[t];
}

__global__ void two_warps_store(float *out)
{
    __shared__ float s[32];
    int t = threadIdx.x;
    s[t % 32] = t;                                 // <- 1
    __syncthreads();
    out[t] = s[t % 32];
}

__global__ void two_lines_store(float *out)
{
    __shared__ float s[64];
    int t = threadIdx.x;
    s[t] = t;                                      // <- 1
    if (t == 40) s[3] = -1.0f;                     // <- 2
    __syncthreads();
    out[t] = s[t];
}

// The bytes that two neighbouring threads of different warps exchange lie in one word.
__global__ void bytes_exchanged(const unsigned char *x, float *out)
{
    __shared__ unsigned char s[64];
    int t = threadIdx.x;
    s[t] = x[t];                                   // <- 1
    out[t] = s[t < 32 ? t : t - 1];                // <- 2
}

// Each half waits for itself, and then reads what the other half has stored.
__global__ void named_barrier_of_the_wrong_half(const float *x, float *out)
{
    __shared__ float s[128];
    int t = threadIdx.x, half = t / 64;
    s[t] = x[t];                                   // <- 1
    asm volatile("bar.sync %0, 64;" :: "r"(1 + half) : "memory");
    out[t] = s[(t + 64) % 128];                    // <- 2
}

__global__ void cp_async_without_wait(const float *x, float *out)
{
    __shared__ float s[128];
    int t = threadIdx.x;
    unsigned to = (unsigned)__cvta_generic_to_shared(&s[t]);
    asm volatile("cp.async.ca.shared.global [%0], [%1], 4;"
                 :: "r"(to), "l"(x + t) : "memory");               // <- 1
    __syncthreads();
    out[t] = s[127 - t];                           // <- 2
    asm volatile("cp.async.wait_all;" ::: "memory");
}

__global__ void cp_async_without_barrier(const float *x, float *out)
{
    __shared__ float s[128];
    int t = threadIdx.x;
    unsigned to = (unsigned)__cvta_generic_to_shared(&s[t]);
    asm volatile("cp.async.ca.shared.global [%0], [%1], 4;"
                 :: "r"(to), "l"(x + t) : "memory");               // <- 1
    asm volatile("cp.async.wait_all;" ::: "memory");
    out[t] = s[127 - t];                           // <- 2
}

// Two buffers, but the barrier between storing into one and reading it is missing.
__global__ void double_buffer_without_barrier(const float *x, float *out, int steps)
{
    __shared__ float s[2][128];
    int t = threadIdx.x;
    float sum = 0.0f;
    for (int i = 0; i < steps; ++i) {
        s[i % 2][t] = x[i * 128 + t];              // <- 1
        sum += s[i % 2][127 - t];                  // <- 2
    }
    out[t] = sum;
}

// Two buffers and a barrier, but on every other step only.
__global__ void double_buffer_with_half_the_barriers(const float *x, float *out, int steps)
{
    __shared__ float s[2][128];
    int t = threadIdx.x;
    float sum = 0.0f;
    for (int i = 0; i < steps; ++i) {
        s[i % 2][t] = x[i * 128 + t];              // <- 1
        if (i % 2 == 0) __syncthreads();
        sum += s[i % 2][127 - t];                  // <- 2
    }
    out[t] = sum;
}

__global__ void count_read_too_early(const int *x, float *out)
{
    __shared__ int count;
    int t = threadIdx.x;
    if (t == 0) count = 0;
    __syncthreads();
    if (x[t] > 10) atomicAdd(&count, 1);           // <- 1
    out[t] = count;                                // <- 2
}

__global__ void histogram_without_atomics(const int *x, int *out)
{
    __shared__ int bins[8];
    int t = threadIdx.x;
    if (t < 8) bins[t] = 0;
    __syncthreads();
    bins[x[t] % 8] += 1;                           // <- 1
    __syncthreads();
    if (t < 8) out[t] = bins[t];
}
