// launch: block=(16, 16), tile=(64, 64)
#define BM 64
#define BN 64
#define BK 16
#define TM 4
#define TN 4
// Each thread has TM x TN elements; the tile of A lies transposed.
__global__ void matmul(const float *A, const float *B, float *C, int M, int N, int K)
{
    __shared__ float As[BK][BM + 4];
    __shared__ float Bs[BK][BN];
    int tx = threadIdx.x, ty = threadIdx.y, t = ty * 16 + tx;
    int row0 = blockIdx.y * BM, col0 = blockIdx.x * BN;
    float sum[TM][TN] = {};
    for (int k0 = 0; k0 < K; k0 += BK) {
        for (int i = t; i < BM * BK; i += 256) {
            int r = i / BK, k = i % BK;
            As[k][r] = row0 + r < M && k0 + k < K ? A[(size_t)(row0 + r) * K + k0 + k] : 0.0f;
        }
        for (int i = t; i < BK * BN; i += 256) {
            int k = i / BN, c = i % BN;
            Bs[k][c] = k0 + k < K && col0 + c < N ? B[(size_t)(k0 + k) * N + col0 + c] : 0.0f;
        }
        __syncthreads();
        for (int k = 0; k < BK; ++k) {
            float a[TM], b[TN];
            for (int i = 0; i < TM; ++i) a[i] = As[k][ty * TM + i];
            for (int j = 0; j < TN; ++j) b[j] = Bs[k][tx + 16 * j];
            for (int i = 0; i < TM; ++i)
                for (int j = 0; j < TN; ++j)
                    sum[i][j] += a[i] * b[j];
        }
        __syncthreads();
    }
    for (int i = 0; i < TM; ++i)
        for (int j = 0; j < TN; ++j) {
            int row = row0 + ty * TM + i, col = col0 + tx + 16 * j;
            if (row < M && col < N)
                C[(size_t)row * N + col] = sum[i][j];
        }
}
