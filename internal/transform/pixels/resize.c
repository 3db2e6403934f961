//go:build cgo

#include "kernels.h"

#include <string.h>

#if defined(__x86_64__)
#include <immintrin.h>
#endif

enum { precision = 22, half = 1 << (precision - 1) };

static inline uint8_t clip(int32_t sum) {
	sum >>= precision;
	return (uint8_t)(sum < 0 ? 0 : sum > 255 ? 255 : sum);
}

int pixels_level(void) {
#if defined(__x86_64__)
	if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma"))
		return level_avx2;
#endif
	return level_plain;
}

// The horizontal pass of some rows, and how.
typedef struct {
	uint8_t *dst;
	const uint8_t *src; // the first pixel of a row is pixel origin of the full row
	int width, channels, taps, origin;
	const int32_t *first, *counts, *weights;
} line;

static void line_plain(const line *l) {
	for (int i = 0; i < l->width; i++) {
		const int32_t *w = l->weights + (size_t)i * (size_t)l->taps;
		const uint8_t *from = l->src + (l->first[i] - l->origin) * l->channels;
		for (int c = 0; c < l->channels; c++) {
			int32_t sum = half;
			for (int k = 0; k < l->counts[i]; k++)
				sum += w[k] * from[k * l->channels + c];
			l->dst[i * l->channels + c] = clip(sum);
		}
	}
}

// A target row out of count source rows, of n samples from sample x on.
static void column_plain(uint8_t *dst, const uint8_t *src, size_t stride, int count, const int32_t *w, int x, int n) {
	for (; x < n; x++) {
		int32_t sum = half;
		for (int k = 0; k < count; k++)
			sum += w[k] * src[(size_t)k * stride + (size_t)x];
		dst[x] = clip(sum);
	}
}

#if defined(__x86_64__)

#define AVX2 __attribute__((target("avx2")))

// pmaddwd multiplies 16 bits by 16: a weight w of 24 bits is taken as (w >> low_bits) and the low_bits below. With
//   sum(w*x) = (sum((w >> low_bits)*x) << low_bits) + sum((w & low_mask)*x)   modulo 2^32
// the result is that of 32-bit arithmetic, overflow and all.
enum { low_bits = 11, low_mask = (1 << low_bits) - 1 };

static inline AVX2 __m256i joined(__m256i high, __m256i low) {
	__m256i sum = _mm256_add_epi32(_mm256_slli_epi32(high, low_bits), low);
	return _mm256_srai_epi32(_mm256_add_epi32(sum, _mm256_set1_epi32(half)), precision);
}

// split writes a row's weights as groups of four: four high parts, four low parts; the last group is filled up with zeros.
static void split(int16_t *to, const int32_t *w, int taps, int groups) {
	for (int g = 0; g < groups; g++)
		for (int i = 0; i < 4; i++) {
			int32_t v = g * 4 + i < taps ? w[g * 4 + i] : 0;
			*to = (int16_t)(v >> low_bits);
			to[4] = (int16_t)(v & low_mask);
			to += i == 3 ? 5 : 1;
		}
}

// Bytes of RGB pixels 0..3 as words: channel by channel, two taps beside each other; taps 0 and 1 in the low half, 2 and 3
// in the high one.
#define PAIRS_RGB                                                                                                      \
	_mm256_setr_epi8(0, -1, 3, -1, 1, -1, 4, -1, 2, -1, 5, -1, -1, -1, -1, -1, 6, -1, 9, -1, 7, -1, 10, -1, 8, -1, 11, \
	                 -1, -1, -1, -1, -1)

// Four 16-bit weights a b c d as abababab | cdcdcdcd.
#define PAIRS_WEIGHTS                                                                                                   \
	_mm256_setr_epi8(0, 1, 2, 3, 0, 1, 2, 3, 0, 1, 2, 3, 0, 1, 2, 3, 4, 5, 6, 7, 4, 5, 6, 7, 4, 5, 6, 7, 4, 5, 6, 7)

// lines_rgb_avx2 is the horizontal pass of four rows of RGB; weights are split's. Each group of taps reads 16 bytes.
static AVX2 void lines_rgb_avx2(const line *l, uint8_t *const dst[4], const uint8_t *const src[4], const int16_t *weights, int groups) {
	const __m256i pairs = PAIRS_RGB, spread = PAIRS_WEIGHTS;
	for (int i = 0; i < l->width; i++) {
		size_t at = (size_t)(l->first[i] - l->origin) * 3;
		__m256i high[4], low[4];
		for (int y = 0; y < 4; y++)
			high[y] = low[y] = _mm256_setzero_si256();
		for (int g = 0; g < groups; g++, at += 12, weights += 8) {
			int64_t w[2];
			memcpy(w, weights, sizeof w);
			__m256i wh = _mm256_shuffle_epi8(_mm256_set1_epi64x(w[0]), spread);
			__m256i wl = _mm256_shuffle_epi8(_mm256_set1_epi64x(w[1]), spread);
			for (int y = 0; y < 4; y++) {
				__m128i bytes = _mm_loadu_si128((const __m128i *)(src[y] + at));
				__m256i p = _mm256_shuffle_epi8(_mm256_broadcastsi128_si256(bytes), pairs);
				high[y] = _mm256_add_epi32(high[y], _mm256_madd_epi16(p, wh));
				low[y] = _mm256_add_epi32(low[y], _mm256_madd_epi16(p, wl));
			}
		}
		// Rows 0 and 2 in one register, 1 and 3 in another: low half + high half of each.
		for (int y = 0; y < 2; y++) {
			__m256i h = _mm256_add_epi32(_mm256_permute2x128_si256(high[y], high[y + 2], 0x20),
			                             _mm256_permute2x128_si256(high[y], high[y + 2], 0x31));
			__m256i w = _mm256_add_epi32(_mm256_permute2x128_si256(low[y], low[y + 2], 0x20),
			                             _mm256_permute2x128_si256(low[y], low[y + 2], 0x31));
			__m256i sum = joined(h, w);
			sum = _mm256_packs_epi32(sum, sum);
			sum = _mm256_packus_epi16(sum, sum);
			uint32_t first = (uint32_t)_mm256_cvtsi256_si32(sum), second = (uint32_t)_mm256_extract_epi32(sum, 4);
			memcpy(dst[y] + i * 3, &first, 3);
			memcpy(dst[y + 2] + i * 3, &second, 3);
		}
	}
}

// column_avx2 makes a target row out of count source rows, 16 samples at a time, and returns how many it made.
static AVX2 int column_avx2(uint8_t *dst, const uint8_t *src, size_t stride, int count, const int32_t *w, int n) {
	int x = 0;
	for (; x + 16 <= n; x += 16) {
		__m256i high[2], low[2];
		high[0] = high[1] = low[0] = low[1] = _mm256_setzero_si256();
		for (int k = 0; k < count; k += 2) {
			// The last of an odd number of rows goes with itself, and weight 0.
			int odd = k + 1 == count;
			int32_t w0 = w[k], w1 = odd ? 0 : w[k + 1];
			const uint8_t *row = src + (size_t)k * stride + x;
			__m128i a = _mm_loadu_si128((const __m128i *)row);
			__m128i b = _mm_loadu_si128((const __m128i *)(odd ? row : row + stride));
			__m256i wh = _mm256_set1_epi32((w0 >> low_bits & 0xffff) | (int32_t)((uint32_t)(w1 >> low_bits) << 16));
			__m256i wl = _mm256_set1_epi32((w0 & low_mask) | (w1 & low_mask) << 16);
			__m256i p = _mm256_cvtepu8_epi16(_mm_unpacklo_epi8(a, b)), q = _mm256_cvtepu8_epi16(_mm_unpackhi_epi8(a, b));
			high[0] = _mm256_add_epi32(high[0], _mm256_madd_epi16(p, wh));
			low[0] = _mm256_add_epi32(low[0], _mm256_madd_epi16(p, wl));
			high[1] = _mm256_add_epi32(high[1], _mm256_madd_epi16(q, wh));
			low[1] = _mm256_add_epi32(low[1], _mm256_madd_epi16(q, wl));
		}
		// Words 0..3 8..11 4..7 12..15 after the first packing, which works on halves.
		__m256i words = _mm256_packs_epi32(joined(high[0], low[0]), joined(high[1], low[1]));
		words = _mm256_permute4x64_epi64(words, 0xd8);
		__m256i bytes = _mm256_permute4x64_epi64(_mm256_packus_epi16(words, words), 0xd8);
		_mm_storeu_si128((__m128i *)(dst + x), _mm256_castsi256_si128(bytes));
	}
	return x;
}

#endif

// Bytes that a vector may read, or write, past the end of a row.
enum { overrun = 32 };

// Where the parts of scratch lie: weights in groups of four, and four rows with room behind them, in and out.
typedef struct {
	size_t weights, row_in, row_out;
} layout;

static layout layout_of(int width, int src_width, int channels, int taps) {
	size_t groups = (size_t)(taps + 3) / 4;
	return (layout){
		.weights = (size_t)width * groups * 8 * sizeof(int16_t),
		.row_in = (size_t)src_width * (size_t)channels + groups * 12 + overrun,
		.row_out = (size_t)width * (size_t)channels + overrun,
	};
}

size_t pixels_scratch(int width, int src_width, int channels, int horizontal_taps) {
	layout s = layout_of(width, src_width, channels, horizontal_taps);
	return s.weights + 4 * s.row_in + 4 * s.row_out;
}

// horizontal makes height rows of l->width pixels out of src.
static void horizontal(int level, line l, int height, int src_width, int stride, size_t size, uint8_t *scratch) {
	uint8_t *dst = l.dst;
	const uint8_t *src = l.src;
	size_t n = (size_t)l.width * (size_t)l.channels;
	int y = 0;
#if defined(__x86_64__)
	if (level >= level_avx2 && l.channels == 3) {
		layout s = layout_of(l.width, src_width, l.channels, l.taps);
		// Groups of four cover what is in use, which can be less than taps.
		int most = 0;
		for (int i = 0; i < l.width; i++)
			most = l.counts[i] > most ? l.counts[i] : most;
		int groups = (most + 3) / 4;
		int16_t *weights = (int16_t *)scratch;
		for (int i = 0; i < l.width; i++)
			split(weights + (size_t)i * (size_t)groups * 8, l.weights + (size_t)i * (size_t)l.taps, l.taps, groups);
		uint8_t *in = scratch + s.weights, *out = in + 4 * s.row_in;
		size_t row = (size_t)src_width * 3;
		for (; y < height; y += 4) {
			const uint8_t *from[4];
			uint8_t *to[4];
			for (int i = 0; i < 4; i++) {
				int at = y + i < height ? y + i : height - 1;
				from[i] = src + (size_t)at * (size_t)stride;
				if ((size_t)at * (size_t)stride + s.row_in > size) {
					memcpy(in + (size_t)i * s.row_in, from[i], row);
					from[i] = in + (size_t)i * s.row_in;
				}
				to[i] = y + i < height ? dst + (size_t)at * n : out;
			}
			lines_rgb_avx2(&l, to, from, weights, groups);
		}
		return;
	}
#endif
	(void)level, (void)src_width, (void)size, (void)scratch;
	for (; y < height; y++) {
		l.dst = dst + (size_t)y * n;
		l.src = src + (size_t)y * (size_t)stride;
		line_plain(&l);
	}
}

void pixels_resample(
	int level, uint8_t *dst, int width, int height, int channels,
	const uint8_t *src, int src_width, int src_height, int stride, size_t size,
	int horizontal_taps, const int32_t *horizontal_first, const int32_t *horizontal_counts,
	const int32_t *horizontal_weights, int origin_x,
	int vertical_taps, const int32_t *vertical_first, const int32_t *vertical_counts,
	const int32_t *vertical_weights, int origin_y,
	uint8_t *rows, uint8_t *scratch) {
	if (horizontal_taps > 0) {
		line l = {
			.dst = vertical_taps > 0 ? rows : dst,
			.src = src,
			.width = width,
			.channels = channels,
			.taps = horizontal_taps,
			.origin = origin_x,
			.first = horizontal_first,
			.counts = horizontal_counts,
			.weights = horizontal_weights,
		};
		horizontal(level, l, src_height, src_width, stride, size, scratch);
		src = rows;
		stride = width * channels;
	}
	int n = width * channels;
	for (int y = 0; vertical_taps > 0 && y < height; y++) {
		const uint8_t *from = src + (size_t)(vertical_first[y] - origin_y) * (size_t)stride;
		const int32_t *w = vertical_weights + (size_t)y * (size_t)vertical_taps;
		uint8_t *to = dst + (size_t)y * (size_t)n;
		int x = 0;
#if defined(__x86_64__)
		if (level >= level_avx2)
			x = column_avx2(to, from, (size_t)stride, vertical_counts[y], w, n);
#endif
		column_plain(to, from, (size_t)stride, vertical_counts[y], w, x, n);
	}
}
