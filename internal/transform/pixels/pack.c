//go:build cgo

#include "kernels.h"

#include <string.h>

#if defined(__x86_64__)
#include <immintrin.h>
#endif

// Samples are sorted by channel and mirrored in pieces of this many pixels.
enum { piece = 512 };

// gather copies channel c of n pixels to to; step is the bytes from pixel to pixel, negative to
// mirror.
static void gather(uint8_t *to, const uint8_t *from, int n, ptrdiff_t step) {
	if (step == 1) {
		memcpy(to, from, (size_t)n);
		return;
	}
	for (int i = 0; i < n; i++, from += step)
		to[i] = *from;
}

// look_up writes n converted samples of a channel; period is 3 if the channels alternate.
static void look_up(const pixels_plan *p, uint8_t *dst, const uint8_t *from, int n, int c,
	int period) {
	for (int i = 0; i < n; i++) {
		uint32_t word = p->words[c][from[i]];
		switch (p->type) {
		case type_uint8:
			dst[i] = from[i];
			break;
		case type_float32:
			memcpy(dst + 4 * (size_t)i, &word, 4);
			break;
		default:
			memcpy(dst + 2 * (size_t)i, &word, 2);
		}
		if (period == 3)
			c = c == 2 ? 0 : c + 1;
	}
}

#if defined(__x86_64__)

#define AVX2 __attribute__((target("avx2,fma,f16c")))

// Constants that convert eight samples.
typedef struct {
	__m256 mean, std, inverse;
} constants;

static inline AVX2 __m256 divide(__m256 x, __m256 by, __m256 inverse) {
	// Markstein: the error of the quotient, divided in turn, corrects its last bit. prepare in
	// kernels_cgo.go has verified this for all samples.
	__m256 q = _mm256_mul_ps(x, inverse);
	return _mm256_fmadd_ps(_mm256_fnmadd_ps(q, by, x), inverse, q);
}

static inline __attribute__((always_inline)) AVX2 void convert8(
	uint8_t *dst, int type, int unit, int normalize, __m128i samples, const constants *k) {
	__m256 x = _mm256_cvtepi32_ps(_mm256_cvtepu8_epi32(samples));
	if (unit)
		x = divide(x, _mm256_set1_ps(255), _mm256_set1_ps(1.0f / 255));
	if (normalize)
		x = divide(_mm256_sub_ps(x, k->mean), k->std, k->inverse);
	switch (type) {
	case type_float32:
		_mm256_storeu_ps((float *)dst, x);
		break;
	case type_float16:
		_mm_storeu_si128((__m128i *)dst, _mm256_cvtps_ph(x, _MM_FROUND_TO_NEAREST_INT));
		break;
	case type_bfloat16: {
		__m256i b = _mm256_castps_si256(x);
		__m256i odd = _mm256_and_si256(_mm256_srli_epi32(b, 16), _mm256_set1_epi32(1));
		b = _mm256_add_epi32(_mm256_add_epi32(b, odd), _mm256_set1_epi32(0x7fff));
		b = _mm256_srli_epi32(b, 16);
		b = _mm256_permute4x64_epi64(_mm256_packus_epi32(b, b), 0xd8);
		_mm_storeu_si128((__m128i *)dst, _mm256_castsi256_si128(b));
	}
	}
}

// compute converts as many of n samples as fill whole vectors, and returns their number. Constants
// are used in turn.
static inline __attribute__((always_inline)) AVX2 int compute(
	uint8_t *dst, int type, int unit, int normalize, const uint8_t *from, int n,
	const constants *k, int period) {
	size_t size = type == type_float32 ? 4 : 2;
	int i = 0;
	for (; i + 8 * period <= n; i += 8 * period)
		for (int j = 0; j < period; j++)
			convert8(dst + (size_t)(i + 8 * j) * size, type, unit, normalize,
			         _mm_loadl_epi64((const __m128i *)(from + i + 8 * j)), &k[j]);
	return i;
}

// computed calls compute with constant arguments, so that the compiler specializes the loop.
static AVX2 int computed(const pixels_plan *p, uint8_t *dst, const uint8_t *from, int n, int c,
	int period) {
	constants k[3];
	for (int j = 0; j < period; j++) {
		float mean[8], std[8], inverse[8];
		for (int i = 0; i < 8; i++) {
			int at = period == 3 ? (c + j * 8 + i) % 3 : c;
			mean[i] = p->mean[at], std[i] = p->std[at], inverse[i] = p->inverse[at];
		}
		k[j] = (constants){_mm256_loadu_ps(mean), _mm256_loadu_ps(std), _mm256_loadu_ps(inverse)};
	}
#define CASE(t, u, m)                                                          \
	if (p->type == (t) && p->unit == (u) && p->normalize == (m))               \
		return period == 3 ? compute(dst, (t), (u), (m), from, n, k, 3)        \
		                   : compute(dst, (t), (u), (m), from, n, k, 1);
#define CASES(t) CASE(t, 0, 0) CASE(t, 0, 1) CASE(t, 1, 0) CASE(t, 1, 1)
	CASES(type_float32)
	CASES(type_float16)
	CASES(type_bfloat16)
	return 0;
}

// sort_avx2 splits n RGB pixels into channels, mirrored or not, 16 at a time, and returns their
// number. If mirrored, it starts from the end: to is filled from its first sample in both cases.
static AVX2 int sort_avx2(uint8_t to[3][piece], const uint8_t *from, int n, int mirror) {
	int i = 0;
	const __m128i reverse = _mm_setr_epi8(15, 14, 13, 12, 11, 10, 9, 8, 7, 6, 5, 4, 3, 2, 1, 0);
	// Which bytes of each 16 (a, b, c) belong to red (r), green (g) and blue (d); -1: none.
	const __m128i r_of_a = _mm_setr_epi8(0, 3, 6, 9, 12, 15, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1);
	const __m128i r_of_b = _mm_setr_epi8(-1, -1, -1, -1, -1, -1, 2, 5, 8, 11, 14, -1, -1, -1, -1, -1);
	const __m128i r_of_c = _mm_setr_epi8(-1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, 1, 4, 7, 10, 13);
	const __m128i g_of_a = _mm_setr_epi8(1, 4, 7, 10, 13, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1);
	const __m128i g_of_b = _mm_setr_epi8(-1, -1, -1, -1, -1, 0, 3, 6, 9, 12, 15, -1, -1, -1, -1, -1);
	const __m128i g_of_c = _mm_setr_epi8(-1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, 2, 5, 8, 11, 14);
	const __m128i d_of_a = _mm_setr_epi8(2, 5, 8, 11, 14, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1);
	const __m128i d_of_b = _mm_setr_epi8(-1, -1, -1, -1, -1, 1, 4, 7, 10, 13, -1, -1, -1, -1, -1, -1);
	const __m128i d_of_c = _mm_setr_epi8(-1, -1, -1, -1, -1, -1, -1, -1, -1, -1, 0, 3, 6, 9, 12, 15);
	for (; i + 16 <= n; i += 16) {
		const uint8_t *p = mirror ? from + 3 * (n - 16 - i) : from + 3 * i;
		__m128i a = _mm_loadu_si128((const __m128i *)p), b = _mm_loadu_si128((const __m128i *)(p + 16)),
		        c = _mm_loadu_si128((const __m128i *)(p + 32));
		__m128i r = _mm_or_si128(
			_mm_or_si128(_mm_shuffle_epi8(a, r_of_a), _mm_shuffle_epi8(b, r_of_b)),
			_mm_shuffle_epi8(c, r_of_c));
		__m128i g = _mm_or_si128(
			_mm_or_si128(_mm_shuffle_epi8(a, g_of_a), _mm_shuffle_epi8(b, g_of_b)),
			_mm_shuffle_epi8(c, g_of_c));
		__m128i d = _mm_or_si128(
			_mm_or_si128(_mm_shuffle_epi8(a, d_of_a), _mm_shuffle_epi8(b, d_of_b)),
			_mm_shuffle_epi8(c, d_of_c));
		if (mirror) {
			r = _mm_shuffle_epi8(r, reverse);
			g = _mm_shuffle_epi8(g, reverse);
			d = _mm_shuffle_epi8(d, reverse);
		}
		_mm_storeu_si128((__m128i *)(to[0] + i), r);
		_mm_storeu_si128((__m128i *)(to[1] + i), g);
		_mm_storeu_si128((__m128i *)(to[2] + i), d);
	}
	return i;
}

#endif

static void convert(int level, const pixels_plan *p, uint8_t *dst, const uint8_t *from, int n,
	int c, int period) {
	if (p->type == type_uint8) {
		memcpy(dst, from, (size_t)n);
		return;
	}
	int done = 0;
#if defined(__x86_64__)
	if (level != level_plain && p->arithmetic)
		done = computed(p, dst, from, n, c, period);
#endif
	(void)level;
	// The number of samples that computed has converted is a multiple of the period.
	look_up(p, dst + (size_t)done * (p->type == type_float32 ? 4 : 2), from + done, n - done, c,
		period);
}

// planar writes n pixels, n <= piece, into channels planes.
static void planar(int level, const pixels_plan *p, uint8_t *dst, const uint8_t *from, int n,
	int channels, size_t plane, int mirror) {
	uint8_t sorted[3][piece];
	if (channels == 1 && !mirror) {
		convert(level, p, dst, from, n, 0, 1);
		return;
	}
	int done = 0;
#if defined(__x86_64__)
	if (level != level_plain && channels == 3)
		done = sort_avx2(sorted, from, n, mirror);
#endif
	for (int c = 0; c < channels; c++) {
		// If mirrored, the last pixels are sorted already.
		if (mirror)
			gather(sorted[c] + done, from + (n - 1 - done) * channels + c, n - done, -channels);
		else
			gather(sorted[c] + done, from + done * channels + c, n - done, channels);
		convert(level, p, dst + (size_t)c * plane, sorted[c], n, c, 1);
	}
}

// interleaved writes n pixels, n <= piece, in their order.
static void interleaved(int level, const pixels_plan *p, uint8_t *dst, const uint8_t *from, int n,
	int channels, int mirror) {
	uint8_t turned[3 * piece];
	if (mirror) {
		for (int i = 0; i < n; i++)
			for (int c = 0; c < channels; c++)
				turned[i * channels + c] = from[(n - 1 - i) * channels + c];
		from = turned;
	}
	convert(level, p, dst, from, n * channels, 0, channels);
}

void pixels_pack(int level, const pixels_plan *plan, uint8_t *dst, const uint8_t *src, int width,
	int height, int channels, int stride, int flip) {
	size_t element = plan->type == type_uint8 ? 1 : plan->type == type_float32 ? 4 : 2;
	size_t plane = (size_t)width * (size_t)height * element;
	int mirror = flip & flip_horizontal;
	for (int y = 0; y < height; y++) {
		const uint8_t *row = src + (size_t)y * (size_t)stride;
		size_t to = (size_t)(flip & flip_vertical ? height - 1 - y : y) * (size_t)width;
		for (int x = 0; x < width; x += piece) {
			int n = width - x < piece ? width - x : piece;
			size_t at = to + (size_t)(mirror ? width - x - n : x);
			if (plan->planar)
				planar(level, plan, dst + at * element, row + x * channels, n, channels, plane, mirror);
			else
				interleaved(level, plan, dst + at * element * (size_t)channels, row + x * channels,
					n, channels, mirror);
		}
	}
}
