// launch: block=(16, 16)
#define T 16
// Two pairs of tiles: one barrier for each step.
__global__ void matmul(const float *A, const float *B, float *C, int M, int N, int K)
{
    __shared__ float As[2][T][T], Bs[2][T][T];
    int tx = threadIdx.x, ty = threadIdx.y, now = 0;
    int col = blockIdx.x * T + tx, row = blockIdx.y * T + ty;
    float sum = 0.0f;
    for (int k0 = 0; k0 < K; k0 += T) {
        As[now][ty][tx] = row < M && k0 + tx < K ? A[(size_t)row * K + k0 + tx] : 0.0f;
        Bs[now][ty][tx] = k0 + ty < K && col < N ? B[(size_t)(k0 + ty) * N + col] : 0.0f;
        __syncthreads();
        for (int k = 0; k < T; ++k) sum += As[now][ty][k] * Bs[now][k][tx];
        now ^= 1;
    }
    if (row < M && col < N) C[(size_t)row * N + col] = sum;
}
