// Races in global memory within one launch.

__global__ void neighbour_in_the_block(float *x, float *out)
{
    int t = threadIdx.x;
    x[t] = 2.0f * x[t];                            // <- 1
    out[t] = x[(t + 32) % 64];                     // <- 2
}

// A barrier is for one block: the neighbour is in another one.
__global__ void neighbour_in_another_block(float *x, float *out, int n)
{
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    x[i] = i;                                      // <- 1
    __syncthreads();
    out[i] = x[(i + blockDim.x) % n];              // <- 2
}

__global__ void smooth_in_place(float *x, int n)
{
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    float left = i > 0 ? x[i - 1] : 0.0f;          // <- 1
    __syncthreads();
    x[i] = left + i;                               // <- 2
}

__global__ void total_without_atomic(const float *x, float *total)
{
    int t = blockIdx.x * blockDim.x + threadIdx.x;
    if (t % 32 == 0) *total += x[t] + 1.0f;        // <- 1
}

__global__ void blocks_store_to_one_word(float *out)
{
    if (threadIdx.x == 0) *out = blockIdx.x;       // <- 1
}

// The last block adds up, but each takes its ticket before it has stored its part.
__global__ void ticket_before_the_part(const float *x, float *parts, float *out, unsigned *tickets)
{
    if (threadIdx.x == 0) {
        bool last = atomicAdd(tickets, 1u) == gridDim.x - 1;
        parts[blockIdx.x] = x[blockIdx.x];         // <- 1
        if (last) {
            float sum = 0.0f;
            for (unsigned i = 0; i < gridDim.x; ++i) sum += parts[i];  // <- 2
            *out = sum;
        }
    }
}
