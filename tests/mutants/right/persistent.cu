// launch: block=(16, 16), grid=lambda M, N: 3
// Three blocks walk over all tiles of C.
#define T 16
__global__ void matmul(const float *A, const float *B, float *C, int M, int N, int K)
{
    __shared__ float As[T][T], Bs[T][T];
    int tx = threadIdx.x, ty = threadIdx.y, wide = (N + T - 1) / T, high = (M + T - 1) / T;
    for (long long b = blockIdx.x; b < (long long)wide * high; b += gridDim.x) {
        int row = b / wide * T + ty, col = b % wide * T + tx;
        float sum = 0;
        for (int k0 = 0; k0 < K; k0 += T) {
            As[ty][tx] = row < M && k0 + tx < K ? A[(size_t)row * K + k0 + tx] : 0;
            Bs[ty][tx] = col < N && k0 + ty < K ? B[(size_t)(k0 + ty) * N + col] : 0;
            __syncthreads();
            for (int k = 0; k < T; k++) sum += As[ty][k] * Bs[k][tx];
            __syncthreads();
        }
        if (row < M && col < N) C[(size_t)row * N + col] = sum;
    }
}
