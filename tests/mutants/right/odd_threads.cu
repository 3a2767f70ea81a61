// launch: block=96, tile=(20, 20)
// 96 threads share out the loads and the elements of a 20 x 20 tile.
#define T 20
__global__ void matmul(const float *A, const float *B, float *C, int M, int N, int K)
{
    __shared__ float As[T][T + 1], Bs[T][T + 1];
    int t = threadIdx.x, r0 = blockIdx.y * T, c0 = blockIdx.x * T;
    float s[(T * T + 95) / 96] = {0};
    for (int k0 = 0; k0 < K; k0 += T) {
        for (int i = t; i < T * T; i += 96) {
            int y = i / T, x = i % T;
            As[y][x] = r0 + y < M && k0 + x < K ? A[(size_t)(r0 + y) * K + k0 + x] : 0;
            Bs[y][x] = k0 + y < K && c0 + x < N ? B[(size_t)(k0 + y) * N + c0 + x] : 0;
        }
        __syncthreads();
        for (int j = 0, i = t; i < T * T; i += 96, j++)
            for (int k = 0; k < T; k++) s[j] += As[i / T][k] * Bs[k][i % T];
        __syncthreads();
    }
    for (int j = 0, i = t; i < T * T; i += 96, j++)
        if (r0 + i / T < M && c0 + i % T < N) C[(size_t)(r0 + i / T) * N + c0 + i % T] = s[j];
}
