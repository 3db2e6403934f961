// The two passes of a resize in vector instructions, for resize.c. Only on x86-64.
#ifndef HDMLP_PIXELS_PASSES_H
#define HDMLP_PIXELS_PASSES_H

#include <stddef.h>
#include <stdint.h>
#include <string.h>

enum { precision = 22, half = 1 << (precision - 1) };

// Bytes that a vector may read past the end of what it needs.
enum { overrun = 64 };

// Weights are 24-bit numbers, and vector instructions multiply samples by fewer bits. Each kernel
// splits a weight into a sum of parts, w = sum of part[i] << shift[i], and sums the products of
// each part separately:
//   sum(w*x) = sum over i of (sum(part[i]*x) << shift[i])   modulo 2^32
// The result equals that of 32-bit arithmetic, including overflow. Weights are stored in groups of
// four, one part after the other, and the last group is padded with zeros.
typedef struct {
	// Bytes of a group of four weights.
	size_t group;
	// The most target pixels of a row that lines computes at once, and how many pixels the first
	// source pixels of the last one and the first one are apart then, at most.
	int together, apart;
	// Writes count weights as groups, which begin stride bytes apart.
	void (*split)(void *to, size_t stride, const int32_t *weights, int count, int groups);
	// The horizontal pass of four rows of RGB, n pixels at a time. Target pixel i starts at source
	// pixel first[i]. The weights of n pixels lie together: the first group of each, and so on.
	void (*lines)(uint8_t *const dst[4], const uint8_t *const src[4], int width,
		const int32_t *first, int origin, const void *weights, int groups, int n);
	// The vertical pass of one target row of n samples, from count rows.
	void (*column)(uint8_t *dst, const uint8_t *src, size_t stride, int count, const void *weights,
		int groups, int n);
} vector_passes;

// store_pixel writes pixel i of width: four bytes if the next pixel will overwrite the last of
// them.
static inline void store_pixel(uint8_t *row, int i, int width, uint32_t pixel) {
	if (i + 1 < width)
		memcpy(row + i * 3, &pixel, 4);
	else
		memcpy(row + i * 3, &pixel, 3);
}

extern const vector_passes passes_avx2, passes_avx512, passes_vbmi;

#endif
