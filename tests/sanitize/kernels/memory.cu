// Bad accesses, and memory that is read or handed back before anything was written to it.

#include <assert.h>

__global__ void read_past_the_end(const float *x, float *out, int n)
{
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) out[i] = x[i + 1];                  // <- 1
}

__global__ void no_guard(float *out)
{
    out[blockIdx.x * blockDim.x + threadIdx.x] = 1.0f;         // <- 1
}

__global__ void past_As_into_Bs(const float *x, float *out, int n)
{
    __shared__ float As[64], Bs[64];
    int t = threadIdx.x;
    As[t] = x[t];
    Bs[t] = -x[t];
    __syncthreads();
    out[t] = As[t + n] + Bs[63 - t];               // <- 1
}

__global__ void past_dynamic_shared(const float *x, float *out)
{
    extern __shared__ float dynamic[];
    int t = threadIdx.x;
    dynamic[t] = x[t];                             // <- 1
    __syncthreads();
    out[t] = dynamic[t];
}

__global__ void misaligned_float4(const float *x, float *out)
{
    float4 v = *(const float4 *)(x + 1 + 4 * threadIdx.x);     // <- 1
    out[threadIdx.x] = v.x + v.y + v.z + v.w;
}

__global__ void shared_partly_written(const float *x, float *out)
{
    __shared__ float s[64];
    int t = threadIdx.x;
    if (t < 48) s[t] = x[t];
    __syncthreads();
    out[t] = s[63 - t];                            // <- 1
}

__global__ void accumulator_not_cleared(const float *x, float *sums)
{
    int t = threadIdx.x;
    sums[t] += x[t];                               // <- 1
}

__global__ void local_partly_written(const float *x, float *out, int n)
{
    float v[8];
    for (int i = 0; i < n; ++i) v[(i + threadIdx.x) % 8] = x[i];
    out[threadIdx.x] = v[n % 8];                   // <- 1
}

// Launched with a grid of n / blockDim.x blocks, divided and rounded down.
__global__ void scale(const float *x, float *out, int n)
{
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) out[i] = 2.0f * x[i];
}

// Only whole tiles of C are stored.
__global__ void whole_tiles_only(const float *A, float *C, int M, int N)
{
    int col = blockIdx.x * 8 + threadIdx.x, row = blockIdx.y * 8 + threadIdx.y;
    if (blockIdx.y * 8 + 8 <= M && blockIdx.x * 8 + 8 <= N) C[row * N + col] = A[row * N + col];
}

__global__ void trap_on_a_large_value(const float *x, float *out)
{
    float v = x[threadIdx.x];
    if (v > 50.0f) __trap();                       // <- 1
    out[threadIdx.x] = v;
}

__global__ void assertion_fails(const float *x, float *out)
{
    float v = x[threadIdx.x];
    assert(v < 60.0f);                             // <- 1
    out[threadIdx.x] = v;
}

__global__ void before_Bs_into_As(const float *x, float *out, int n)
{
    __shared__ float As[64], Bs[64];
    int t = threadIdx.x;
    As[t] = x[t];
    Bs[t] = -x[t];
    __syncthreads();
    out[t] = As[63 - t] + Bs[t - n];               // <- 1
}
