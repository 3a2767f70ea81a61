// Lesson 2: the tiled matrix product, with tiles of A and B in shared memory.
//
// C = A * B with A of M x K, B of K x N and C of M x N, all row-major float. Any M, N, K >= 1.
//
// A block computes one TILE x TILE tile of C. It walks along K in steps of TILE: its threads load
// one tile of A and one of B together, one element of each per thread, then every thread uses a
// whole row of the one and a whole column of the other.
//
// What changed against 01_naive.cu: a float loaded from global memory is used by TILE threads, not
// by one, so a thread issues 2 * K / TILE global loads instead of 2 * K. The FLOPs are the same,
// and so is their order.
//
// Launch shape: block (TILE, TILE), nothing else; grid (ceil(N / TILE), ceil(M / TILE)).

#ifndef TILE
#define TILE 32        // nvcc -DTILE=16 makes the smaller variant of the lesson
#endif

__global__ void matmul_tiled(const float *A, const float *B, float *C, int M, int N, int K)
{
    __shared__ float As[TILE][TILE];
    __shared__ float Bs[TILE][TILE];

    int tx = threadIdx.x;
    int ty = threadIdx.y;
    int col = blockIdx.x * TILE + tx;
    int row = blockIdx.y * TILE + ty;

    float sum = 0.0f;
    for (int k0 = 0; k0 < K; k0 += TILE) {
        // Past the edges of A and B: zeros, which add nothing to the sum.
        As[ty][tx] = (row < M && k0 + tx < K) ? A[(size_t)row * K + (k0 + tx)] : 0.0f;
        Bs[ty][tx] = (k0 + ty < K && col < N) ? B[(size_t)(k0 + ty) * N + col] : 0.0f;
        __syncthreads();                           // both tiles are complete before anyone reads

        #pragma unroll
        for (int k = 0; k < TILE; ++k) {
            sum += As[ty][k]                       // one word for the whole row: broadcast
                 * Bs[k][tx];                      // neighbouring words: no bank conflict
        }
        __syncthreads();                           // everyone has read before the next load
    }

    if (row < M && col < N) {                      // not earlier: all threads meet at the barriers
        C[(size_t)row * N + col] = sum;            // size_t: row * N can pass 2^31
    }
}
