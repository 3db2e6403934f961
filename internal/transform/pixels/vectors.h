// The vectors of rows_vectors.h: of LANES numbers of 32 bits, or of half as many of 64 bits.

typedef int32_t ints __attribute__((vector_size(LANES * 4)));
typedef uint32_t words __attribute__((vector_size(LANES * 4)));
typedef float floats __attribute__((vector_size(LANES * 4), aligned(4), may_alias));
typedef double doubles __attribute__((vector_size(LANES * 4), aligned(8), may_alias));
typedef uint64_t longs __attribute__((vector_size(LANES * 4)));
typedef int32_t halves __attribute__((vector_size(LANES * 2)));

enum { half_lanes = LANES / 2 };
