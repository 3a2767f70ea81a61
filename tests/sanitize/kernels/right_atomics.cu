// Right kernels whose order comes from atomics and fences.

__global__ void histogram(const int *x, int *out, int n)
{
    __shared__ int bins[8];
    int t = threadIdx.x;
    if (t < 8) bins[t] = 0;
    __syncthreads();
    for (int i = blockIdx.x * blockDim.x + t; i < n; i += gridDim.x * blockDim.x)
        atomicAdd(&bins[x[i] % 8], 1);
    __syncthreads();
    if (t < 8) atomicAdd(&out[t], bins[t]);
}

// Whoever takes the last ticket adds up what all blocks have stored before they took theirs.
__global__ void last_block_adds_up(const float *x, volatile float *parts, float *out,
                                   unsigned *tickets)
{
    __shared__ bool last;
    int t = threadIdx.x;
    float v = x[blockIdx.x * 32 + t];
    for (int i = 16; i > 0; i /= 2) v += __shfl_down_sync(~0u, v, i);
    if (t == 0) {
        parts[blockIdx.x] = v;
        __threadfence();
        last = atomicAdd(tickets, 1u) == gridDim.x - 1;
    }
    __syncthreads();
    if (last && t == 0) {
        __threadfence();
        float sum = 0.0f;
        for (unsigned i = 0; i < gridDim.x; ++i) sum += parts[i];
        *out = sum;
    }
}

// Each thread that keeps its element takes a place of its own.
__global__ void compact(const int *x, int *kept, unsigned *count)
{
    int v = x[blockIdx.x * blockDim.x + threadIdx.x];
    if (v % 3 == 0) kept[atomicAdd(count, 1u)] = v;
}

// The same with one atomic for all lanes of a warp that keep theirs.
__global__ void compact_by_warps(const int *x, int *kept, unsigned *count)
{
    int lane = threadIdx.x % 32, v = x[blockIdx.x * blockDim.x + threadIdx.x];
    unsigned keep = __ballot_sync(~0u, v % 3 == 0), first = 0;
    if (lane == 0) first = atomicAdd(count, __popc(keep));
    first = __shfl_sync(~0u, first, 0);
    if (v % 3 == 0) kept[first + __popc(keep & ((1u << lane) - 1))] = v;
}

__global__ void largest_by_cas(const float *x, int *largest)
{
    int bits = __float_as_int(x[blockIdx.x * blockDim.x + threadIdx.x]);
    int seen = atomicAdd(largest, 0);
    while (bits > seen) {                          // positive floats are ordered as their bits
        int before = atomicCAS(largest, seen, bits);
        if (before == seen) break;
        seen = before;
    }
}

// A message from one block to the next: data, fence, flag.
__global__ void flag_between_blocks(const float *x, volatile float *message, int *flag, float *out)
{
    if (blockIdx.x == 0) {
        message[threadIdx.x] = x[threadIdx.x];
        __threadfence();
        __syncthreads();
        if (threadIdx.x == 0) atomicExch(flag, 1);
    } else {
        if (threadIdx.x == 0) while (atomicAdd(flag, 0) == 0) { }
        __syncthreads();
        __threadfence();
        out[threadIdx.x] = message[63 - threadIdx.x];
    }
}

__global__ void work_queue(const float *x, float *out, unsigned *next, int n)
{
    __shared__ unsigned mine;
    for (;;) {
        if (threadIdx.x == 0) mine = atomicAdd(next, 1u);
        __syncthreads();
        unsigned row = mine;
        __syncthreads();
        if (row >= n) break;
        out[row * 64 + threadIdx.x] = 2.0f * x[row * 64 + threadIdx.x];
    }
}

// Blocks add to one total, one after the other: whoever takes the lock has to see what the last
// one stored.
__global__ void spin_lock(const float *x, volatile float *total, int *lock)
{
    if (threadIdx.x == 0) {
        while (atomicCAS(lock, 0, 1) != 0) { }
        __threadfence();
        *total = *total + x[blockIdx.x];
        __threadfence();
        atomicExch(lock, 0);
    }
}

// A barrier of all blocks, which are few enough to be there at once.
__global__ void barrier_of_the_grid(const float *x, float *between, float *out, unsigned *arrived)
{
    int i = blockIdx.x * blockDim.x + threadIdx.x, n = gridDim.x * blockDim.x;
    between[i] = 2.0f * x[i];
    __threadfence();
    __syncthreads();
    if (threadIdx.x == 0) {
        atomicAdd(arrived, 1u);
        while (atomicAdd(arrived, 0u) < gridDim.x) { }
        __threadfence();
    }
    __syncthreads();
    out[i] = between[n - 1 - i];
}

// Each block waits for the sum of the one before and adds its own.
__global__ void chained_sums(const float *x, volatile float *sums, volatile int *ready, float *out)
{
    __shared__ float before;
    if (threadIdx.x == 0) {
        float sum = 0.0f;
        if (blockIdx.x > 0) {
            while (ready[blockIdx.x - 1] == 0) { }
            __threadfence();
            sum = sums[blockIdx.x - 1];
        }
        before = sum;
        sums[blockIdx.x] = sum + x[blockIdx.x];
        __threadfence();
        ready[blockIdx.x] = 1;
    }
    __syncthreads();
    out[blockIdx.x * blockDim.x + threadIdx.x] = before;
}
