// Lesson 1: the naive matrix product, one thread for each element of C.
//
// C = A * B with A of M x K, B of K x N and C of M x N, all row-major float. Any M, N, K >= 1.
//
//   matmul_naive              threadIdx.x walks along a row of C: a warp reads neighbouring floats
//   matmul_naive_uncoalesced  threadIdx.x walks down a column of C: a warp reads floats a row apart
//
// Launch shape: any block of bx x by threads (the lessons use 32 x 32); the grid is then
//   matmul_naive              (ceil(N / bx), ceil(M / by))
//   matmul_naive_uncoalesced  (ceil(M / bx), ceil(N / by))
//
// To compile it alone and look at what the compiler makes of it:
//   nvcc --ptx -lineinfo -arch=sm_80 01_naive.cu

__global__ void matmul_naive(const float *A, const float *B, float *C, int M, int N, int K)
{
    int col = blockIdx.x * blockDim.x + threadIdx.x;
    int row = blockIdx.y * blockDim.y + threadIdx.y;

    if (row < M && col < N) {                      // the last blocks reach past the edges of C
        float sum = 0.0f;
        for (int k = 0; k < K; ++k) {
            sum += A[(size_t)row * K + k]          // all 32 lanes read one word: broadcast
                 * B[(size_t)k * N + col];         // 32 neighbouring words: coalesced
        }
        C[(size_t)row * N + col] = sum;            // size_t: row * N can pass 2^31
    }
}

// What changed against the kernel above: row and col have swapped their threadIdx, nothing else.
__global__ void matmul_naive_uncoalesced(const float *A, const float *B, float *C,
                                         int M, int N, int K)
{
    int row = blockIdx.x * blockDim.x + threadIdx.x;
    int col = blockIdx.y * blockDim.y + threadIdx.y;

    if (row < M && col < N) {
        float sum = 0.0f;
        for (int k = 0; k < K; ++k) {
            sum += A[(size_t)row * K + k]          // 32 words, each K floats after the last
                 * B[(size_t)k * N + col];         // all 32 lanes read one word: broadcast
        }
        C[(size_t)row * N + col] = sum;            // 32 words, each N floats after the last
    }
}
