// Lesson 9: the last percent. One kernel for every size, compiled for each kind of size with other
// constants.
//
// C = A * B with A of M x K, B of K x N and C of M x N, all row-major float. Any M, N, K >= 1.
//
// What changed against matmul_pipelined in 08_pipeline.cu:
//
//   edges      need no comparison for a copy in the loop. Past the last row the last one is copied
//              again, and what comes of it is not stored. Where rows of B are copied by float4, a
//              tile that would reach past the last column moves back to end with it; else the last
//              column, too, is copied again. Where BK does not divide K, the first tile is the
//              short one: zeros, then the first K % BK of each row. Past the last tile the last one
//              is copied again, and no sum uses it.
//   blocks     go through C in groups of GROUP rows of tiles: those that run at one time read fewer
//              different rows and columns, and find them in the L2 cache.
//   stream-K   as many blocks as the card can run at once share all the work evenly. A tile of C
//              may be begun by one block and finished by the next, which goes on from the sums
//              that the first has left.
//   sliced-K   with SLICES > 1 the warps of a block share each tile along K: more warps for a small
//              tile of C. Their sums are added at the end.
//   registers  the sums lie where an FMA finds its operands in different banks (see `shifted`).
//   copies     are few instructions, all in a few of the steps along K, and not in the first ones:
//              there ptxas would load the next elements of A and B late, and hold the warp back
//              for them.
//
// Without slices the sum of each element is added up in the same order as ever, so the results are
// the same. With them, each slice has the sum of its own, always the same, part of K.
//
// Launch shape: block (THREADS), grid (BLOCKS); dynamic shared memory for STAGES stages or, if that
// is more and there are slices, for SLICES * BM * BN floats. helpers/best.py chooses the constants.
// Launches of one module must not overlap in time: blocks leave sums for each other in one place.

#ifndef BM
#define BM 128         // rows of C per block
#endif
#ifndef BN
#define BN 256         // columns of C per block
#endif
#ifndef BK
#define BK 16          // how far a tile reaches along K
#endif
#ifndef TM
#define TM 16          // rows of C per thread, in groups of four
#endif
#ifndef TN
#define TN 8           // columns of C per thread, in groups of four
#endif
#ifndef LANES_M
#define LANES_M 4      // the lanes of a warp form LANES_M x 32 / LANES_M
#endif
#ifndef STAGES
#define STAGES 4       // tiles in shared memory: one in use, the others on their way
#endif
#ifndef SLICES
#define SLICES 1       // parts of BK, each computed by warps of its own
#endif
#ifndef COPY_AT
#define COPY_AT (STEPS > 4 ? STEPS / 2 : 1)        // the first step in which copies are started
#endif
#ifndef BLOCKS
#define BLOCKS 132     // of the grid: as many as the card has multiprocessors, times RESIDENT
#endif
#ifndef RESIDENT
#define RESIDENT 1     // blocks of a multiprocessor at one time: limits the registers
#endif
#ifndef GROUP
#define GROUP 8        // rows of tiles that are computed together
#endif

#define LANES_N (32 / LANES_M)
#define WARPS_M (BM / (TM * LANES_M))
#define WARPS_N (BN / (TN * LANES_N))
#define THREADS (32 * WARPS_M * WARPS_N * SLICES)
#define STEPS (BK / SLICES)                        // along K, of a warp in each tile
#define A_LANES (THREADS / 8 <= BM ? 8 : THREADS / BM)         // lanes along a row of A
#define PAD 4                                      // words behind each row of the tile of A

struct Stage {
    float a[BK][BM + PAD];                         // transposed: a[k][row]
    float b[BK][BN];
};

static_assert(WARPS_M * LANES_M * TM == BM && WARPS_N * LANES_N * TN == BN, "warps fill the block");
static_assert(TM % 4 == 0 && TN % 4 == 0 && STEPS % 2 == 0 && STAGES >= 2, "");
static_assert(COPY_AT + 1 <= STEPS - 2, "pointers go on after the copies");

// What blocks leave for each other between tiles. The flags and the counter are zero before each
// launch and after it; sums are written before they are read.
__device__ float4 sums_left[BLOCKS][TM * TN / 4][THREADS];
__device__ unsigned int is_left[BLOCKS];
__device__ unsigned int tickets;

__device__ bool float4_fits(const float *matrix, int columns)
{
    return (size_t)matrix % 16 == 0 && columns % 4 == 0;
}

// Start to copy WORDS words, 1 or 4, from global to shared memory; `to` is an address in shared
// memory, of 32 bits. Zeros instead of them if `zero`. Before compute capability 8.0 there is no
// such instruction, and the thread waits for the words.
template <int WORDS>
__device__ __forceinline__ void copy_async(unsigned to, const float *from, bool zero = false)
{
#if __CUDA_ARCH__ >= 800
    int bytes = zero ? 0 : 4 * WORDS;
    if (WORDS == 1) {
        asm volatile("cp.async.ca.shared.global [%0], [%1], 4, %2;"
                     :: "r"(to), "l"(from), "r"(bytes));
    } else {
        asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;"
                     :: "r"(to), "l"(from), "r"(bytes));
    }
#else
    #pragma unroll
    for (int i = 0; i < WORDS; ++i) {
        float word = zero ? 0.0f : from[i];
        asm volatile("st.shared.f32 [%0], %1;" :: "r"(to + 4 * i), "f"(word));
    }
#endif
}

// What a thread has started to copy since the last time becomes a group.
__device__ __forceinline__ void end_group()
{
#if __CUDA_ARCH__ >= 800
    asm volatile("cp.async.commit_group;");
#endif
}

// Wait until all groups but the last MORE have come.
template <int MORE>
__device__ __forceinline__ void wait_for_groups()
{
#if __CUDA_ARCH__ >= 800
    asm volatile("cp.async.wait_group %0;" :: "n"(MORE));
#endif
}

// Where a thread stands in the block.
struct Place {
    int thread, slice, row, col;                   // row, col: its first in the tile of C

    __device__ __forceinline__ Place()
    {
        thread = threadIdx.x;
        int warp = thread / 32, lane = thread % 32;
        slice = warp / (WARPS_M * WARPS_N);
        row = warp / WARPS_N % WARPS_M * (TM * LANES_M) + lane / LANES_N * 4;
        col = warp % WARPS_N * (TN * LANES_N) + lane % LANES_N * 4;
    }
};

__device__ constexpr int common_divisor(int a, int b)          // the greatest
{
    return b == 0 ? a : common_divisor(b, a % b);
}

// How the threads of a block share a tile of ROWS x COLS to copy it, WORDS words of a row at a
// time: ACROSS of them along a row. The parts of each thread are `down` rows or `right` columns
// apart.
template <int ROWS, int COLS, int ACROSS, int WORDS>
struct Share {
    static const int down = THREADS / ACROSS, right = ACROSS * WORDS;
    static const int rows = ROWS / down, cols = COLS / right;
    static const int parts = rows * cols;
    static_assert(ACROSS * down == THREADS && rows * down == ROWS && cols * right == COLS,
                  "threads share the copies");

    int row, col;

    __device__ __forceinline__ Share(int thread)
    {
        row = thread / ACROSS;
        col = thread % ACROSS * WORDS;
    }
};

// One k of a stage, as far as a thread needs it.
struct Fragment {
    float4 a[TM / 4], b[TN / 4];

    // a_from, b_from: where the thread's elements lie in the first stage; stage: bytes from there.
    __device__ __forceinline__ void load(const char *a_from, const char *b_from, unsigned stage,
                                         int k)
    {
        #pragma unroll
        for (int i = 0; i < TM / 4; ++i) {
            a[i] = *(float4 *)(a_from + stage + 4 * (k * (BM + PAD) + 4 * LANES_M * i));
        }
        #pragma unroll
        for (int j = 0; j < TN / 4; ++j) {
            b[j] = *(float4 *)(b_from + stage + 4 * (k * BN + 4 * LANES_N * j));
        }
    }
};

__device__ __forceinline__ unsigned stage_after(unsigned stage)
{
    return stage == (STAGES - 1) * sizeof(Stage) ? 0 : stage + sizeof(Stage);
}

// Tiles first to last - 1 of the K axis, for the tile of C at row0, col0: adds to `sum`.
// WIDE: rows of B can be read by float4, and N and K are no smaller than in a tile.
template <bool WIDE>
__device__ __forceinline__ void add_tiles(float (&sum)[TM][TN], Stage *stages, const Place &place,
                                          const float *A, const float *B, int M, int N, int K,
                                          int row0, int col0, int first, int last)
{
    const int WORDS = WIDE ? 4 : 1, ACROSS = WIDE ? THREADS / BK : common_divisor(BN, THREADS);
    int missing = (BK - K % BK) % BK;              // in the first tile, before its first k
    int k0 = max(first * BK - missing, 0);

    // A is copied word by word, to be transposed on its way; B four words at a time if that can be.
    Share<BM, BK, A_LANES, 1> a(place.thread);
    Share<BK, BN, ACROSS, WORDS> b(place.thread);
    const int copy_steps = a.parts + b.parts <= 32 ? 2 : STEPS - 1 - COPY_AT;
    const float *a_from[a.rows];
    #pragma unroll
    for (int i = 0; i < a.rows; ++i) {
        int row = min(row0 + a.row + i * a.down, M - 1);
        a_from[i] = A + (size_t)row * K + k0 + a.col;
    }
    int col = WIDE ? col0 + b.col : min(col0 + b.col, N - 1);
    const float *b_from = B + (size_t)(k0 + b.row) * N + col;
    size_t b_row = N;                              // from one row of B to the next
    unsigned a_to = (unsigned)__cvta_generic_to_shared(&stages[0].a[a.col][a.row]);
    unsigned b_to = (unsigned)__cvta_generic_to_shared(&stages[0].b[b.row][b.col]);
    unsigned to = 0;                               // where the stage to be filled begins

    // zeros: how many k of the tile come before the first of the matrices.
    auto copy_a = [&](int part, int zeros) {
        int r = part % a.rows, k = part / a.rows * a.right;
        bool zero = zeros > 0 && a.col + k < zeros;
        copy_async<1>(a_to + to + 4 * (k * (BM + PAD) + r * a.down),
                      zero ? A : a_from[r] + k - zeros, zero);
    };
    auto copy_b = [&](int part, int zeros) {
        int k = part % b.rows * b.down, c = part / b.rows * b.right;
        bool zero = zeros > 0 && b.row + k < zeros;
        int inside = WIDE || c == 0 ? c : min(c, N - 1 - col);
        copy_async<WORDS>(b_to + to + 4 * (k * BN + c),
                          zero ? B : b_from + (k - zeros) * (long long)b_row + inside, zero);
    };
    auto next_tile = [&](bool more, int zeros) {
        int a_step = more ? BK - zeros : 0;
        size_t b_step = more ? (BK - zeros) * b_row : 0;
        #pragma unroll
        for (int i = 0; i < a.rows; ++i) a_from[i] += a_step;
        b_from += b_step;
        to = stage_after(to);
    };

    for (int t = first; t < first + STAGES - 1; ++t) {         // fill all stages but one
        int zeros = t == 0 ? missing : 0;
        if (zeros == 0) {
            #pragma unroll
            for (int part = 0; part < a.parts; ++part) copy_a(part, 0);
            #pragma unroll
            for (int part = 0; part < b.parts; ++part) copy_b(part, 0);
        } else {
            #pragma unroll
            for (int part = 0; part < a.parts; ++part) copy_a(part, zeros);
            #pragma unroll
            for (int part = 0; part < b.parts; ++part) copy_b(part, zeros);
        }
        end_group();
        next_tile(t + 1 < last, zeros);
        if (!WIDE && K < BK) {                     // less than a tile, which cannot be copied again
            #pragma unroll
            for (int i = 0; i < a.rows; ++i) a_from[i] = (const float *)sums_left;
            b_from = (const float *)sums_left;
            b_row = 0;
        }
    }
    wait_for_groups<STAGES - 2>();
    __syncthreads();

    Fragment fragment[2];
    const char *a_at = (const char *)&stages[0].a[place.slice * STEPS][place.row];
    const char *b_at = (const char *)&stages[0].b[place.slice * STEPS][place.col];
    unsigned now = 0, next = 0;                    // where the stages in use begin
    fragment[0].load(a_at, b_at, now, 0);
    for (int t = last - first; t > 0; --t) {       // tiles from this one on
        #pragma unroll
        for (int k = 0; k < STEPS; ++k) {
            if (k == STEPS - 1) {
                // The next tile has come for this thread, and with the barrier for all. And all
                // have read the last of this tile, whose stage is the next to be filled.
                wait_for_groups<STAGES - 2>();
                __syncthreads();
                now = next;
            }
            fragment[(k + 1) % 2].load(a_at, b_at, now, (k + 1) % STEPS);

            // Some of the copies in each of a few steps; they are a group.
            if (k >= COPY_AT && k < COPY_AT + copy_steps) {
                #pragma unroll
                for (int part = 0; part < a.parts; ++part) {
                    if (part * copy_steps / a.parts == k - COPY_AT) copy_a(part, 0);
                }
                #pragma unroll
                for (int part = 0; part < b.parts; ++part) {
                    if (part * copy_steps / b.parts == k - COPY_AT) copy_b(part, 0);
                }
            }
            if (k == COPY_AT + copy_steps - 1) end_group();
            if (k == STEPS - 2) {
                next_tile(t > STAGES, 0);
                next = stage_after(now);
            }

            const float *a_k = (const float *)fragment[k % 2].a;
            const float *b_k = (const float *)fragment[k % 2].b;
            #pragma unroll
            for (int i = 0; i < TM; ++i) {
                #pragma unroll
                for (int j = 0; j < TN; ++j) {     // there and back: one operand stays the same
                    int jj = i % 2 ? TN - 1 - j : j;
                    jj = jj % 2 * (TN / 2) + jj / 2;           // and from one half to the other
                    sum[i][jj] += a_k[i] * b_k[jj];
                }
            }
        }
    }
    wait_for_groups<0>();
    __syncthreads();                               // nobody reads or writes the stages any more
}

// The sums of the block become C, from column first_col on: those before are another tile's. With
// slices, they are added first, in their order.
__device__ __forceinline__ void store(const float (&sum)[TM][TN], float4 *shared,
                                      const Place &place, float *C, int M, int N,
                                      int row0, int col0, int first_col, float one)
{
    bool wide = float4_fits(C, N);
    auto store4 = [&](int r, int c, float4 v) {
        float *to = C + (size_t)r * N + c;
        if (r < M && c >= first_col) {
            if (wide) {
                if (c < N) *(float4 *)to = v;
            } else {
                if (c < N) to[0] = v.x;
                if (c + 1 < N) to[1] = v.y;
                if (c + 2 < N) to[2] = v.z;
                if (c + 3 < N) to[3] = v.w;
            }
        }
    };
    #pragma unroll
    for (int i = 0; i < TM; ++i) {
        int r = place.row + i % 4 + i / 4 * (4 * LANES_M);
        #pragma unroll
        for (int j = 0; j < TN; j += 4) {
            int c = place.col + j * LANES_N;
            float4 v = {one * sum[i][j], one * sum[i][j + 1],
                        one * sum[i][j + 2], one * sum[i][j + 3]};
            if (SLICES == 1) store4(row0 + r, col0 + c, v);
            else shared[(place.slice * BM + r) * (BN / 4) + c / 4] = v;
        }
    }
    if (SLICES > 1) {
        __syncthreads();
        for (int at = place.thread; at < BM * BN / 4; at += THREADS) {
            float4 v = shared[at];
            #pragma unroll
            for (int s = 1; s < SLICES; ++s) {
                float4 w = shared[s * (BM * BN / 4) + at];
                v.x += w.x;
                v.y += w.y;
                v.z += w.z;
                v.w += w.w;
            }
            store4(row0 + at / (BN / 4), col0 + at % (BN / 4) * 4, v);
        }
        __syncthreads();                           // before the next tile is copied there
    }
}

// Element i + 1 of the sums, counted row by row. A float4 is stored from four registers in a row,
// the first of an even number. So the sum of an even column comes into a register of an odd number,
// and the element of B that it is computed from has an even one: an FMA reads one register from
// each of the two banks.
__device__ __forceinline__ float &shifted(float (&sum)[TM][TN], int i)
{
    int at = (i + 1) % (TM * TN);
    return sum[at / TN][at % TN];
}

// The sums of a tile that is not finished, from this block to the next one.
__device__ __forceinline__ void leave(float (&sum)[TM][TN], int block, int thread)
{
    #pragma unroll
    for (int i = 0; i < TM * TN / 4; ++i) {
        sums_left[block][i][thread] = {shifted(sum, 4 * i), shifted(sum, 4 * i + 1),
                                       shifted(sum, 4 * i + 2), shifted(sum, 4 * i + 3)};
    }
    __threadfence();                               // the sums are seen before the flag is
    __syncthreads();
    if (thread == 0) atomicExch(&is_left[block], 1);
}

__device__ __forceinline__ void take(float (&sum)[TM][TN], int block, int thread)
{
    if (thread == 0) {
        while (atomicAdd(&is_left[block], 0) == 0) {}
        is_left[block] = 0;                        // as it was, for the next launch
        __threadfence();
    }
    __syncthreads();
    #pragma unroll
    for (int i = 0; i < TM * TN / 4; ++i) {
        float4 v = __ldcg(&sums_left[block][i][thread]);       // from the L2 cache
        shifted(sum, 4 * i) = v.x;
        shifted(sum, 4 * i + 1) = v.y;
        shifted(sum, 4 * i + 2) = v.z;
        shifted(sum, 4 * i + 3) = v.w;
    }
}

// Where part number i begins, of `all` cut into as equal parts as can be.
__device__ __forceinline__ int part_of(int all, int parts, int i)
{
    i = min(i, parts);
    return all / parts * i + min(all % parts, i);
}

// All that a block does: a list of pieces, each some tiles along K of one tile of C.
template <bool WIDE>
__device__ __forceinline__ void work(const float *A, const float *B, float *C,
                                     int M, int N, int K)
{
    // The stages, and later the slices' sums. Aligned, since cp.async reads twice as many sectors
    // where 16 bytes do not come to the same place within 32 in shared memory as in global memory.
    extern __shared__ __align__(128) float4 shared[];
    __shared__ int turn;
    Stage *stages = (Stage *)shared;
    Place place;
    int rows = (M + BM - 1) / BM, cols = (N + BN - 1) / BN;    // tiles of C
    int tiles = rows * cols;
    int depth = (K + BK - 1) / BK;                             // tiles along K

    // A block's number is that of its turn to start: then the one that it waits for has started,
    // and does not wait for a place itself. Nobody waits if there is a block for each tile.
    int block = blockIdx.x;
    if (tiles > BLOCKS) {
        if (place.thread == 0) {
            turn = atomicAdd(&tickets, 1);
            if (turn == BLOCKS - 1) tickets = 0;
        }
        __syncthreads();
        block = turn;
    }

    // The last tiles, from one to two for each block, are shared evenly: they are one long row of
    // pieces, cut into as many parts as there are blocks. A block begins with the end of its part,
    // which it may have to leave to the next one, and ends with the beginning, for which it may
    // need the sums of the one before: those have been there for long, then. The other tiles are
    // computed after that, each by one block.
    int whole = max(tiles / BLOCKS - 1, 0);        // for each block
    int whole_tiles = whole * BLOCKS;
    int parts = min(tiles, BLOCKS);
    int pieces = (tiles - whole_tiles) * depth;
    int begin = part_of(pieces, parts, block), end = part_of(pieces, parts, block + 1);
    while (end > begin || whole > 0) {
        int tile, first = 0, last = depth;
        if (end > begin) {
            int t = (end - 1) / depth;
            first = max(begin - t * depth, 0);
            last = end - t * depth;
            tile = whole_tiles + t;
            end = t * depth + first;
        } else {
            tile = --whole * BLOCKS + block;
        }

        // Which tile of C: down GROUP rows of tiles, then on to the next column.
        int group = tile / (GROUP * cols), in_group = tile % (GROUP * cols);
        int height = min(GROUP, rows - group * GROUP);
        int row0 = (group * GROUP + in_group % height) * BM;
        int first_col = in_group / height * BN;
        int col0 = WIDE ? min(first_col, N - BN) : first_col;

        float sum[TM][TN] = {};
        if (first > 0) take(sum, block - 1, place.thread);
        add_tiles<WIDE>(sum, stages, place, A, B, M, N, K, row0, col0, first, last);
        if (last < depth) leave(sum, block, place.thread);
        else store(sum, shared, place, C, M, N, row0, col0, first_col, K > 0);
    }
}

extern "C" __global__ void __launch_bounds__(THREADS, RESIDENT)
matmul_best(const float *A, const float *B, float *C, int M, int N, int K)
{
    if (float4_fits(B, N) && N >= BN && K >= BK) work<true>(A, B, C, M, N, K);
    else work<false>(A, B, C, M, N, K);
}
