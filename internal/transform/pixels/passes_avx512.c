//go:build cgo && amd64

#include "passes.h"

#include <immintrin.h>
#include <string.h>

#define AVX512 __attribute__((target("avx512f,avx512bw,avx512vl,avx512vnni")))
#define AVX512_VBMI __attribute__((target("avx512f,avx512bw,avx512vl,avx512vnni,avx512vbmi")))
#define INLINE static inline __attribute__((always_inline))

// vpdpbusd multiplies four samples by four signed bytes and adds the products: a weight is three
// such bytes. Weights must be below 2^23 - 2^15 in absolute value; Pillow's are below 2^22 * 1.5
// for all filters.
static void split(void *to, size_t stride, const int32_t *weights, int count, int groups) {
	int8_t *part = to;
	for (int k = 0; k < groups * 4; k += 4, part += stride)
		for (int i = 0; i < 4; i++) {
			int32_t w = k + i < count ? weights[k + i] : 0;
			for (int j = 0; j < 3; j++) {
				part[4 * j + i] = (int8_t)w;
				w = (w - (int8_t)w) >> 8;
			}
		}
}

// start sets sums of parts to what rounds their total.
INLINE AVX512 void start(__m512i part[3]) {
	part[0] = part[1] = _mm512_setzero_si512();
	part[2] = _mm512_set1_epi32(half >> 16);
}

INLINE AVX512 __m512i joined(const __m512i part[3]) {
	__m512i sum = _mm512_add_epi32(_mm512_slli_epi32(part[2], 8), part[1]);
	sum = _mm512_add_epi32(_mm512_slli_epi32(sum, 8), part[0]);
	return _mm512_srai_epi32(sum, precision);
}

INLINE AVX512 __m512i weight(const int8_t *w) {
	int32_t four;
	memcpy(&four, w, 4);
	return _mm512_set1_epi32(four);
}

// A row in each quarter of a register.
static AVX512 void lines(uint8_t *const dst[4], const uint8_t *const src[4], int width,
	const int32_t *first, int origin, const void *weights, int groups, int n) {
	(void)n;
	// Of four RGB pixels: four reds, four greens, four blues.
	const __m512i sorted = _mm512_broadcast_i32x4(
		_mm_setr_epi8(0, 3, 6, 9, 1, 4, 7, 10, 2, 5, 8, 11, -1, -1, -1, -1));
	const int8_t *w = weights;
	for (int i = 0; i < width; i++) {
		size_t at = (size_t)(first[i] - origin) * 3;
		__m512i part[3];
		start(part);
		for (int g = 0; g < groups; g++, at += 12, w += 12) {
			__m512i p = _mm512_castsi128_si512(_mm_loadu_si128((const __m128i *)(src[0] + at)));
			p = _mm512_inserti32x4(p, _mm_loadu_si128((const __m128i *)(src[1] + at)), 1);
			p = _mm512_inserti32x4(p, _mm_loadu_si128((const __m128i *)(src[2] + at)), 2);
			p = _mm512_inserti32x4(p, _mm_loadu_si128((const __m128i *)(src[3] + at)), 3);
			p = _mm512_shuffle_epi8(p, sorted);
			for (int j = 0; j < 3; j++)
				part[j] = _mm512_dpbusd_epi32(part[j], p, weight(w + 4 * j));
		}
		__m512i sum = _mm512_max_epi32(joined(part), _mm512_setzero_si512());
		__m128i four = _mm512_cvtusepi32_epi8(sum); // one row in each 32 bits
		uint32_t pixel[4];
		memcpy(pixel, &four, 16);
		for (int y = 0; y < 4; y++)
			store_pixel(dst[y], i, width, pixel[y]);
	}
}

// five_pixels is lines_vbmi, which compiles it for one group and for any number.
INLINE AVX512_VBMI void five_pixels(uint8_t *const dst[4], const uint8_t *const src[4], int width,
	const int32_t *first, int origin, const int8_t *w, int groups, int n) {
	// Each number of 32 bits has four samples of a channel of a target pixel. Where the pixel's
	// number is among those of 32 bits, where the samples are from the first pixel on, and where the
	// pixel's weights are.
	uint8_t pixel[64] __attribute__((aligned(64))), sample[64] __attribute__((aligned(64)));
	int32_t group[16] __attribute__((aligned(64)));
	for (int k = 0; k < 64; k++) {
		pixel[k] = (uint8_t)(k / 12 * 4);
		sample[k] = (uint8_t)(k / 4 % 3 + k % 4 * 3);
		group[k / 4] = k / 12 * 3;
	}
	// Packing leaves four bytes of each row in each quarter.
	const __m512i rows = _mm512_setr_epi32(0, 4, 8, 12, 1, 5, 9, 13, 2, 6, 10, 14, 3, 7, 11, 15);
	for (int i = 0; i < width; i += n) {
		int left = width - i < n ? width - i : n;
		size_t at = (size_t)(first[i] - origin) * 3;
		__m256i apart = _mm256_sub_epi32(
			_mm256_maskz_loadu_epi32((__mmask8)((1 << left) - 1), first + i),
			_mm256_set1_epi32(first[i]));
		apart = _mm256_add_epi32(apart, _mm256_add_epi32(apart, apart));
		__m512i bytes = _mm512_add_epi8(_mm512_load_si512(sample),
			_mm512_permutexvar_epi8(_mm512_load_si512(pixel), _mm512_castsi256_si512(apart)));
		__m512i part[4][3];
		for (int y = 0; y < 4; y++)
			start(part[y]);
		for (int g = 0; g < groups; g++, at += 12, w += 12 * n) {
			__m512i all = _mm512_loadu_si512(w), by[3];
			for (int j = 0; j < 3; j++)
				by[j] = _mm512_permutexvar_epi32(
					_mm512_add_epi32(_mm512_load_si512(group), _mm512_set1_epi32(j)), all);
			for (int y = 0; y < 4; y++) {
				__m512i p = _mm512_permutexvar_epi8(bytes, _mm512_loadu_si512(src[y] + at));
				for (int j = 0; j < 3; j++)
					part[y][j] = _mm512_dpbusd_epi32(part[y][j], p, by[j]);
			}
		}
		__m512i all = _mm512_permutexvar_epi32(rows, _mm512_packus_epi16(
			_mm512_packs_epi32(joined(part[0]), joined(part[1])),
			_mm512_packs_epi32(joined(part[2]), joined(part[3]))));
		__m128i row[4] = {_mm512_castsi512_si128(all), _mm512_extracti32x4_epi32(all, 1),
		                  _mm512_extracti32x4_epi32(all, 2), _mm512_extracti32x4_epi32(all, 3)};
		for (int y = 0; y < 4; y++) {
			uint8_t *to = dst[y] + i * 3;
			if (width - i > 5) // the next pixels overwrite what is beyond
				_mm_storeu_si128((__m128i *)to, row[y]);
			else
				_mm_mask_storeu_epi8(to, (__mmask16)((1 << 3 * left) - 1), row[y]);
		}
	}
}

static AVX512_VBMI void lines_vbmi(uint8_t *const dst[4], const uint8_t *const src[4], int width,
	const int32_t *first, int origin, const void *weights, int groups, int n) {
	if (groups == 1)
		five_pixels(dst, src, width, first, origin, weights, 1, n);
	else
		five_pixels(dst, src, width, first, origin, weights, groups, n);
}

// columns is column, which compiles it for one group and for any number.
INLINE AVX512 void columns(uint8_t *dst, const uint8_t *src, size_t stride, int count,
	const int8_t *weights, int groups, int n) {
	for (int x = 0; x < n; x += 64) {
		__mmask64 mask = n - x >= 64 ? ~0ull : ~0ull >> (64 - (n - x));
		__m512i part[4][3];
		for (int q = 0; q < 4; q++)
			start(part[q]);
		const int8_t *w = weights;
		for (int g = 0; g < groups; g++, w += 12) {
			__m512i row[4];
			for (int i = 0; i < 4; i++) {
				int k = g * 4 + i < count ? g * 4 + i : count - 1; // weights after the last are 0
				row[i] = _mm512_maskz_loadu_epi8(mask, src + (size_t)k * stride + x);
			}
			// Interleaves samples of four rows. Packing reverses the change of order by unpacking.
			__m512i ab[2] = {_mm512_unpacklo_epi8(row[0], row[1]), _mm512_unpackhi_epi8(row[0], row[1])};
			__m512i cd[2] = {_mm512_unpacklo_epi8(row[2], row[3]), _mm512_unpackhi_epi8(row[2], row[3])};
			__m512i four[4] = {_mm512_unpacklo_epi16(ab[0], cd[0]), _mm512_unpackhi_epi16(ab[0], cd[0]),
			                   _mm512_unpacklo_epi16(ab[1], cd[1]), _mm512_unpackhi_epi16(ab[1], cd[1])};
			for (int j = 0; j < 3; j++) {
				__m512i by = weight(w + 4 * j);
				for (int q = 0; q < 4; q++)
					part[q][j] = _mm512_dpbusd_epi32(part[q][j], four[q], by);
			}
		}
		__m512i low = _mm512_packs_epi32(joined(part[0]), joined(part[1]));
		__m512i high = _mm512_packs_epi32(joined(part[2]), joined(part[3]));
		_mm512_mask_storeu_epi8(dst + x, mask, _mm512_packus_epi16(low, high));
	}
}

static AVX512 void column(uint8_t *dst, const uint8_t *src, size_t stride, int count,
	const void *weights, int groups, int n) {
	if (groups == 1)
		columns(dst, src, stride, count, weights, 1, n);
	else
		columns(dst, src, stride, count, weights, groups, n);
}

const vector_passes passes_avx512 = {12, 1, 0, split, lines, column};
const vector_passes passes_vbmi = {12, 5, 17, split, lines_vbmi, column};
