// A yardstick for the engine, not a lesson: C = A * B with 8 x 8 elements in each thread's
// registers, 128 x 128 x 8 tiles double-buffered in shared memory, float4 loads and stores.
// Block: 256 threads. Grid: (N / 128, M / 128). M and N must be multiples of 128, K of 8.

#define BM 128
#define BN 128
#define BK 8
#define TM 8
#define TN 8

extern "C" __global__ void __launch_bounds__(256)
matmul_register_tile(const float *A, const float *B, float *C, int M, int N, int K)
{
    __shared__ float As[2][BK][BM], Bs[2][BK][BN];  // A's tile is stored transposed
    int tx = threadIdx.x % 16, ty = threadIdx.x / 16;
    int a_row = threadIdx.x / 2, a_col = threadIdx.x % 2 * 4;
    int b_row = threadIdx.x / 32, b_col = threadIdx.x % 32 * 4;
    const float *a = A + (size_t)(blockIdx.y * BM + a_row) * K + a_col;
    const float *b = B + (size_t)b_row * N + blockIdx.x * BN + b_col;

    float sum[TM][TN] = {};
    float4 next_a = *(const float4 *)a, next_b = *(const float4 *)b;
    for (int k0 = 0, buffer = 0; k0 < K; k0 += BK, buffer ^= 1) {
        As[buffer][a_col + 0][a_row] = next_a.x;
        As[buffer][a_col + 1][a_row] = next_a.y;
        As[buffer][a_col + 2][a_row] = next_a.z;
        As[buffer][a_col + 3][a_row] = next_a.w;
        *(float4 *)&Bs[buffer][b_row][b_col] = next_b;
        __syncthreads();  // one is enough: the next store goes to the other buffer
        if (k0 + BK < K) {
            next_a = *(const float4 *)(a + k0 + BK);
            next_b = *(const float4 *)(b + (size_t)(k0 + BK) * N);
        }
#pragma unroll
        for (int k = 0; k < BK; ++k) {
            float part_a[TM], part_b[TN];
            *(float4 *)&part_a[0] = *(float4 *)&As[buffer][k][ty * 8];
            *(float4 *)&part_a[4] = *(float4 *)&As[buffer][k][ty * 8 + 4];
            *(float4 *)&part_b[0] = *(float4 *)&Bs[buffer][k][tx * 4];
            *(float4 *)&part_b[4] = *(float4 *)&Bs[buffer][k][tx * 4 + 64];
#pragma unroll
            for (int i = 0; i < TM; ++i)
#pragma unroll
                for (int j = 0; j < TN; ++j) sum[i][j] += part_a[i] * part_b[j];
        }
    }
    for (int i = 0; i < TM; ++i) {
        float *c = C + (size_t)(blockIdx.y * BM + ty * TM + i) * N + blockIdx.x * BN + tx * 4;
        *(float4 *)c = make_float4(sum[i][0], sum[i][1], sum[i][2], sum[i][3]);
        *(float4 *)(c + 64) = make_float4(sum[i][4], sum[i][5], sum[i][6], sum[i][7]);
    }
}
