// Lesson 7: wide accesses. Four floats at a time, from global memory and from shared memory.
//
// C = A * B with A of M x K, B of K x N and C of M x N, all row-major float. Any M, N, K >= 1.
//
// What changed against matmul_register_tile in 06_register_tile.cu: the same tiles, but
//
//   matmul_vectorized   float4 loads and stores. For this a thread's rows and columns lie in groups
//                       of four, and the tile of A lies transposed in shared memory, As[k][row], so
//                       that four rows of one k are neighbours.
//   matmul_warp_tile    also, the lanes of a warp form 8 x 4 instead of 2 x 16: their tile of C is
//                       closer to a square, and the warp reads fewer words for as many FMAs.
//
// The sum of each element is added up in the same order as before, so the results are the same.
//
// A float4 must begin at a multiple of 16 bytes. Rows of A do if A does and K is a multiple of 4,
// rows of B and C if N is. Where that does not hold, the same elements are moved one by one.
//
// Launch shape: grid (ceil(N / BN), ceil(M / BM)), block (BN / TN, BM / TM), which is 256 threads.
// PAD can be given to nvcc: -DPAD=0.

#define BM 128         // rows of C per block
#define BN 128         // columns of C per block
#define BK 8           // how far a step goes along K
#define TM 8           // rows of C per thread, in two groups of four
#define TN 8           // columns of C per thread, in two groups of four
#ifndef PAD
#define PAD 4          // words behind each row of As: its stores then go to other banks
#endif

#define THREADS ((BM / TM) * (BN / TN))

__device__ bool float4_fits(const float *matrix, int columns)
{
    return (size_t)matrix % 16 == 0 && columns % 4 == 0;
}

// Four neighbours from a row of a matrix; zeros past its edges.
__device__ float4 load4(const float *matrix, int row, int col, int rows, int columns, bool wide)
{
    float4 v = {0.0f, 0.0f, 0.0f, 0.0f};
    if (row < rows) {
        const float *from = matrix + (size_t)row * columns + col;
        if (wide) {
            if (col < columns) v = *(const float4 *)from;      // all four are inside, or none
        } else {
            if (col < columns) v.x = from[0];
            if (col + 1 < columns) v.y = from[1];
            if (col + 2 < columns) v.z = from[2];
            if (col + 3 < columns) v.w = from[3];
        }
    }
    return v;
}

__device__ void store4(float *matrix, int row, int col, int rows, int columns, bool wide, float4 v)
{
    if (row < rows) {
        float *to = matrix + (size_t)row * columns + col;
        if (wide) {
            if (col < columns) *(float4 *)to = v;
        } else {
            if (col < columns) to[0] = v.x;
            if (col + 1 < columns) to[1] = v.y;
            if (col + 2 < columns) to[2] = v.z;
            if (col + 3 < columns) to[3] = v.w;
        }
    }
}

// The block's part of C, once for both kernels. A thread computes rows row, row + 1, row + 2,
// row + 3 and four more from row + row_step on, and columns in the same way. plain: the block's
// tiles lie inside the matrices, and all of it can be moved by float4; a constant where this is
// inlined, so that there are no checks in the code for it.
__device__ __forceinline__ void product(const float *A, const float *B, float *C,
                                        int M, int N, int K, int row, int row_step,
                                        int col, int col_step, bool plain)
{
    __shared__ float As[BK][BM + PAD];             // transposed
    __shared__ float Bs[BK][BN];

    int row0 = blockIdx.y * BM;
    int col0 = blockIdx.x * BN;
    int thread = threadIdx.y * (BN / TN) + threadIdx.x;
    bool wide_A = float4_fits(A, K), wide_B = float4_fits(B, N), wide_C = float4_fits(C, N);

    // A float4 of each tile per thread.
    int a_row = thread / (BK / 4), a_k = thread % (BK / 4) * 4;
    int b_k = thread / (BN / 4), b_col = thread % (BN / 4) * 4;
    const float4 *a_from = (const float4 *)(A + (size_t)(row0 + a_row) * K + a_k);
    const float4 *b_from = (const float4 *)(B + (size_t)b_k * N + col0 + b_col);

    float sum[TM][TN] = {};
    for (int k0 = 0; k0 < K; k0 += BK) {
        float4 a4 = plain ? *a_from : load4(A, row0 + a_row, k0 + a_k, M, K, wide_A);
        float4 b4 = plain ? *b_from : load4(B, k0 + b_k, col0 + b_col, K, N, wide_B);
        As[a_k + 0][a_row] = a4.x;
        As[a_k + 1][a_row] = a4.y;
        As[a_k + 2][a_row] = a4.z;
        As[a_k + 3][a_row] = a4.w;
        *(float4 *)&Bs[b_k][b_col] = b4;
        a_from += BK / 4;
        b_from += (size_t)BK * N / 4;
        __syncthreads();

        #pragma unroll
        for (int k = 0; k < BK; ++k) {
            float4 a[2] = {*(float4 *)&As[k][row], *(float4 *)&As[k][row + row_step]};
            float4 b[2] = {*(float4 *)&Bs[k][col], *(float4 *)&Bs[k][col + col_step]};
            #pragma unroll
            for (int i = 0; i < TM; ++i) {
                #pragma unroll
                for (int j = 0; j < TN; ++j) sum[i][j] += ((float *)a)[i] * ((float *)b)[j];
            }
        }
        __syncthreads();
    }

    // A float4 is stored from four registers in a row. The sums need not lie so: times one
    // (which the compiler cannot know) they go to others, and the sums stay where the two banks of
    // registers are best used. On an H200 that makes the product 6% faster at 4096 (2026-11-30).
    float one = K > 0;
    #pragma unroll
    for (int i = 0; i < TM; ++i) {
        int r = row0 + row + i % 4 + i / 4 * row_step;
        #pragma unroll
        for (int j = 0; j < TN; j += 4) {
            int c = col0 + col + j / 4 * col_step;
            float4 v = {one * sum[i][j], one * sum[i][j + 1],
                        one * sum[i][j + 2], one * sum[i][j + 3]};
            if (plain) *(float4 *)&C[(size_t)r * N + c] = v;
            else store4(C, r, c, M, N, wide_C, v);
        }
    }
}

__device__ bool is_plain(const float *A, const float *B, const float *C, int M, int N, int K)
{
    return (blockIdx.y + 1) * BM <= M && (blockIdx.x + 1) * BN <= N && K % BK == 0
           && float4_fits(A, K) && float4_fits(B, N) && float4_fits(C, N);
}

__global__ void __launch_bounds__(THREADS, 2)      // two blocks resident: at most 128 registers
matmul_vectorized(const float *A, const float *B, float *C, int M, int N, int K)
{
    // A warp is two rows of 16 threads: it reads 16 words of As and 128 of Bs for each k.
    int row = threadIdx.y * 4, col = threadIdx.x * 4;
    if (is_plain(A, B, C, M, N, K)) {
        product(A, B, C, M, N, K, row, BM / 2, col, BN / 2, true);
    } else {
        product(A, B, C, M, N, K, row, BM / 2, col, BN / 2, false);
    }
}

__global__ void __launch_bounds__(THREADS, 2)
matmul_warp_tile(const float *A, const float *B, float *C, int M, int N, int K)
{
    // Warps 2 x 4, each with 64 x 32 elements of C, in four parts of 32 x 16; its lanes 8 x 4. A
    // warp reads 64 words of As and 32 of Bs for each k.
    int thread = threadIdx.y * (BN / TN) + threadIdx.x;
    int warp = thread / 32, lane = thread % 32;
    int row = warp / 4 * 64 + lane / 4 * 4;
    int col = warp % 4 * 32 + lane % 4 * 4;
    if (is_plain(A, B, C, M, N, K)) {
        product(A, B, C, M, N, K, row, 32, col, 16, true);
    } else {
        product(A, B, C, M, N, K, row, 32, col, 16, false);
    }
}
