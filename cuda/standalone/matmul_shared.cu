// The whole program: naive and tiled matrix product, checked and timed. No Python.
//
//   nvcc -O2 -arch=sm_80 matmul_shared.cu -o matmul_shared && ./matmul_shared
//
// Needs a GPU of compute capability 8.0 or later. Exit status: 0 when all checks pass, 1 when a
// result is wrong, 2 when CUDA reports an error. The kernels are those of the lessons.

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <random>
#include <vector>

#include "../01_naive.cu"
#include "../02_tiled.cu"

using Matrix = std::vector<float>;                 // N x N, row-major
using Product = void (*)(const float *, const float *, float *, int, int, int);

constexpr int N = 1024;                            // M = N = K
constexpr size_t ELEMENTS = size_t(N) * N;
constexpr int WARMUPS = 3;
constexpr int REPEATS = 20;

#define CHECK(call) check((call), #call, __LINE__)

static void check(cudaError_t error, const char *call, int line)
{
    if (error == cudaSuccess) return;
    fprintf(stderr, "matmul_shared.cu:%d: %s failed: %s (%s)\n", line, call,
            cudaGetErrorString(error), cudaGetErrorName(error));
    exit(2);
}

// Device memory that is freed at the end of the scope.
struct Buffer {
    float *data = nullptr;

    Buffer() { CHECK(cudaMalloc(&data, ELEMENTS * sizeof(float))); }
    explicit Buffer(const Matrix &host) : Buffer()
    {
        CHECK(cudaMemcpy(data, host.data(), ELEMENTS * sizeof(float), cudaMemcpyHostToDevice));
    }
    Buffer(const Buffer &) = delete;
    Buffer &operator=(const Buffer &) = delete;
    ~Buffer() { cudaFree(data); }

    Matrix download() const
    {
        Matrix host(ELEMENTS);
        CHECK(cudaMemcpy(host.data(), data, ELEMENTS * sizeof(float), cudaMemcpyDeviceToHost));
        return host;
    }
};

static void launch(Product kernel, const Buffer &A, const Buffer &B, const Buffer &C)
{
    const dim3 block(TILE, TILE);
    const dim3 grid((N + TILE - 1) / TILE, (N + TILE - 1) / TILE);
    kernel<<<grid, block>>>(A.data, B.data, C.data, N, N, N);
    CHECK(cudaGetLastError());
}

static Matrix multiply(Product kernel, const Buffer &A, const Buffer &B)
{
    Buffer C;
    CHECK(cudaMemset(C.data, 0xff, ELEMENTS * sizeof(float)));   // NaN: what is not written shows
    launch(kernel, A, B, C);
    CHECK(cudaDeviceSynchronize());
    return C.download();
}

// Median time of one launch in milliseconds.
static float time_ms(Product kernel, const Buffer &A, const Buffer &B)
{
    Buffer C;
    cudaEvent_t start, end;
    CHECK(cudaEventCreate(&start));
    CHECK(cudaEventCreate(&end));
    std::vector<float> times(REPEATS);
    for (int i = -WARMUPS; i < REPEATS; ++i) {
        CHECK(cudaEventRecord(start));
        launch(kernel, A, B, C);
        CHECK(cudaEventRecord(end));
        CHECK(cudaEventSynchronize(end));
        if (i >= 0) CHECK(cudaEventElapsedTime(&times[i], start, end));
    }
    CHECK(cudaEventDestroy(start));
    CHECK(cudaEventDestroy(end));
    std::sort(times.begin(), times.end());
    return (times[(REPEATS - 1) / 2] + times[REPEATS / 2]) / 2;
}

static bool report(const char *what, size_t wrong, size_t first, double got, double expected)
{
    if (wrong == 0) {
        printf("PASS: %s\n", what);
        return true;
    }
    printf("FAIL: %s: not so for %zu of %zu elements; the first at row %zu, column %zu: "
           "got %.9g, expected %.9g\n",
           what, wrong, ELEMENTS, first / N, first % N, got, expected);
    return false;
}

// All inputs 1.0: every element of the two results within 1e-3 of each other.
static bool verify_ones()
{
    const Buffer ones(Matrix(ELEMENTS, 1.0f));
    const Matrix naive = multiply(matmul_naive, ones, ones);
    const Matrix tiled = multiply(matmul_tiled, ones, ones);
    size_t wrong = 0, first = 0;
    for (size_t i = 0; i < ELEMENTS; ++i) {
        if (std::fabs(naive[i] - tiled[i]) <= 1e-3f) continue;   // false for NaN
        if (wrong++ == 0) first = i;
    }
    return report("all inputs 1.0: naive and tiled within 1e-3", wrong, first, tiled[first],
                  naive[first]);
}

// The product in double, and with the absolute values of A and B: the scale of rounding errors.
static void reference(const Matrix &A, const Matrix &B, std::vector<double> &C,
                      std::vector<double> &scale)
{
    C.assign(ELEMENTS, 0.0);
    scale.assign(ELEMENTS, 0.0);
    for (int i = 0; i < N; ++i) {
        for (int k = 0; k < N; ++k) {              // the inner loop walks along rows: quick
            const double a = A[size_t(i) * N + k];
            const float *b = &B[size_t(k) * N];
            double *c = &C[size_t(i) * N], *s = &scale[size_t(i) * N];
            for (int j = 0; j < N; ++j) {
                c[j] += a * b[j];
                s[j] += std::fabs(a * b[j]);
            }
        }
    }
}

// Random inputs: within 8 sqrt(K) u of the product in double, relative to |A| |B|, u = 2^-24. The
// rounding errors of random data stay below that in any order of summation, except with probability
// 1e-4 (N. J. Higham and T. Mary, A new approach to probabilistic rounding error analysis, SIAM J.
// Sci. Comput. 41 (2019) A2815-A2835, Theorem 2.4); in truth far more surely.
static bool verify_random(const char *name, const Matrix &C, const std::vector<double> &expected,
                          const std::vector<double> &scale)
{
    const double bound = 8 * std::sqrt(double(N)) * std::ldexp(1.0, -24);
    size_t wrong = 0, first = 0;
    for (size_t i = 0; i < ELEMENTS; ++i) {
        if (std::fabs(C[i] - expected[i]) <= bound * scale[i]) continue;   // false for NaN
        if (wrong++ == 0) first = i;
    }
    char what[100];
    snprintf(what, sizeof what, "random inputs: %s within %.1e |A||B| of the product in double",
             name, bound);
    return report(what, wrong, first, C[first], expected[first]);
}

static Matrix random_matrix(unsigned seed)
{
    std::mt19937 generator(seed);
    std::normal_distribution<float> normal;
    Matrix matrix(ELEMENTS);
    for (float &element : matrix) element = normal(generator);
    return matrix;
}

int main()
{
    int devices = 0;
    const cudaError_t error = cudaGetDeviceCount(&devices);
    if (error != cudaSuccess || devices == 0) {
        fprintf(stderr, "no CUDA GPU can be used here: %s\n"
                "This program needs one; the lessons do not (make lab).\n",
                error != cudaSuccess ? cudaGetErrorString(error) : "none found");
        return 2;
    }
    cudaDeviceProp device;
    CHECK(cudaGetDeviceProperties(&device, 0));
    printf("%s, M = N = K = %d, FP32\n", device.name, N);

    const Matrix A = random_matrix(1), B = random_matrix(2);
    const Buffer dA(A), dB(B);
    std::vector<double> expected, scale;
    reference(A, B, expected, scale);
    bool passed = verify_ones();
    passed &= verify_random("naive", multiply(matmul_naive, dA, dB), expected, scale);
    passed &= verify_random("tiled", multiply(matmul_tiled, dA, dB), expected, scale);

    const float naive_ms = time_ms(matmul_naive, dA, dB);
    const float tiled_ms = time_ms(matmul_tiled, dA, dB);
    const double gflop = 2.0 * N * N * N * 1e-9;
    printf("kernel   median ms   GFLOP/s   speed-up   (%d launches each, CUDA events)\n", REPEATS);
    printf("naive    %9.4f   %7.0f   %7.2fx\n", naive_ms, gflop / naive_ms * 1e3, 1.0);
    printf("tiled    %9.4f   %7.0f   %7.2fx\n", tiled_ms, gflop / tiled_ms * 1e3,
           naive_ms / tiled_ms);
    printf("%s\n", passed ? "PASS" : "FAIL");
    return passed ? 0 : 1;
}
