// Lesson 8: a pipeline. The next tiles are on their way while the arithmetic of this one runs.
//
// C = A * B with A of M x K, B of K x N and C of M x N, all row-major float. Any M, N, K >= 1.
//
// What changed against matmul_warp_tile in 07_vectorized.cu:
//
//   matmul_double_buffered  two buffers in shared memory. The next tile is loaded into registers
//                           before this tile's arithmetic, and stored to the other buffer after it:
//                           the arithmetic hides the latency, and one barrier per tile is enough.
//   matmul_pipelined        STAGES buffers, filled by cp.async, which needs no registers on the way
//                           and may be several tiles ahead. The fragments of A and B, too, are
//                           loaded one k ahead, into registers. With the registers set free a
//                           thread computes 16 x 8 elements instead of 8 x 8.
//
// The sum of each element is added up in the same order as before, so the results are the same.
//
// Launch shape: 256 threads, block (256); grid (ceil(N / BN), ceil(M / BM)) with BM, BN 128, 128
// for the first and 128, 256 for the second, which also needs STAGES * 24,832 bytes of dynamic
// shared memory.

#define THREADS 256
#define PAD 4          // words behind each row of As

#ifndef STAGES
#define STAGES 4       // tiles in shared memory: one in use, the others on their way
#endif

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

// -- two buffers, by way of registers ---------------------------------------------------------

#define BM 128
#define BN 128
#define BK 8
#define TM 8           // rows of C per thread, in two groups of four that are 32 apart
#define TN 8           // columns of C per thread, in two groups of four that are 16 apart

// plain: the block's tiles lie inside the matrices, and all of it can be moved by float4; a
// constant where this is inlined.
__device__ __forceinline__ void double_buffered(const float *A, const float *B, float *C,
                                                int M, int N, int K, bool plain)
{
    __shared__ float As[2][BK][BM + PAD];          // transposed
    __shared__ float Bs[2][BK][BN];

    int thread = threadIdx.x;
    int warp = thread / 32, lane = thread % 32;
    int row = warp / 4 * 64 + lane / 4 * 4;        // warps 2 x 4, lanes 8 x 4
    int col = warp % 4 * 32 + lane % 4 * 4;
    int row0 = blockIdx.y * BM;
    int col0 = blockIdx.x * BN;
    bool wide_A = float4_fits(A, K), wide_B = float4_fits(B, N), wide_C = float4_fits(C, N);

    // A float4 of each tile per thread.
    int a_row = thread / (BK / 4), a_k = thread % (BK / 4) * 4;
    int b_k = thread / (BN / 4), b_col = thread % (BN / 4) * 4;
    const float4 *a_from = (const float4 *)(A + (size_t)(row0 + a_row) * K + a_k);
    const float4 *b_from = (const float4 *)(B + (size_t)b_k * N + col0 + b_col);
    float4 a4 = plain ? *a_from : load4(A, row0 + a_row, a_k, M, K, wide_A);
    float4 b4 = plain ? *b_from : load4(B, b_k, col0 + b_col, K, N, wide_B);

    float sum[TM][TN] = {};
    for (int k0 = 0, buffer = 0; k0 < K; k0 += BK, buffer ^= 1) {
        As[buffer][a_k + 0][a_row] = a4.x;
        As[buffer][a_k + 1][a_row] = a4.y;
        As[buffer][a_k + 2][a_row] = a4.z;
        As[buffer][a_k + 3][a_row] = a4.w;
        *(float4 *)&Bs[buffer][b_k][b_col] = b4;
        a_from += BK / 4;
        b_from += (size_t)BK * N / 4;
        __syncthreads();       // this buffer is complete, and nobody reads the other one any more

        if (k0 + BK < K) {     // on their way during the arithmetic
            a4 = plain ? *a_from : load4(A, row0 + a_row, k0 + BK + a_k, M, K, wide_A);
            b4 = plain ? *b_from : load4(B, k0 + BK + b_k, col0 + b_col, K, N, wide_B);
        }
        #pragma unroll
        for (int k = 0; k < BK; ++k) {
            float4 a[2] = {*(float4 *)&As[buffer][k][row], *(float4 *)&As[buffer][k][row + 32]};
            float4 b[2] = {*(float4 *)&Bs[buffer][k][col], *(float4 *)&Bs[buffer][k][col + 16]};
            #pragma unroll
            for (int i = 0; i < TM; ++i) {
                #pragma unroll
                for (int j = 0; j < TN; ++j) sum[i][j] += ((float *)a)[i] * ((float *)b)[j];
            }
        }
    }

    float one = K > 0;                             // see 07_vectorized.cu
    #pragma unroll
    for (int i = 0; i < TM; ++i) {
        int r = row0 + row + i % 4 + i / 4 * 32;
        #pragma unroll
        for (int j = 0; j < TN; j += 4) {
            int c = col0 + col + j * 4;
            float4 v = {one * sum[i][j], one * sum[i][j + 1],
                        one * sum[i][j + 2], one * sum[i][j + 3]};
            if (plain) *(float4 *)&C[(size_t)r * N + c] = v;
            else store4(C, r, c, M, N, wide_C, v);
        }
    }
}

__global__ void __launch_bounds__(THREADS, 2)      // two blocks resident: at most 128 registers
matmul_double_buffered(const float *A, const float *B, float *C, int M, int N, int K)
{
    bool plain = (blockIdx.y + 1) * BM <= M && (blockIdx.x + 1) * BN <= N && K % BK == 0
                 && float4_fits(A, K) && float4_fits(B, N) && float4_fits(C, N);
    if (plain) {
        double_buffered(A, B, C, M, N, K, true);
    } else {
        double_buffered(A, B, C, M, N, K, false);
    }
}

#undef BM
#undef BN
#undef BK
#undef TM
#undef TN

// -- STAGES buffers, filled by cp.async -------------------------------------------------------

#define BM 128
#define BN 256
#define BK 16
#define TM 16          // rows of C per thread, in four groups of four that are 16 apart
#define TN 8           // columns of C per thread, in two groups of four that are 32 apart

struct Stage {
    float a[BK][BM + PAD];                         // transposed: a[k][row]
    float b[BK][BN];
};

#define STAGE_WORDS (int)(sizeof(Stage) / 4)

// Start to copy one word, or four, from global to shared memory; zeros if `inside` is false. `to`
// is an address in shared memory, of 32 bits.
__device__ __forceinline__ void copy_async(unsigned to, const float *from, bool inside)
{
    asm volatile("cp.async.ca.shared.global [%0], [%1], 4, %2;"
                 :: "r"(to), "l"(from), "r"(inside ? 4 : 0));
}

__device__ __forceinline__ void copy4_async(unsigned to, const float *from, bool inside)
{
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;"
                 :: "r"(to), "l"(from), "r"(inside ? 16 : 0));
}

// One k of a stage, as far as a thread needs it.
struct Fragment {
    float4 a[TM / 4], b[TN / 4];

    __device__ __forceinline__ void load(const float *a_from, const float *b_from, int k)
    {
        #pragma unroll
        for (int i = 0; i < TM / 4; ++i) a[i] = *(float4 *)&a_from[k * (BM + PAD) + 16 * i];
        #pragma unroll
        for (int j = 0; j < TN / 4; ++j) b[j] = *(float4 *)&b_from[k * BN + 32 * j];
    }
};

// edge: whether anything of the block's tiles may lie past the edges; wide_B: whether rows of B can
// be copied by float4. Both are constants where this is inlined.
__device__ __forceinline__ void pipeline(const float *A, const float *B, float *C,
                                         int M, int N, int K, bool edge, bool wide_B)
{
    extern __shared__ Stage stages[];              // STAGES of them: more than 48 KiB

    int thread = threadIdx.x;
    int warp = thread / 32, lane = thread % 32;
    int row = warp / 4 * 64 + lane / 8 * 4;        // warps 2 x 4, each 64 x 64; lanes 4 x 8
    int col = warp % 4 * 64 + lane % 8 * 4;
    int row0 = blockIdx.y * BM;
    int col0 = blockIdx.x * BN;
    int tiles = (K + BK - 1) / BK;

    // A thread copies BK / 2 words of A, 32 rows and 8 k apart, and of B BK / 4 float4, 4 rows
    // apart, or else a word of each row. The pointers go on by a tile with each that was copied.
    int a_k = thread % 8, a_row = thread / 8;
    int b_k = wide_B ? thread / (BN / 4) : 0, b_col = wide_B ? thread % (BN / 4) * 4 : thread;
    const float *a_from = A + (size_t)(row0 + a_row) * K + a_k;
    const float *b_from = B + (size_t)b_k * N + col0 + b_col;
    unsigned a_to = (unsigned)__cvta_generic_to_shared(&stages[0].a[a_k][a_row]);
    unsigned b_to = (unsigned)__cvta_generic_to_shared(&stages[0].b[b_k][b_col]);
    unsigned to = 0;                               // where the stage to be filled begins
    int k_to = 0;                                  // and its first k

    auto copy_part = [&](int part) {               // of BK / 2
        int r = part % 4 * 32, ka = part / 4 * 8;
        bool inside = !edge || (row0 + a_row + r < M && k_to + a_k + ka < K);
        copy_async(a_to + to + 4 * (ka * (BM + PAD) + r),
                   inside ? a_from + (size_t)r * K + ka : A, inside);
        if (wide_B) {
            if (part % 2 == 0) {
                int k = part / 2 * 4;
                bool in = !edge || (k_to + b_k + k < K && col0 + b_col < N);
                copy4_async(b_to + to + 4 * k * BN, in ? b_from + (size_t)k * N : B, in);
            }
        } else {
            #pragma unroll
            for (int k = 2 * part; k < 2 * part + 2; ++k) {
                bool in = k_to + k < K && col0 + b_col < N;
                copy_async(b_to + to + 4 * k * BN, in ? b_from + (size_t)k * N : B, in);
            }
        }
    };
    auto next_tile = [&]() {                       // one group per tile, if only an empty one
        asm volatile("cp.async.commit_group;");
        a_from += BK;
        b_from += (size_t)BK * N;
        k_to += BK;
        to = to == (STAGES - 1) * sizeof(Stage) ? 0 : to + sizeof(Stage);
    };

    for (int t = 0; t < STAGES - 1; ++t) {         // all stages but one are filled beforehand
        if (t < tiles) {
            #pragma unroll
            for (int part = 0; part < BK / 2; ++part) copy_part(part);
        }
        next_tile();
    }
    asm volatile("cp.async.wait_group %0;" :: "n"(STAGES - 2));
    __syncthreads();

    float sum[TM][TN] = {};
    Fragment fragment[2];
    const float *a_at = &stages[0].a[0][row], *b_at = &stages[0].b[0][col];
    fragment[0].load(a_at, b_at, 0);
    for (int t = 0, now = 0; t < tiles; ++t) {     // now: where the stage in use begins
        #pragma unroll
        for (int k = 0; k < BK; ++k) {
            if (k < BK - 1) {
                fragment[(k + 1) % 2].load(a_at + now, b_at + now, k + 1);
            } else {
                // The next tile has come for this thread, and with the barrier for all. And all
                // have read the last of this tile, whose stage is the next to be filled.
                asm volatile("cp.async.wait_group %0;" :: "n"(STAGES - 2));
                __syncthreads();
                if (t + 1 < tiles) now = now == (STAGES - 1) * STAGE_WORDS ? 0 : now + STAGE_WORDS;
                fragment[0].load(a_at + now, b_at + now, 0);
            }
            if (k < BK / 2 && t + STAGES - 1 < tiles) copy_part(k);
            if (k == BK / 2 - 1) next_tile();

            const float *a = (const float *)fragment[k % 2].a;
            const float *b = (const float *)fragment[k % 2].b;
            #pragma unroll
            for (int i = 0; i < TM; ++i) {
                #pragma unroll
                for (int j = 0; j < TN; ++j) {     // there and back: one operand stays the same
                    int jj = i % 2 ? TN - 1 - j : j;
                    sum[i][jj] += a[i] * b[jj];
                }
            }
        }
    }

    float one = K > 0;                             // see 07_vectorized.cu
    bool wide_C = float4_fits(C, N);
    #pragma unroll
    for (int i = 0; i < TM; ++i) {
        int r = row0 + row + i % 4 + i / 4 * 16;
        #pragma unroll
        for (int j = 0; j < TN; j += 4) {
            float4 v = {one * sum[i][j], one * sum[i][j + 1],
                        one * sum[i][j + 2], one * sum[i][j + 3]};
            store4(C, r, col0 + col + j * 8, M, N, wide_C, v);
        }
    }
}

__global__ void __launch_bounds__(THREADS, 1)
matmul_pipelined(const float *A, const float *B, float *C, int M, int N, int K)
{
    bool inner = (blockIdx.y + 1) * BM <= M && (blockIdx.x + 1) * BN <= N && K % BK == 0;
    if (!float4_fits(B, N)) {
        pipeline(A, B, C, M, N, K, true, false);
    } else if (inner) {
        pipeline(A, B, C, M, N, K, false, true);
    } else {
        pipeline(A, B, C, M, N, K, true, true);
    }
}
