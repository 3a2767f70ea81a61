// Lesson 8: double buffering where it does not help. Measured to show that; no step of the ladder.
//
// C = A * B with A of M x K, B of K x N and C of M x N, all row-major float. Any M, N, K >= 1.
//
// What changed against matmul_tiled in 02_tiled.cu: two pairs of tiles in shared memory. The next
// tile is loaded into registers before this tile's arithmetic and stored to the other pair after
// it, so one barrier per tile is enough. (matmul_tiled_two_buffers in 04_syncthreads.cu has the
// second pair and saves the barrier, but loads a tile where it stores it.)
//
// Launch shape: block (TILE, TILE), nothing else; grid (ceil(N / TILE), ceil(M / TILE)).

#ifndef TILE
#define TILE 32
#endif

__global__ void matmul_tiled_double_buffered(const float *A, const float *B, float *C,
                                             int M, int N, int K)
{
    __shared__ float As[2][TILE][TILE];
    __shared__ float Bs[2][TILE][TILE];

    int tx = threadIdx.x;
    int ty = threadIdx.y;
    int col = blockIdx.x * TILE + tx;
    int row = blockIdx.y * TILE + ty;

    float a = (row < M && tx < K) ? A[(size_t)row * K + tx] : 0.0f;
    float b = (ty < K && col < N) ? B[(size_t)ty * N + col] : 0.0f;
    float sum = 0.0f;
    int now = 0;                                   // the pair of this step
    for (int k0 = 0; k0 < K; k0 += TILE) {
        As[now][ty][tx] = a;
        Bs[now][ty][tx] = b;
        __syncthreads();                           // the only one

        int next = k0 + TILE;                      // on its way during the arithmetic
        a = (row < M && next + tx < K) ? A[(size_t)row * K + next + tx] : 0.0f;
        b = (next + ty < K && col < N) ? B[(size_t)(next + ty) * N + col] : 0.0f;
        #pragma unroll
        for (int k = 0; k < TILE; ++k) {
            sum += As[now][ty][k] * Bs[now][k][tx];
        }
        now = 1 - now;
    }

    if (row < M && col < N) {
        C[(size_t)row * N + col] = sum;
    }
}
