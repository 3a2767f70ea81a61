// launch: block=(8, 32), tile=(32, 32)
#define T 32
// Four columns for each thread: as one float4 where the row allows it, else one by one.
__device__ float4 load4(const float *p, int left)
{
    if (left >= 4 && ((size_t)p & 15) == 0)
        return *reinterpret_cast<const float4 *>(p);
    float4 v = make_float4(0.0f, 0.0f, 0.0f, 0.0f);
    if (left > 0) v.x = p[0];
    if (left > 1) v.y = p[1];
    if (left > 2) v.z = p[2];
    if (left > 3) v.w = p[3];
    return v;
}

__global__ void matmul(const float *A, const float *B, float *C, int M, int N, int K)
{
    __shared__ __align__(16) float As[T][T];
    __shared__ __align__(16) float Bs[T][T];
    int x = threadIdx.x * 4, y = threadIdx.y;
    int row = blockIdx.y * T + y, col = blockIdx.x * T + x;
    float4 sum = make_float4(0.0f, 0.0f, 0.0f, 0.0f);
    for (int k0 = 0; k0 < K; k0 += T) {
        *reinterpret_cast<float4 *>(&As[y][x]) =
            load4(A + (size_t)row * K + k0 + x, row < M ? K - k0 - x : 0);
        *reinterpret_cast<float4 *>(&Bs[y][x]) =
            load4(B + (size_t)(k0 + y) * N + col, k0 + y < K ? N - col : 0);
        __syncthreads();
        for (int k = 0; k < T; ++k) {
            float a = As[y][k];
            float4 b = *reinterpret_cast<float4 *>(&Bs[k][x]);
            sum.x += a * b.x;
            sum.y += a * b.y;
            sum.z += a * b.z;
            sum.w += a * b.w;
        }
        __syncthreads();
    }
    if (row >= M) return;
    float *c = C + (size_t)row * N + col;
    if (col + 3 < N && N % 4 == 0) {
        *reinterpret_cast<float4 *>(c) = sum;
    } else {
        if (col < N) c[0] = sum.x;
        if (col + 1 < N) c[1] = sum.y;
        if (col + 2 < N) c[2] = sum.z;
        if (col + 3 < N) c[3] = sum.w;
    }
}
