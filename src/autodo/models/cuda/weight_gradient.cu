// parts[s, ky, kx, c, k] = sum over the pixels of split s of x[n, h + ky - 1, w + kx - 1, c] dy[n, h, w, k]
//
// A tile is 8 x 16 pixels, or two images of 8 x 8. A block has 64 inputs, all nine taps and NT outputs: each of three
// warpgroups a row of the kernel. One thread asks for boxes of 64 channels (128 bytes a pixel), which come swizzled as
// the tensor cores read them. The pattern goes by the address in shared memory, so that a tap is again an offset.
#define PIXEL 8  // 128 bytes, as a matrix counts them
#if SIDE == 8
#define HALO_COLUMNS 10
#define HALO_PIXELS 200
#define HALO_NEXT (HALO_COLUMNS * PIXEL)  // from 8 pixels to those of the next row
#else
#define HALO_COLUMNS 18
#define HALO_PIXELS 180
#define HALO_NEXT (8 * PIXEL)
#endif
#define X_BYTES ((HALO_PIXELS + 7) / 8 * 1024)
#define DY_BYTES (128 * 128)
#define BOXES ((NT + 63) / 64)
#define STAGE_BYTES (X_BYTES + BOXES * DY_BYTES)
#define BARRIERS_AT (STAGES * STAGE_BYTES)
static_assert(BARRIERS_AT + 16 * STAGES + 1024 == SHARED, "the memory that is asked for, and its alignment");

struct alignas(64) Map { unsigned char bytes[128]; };

struct Work {
  int column, block, split, begin, end;
  __device__ Work(int work, int tiles, int columns, int blocks, int splits) {
    column = work % columns;
    block = work / columns % blocks;
    split = work / columns / blocks;
    begin = (long long)tiles * split / splits;
    end = (long long)tiles * (split + 1) / splits;
  }
};

__device__ __forceinline__ void copy_box(u32 to, const Map* map, int c, int w, int h, int n, u32 barrier) {
  asm volatile(
      "cp.async.bulk.tensor.4d.shared::cluster.global.tile.mbarrier::complete_tx::bytes [%0], [%1, {%2, %3, %4, %5}], [%6];" ::"r"(to),
      "l"(map), "r"(c), "r"(w), "r"(h), "r"(n), "r"(barrier)
      : "memory");
}
// Channels by pixels, the reduced dimension (MN-major), swizzled by 128 bytes; ``channels`` goes from 64 channels to
// the next 64 and ``pixels`` from 8 pixels to the next 8, in units of 16 bytes.
__device__ __forceinline__ u64 swizzled(u32 address, u32 channels, u32 pixels) {
  return (u64)((address >> 4) & 0x3FFF) | ((u64)channels << 16) | ((u64)pixels << 32) | ((u64)1 << 62);
}

extern "C" __global__ void __maxnreg__(AT_START)
    weight_gradient(const __grid_constant__ Map x, const __grid_constant__ Map dy, float* __restrict__ parts, int tiles,
                    int inputs, int outputs, int splits) {
  extern __shared__ __align__(1024) unsigned char memory[];
  const u32 base = (shared_address(memory) + 1023) / 1024 * 1024, full = base + BARRIERS_AT, empty = full + 8 * STAGES;
  const int thread = threadIdx.x, group = thread >> 7, columns = outputs / NT, blocks = (inputs + 63) / 64;
  const int works = columns * blocks * splits;
  if (thread == 0) {
    for (int s = 0; s < STAGES; s++) {
      barrier_init(full + 8 * s, 1);
      barrier_init(empty + 8 * s, 12);
    }
    asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
    SHOW_WRITES;
  }
  __syncthreads();
  if (group == 0) {
    FEWER_REGISTERS(TO_FETCH);
    if (thread == 0) {
      int stage = 0, phase = 1;
      for (int i = blockIdx.x; i < works; i += gridDim.x) {
        const Work work(i, tiles, columns, blocks, splits);
        for (int tile = work.begin; tile < work.end; tile++) {
#if SIDE == 32
          const int image = tile >> 3, h = (tile >> 1 & 3) * 8, w = (tile & 1) * 16;
#elif SIDE == 16
          const int image = tile >> 1, h = (tile & 1) * 8, w = 0;
#else
          const int image = tile * 2, h = 0, w = 0;
#endif
          barrier_wait(empty + 8 * stage, phase);
          const u32 barrier = full + 8 * stage, to = base + stage * STAGE_BYTES;
          barrier_expect(barrier, HALO_PIXELS * 128 + BOXES * DY_BYTES);
          copy_box(to, &x, work.block * 64, w - 1, h - 1, image, barrier);
#pragma unroll
          for (int box = 0; box < BOXES; box++)
            copy_box(to + X_BYTES + box * DY_BYTES, &dy, work.column * NT + box * 64, w, h, image, barrier);
          if (++stage == STAGES) { stage = 0; phase ^= 1; }
        }
      }
    }
  } else {
    MORE_REGISTERS(TO_MULTIPLY);
    const int warp = thread >> 5 & 3, lane = thread & 31, ky = group - 1;
    int stage = 0, phase = 0;
    for (int i = blockIdx.x; i < works; i += gridDim.x) {
      const Work work(i, tiles, columns, blocks, splits);
      float sum0[NT / 2], sum1[NT / 2], sum2[NT / 2];
#pragma unroll
      for (int k = 0; k < NT / 2; k++) sum0[k] = sum1[k] = sum2[k] = 0.f;
      int done = -1;
      for (int tile = work.begin; tile < work.end; tile++) {
        barrier_wait(full + 8 * stage, phase);
        const u64 halo = swizzled(base + stage * STAGE_BYTES, 1, HALO_NEXT);
        const u64 d = swizzled(base + stage * STAGE_BYTES + X_BYTES, DY_BYTES / 16, 8 * PIXEL);
        MMA_BEGIN;
#pragma unroll
        for (int step = 0; step < 8; step++) {  // 16 pixels: a row, or two of 8
#if SIDE == 8
          const int row = step / 4 * 10 + step % 4 * 2;
#else
          const int row = step;
#endif
          const u64 at = halo + (row + ky) * HALO_COLUMNS * PIXEL;
          mma(sum0, at, d + step * 16 * PIXEL);
          mma(sum1, at + PIXEL, d + step * 16 * PIXEL);
          mma(sum2, at + 2 * PIXEL, d + step * 16 * PIXEL);
        }
        MMA_COMMIT;
        MMA_WAIT(1);
        if (lane == 0 && done >= 0) barrier_arrive(empty + 8 * done);
        done = stage;
        if (++stage == STAGES) { stage = 0; phase ^= 1; }
      }
      MMA_WAIT(0);
#pragma unroll
      for (int k = 0; k < NT / 2; k++) { SETTLED(sum0[k]); SETTLED(sum1[k]); SETTLED(sum2[k]); }
      if (lane == 0 && done >= 0) barrier_arrive(empty + 8 * done);
#pragma unroll
      for (int kx = 0; kx < 3; kx++) {
#pragma unroll
        for (int low = 0; low < 2; low++) {
          const int input = work.block * 64 + warp * 16 + low * 8 + (lane >> 2);
          if (input >= inputs) continue;
          float* to = parts + (((long long)work.split * 9 + ky * 3 + kx) * inputs + input) * outputs + work.column * NT + (lane & 3) * 2;
#pragma unroll
          for (int j = 0; j < NT / 8; j++) {
            const int k = j * 4 + low * 2;
            *(float2*)(to + j * 8) = kx == 0   ? make_float2(sum0[k], sum0[k + 1])
                                     : kx == 1 ? make_float2(sum1[k], sum1[k + 1])
                                               : make_float2(sum2[k], sum2[k + 1]);
          }
        }
      }
    }
  }
}
