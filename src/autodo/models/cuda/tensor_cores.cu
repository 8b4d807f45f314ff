// What 3x3 convolutions of channels-last bfloat16 images on Hopper (sm_90a) are made of.
//
// Images are square with SIDE = 8, 16 or 32 pixels, padded by 1. Products are done by patches of
// 8 x 8 pixels. For ``convolve`` a halo of pixels lies in shared memory as planes of 8 channels,
//
//     plane[channel / 8][pixel][channel % 8],
//
// so that 8 pixels of a row by 8 channels are one of the tensor cores' core matrices (8 rows of 16
// bytes, without swizzle), wherever they begin: a tap of the kernel is an offset of the address, and
// each pixel is fetched once for all nine. Threads of one warpgroup fetch, those of the others
// multiply.
//
// Set from outside: SIDE, NT (outputs of a tile: N of the instruction), STAGES (what is on its way),
// SHARED (bytes of memory) and mma(), which is wgmma.mma_async m64 x NT x k16.

typedef unsigned int u32;
typedef unsigned long long u64;
typedef unsigned short bf16;

__device__ __forceinline__ u32 shared_address(const void* p) { return (u32)__cvta_generic_to_shared(p); }

__device__ __forceinline__ void barrier_init(u32 barrier, int arrivals) {
  asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(barrier), "r"(arrivals));
}
__device__ __forceinline__ void barrier_arrive(u32 barrier) {
  asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(barrier) : "memory");
}
__device__ __forceinline__ void barrier_wait(u32 barrier, int phase) {
  u32 done = 0;
  while (!done)
    asm volatile(
        "{\n.reg .pred p;\n"
        "mbarrier.try_wait.parity.shared::cta.b64 p, [%1], %2;\n"
        "selp.u32 %0, 1, 0, p;\n}\n"
        : "=r"(done)
        : "r"(barrier), "r"(phase)
        : "memory");
}
// Arrives, and lets the barrier wait for so many bytes that are copied.
__device__ __forceinline__ void barrier_expect(u32 barrier, int bytes) {
  asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(barrier), "r"(bytes) : "memory");
}
__device__ __forceinline__ void copy_bytes(u32 to, const void* from, int bytes, u32 barrier) {
  barrier_expect(barrier, bytes);
  asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];" ::"r"(to),
               "l"(from), "r"(bytes), "r"(barrier)
               : "memory");
}
// 16 bytes, or zeros.
__device__ __forceinline__ void copy16(u32 to, const void* from, bool inside) {
  const int bytes = inside ? 16 : 0;
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(to), "l"(from), "r"(bytes) : "memory");
}
// Arrives when all copies of this thread have.
__device__ __forceinline__ void arrive_after_copies(u32 barrier) {
  asm volatile("cp.async.mbarrier.arrive.noinc.shared::cta.b64 [%0];" ::"r"(barrier) : "memory");
}
// What threads have written is seen by the tensor cores.
#define SHOW_WRITES asm volatile("fence.proxy.async.shared::cta;" ::: "memory")
#define MMA_BEGIN asm volatile("wgmma.fence.sync.aligned;" ::: "memory")
#define MMA_COMMIT asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory")
#define MMA_WAIT(n) asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(n) : "memory")
#define FEWER_REGISTERS(n) asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(n))
#define MORE_REGISTERS(n) asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(n))
// Sums are not read before the wait above this line.
#define SETTLED(sum) asm volatile("" : "+f"(sum)::"memory")

// A matrix in shared memory for wgmma, channels being reduced (K-major): ``leading`` goes from one group of
// 8 channels to the next and ``stride`` from 8 rows to the next 8, in units of 16 bytes, as are all offsets
// that are added to it.
__device__ __forceinline__ u64 matrix(u32 address, u32 leading, u32 stride) {
  return (u64)((address >> 4) & 0x3FFF) | ((u64)leading << 16) | ((u64)stride << 32);
}
