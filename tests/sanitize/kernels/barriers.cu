// Barriers that not all threads of the block come to.

__global__ void barrier_in_if(const float *x, float *out)
{
    __shared__ float s[64];
    int t = threadIdx.x;
    s[t] = x[t];
    if (t < 40) {
        __syncthreads();                           // <- 1
    }
    out[t] = s[t];
    __syncthreads();                               // <- 2
    out[t] += s[63 - t];
}

__global__ void barriers_of_two_branches(const float *x, float *out)
{
    __shared__ float s[64];
    int t = threadIdx.x;
    s[t] = x[t];
    if (t < 32) {
        out[t] = 1.0f;
        __syncthreads();                           // <- 1
        out[t] += s[63 - t];
    } else {
        out[t] = 2.0f;
        __syncthreads();                           // <- 2
        out[t] -= s[63 - t];
    }
}

__global__ void loops_of_different_length(float *out)
{
    int t = threadIdx.x, warp = t / 32;
    float turns = 0.0f;
    #pragma unroll 1
    for (int i = 0; i <= warp; ++i) {
        turns += 1.0f;
        __syncthreads();                           // <- 1
    }
    out[t] = turns;                                // <- 2
    __syncthreads();                               // <- 3
    out[t] += out[t ^ 32];                         // <- 4
}                                                  // <- 5

__global__ void return_before_a_barrier(const float *x, float *out, int n)
{
    __shared__ float s[64];
    int t = threadIdx.x;
    if (t >= n) return;                            // <- 1
    s[t] = x[t];
    __syncthreads();                               // <- 2
    out[t] = s[n - 1 - t];
}

__global__ void named_barrier_for_too_many(float *out)
{
    out[threadIdx.x] = 1.0f;
    asm volatile("bar.sync 1, 128;" ::: "memory"); // <- 1
    out[threadIdx.x] = 2.0f;
}
