// launch: block=(8, 8, 8), tile=(8, 8)
// Eight threads for each element, which add up in shared memory.
__global__ void matmul(const float *A, const float *B, float *C, int M, int N, int K)
{
    __shared__ float c[8][8];
    int tx = threadIdx.x, ty = threadIdx.y, tz = threadIdx.z, col = blockIdx.x * 8 + tx, row = blockIdx.y * 8 + ty;
    if (tz == 0) c[ty][tx] = 0;
    __syncthreads();
    float s = 0;
    if (row < M && col < N) for (int k = tz; k < K; k += 8) s += A[(size_t)row * K + k] * B[(size_t)k * N + col];
    atomicAdd(&c[ty][tx], s);
    __syncthreads();
    if (tz == 0 && row < M && col < N) C[(size_t)row * N + col] = c[ty][tx];
}
