//go:build cgo && amd64

#include "passes.h"

#include <immintrin.h>
#include <string.h>

#define AVX2 __attribute__((target("avx2")))

// pmaddwd multiplies 16 bits by 16: a weight is split into its low 11 bits, unsigned, and the rest.
enum { low_bits = 11, low_mask = (1 << low_bits) - 1 };

static void split(void *to, size_t stride, const int32_t *weights, int count, int groups) {
	int16_t *part = to;
	for (int k = 0; k < groups * 4; k += 4, part += stride / 2)
		for (int i = 0; i < 4; i++) {
			int32_t w = k + i < count ? weights[k + i] : 0;
			part[i] = (int16_t)(w >> low_bits);
			part[4 + i] = (int16_t)(w & low_mask);
		}
}

static inline AVX2 __m256i joined(__m256i high, __m256i low) {
	__m256i sum = _mm256_add_epi32(_mm256_slli_epi32(high, low_bits), low);
	return _mm256_srai_epi32(_mm256_add_epi32(sum, _mm256_set1_epi32(half)), precision);
}

// Sorts the words of four RGB pixels by channel, with two adjacent taps together: taps 0 and 1 in
// the low half, 2 and 3 in the high half.
#define PAIRS \
	_mm256_setr_epi8( \
		0, -1, 3, -1, 1, -1, 4, -1, 2, -1, 5, -1, -1, -1, -1, -1, \
		6, -1, 9, -1, 7, -1, 10, -1, 8, -1, 11, -1, -1, -1, -1, -1)

// Spreads four 16-bit weights a b c d to abababab cdcdcdcd.
#define SPREAD \
	_mm256_setr_epi8( \
		0, 1, 2, 3, 0, 1, 2, 3, 0, 1, 2, 3, 0, 1, 2, 3, \
		4, 5, 6, 7, 4, 5, 6, 7, 4, 5, 6, 7, 4, 5, 6, 7)

static AVX2 void lines(uint8_t *const dst[4], const uint8_t *const src[4], int width,
	const int32_t *first, int origin, const void *weights, int groups, int n) {
	(void)n;
	const __m256i pairs = PAIRS, spread = SPREAD;
	const int64_t *w = weights;
	for (int i = 0; i < width; i++) {
		size_t at = (size_t)(first[i] - origin) * 3;
		__m256i high[4], low[4];
		for (int y = 0; y < 4; y++)
			high[y] = low[y] = _mm256_setzero_si256();
		for (int g = 0; g < groups; g++, at += 12, w += 2) {
			__m256i wh = _mm256_shuffle_epi8(_mm256_set1_epi64x(w[0]), spread);
			__m256i wl = _mm256_shuffle_epi8(_mm256_set1_epi64x(w[1]), spread);
			for (int y = 0; y < 4; y++) {
				__m128i bytes = _mm_loadu_si128((const __m128i *)(src[y] + at));
				__m256i p = _mm256_shuffle_epi8(_mm256_broadcastsi128_si256(bytes), pairs);
				high[y] = _mm256_add_epi32(high[y], _mm256_madd_epi16(p, wh));
				low[y] = _mm256_add_epi32(low[y], _mm256_madd_epi16(p, wl));
			}
		}
		// Rows y and y+2 in one register: the low half and the high half of each, added.
		for (int y = 0; y < 2; y++) {
			__m256i h = _mm256_add_epi32(_mm256_permute2x128_si256(high[y], high[y + 2], 0x20),
			                             _mm256_permute2x128_si256(high[y], high[y + 2], 0x31));
			__m256i l = _mm256_add_epi32(_mm256_permute2x128_si256(low[y], low[y + 2], 0x20),
			                             _mm256_permute2x128_si256(low[y], low[y + 2], 0x31));
			__m256i sum = joined(h, l);
			sum = _mm256_packs_epi32(sum, sum);
			sum = _mm256_packus_epi16(sum, sum);
			uint32_t a = (uint32_t)_mm256_cvtsi256_si32(sum), b = (uint32_t)_mm256_extract_epi32(sum, 4);
			store_pixel(dst[y], i, width, a);
			store_pixel(dst[y + 2], i, width, b);
		}
	}
}

// sixteen computes 16 samples of a target row.
static inline AVX2 __m128i sixteen(const uint8_t *src, size_t stride, int count, const int16_t *w) {
	__m256i high[2], low[2];
	high[0] = high[1] = low[0] = low[1] = _mm256_setzero_si256();
	for (int k = 0; k < count; k += 2) {
		const uint8_t *row = src + (size_t)k * stride;
		__m128i a = _mm_loadu_si128((const __m128i *)row);
		// The last of an odd number of rows is paired with itself: the second weight is 0.
		__m128i b = _mm_loadu_si128((const __m128i *)(k + 1 < count ? row + stride : row));
		int32_t pair[2];
		memcpy(&pair[0], w + k / 4 * 8 + k % 4, 4);
		memcpy(&pair[1], w + k / 4 * 8 + k % 4 + 4, 4);
		__m256i wh = _mm256_set1_epi32(pair[0]), wl = _mm256_set1_epi32(pair[1]);
		__m256i p = _mm256_cvtepu8_epi16(_mm_unpacklo_epi8(a, b)),
			q = _mm256_cvtepu8_epi16(_mm_unpackhi_epi8(a, b));
		high[0] = _mm256_add_epi32(high[0], _mm256_madd_epi16(p, wh));
		low[0] = _mm256_add_epi32(low[0], _mm256_madd_epi16(p, wl));
		high[1] = _mm256_add_epi32(high[1], _mm256_madd_epi16(q, wh));
		low[1] = _mm256_add_epi32(low[1], _mm256_madd_epi16(q, wl));
	}
	// Packing works on halves of registers; the permutations restore the order of quarters.
	__m256i words = _mm256_packs_epi32(joined(high[0], low[0]), joined(high[1], low[1]));
	words = _mm256_permute4x64_epi64(words, 0xd8);
	return _mm256_castsi256_si128(_mm256_permute4x64_epi64(_mm256_packus_epi16(words, words), 0xd8));
}

static AVX2 void column(uint8_t *dst, const uint8_t *src, size_t stride, int count,
	const void *weights, int groups, int n) {
	(void)groups;
	int x = 0;
	for (; x + 16 <= n; x += 16)
		_mm_storeu_si128((__m128i *)(dst + x), sixteen(src + x, stride, count, weights));
	if (x == n)
		return;
	if (n >= 16) {
		// The last 16, which may overlap those before.
		_mm_storeu_si128((__m128i *)(dst + n - 16), sixteen(src + n - 16, stride, count, weights));
		return;
	}
	const int16_t *w = weights;
	for (; x < n; x++) {
		int32_t sum = half;
		for (int k = 0; k < count; k++) {
			const int16_t *part = w + k / 4 * 8 + k % 4;
			sum += (int32_t)((uint32_t)part[0] << low_bits | (uint32_t)part[4]) *
				src[(size_t)k * stride + (size_t)x];
		}
		sum >>= precision;
		dst[x] = (uint8_t)(sum < 0 ? 0 : sum > 255 ? 255 : sum);
	}
}

const vector_passes passes_avx2 = {16, 1, 0, split, lines, column};
