//go:build cgo && amd64

#include "passes.h"

#include <immintrin.h>
#include <string.h>

#define AVX512 __attribute__((target("avx512f,avx512bw,avx512vl,avx512vnni")))

// vpdpbusd multiplies four samples by four signed bytes and adds the products: a weight is three
// such bytes. Weights must be below 2^23 - 2^15 in absolute value; Pillow's are below 2^22 * 1.5
// for all filters.
static void split(void *to, const int32_t *weights, int count, int groups) {
	int8_t *part = to;
	for (int k = 0; k < groups * 4; k += 4, part += 12)
		for (int i = 0; i < 4; i++) {
			int32_t w = k + i < count ? weights[k + i] : 0;
			for (int j = 0; j < 3; j++) {
				part[4 * j + i] = (int8_t)w;
				w = (w - (int8_t)w) >> 8;
			}
		}
}

static inline AVX512 __m512i joined(const __m512i part[3]) {
	__m512i sum = _mm512_add_epi32(_mm512_slli_epi32(part[2], 16), _mm512_slli_epi32(part[1], 8));
	sum = _mm512_add_epi32(_mm512_add_epi32(sum, part[0]), _mm512_set1_epi32(half));
	return _mm512_srai_epi32(sum, precision);
}

static inline AVX512 __m512i weight(const int8_t *w) {
	int32_t four;
	memcpy(&four, w, 4);
	return _mm512_set1_epi32(four);
}

// A row in each quarter of a register.
static AVX512 void lines(uint8_t *const dst[4], const uint8_t *const src[4], int width,
	const int32_t *first, int origin, const void *weights, int groups) {
	// Of four RGB pixels: four reds, four greens, four blues.
	const __m512i sorted = _mm512_broadcast_i32x4(
		_mm_setr_epi8(0, 3, 6, 9, 1, 4, 7, 10, 2, 5, 8, 11, -1, -1, -1, -1));
	const int8_t *w = weights;
	for (int i = 0; i < width; i++) {
		size_t at = (size_t)(first[i] - origin) * 3;
		__m512i part[3] = {_mm512_setzero_si512(), _mm512_setzero_si512(), _mm512_setzero_si512()};
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

static AVX512 void column(uint8_t *dst, const uint8_t *src, size_t stride, int count,
	const void *weights, int groups, int n) {
	for (int x = 0; x < n; x += 64) {
		__mmask64 mask = n - x >= 64 ? ~0ull : ~0ull >> (64 - (n - x));
		__m512i part[4][3];
		for (int q = 0; q < 4; q++)
			for (int j = 0; j < 3; j++)
				part[q][j] = _mm512_setzero_si512();
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

const vector_passes passes_avx512 = {12, split, lines, column};
