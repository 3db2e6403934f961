//go:build cgo && amd64

#include "rows.h"

#include <immintrin.h>

#define TARGET \
	__attribute__((target("avx512f,avx512bw,avx512vl,avx512dq,prefer-vector-width=512")))
#define VBMI __attribute__((target("avx512f,avx512bw,avx512vl,avx512vbmi")))
#define LANES 16
#include "vectors.h"

static inline TARGET ints load_bytes(const uint8_t *p) {
	return (ints)_mm512_cvtepu8_epi32(_mm_loadu_si128((const __m128i *)p));
}

static inline TARGET void store_bytes(uint8_t *p, ints v) {
	_mm_storeu_si128((__m128i *)p, _mm512_cvtepi32_epi8((__m512i)v));
}

// load_pixels loads RGB pixels, each into the low bytes of a number.
static inline TARGET ints load_pixels(const uint8_t *p) {
	const __m512i quarters =
		_mm512_setr_epi32(0, 1, 2, 2, 3, 4, 5, 5, 6, 7, 8, 8, 9, 10, 11, 11);
	const __m512i spread = _mm512_broadcast_i32x4(
		_mm_setr_epi8(0, 1, 2, -1, 3, 4, 5, -1, 6, 7, 8, -1, 9, 10, 11, -1));
	// A masked load of 64 bytes would wait for a store just after the pixels.
	__m512i x = _mm512_castsi256_si512(_mm256_loadu_si256((const __m256i *)p));
	x = _mm512_inserti32x4(x, _mm_loadu_si128((const __m128i *)(p + 32)), 2);
	return (ints)_mm512_shuffle_epi8(_mm512_permutexvar_epi32(quarters, x), spread);
}

#define PACKED _mm_setr_epi8(0, 1, 2, 4, 5, 6, 8, 9, 10, 12, 13, 14, -1, -1, -1, -1)

// Masked stores would delay the loads of the pixels after these.
static inline TARGET void store_pixels(uint8_t *p, ints v) {
	const __m512i joined =
		_mm512_setr_epi32(0, 1, 2, 4, 5, 6, 8, 9, 10, 12, 13, 14, 15, 15, 15, 15);
	__m512i x = _mm512_shuffle_epi8((__m512i)v, _mm512_broadcast_i32x4(PACKED));
	x = _mm512_permutexvar_epi32(joined, x);
	_mm256_storeu_si256((__m256i *)p, _mm512_castsi512_si256(x));
	_mm_storeu_si128((__m128i *)(p + 32), _mm512_extracti32x4_epi32(x, 2));
}

static inline TARGET ints reversed(ints v) {
	const __m512i order =
		_mm512_setr_epi32(15, 14, 13, 12, 11, 10, 9, 8, 7, 6, 5, 4, 3, 2, 1, 0);
	return (ints)_mm512_permutexvar_epi32(order, (__m512i)v);
}

static inline TARGET void store_half(uint8_t *p, halves v) {
	const __m256i joined = _mm256_setr_epi32(0, 1, 2, 4, 5, 6, 7, 7);
	__m256i x = _mm256_shuffle_epi8((__m256i)v, _mm256_broadcastsi128_si256(PACKED));
	_mm256_mask_storeu_epi32(p, 0x3f, _mm256_permutevar8x32_epi32(x, joined));
}

// gather loads the eight bytes at each position.
static inline TARGET longs gather(const uint8_t *base, halves at) {
	return (longs)_mm512_i32gather_epi64((__m256i)at, base, 1);
}

// gather_pixels loads four bytes at each position.
static inline TARGET ints gather_pixels(const uint8_t *base, ints at) {
	return (ints)_mm512_i32gather_epi32((__m512i)at, base, 1);
}

static inline TARGET halves gather_half(const uint8_t *base, halves at) {
	return (halves)_mm256_i32gather_epi32((const int *)base, (__m256i)at, 1);
}

// below reports whether all numbers are below a limit.
static inline TARGET int below(ints v, int limit) {
	return _mm512_cmplt_epi32_mask((__m512i)v, _mm512_set1_epi32(limit)) == 0xffff;
}

// whole returns the integer parts.
static inline TARGET halves whole(doubles v) { return (halves)_mm512_cvttpd_epi32((__m512d)v); }

// Of float32 in the low and the high half of a vector, as float64, and back; and integer parts.
static inline TARGET doubles low_doubles(floats v) {
	return (doubles)_mm512_cvtps_pd(_mm512_castps512_ps256((__m512)v));
}

static inline TARGET doubles high_doubles(floats v) {
	return (doubles)_mm512_cvtps_pd(_mm512_extractf32x8_ps((__m512)v, 1));
}

static inline TARGET floats joined(doubles low, doubles high) {
	__m512 x = _mm512_castps256_ps512(_mm512_cvtpd_ps((__m512d)low));
	return (floats)_mm512_insertf32x8(x, _mm512_cvtpd_ps((__m512d)high), 1);
}

static inline TARGET ints joined_whole(doubles low, doubles high) {
	__m512i x = _mm512_castsi256_si512((__m256i)whole(low));
	return (ints)_mm512_inserti32x8(x, (__m256i)whole(high), 1);
}

static inline TARGET floats look_up_floats(const float *table, ints at) {
	return (floats)_mm512_i32gather_ps((__m512i)at, table, 4);
}

// limited and limited_half clip to the levels from 0 to 255; what is not a number gives 0.
static inline TARGET floats limited(floats v) {
	__m512 x = _mm512_max_ps((__m512)v, _mm512_setzero_ps());
	return (floats)_mm512_min_ps(x, _mm512_set1_ps(255.0f));
}

static inline TARGET doubles limited_half(doubles v) {
	__m512d x = _mm512_max_pd((__m512d)v, _mm512_setzero_pd());
	return (doubles)_mm512_min_pd(x, _mm512_set1_pd(255.0));
}

static inline TARGET int zeros(doubles v) {
	return _mm512_cmp_pd_mask((__m512d)v, _mm512_setzero_pd(), _CMP_EQ_OQ) == 0xff;
}

// inside reports whether all points are in [first, right) x [first, bottom).
static inline TARGET int inside(doubles u, doubles v, double first, double right, double bottom) {
	__m512d least = _mm512_set1_pd(first);
	__mmask8 in = _mm512_cmp_pd_mask((__m512d)u, least, _CMP_GE_OQ);
	in = _mm512_mask_cmp_pd_mask(in, (__m512d)v, least, _CMP_GE_OQ);
	in = _mm512_mask_cmp_pd_mask(in, (__m512d)u, _mm512_set1_pd(right), _CMP_LT_OQ);
	in = _mm512_mask_cmp_pd_mask(in, (__m512d)v, _mm512_set1_pd(bottom), _CMP_LT_OQ);
	return in == 0xff;
}

// fused returns a * b + c, rounded once.
static inline TARGET floats fused(floats a, floats b, floats c) {
	return (floats)_mm512_fmadd_ps((__m512)a, (__m512)b, (__m512)c);
}

static inline TARGET void store_floats(uint8_t *p, floats v) {
	_mm512_storeu_ps(p, (__m512)v);
}

static inline TARGET void store_halves(uint8_t *p, floats v) {
	_mm256_storeu_si256((__m256i *)p, _mm512_cvtps_ph((__m512)v, _MM_FROUND_TO_NEAREST_INT));
}

static inline TARGET void store_bfloats(uint8_t *p, floats v) {
	words bits = (words)v;
	bits = (bits + (bits >> 16 & 1) + 0x7fff) >> 16;
	_mm256_storeu_si256((__m256i *)p, _mm512_cvtepi32_epi16((__m512i)bits));
}

#include "rows_loops.h"
#include "rows_vectors.h"
#include "pack_vectors.h"

// A table of 256 bytes is four registers, and vpermi2b looks 64 bytes up in two of them.
typedef struct {
	__m512i part[4];
} registers;

static inline VBMI registers load_table(const uint8_t *table) {
	registers t;
	for (int i = 0; i < 4; i++)
		t.part[i] = _mm512_loadu_si512(table + 64 * i);
	return t;
}

static inline VBMI __m512i look_up(registers t, __m512i x) {
	__m512i low = _mm512_permutex2var_epi8(t.part[0], x, t.part[1]);
	__m512i high = _mm512_permutex2var_epi8(t.part[2], x, t.part[3]);
	return _mm512_mask_blend_epi8(_mm512_movepi8_mask(x), low, high);
}

static VBMI void map_all_vbmi(uint8_t *row, int n, const uint8_t *table) {
	registers t = load_table(table);
	int i = 0;
	for (; i + 64 <= n; i += 64)
		_mm512_storeu_si512(row + i, look_up(t, _mm512_loadu_si512(row + i)));
	__mmask64 rest = (1ull << (n - i)) - 1;
	_mm512_mask_storeu_epi8(row + i, rest, look_up(t, _mm512_maskz_loadu_epi8(rest, row + i)));
}

static VBMI void map_each_vbmi(uint8_t *row, int n, const uint8_t *tables) {
	registers r = load_table(tables), g = load_table(tables + 256), b = load_table(tables + 512);
	// Where the samples of green and of blue are in 64 bytes that begin with red, green or blue.
	const __mmask64 every = 0x9249249249249249;
	const __mmask64 greens[3] = {every << 1, every, every << 2};
	const __mmask64 blues[3] = {every << 2, every << 1, every};
	for (int i = 0, phase = 0; i < n; i += 64, phase = phase == 2 ? 0 : phase + 1) {
		__mmask64 rest = n - i >= 64 ? ~0ull : (1ull << (n - i)) - 1;
		__m512i x = _mm512_maskz_loadu_epi8(rest, row + i);
		__m512i y = _mm512_mask_mov_epi8(look_up(r, x), greens[phase], look_up(g, x));
		y = _mm512_mask_mov_epi8(y, blues[phase], look_up(b, x));
		_mm512_mask_storeu_epi8(row + i, rest, y);
	}
}

static void map_all_best(uint8_t *row, int n, const uint8_t *table) {
	(__builtin_cpu_supports("avx512vbmi") ? map_all_vbmi : map_all)(row, n, table);
}

static void map_each_best(uint8_t *row, int n, const uint8_t *tables) {
	(__builtin_cpu_supports("avx512vbmi") ? map_each_vbmi : map_each)(row, n, tables);
}

const row_loops rows_avx512 = {
	map_all_best, map_each_best, mirror, extremes, lumas, gray, saturate, turn, sharpen, box,
	weigh, to_floats, to_bytes, shift, points, warp, pack,
};
