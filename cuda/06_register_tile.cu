// Lesson 6: register tiles. A thread computes several elements of C and keeps their sums, and what
// it has read from shared memory, in registers.
//
// C = A * B with A of M x K, B of K x N and C of M x N, all row-major float. Any M, N, K >= 1.
//
// What changed against 02_tiled.cu: there a thread reads two words of shared memory for each FMA.
// Here a word that has come into a register is used again:
//
//   matmul_register_column  TM elements of C below each other: TM + 1 words for TM FMAs
//   matmul_register_tile    TM x TN elements of C: TM + TN words for TM * TN FMAs
//
// The sum of each element is added up in the same order as before, so the results are the same.
//
// Launch shape: a block computes BM x BN elements of C and walks along K in steps of BK. Grid
// (ceil(N / BN), ceil(M / BM)), block (BN, BM / TM) for the column and (BN / TN, BM / TM) for the
// tile. The constants can be given to nvcc: -DTM=4.

#ifndef BM
#define BM 128         // rows of C per block
#endif
#ifndef BN
#define BN 128         // columns of C per block
#endif
#ifndef BK
#define BK 8           // how far a step goes along K
#endif
#ifndef TM
#define TM 8           // rows of C per thread
#endif
#ifndef TN
#define TN 8           // columns of C per thread
#endif

#define COLUMN_BM 64   // the column's block is smaller: it has BN * BM / TM threads
#define COLUMN_BN 64

__global__ void matmul_register_column(const float *A, const float *B, float *C,
                                       int M, int N, int K)
{
    __shared__ float As[COLUMN_BM][BK];
    __shared__ float Bs[BK][COLUMN_BN];

    int tx = threadIdx.x;
    int ty = threadIdx.y;
    int row0 = blockIdx.y * COLUMN_BM;             // the block's corner of C
    int col0 = blockIdx.x * COLUMN_BN;
    int thread = ty * COLUMN_BN + tx;
    const int threads = COLUMN_BN * COLUMN_BM / TM;

    float sum[TM] = {};
    for (int k0 = 0; k0 < K; k0 += BK) {
        for (int i = thread; i < COLUMN_BM * BK; i += threads) {
            int r = i / BK, k = i % BK;            // neighbouring threads: along a row of A
            As[r][k] = (row0 + r < M && k0 + k < K) ? A[(size_t)(row0 + r) * K + (k0 + k)] : 0.0f;
        }
        for (int i = thread; i < BK * COLUMN_BN; i += threads) {
            int k = i / COLUMN_BN, c = i % COLUMN_BN;
            Bs[k][c] = (k0 + k < K && col0 + c < N) ? B[(size_t)(k0 + k) * N + (col0 + c)] : 0.0f;
        }
        __syncthreads();

        #pragma unroll
        for (int k = 0; k < BK; ++k) {
            float b = Bs[k][tx];                   // used TM times
            #pragma unroll
            for (int i = 0; i < TM; ++i) {
                sum[i] += As[ty * TM + i][k] * b;  // one word for the whole warp: broadcast
            }
        }
        __syncthreads();
    }

    #pragma unroll
    for (int i = 0; i < TM; ++i) {
        int row = row0 + ty * TM + i, col = col0 + tx;
        if (row < M && col < N) C[(size_t)row * N + col] = sum[i];
    }
}

// What changed against the kernel above: a thread also has TN columns. They are BN / TN apart, so
// that the lanes of a warp read neighbouring words of Bs and write neighbouring words of C; its
// rows are BM / TM apart, so that the two rows of threads in a warp read different banks of As.
__global__ void matmul_register_tile(const float *A, const float *B, float *C,
                                     int M, int N, int K)
{
    __shared__ float As[BM][BK];
    __shared__ float Bs[BK][BN];

    int tx = threadIdx.x;
    int ty = threadIdx.y;
    int row0 = blockIdx.y * BM;
    int col0 = blockIdx.x * BN;
    int thread = ty * (BN / TN) + tx;
    const int threads = (BN / TN) * (BM / TM);

    float sum[TM][TN] = {};
    for (int k0 = 0; k0 < K; k0 += BK) {
        for (int i = thread; i < BM * BK; i += threads) {
            int r = i / BK, k = i % BK;
            As[r][k] = (row0 + r < M && k0 + k < K) ? A[(size_t)(row0 + r) * K + (k0 + k)] : 0.0f;
        }
        for (int i = thread; i < BK * BN; i += threads) {
            int k = i / BN, c = i % BN;
            Bs[k][c] = (k0 + k < K && col0 + c < N) ? B[(size_t)(k0 + k) * N + (col0 + c)] : 0.0f;
        }
        __syncthreads();

        #pragma unroll
        for (int k = 0; k < BK; ++k) {
            float a[TM], b[TN];                    // in registers, as all loops are unrolled
            #pragma unroll
            for (int i = 0; i < TM; ++i) a[i] = As[ty + i * (BM / TM)][k];
            #pragma unroll
            for (int j = 0; j < TN; ++j) b[j] = Bs[k][tx + j * (BN / TN)];
            #pragma unroll
            for (int i = 0; i < TM; ++i) {
                #pragma unroll
                for (int j = 0; j < TN; ++j) sum[i][j] += a[i] * b[j];
            }
        }
        __syncthreads();
    }

    #pragma unroll
    for (int i = 0; i < TM; ++i) {
        #pragma unroll
        for (int j = 0; j < TN; ++j) {
            int row = row0 + ty + i * (BM / TM), col = col0 + tx + j * (BN / TN);
            if (row < M && col < N) C[(size_t)row * N + col] = sum[i][j];
        }
    }
}
