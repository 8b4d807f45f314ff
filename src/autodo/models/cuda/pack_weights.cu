typedef unsigned int u32;
typedef unsigned short bf16;

// Weights (outputs, inputs, 3, 3) in float32, of any layout, as ``convolve`` reads them:
//
//     packed[k / tile][c / 32][tap][c % 32 / 8][k % tile][c % 8]
//
// and, turned, for the gradient to the inputs, where k and c change places and taps go backwards. A
// program has 32 outputs, 32 inputs and a tap. The counters are those of ``convolve``, forward and turned.
__device__ __forceinline__ u32 pair(float low, float high) {
  u32 both;
  asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(both) : "f"(high), "f"(low));
  return both;
}

extern "C" __global__ void __launch_bounds__(256)
    pack_weights(const float* __restrict__ weight, bf16* __restrict__ forward, bf16* __restrict__ turned,
                 int* __restrict__ counters, int outputs,
                 int inputs, int forward_tile, int turned_tile, int k_stride, int c_stride, int tap_stride) {
  __shared__ float w[32][33];
  if (blockIdx.x + blockIdx.y + blockIdx.z == 0 && threadIdx.x < 4) counters[threadIdx.x] = 0;
  const int c0 = blockIdx.x * 32, k0 = blockIdx.y * 32, tap = blockIdx.z, thread = threadIdx.x;
  for (int k = thread / 32; k < 32; k += 8)
    w[k][thread % 32] = weight[(long long)(k0 + k) * k_stride + (c0 + thread % 32) * c_stride + tap * tap_stride];
  __syncthreads();
  const int one = thread & 31, eight = thread >> 5 & 3;
  float v[8];
  if (thread < 128) {
    const int k = k0 + one;
#pragma unroll
    for (int i = 0; i < 8; i++) v[i] = w[one][eight * 8 + i];
    const long long at = (((long long)(k / forward_tile * (inputs / 32) + blockIdx.x) * 9 + tap) * 4 + eight) * forward_tile + k % forward_tile;
    *(uint4*)(forward + at * 8) = make_uint4(pair(v[0], v[1]), pair(v[2], v[3]), pair(v[4], v[5]), pair(v[6], v[7]));
  } else if (turned != nullptr) {
    const int c = c0 + one;
#pragma unroll
    for (int i = 0; i < 8; i++) v[i] = w[eight * 8 + i][one];
    const long long at = (((long long)(c / turned_tile * (outputs / 32) + blockIdx.y) * 9 + 8 - tap) * 4 + eight) * turned_tile + c % turned_tile;
    *(uint4*)(turned + at * 8) = make_uint4(pair(v[0], v[1]), pair(v[2], v[3]), pair(v[4], v[5]), pair(v[6], v[7]));
  }
}
