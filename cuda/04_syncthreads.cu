// Lesson 4: __syncthreads, and what happens without it.
//
// C = A * B with A of M x K, B of K x N and C of M x N, all row-major float. Any M, N, K >= 1.
//
// BROKEN ON PURPOSE, each in the way its name says; run them with helpers.sanitize only:
//
//   matmul_tiled_no_first_barrier   tiles are read before they are complete
//   matmul_tiled_no_second_barrier  tiles are overwritten while they are read
//   matmul_tiled_barrier_in_if      a barrier that only some threads come to
//   matmul_tiled_early_return       threads leave that others need
//   reduction_warp_synchronous      takes it that a warp runs in lockstep
//
// Right:
//
//   matmul_tiled_two_buffers        two pairs of tiles: one barrier for each step
//   reduction_syncwarp              the reduction with __syncwarp
//
// What changed against 02_tiled.cu: the barriers, and in the broken ones nothing else.
//
// Launch shape: matmul_… block (TILE, TILE), nothing else; grid (ceil(N / TILE), ceil(M / TILE)).
// reduction_… block 64, grid 1.

#ifndef TILE
#define TILE 16        // nvcc -DTILE=4 makes a block of a single warp
#endif

__global__ void matmul_tiled_no_first_barrier(const float *A, const float *B, float *C,
                                              int M, int N, int K)
{
    __shared__ float As[TILE][TILE];
    __shared__ float Bs[TILE][TILE];

    int tx = threadIdx.x;
    int ty = threadIdx.y;
    int col = blockIdx.x * TILE + tx;
    int row = blockIdx.y * TILE + ty;

    float sum = 0.0f;
    for (int k0 = 0; k0 < K; k0 += TILE) {
        As[ty][tx] = (row < M && k0 + tx < K) ? A[(size_t)row * K + (k0 + tx)] : 0.0f;
        Bs[ty][tx] = (k0 + ty < K && col < N) ? B[(size_t)(k0 + ty) * N + col] : 0.0f;
                                                   // BROKEN: no barrier here
        #pragma unroll
        for (int k = 0; k < TILE; ++k) {
            sum += As[ty][k]
                 * Bs[k][tx];                      // of another warp: is it there already?
        }
        __syncthreads();
    }

    if (row < M && col < N) {
        C[(size_t)row * N + col] = sum;
    }
}

__global__ void matmul_tiled_no_second_barrier(const float *A, const float *B, float *C,
                                               int M, int N, int K)
{
    __shared__ float As[TILE][TILE];
    __shared__ float Bs[TILE][TILE];

    int tx = threadIdx.x;
    int ty = threadIdx.y;
    int col = blockIdx.x * TILE + tx;
    int row = blockIdx.y * TILE + ty;

    float sum = 0.0f;
    for (int k0 = 0; k0 < K; k0 += TILE) {
        As[ty][tx] = (row < M && k0 + tx < K) ? A[(size_t)row * K + (k0 + tx)] : 0.0f;
        Bs[ty][tx] = (k0 + ty < K && col < N) ? B[(size_t)(k0 + ty) * N + col] : 0.0f;
        __syncthreads();

        #pragma unroll
        for (int k = 0; k < TILE; ++k) {
            sum += As[ty][k]
                 * Bs[k][tx];                      // may be of the next tile already
        }
                                                   // BROKEN: no barrier here
    }

    if (row < M && col < N) {
        C[(size_t)row * N + col] = sum;
    }
}

__global__ void matmul_tiled_barrier_in_if(const float *A, const float *B, float *C,
                                           int M, int N, int K)
{
    __shared__ float As[TILE][TILE];
    __shared__ float Bs[TILE][TILE];

    int tx = threadIdx.x;
    int ty = threadIdx.y;
    int col = blockIdx.x * TILE + tx;
    int row = blockIdx.y * TILE + ty;

    float sum = 0.0f;
    for (int k0 = 0; k0 < K; k0 += TILE) {
        if (row < M && col < N) {                  // BROKEN: threads outside C skip all of this
            As[ty][tx] = (k0 + tx < K) ? A[(size_t)row * K + (k0 + tx)] : 0.0f;
            Bs[ty][tx] = (k0 + ty < K) ? B[(size_t)(k0 + ty) * N + col] : 0.0f;
            __syncthreads();
        }

        #pragma unroll
        for (int k = 0; k < TILE; ++k) {
            sum += As[ty][k]
                 * Bs[k][tx];
        }
        __syncthreads();
    }

    if (row < M && col < N) {
        C[(size_t)row * N + col] = sum;
    }
}

__global__ void matmul_tiled_early_return(const float *A, const float *B, float *C,
                                          int M, int N, int K)
{
    __shared__ float As[TILE][TILE];
    __shared__ float Bs[TILE][TILE];

    int tx = threadIdx.x;
    int ty = threadIdx.y;
    int col = blockIdx.x * TILE + tx;
    int row = blockIdx.y * TILE + ty;
    if (row >= M || col >= N) return;              // BROKEN: what they would load is needed

    float sum = 0.0f;
    for (int k0 = 0; k0 < K; k0 += TILE) {
        As[ty][tx] = (k0 + tx < K) ? A[(size_t)row * K + (k0 + tx)] : 0.0f;
        Bs[ty][tx] = (k0 + ty < K) ? B[(size_t)(k0 + ty) * N + col] : 0.0f;
        __syncthreads();                           // who is left waits for who is left

        #pragma unroll
        for (int k = 0; k < TILE; ++k) {
            sum += As[ty][k]
                 * Bs[k][tx];
        }
        __syncthreads();                           // here too
    }

    C[(size_t)row * N + col] = sum;
}

// Right. Tiles alternate between two buffers. A warp that is ahead stores into the other buffer,
// and no warp is ahead by more than one step: the barrier of the step between holds it back.
__global__ void matmul_tiled_two_buffers(const float *A, const float *B, float *C,
                                         int M, int N, int K)
{
    __shared__ float As[2][TILE][TILE];
    __shared__ float Bs[2][TILE][TILE];

    int tx = threadIdx.x;
    int ty = threadIdx.y;
    int col = blockIdx.x * TILE + tx;
    int row = blockIdx.y * TILE + ty;

    float sum = 0.0f;
    int now = 0;                                   // the buffer of this step
    for (int k0 = 0; k0 < K; k0 += TILE) {
        As[now][ty][tx] = (row < M && k0 + tx < K) ? A[(size_t)row * K + (k0 + tx)] : 0.0f;
        Bs[now][ty][tx] = (k0 + ty < K && col < N) ? B[(size_t)(k0 + ty) * N + col] : 0.0f;
        __syncthreads();                           // the only one

        #pragma unroll
        for (int k = 0; k < TILE; ++k) {
            sum += As[now][ty][k]
                 * Bs[now][k][tx];
        }
        now = 1 - now;
    }

    if (row < M && col < N) {
        C[(size_t)row * N + col] = sum;
    }
}

// sum = x[0] + … + x[63]. The last 32 sums by one warp, as tutorials before 2017 write it: volatile
// makes each thread read and write memory every time, in order. It does not order the threads.
__global__ void reduction_warp_synchronous(const float *x, float *sum)
{
    __shared__ volatile float s[64];

    int t = threadIdx.x;
    s[t] = x[t];
    __syncthreads();

    if (t < 32) {
        for (int i = 32; i > 0; i /= 2) {
            s[t] += s[t + i];                      // BROKEN: has lane t + i done its step already?
        }
        if (t == 0) {
            *sum = s[0];
        }
    }
}

// Right. What changed against the kernel above: reading and writing are two steps, and the lanes
// wait for each other after either. __syncwarp orders memory too, so volatile is not needed.
__global__ void reduction_syncwarp(const float *x, float *sum)
{
    __shared__ float s[64];

    int t = threadIdx.x;
    s[t] = x[t];
    __syncthreads();

    if (t < 32) {
        for (int i = 32; i > 0; i /= 2) {
            float other = s[t + i];
            __syncwarp();                          // all have read
            s[t] += other;
            __syncwarp();                          // all have written
        }
        if (t == 0) {
            *sum = s[0];
        }
    }
}
