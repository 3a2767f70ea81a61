// launch: block=128, grid=lambda M, N: 20
__global__ void matmul(const float *A, const float *B, float *C, int M, int N, int K)
{
    size_t elements = (size_t)M * N, step = (size_t)gridDim.x * blockDim.x;
    for (size_t i = (size_t)blockIdx.x * blockDim.x + threadIdx.x; i < elements; i += step) {
        size_t row = i / N, col = i % N;
        float sum = 0.0f;
        for (int k = 0; k < K; ++k)
            sum += A[row * K + k] * B[k * (size_t)N + col];
        C[i] = sum;
    }
}
