// What is new in a cache, written into memory that has room for more.

#if WIDTH == 16
struct __align__(16) unit { unsigned words[4]; };
#elif WIDTH == 8
typedef unsigned long long unit;
#elif WIDTH == 4
typedef unsigned unit;
#elif WIDTH == 2
typedef unsigned short unit;
#else
typedef unsigned char unit;
#endif

// Rows of `each` units, of which `count` are in all, go `start` units behind the beginning of rows
// that are `apart`. A thread for each unit.
extern "C" __global__ void extend(
    const unit* from, unit* to, long long count, long long each, long long apart, long long start) {
    follow();
    const long long at = (long long)blockIdx.x * blockDim.x + threadIdx.x;
    if (at < count) to[at / each * apart + start + at % each] = from[at];
}
