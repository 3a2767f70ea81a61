// launch: block=(16, 8), tile=(16, 16)
// C++: a device function template does the work, the kernel is extern "C".
template <int ROWS>
__device__ void product(const float *__restrict__ A, const float *__restrict__ B, float *C,
                        size_t M, size_t N, size_t K)
{
    size_t col = blockIdx.x * 16 + threadIdx.x, row = blockIdx.y * 16 + threadIdx.y * ROWS;
    float sum[ROWS] = {};
    for (size_t k = 0; k < K && col < N; ++k) {
        float b = __ldg(&B[k * N + col]);
        for (int i = 0; i < ROWS; ++i)
            if (row + i < M) sum[i] += __ldg(&A[(row + i) * K + k]) * b;
    }
    for (int i = 0; i < ROWS; ++i)
        if (row + i < M && col < N) C[(row + i) * N + col] = sum[i];
}

extern "C" __global__ void matmul(const float *A, const float *B, float *C, int M, int N, int K)
{
    product<2>(A, B, C, M, N, K);
}
