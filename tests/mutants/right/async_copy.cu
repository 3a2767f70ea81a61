// launch: block=(16, 16)
#include <cuda_pipeline.h>
#define T 16
// The tiles are copied without going through registers.
extern "C" __global__ void matmul(const float *A, const float *B, float *C, int M, int N, int K)
{
    __shared__ float As[T][T], Bs[T][T];
    int tx = threadIdx.x, ty = threadIdx.y;
    int col = blockIdx.x * T + tx, row = blockIdx.y * T + ty;
    float sum = 0.0f;
    for (int k0 = 0; k0 < K; k0 += T) {
        if (row < M && k0 + tx < K)
            __pipeline_memcpy_async(&As[ty][tx], &A[(size_t)row * K + k0 + tx], 4);
        else
            As[ty][tx] = 0.0f;
        if (k0 + ty < K && col < N)
            __pipeline_memcpy_async(&Bs[ty][tx], &B[(size_t)(k0 + ty) * N + col], 4);
        else
            Bs[ty][tx] = 0.0f;
        __pipeline_commit();
        __pipeline_wait_prior(0);
        __syncthreads();
        for (int k = 0; k < T; ++k) sum += As[ty][k] * Bs[k][tx];
        __syncthreads();
    }
    if (row < M && col < N) C[(size_t)row * N + col] = sum;
}
