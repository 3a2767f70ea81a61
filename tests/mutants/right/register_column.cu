// launch: block=256, tile=(32, 32)
#define BM 32
#define BN 32
#define BK 8
#define TM 4
// Each thread has TM elements below each other.
__global__ void matmul(const float *A, const float *B, float *C, int M, int N, int K)
{
    __shared__ float As[BM][BK];
    __shared__ float Bs[BK][BN];
    int t = threadIdx.x, c = t % BN, r = t / BN * TM;
    int row0 = blockIdx.y * BM, col0 = blockIdx.x * BN;
    float sum[TM] = {0.0f};
    for (int k0 = 0; k0 < K; k0 += BK) {
        int ra = t / BK, ka = t % BK, kb = t / BN, cb = t % BN;
        As[ra][ka] = row0 + ra < M && k0 + ka < K ? A[(size_t)(row0 + ra) * K + k0 + ka] : 0.0f;
        Bs[kb][cb] = k0 + kb < K && col0 + cb < N ? B[(size_t)(k0 + kb) * N + col0 + cb] : 0.0f;
        __syncthreads();
        for (int k = 0; k < BK; ++k) {
            float b = Bs[k][c];
            for (int i = 0; i < TM; ++i)
                sum[i] += As[r + i][k] * b;
        }
        __syncthreads();
    }
    for (int i = 0; i < TM; ++i)
        if (row0 + r + i < M && col0 + c < N)
            C[(size_t)(row0 + r + i) * N + col0 + c] = sum[i];
}
