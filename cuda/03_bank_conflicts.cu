// Lesson 3: bank conflicts in shared memory, and two ways out of them.
//
// C = A * B with A of M x K, B of K x N and C of M x N, all row-major float. Any M, N, K >= 1.
//
// What changed against 02_tiled.cu: the tile of B lies transposed in shared memory, so that row c
// of Bs is column c of the tile. The loads from global memory, the FLOPs and their order are the
// same. What differs between the three kernels is only where an element of Bs lies:
//
//   matmul_tiled_conflict  Bs[c][k]      the 32 words of a column are in one bank
//   matmul_tiled_padded    Bs[c][k]      rows PAD words longer: each begins in another bank
//   matmul_tiled_swizzled  Bs[c][k ^ c]  rows as before, each with its words in another order
//
// Launch shape: block (TILE, TILE), nothing else; grid (ceil(N / TILE), ceil(M / TILE)).

#ifndef TILE
#define TILE 32        // nvcc -DTILE=16 makes a smaller variant; the swizzle needs a power of two
#endif

#ifndef PAD
#define PAD 1          // words behind each row of the padded tile
#endif

__global__ void matmul_tiled_conflict(const float *A, const float *B, float *C,
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
        Bs[tx][ty] = (k0 + ty < K && col < N)      // down a column
                         ? B[(size_t)(k0 + ty) * N + col] : 0.0f;    // still coalesced
        __syncthreads();

        #pragma unroll
        for (int k = 0; k < TILE; ++k) {
            sum += As[ty][k]
                 * Bs[tx][k];                      // down a column
        }
        __syncthreads();
    }

    if (row < M && col < N) {
        C[(size_t)row * N + col] = sum;
    }
}

// What changed against the kernel above: the length of a row of Bs, nothing else.
__global__ void matmul_tiled_padded(const float *A, const float *B, float *C,
                                    int M, int N, int K)
{
    __shared__ float As[TILE][TILE];
    __shared__ float Bs[TILE][TILE + PAD];         // nothing is ever stored in the last PAD columns

    int tx = threadIdx.x;
    int ty = threadIdx.y;
    int col = blockIdx.x * TILE + tx;
    int row = blockIdx.y * TILE + ty;

    float sum = 0.0f;
    for (int k0 = 0; k0 < K; k0 += TILE) {
        As[ty][tx] = (row < M && k0 + tx < K) ? A[(size_t)row * K + (k0 + tx)] : 0.0f;
        Bs[tx][ty] = (k0 + ty < K && col < N)      // 33 words apart: 32 banks
                         ? B[(size_t)(k0 + ty) * N + col] : 0.0f;
        __syncthreads();

        #pragma unroll
        for (int k = 0; k < TILE; ++k) {
            sum += As[ty][k]
                 * Bs[tx][k];                      // 33 words apart: 32 banks
        }
        __syncthreads();
    }

    if (row < M && col < N) {
        C[(size_t)row * N + col] = sum;
    }
}

// What changed against matmul_tiled_conflict: the column, in both places where Bs is indexed.
__global__ void matmul_tiled_swizzled(const float *A, const float *B, float *C,
                                      int M, int N, int K)
{
    static_assert((TILE & (TILE - 1)) == 0, "k ^ tx stays below TILE only for a power of two");
    __shared__ float As[TILE][TILE];
    __shared__ float Bs[TILE][TILE];

    int tx = threadIdx.x;
    int ty = threadIdx.y;
    int col = blockIdx.x * TILE + tx;
    int row = blockIdx.y * TILE + ty;

    float sum = 0.0f;
    for (int k0 = 0; k0 < K; k0 += TILE) {
        As[ty][tx] = (row < M && k0 + tx < K) ? A[(size_t)row * K + (k0 + tx)] : 0.0f;
        Bs[tx][ty ^ tx] = (k0 + ty < K && col < N) // bank ty ^ tx: another one for each tx
                              ? B[(size_t)(k0 + ty) * N + col] : 0.0f;
        __syncthreads();

        #pragma unroll
        for (int k = 0; k < TILE; ++k) {
            sum += As[ty][k]
                 * Bs[tx][k ^ tx];                 // bank k ^ tx: another one for each tx
        }
        __syncthreads();
    }

    if (row < M && col < N) {
        C[(size_t)row * N + col] = sum;
    }
}
