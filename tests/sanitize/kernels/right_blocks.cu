// Right kernels whose order comes from barriers: there is nothing to be found in them.

__global__ void tree_sum(const float *x, float *sums)
{
    __shared__ float s[256];
    int t = threadIdx.x;
    s[t] = x[blockIdx.x * 256 + t];
    for (int i = 128; i > 0; i /= 2) {
        __syncthreads();
        if (t < i) s[t] += s[t + i];
    }
    if (t == 0) sums[blockIdx.x] = s[0];
}

__global__ void scan(const float *x, float *out)
{
    __shared__ float s[128];
    int t = threadIdx.x;
    s[t] = x[t];
    __syncthreads();
    for (int i = 1; i < 128; i *= 2) {
        float v = t >= i ? s[t - i] : 0.0f;
        __syncthreads();
        s[t] += v;
        __syncthreads();
    }
    out[t] = s[t];
}

__global__ void scan_of_two_buffers(const float *x, float *out)
{
    __shared__ float s[2][128];
    int t = threadIdx.x, now = 0;
    s[0][t] = x[t];
    __syncthreads();
    for (int i = 1; i < 128; i *= 2) {
        s[1 - now][t] = s[now][t] + (t >= i ? s[now][t - i] : 0.0f);
        now = 1 - now;
        __syncthreads();
    }
    out[t] = s[now][t];
}

__global__ void transpose(const float *x, float *out, int n)
{
    __shared__ float tile[32][33];                 // the last column is never written, nor read
    int tx = threadIdx.x, ty = threadIdx.y;
    x += (blockIdx.y * 32) * n + blockIdx.x * 32;
    out += (blockIdx.x * 32) * n + blockIdx.y * 32;
    for (int i = ty; i < 32; i += 8) tile[i][tx] = x[i * n + tx];
    __syncthreads();
    for (int i = ty; i < 32; i += 8) out[i * n + tx] = tile[tx][i];
}

__global__ void bytes_side_by_side(const unsigned char *x, float *out)
{
    __shared__ unsigned char s[129];
    int t = threadIdx.x;
    s[t + 1] = x[t];                               // four threads share a word, none a byte
    s[t + 1] += 1;
    out[t] = s[t + 1];
}

__global__ void halfwords_across_warps(const unsigned short *x, float *out)
{
    __shared__ unsigned short s[65];
    int t = threadIdx.x;
    s[t + 1] = x[t];                               // threads 31 and 32 share a word
    out[t] = s[t + 1];
}

__global__ void float4_copy(const float4 *x, float4 *out, int n)
{
    __shared__ float4 s[64];
    int t = threadIdx.x;
    for (int i = t; i < n; i += 64) {
        s[t] = x[i];
        __syncthreads();
        float4 v = s[63 - t];
        __syncthreads();
        out[i] = make_float4(v.w, v.z, v.y, v.x);
    }
}

__global__ void barrier_in_an_if_of_the_whole_block(const float *x, float *out)
{
    __shared__ float s[64];
    int t = threadIdx.x;
    s[t] = x[t];
    if (blockIdx.x % 2 == 0) {                     // the same for all threads of the block
        __syncthreads();
        out[blockIdx.x * 64 + t] = s[63 - t];
    } else {
        out[blockIdx.x * 64 + t] = s[t];
    }
}

__global__ void whole_blocks_return(const float *x, float *out, int n)
{
    __shared__ float s[64];
    int t = threadIdx.x;
    if (blockIdx.x * 64 >= n) return;              // nobody of this block comes to the barrier
    s[t] = x[blockIdx.x * 64 + t];
    __syncthreads();
    out[blockIdx.x * 64 + t] = s[63 - t];
}

__global__ void return_after_the_last_barrier(const float *x, float *out, int n)
{
    __shared__ float s[64];
    int t = threadIdx.x;
    s[t] = x[t];
    __syncthreads();
    if (t >= n) return;
    out[t] = s[63 - t];
}

__global__ void votes_of_a_block(const float *x, float *out)
{
    __shared__ float s[128];
    int t = threadIdx.x;
    s[t] = x[t];
    int large = __syncthreads_count(x[t] > 10.0f); // a barrier too
    float other = s[127 - t];
    if (__syncthreads_or(other < 0.0f)) other = 0.0f;
    s[t] = other;
    out[t] = s[t] + large;
}

__global__ void broadcast(const float *x, float *out)
{
    __shared__ float s;
    for (int i = 0; i < 4; ++i) {
        if (threadIdx.x == 0) s = x[i];
        __syncthreads();
        out[i * 96 + threadIdx.x] = s;
        __syncthreads();
    }
}

__global__ void scale_in_place(float *x, int n)
{
    int stride = gridDim.x * blockDim.x;
    for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += stride) x[i] *= 2.0f;
}

// All threads store the same: a note, no error.
__global__ void equal_values(const float *x, float *out)
{
    __shared__ int found;
    int t = threadIdx.x;
    if (t == 0) found = 0;
    __syncthreads();
    if (x[t] > 20.0f) found = 1;                   // <- 1
    __syncthreads();
    out[t] = found;
}

__global__ void local_array(const float *x, float *out, int n)
{
    float v[8];
    for (int i = 0; i < 8; ++i) v[(i * n) % 8] = x[i];         // n is odd: all eight
    out[threadIdx.x] = v[(threadIdx.x + n) % 8];
}

// Two arrays of different types in one piece of dynamic shared memory.
__global__ void dynamic_shared_in_two(const float *x, float *out)
{
    extern __shared__ float dynamic_floats[];
    unsigned char *flags = (unsigned char *)(dynamic_floats + 64);
    int t = threadIdx.x;
    dynamic_floats[t] = x[t];
    flags[t] = x[t] > 10.0f;
    __syncthreads();
    out[t] = flags[63 - t] ? dynamic_floats[63 - t] : 0.0f;
}

// An array is reused as another type, with a barrier between; a pair is read that two threads wrote.
__global__ void shared_reused_as_pairs(const float *x, float *out)
{
    __shared__ __align__(8) int words[128];
    int t = threadIdx.x;
    words[t] = t;
    __syncthreads();
    int back = words[127 - t];
    __syncthreads();
    ((float *)words)[t] = x[back];
    __syncthreads();
    float2 pair = ((const float2 *)words)[t / 2];
    out[t] = t % 2 ? pair.x : pair.y;
}
