//go:build cgo && amd64

#include "rows.h"

#include <immintrin.h>

#define TARGET __attribute__((target("avx2,fma,f16c")))
#define LANES 8
#include "vectors.h"

static inline TARGET ints load_bytes(const uint8_t *p) {
	return (ints)_mm256_cvtepu8_epi32(_mm_loadl_epi64((const __m128i *)p));
}

static inline TARGET void store_bytes(uint8_t *p, ints v) {
	__m256i x = _mm256_packus_epi32((__m256i)v, (__m256i)v);
	x = _mm256_packus_epi16(x, x);
	__m128i low = _mm256_castsi256_si128(x), high = _mm256_extracti128_si256(x, 1);
	_mm_storel_epi64((__m128i *)p, _mm_unpacklo_epi32(low, high));
}

// load_pixels loads RGB pixels, each into the low bytes of a number.
static inline TARGET ints load_pixels(const uint8_t *p) {
	const __m256i spread = _mm256_setr_epi8(
		0, 1, 2, -1, 3, 4, 5, -1, 6, 7, 8, -1, 9, 10, 11, -1,
		4, 5, 6, -1, 7, 8, 9, -1, 10, 11, 12, -1, 13, 14, 15, -1);
	__m128i low = _mm_loadu_si128((const __m128i *)p);
	__m128i high = _mm_loadu_si128((const __m128i *)(p + 8));
	return (ints)_mm256_shuffle_epi8(_mm256_set_m128i(high, low), spread);
}

#define PACKED 0, 1, 2, 4, 5, 6, 8, 9, 10, 12, 13, 14, -1, -1, -1, -1

static inline TARGET void store_pixels(uint8_t *p, ints v) {
	__m256i x = _mm256_shuffle_epi8((__m256i)v, _mm256_setr_epi8(PACKED, PACKED));
	x = _mm256_permutevar8x32_epi32(x, _mm256_setr_epi32(0, 1, 2, 4, 5, 6, 7, 7));
	_mm_storeu_si128((__m128i *)p, _mm256_castsi256_si128(x));
	_mm_storel_epi64((__m128i *)(p + 16), _mm256_extracti128_si256(x, 1));
}

static inline TARGET ints reversed(ints v) {
	const __m256i order = _mm256_setr_epi32(7, 6, 5, 4, 3, 2, 1, 0);
	return (ints)_mm256_permutevar8x32_epi32((__m256i)v, order);
}

static inline TARGET void store_half(uint8_t *p, halves v) {
	__m128i x = _mm_shuffle_epi8((__m128i)v, _mm_setr_epi8(PACKED));
	int32_t last = _mm_extract_epi32(x, 2);
	_mm_storel_epi64((__m128i *)p, x);
	memcpy(p + 8, &last, 4);
}

// gather loads the eight bytes at each position.
static inline TARGET longs gather(const uint8_t *base, halves at) {
	return (longs)_mm256_i32gather_epi64((const long long *)base, (__m128i)at, 1);
}

// gather_pixels loads four bytes at each position.
static inline TARGET ints gather_pixels(const uint8_t *base, ints at) {
	return (ints)_mm256_i32gather_epi32((const int *)base, (__m256i)at, 1);
}

static inline TARGET halves gather_half(const uint8_t *base, halves at) {
	return (halves)_mm_i32gather_epi32((const int *)base, (__m128i)at, 1);
}

// below reports whether all numbers are below a limit.
static inline TARGET int below(ints v, int limit) {
	__m256i is = _mm256_cmpgt_epi32(_mm256_set1_epi32(limit), (__m256i)v);
	return _mm256_movemask_epi8(is) == -1;
}

// whole returns the integer parts.
static inline TARGET halves whole(doubles v) { return (halves)_mm256_cvttpd_epi32((__m256d)v); }

// Of float32 in the low and the high half of a vector, as float64, and back; and integer parts.
static inline TARGET doubles low_doubles(floats v) {
	return (doubles)_mm256_cvtps_pd(_mm256_castps256_ps128((__m256)v));
}

static inline TARGET doubles high_doubles(floats v) {
	return (doubles)_mm256_cvtps_pd(_mm256_extractf128_ps((__m256)v, 1));
}

static inline TARGET floats joined(doubles low, doubles high) {
	return (floats)_mm256_set_m128(_mm256_cvtpd_ps((__m256d)high), _mm256_cvtpd_ps((__m256d)low));
}

static inline TARGET ints joined_whole(doubles low, doubles high) {
	return (ints)_mm256_set_m128i((__m128i)whole(high), (__m128i)whole(low));
}

static inline TARGET floats look_up_floats(const float *table, ints at) {
	return (floats)_mm256_i32gather_ps(table, (__m256i)at, 4);
}

// limited and limited_half clip to the levels from 0 to 255; what is not a number gives 0.
static inline TARGET floats limited(floats v) {
	__m256 x = _mm256_max_ps((__m256)v, _mm256_setzero_ps());
	return (floats)_mm256_min_ps(x, _mm256_set1_ps(255.0f));
}

static inline TARGET doubles limited_half(doubles v) {
	__m256d x = _mm256_max_pd((__m256d)v, _mm256_setzero_pd());
	return (doubles)_mm256_min_pd(x, _mm256_set1_pd(255.0));
}

static inline TARGET int zeros(doubles v) {
	__m256d equal = _mm256_cmp_pd((__m256d)v, _mm256_setzero_pd(), _CMP_EQ_OQ);
	return _mm256_movemask_pd(equal) == 15;
}

// inside reports whether all points are in [first, right) x [first, bottom).
static inline TARGET int inside(doubles u, doubles v, double first, double right, double bottom) {
	__m256d least = _mm256_set1_pd(first);
	__m256d in = _mm256_cmp_pd((__m256d)u, least, _CMP_GE_OQ);
	in = _mm256_and_pd(in, _mm256_cmp_pd((__m256d)v, least, _CMP_GE_OQ));
	in = _mm256_and_pd(in, _mm256_cmp_pd((__m256d)u, _mm256_set1_pd(right), _CMP_LT_OQ));
	in = _mm256_and_pd(in, _mm256_cmp_pd((__m256d)v, _mm256_set1_pd(bottom), _CMP_LT_OQ));
	return _mm256_movemask_pd(in) == 15;
}

// fused returns a * b + c, rounded once.
static inline TARGET floats fused(floats a, floats b, floats c) {
	return (floats)_mm256_fmadd_ps((__m256)a, (__m256)b, (__m256)c);
}

static inline TARGET void store_floats(uint8_t *p, floats v) {
	_mm256_storeu_ps((float *)p, (__m256)v);
}

static inline TARGET void store_halves(uint8_t *p, floats v) {
	_mm_storeu_si128((__m128i *)p, _mm256_cvtps_ph((__m256)v, _MM_FROUND_TO_NEAREST_INT));
}

static inline TARGET void store_bfloats(uint8_t *p, floats v) {
	words bits = (words)v;
	bits = (bits + (bits >> 16 & 1) + 0x7fff) >> 16;
	__m256i x = _mm256_packus_epi32((__m256i)bits, (__m256i)bits);
	x = _mm256_permute4x64_epi64(x, 0xd8);
	_mm_storeu_si128((__m128i *)p, _mm256_castsi256_si128(x));
}

#include "rows_loops.h"
#include "rows_vectors.h"
#include "pack_vectors.h"

const row_loops rows_avx2 = {
	map_all, map_each, mirror, extremes, lumas, gray, saturate, turn, sharpen, box, weigh,
	to_floats, to_bytes, shift, points, warp, pack,
};
