// launch: block=(16, 16)
#define T 16
// The next tiles come to registers while these are multiplied.
__global__ void matmul(const float *A, const float *B, float *C, int M, int N, int K)
{
    __shared__ float As[T][T], Bs[T][T];
    int tx = threadIdx.x, ty = threadIdx.y;
    int col = blockIdx.x * T + tx, row = blockIdx.y * T + ty;
    float sum = 0.0f, a, b;
    a = row < M && tx < K ? A[(size_t)row * K + tx] : 0.0f;
    b = ty < K && col < N ? B[(size_t)ty * N + col] : 0.0f;
    for (int k0 = 0; k0 < K; k0 += T) {
        As[ty][tx] = a;
        Bs[ty][tx] = b;
        __syncthreads();
        int next = k0 + T;
        if (next < K) {
            a = row < M && next + tx < K ? A[(size_t)row * K + next + tx] : 0.0f;
            b = next + ty < K && col < N ? B[(size_t)(next + ty) * N + col] : 0.0f;
        }
        for (int k = 0; k < T; ++k) sum += As[ty][k] * Bs[k][tx];
        __syncthreads();
    }
    if (row < M && col < N) C[(size_t)row * N + col] = sum;
}
