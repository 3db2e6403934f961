// The loops over rows of PIL's operations and of packing, one set for each level of vector
// instructions, and their arithmetic for one pixel, which vector code uses at edges and for what is
// left of a row.
//
// Floating-point results must equal PIL's to the bit, so products are rounded before they are
// added: the package is compiled with -std=c11, in which GCC does not contract expressions.
#ifndef HDMLP_PIXELS_ROWS_H
#define HDMLP_PIXELS_ROWS_H

#include "kernels.h"

#include <math.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#if defined(__clang__)
#pragma STDC FP_CONTRACT OFF
#endif

// Running extremes: of the samples at positions that are equal modulo this number.
enum { extremes_period = 192 };

// The floats of a row that weigh sums at once; rows are padded to a multiple.
enum { weigh_block = 64 };

typedef struct {
	void (*map_all)(uint8_t *row, int n, const uint8_t *table);
	void (*map_each)(uint8_t *row, int n, const uint8_t *tables);
	void (*mirror)(uint8_t *row, int pixels, int channels);
	void (*extremes)(const uint8_t *row, int n, uint8_t *least, uint8_t *most);
	int64_t (*lumas)(const uint8_t *row, int pixels);
	void (*gray)(uint8_t *dst, const uint8_t *src, int pixels, int channels);
	void (*saturate)(uint8_t *row, int pixels, float factor);
	void (*turn)(uint8_t *row, int pixels, int shift, const float *rest, const float *share);
	// columns is scratch of n numbers.
	void (*sharpen)(uint8_t *dst, const uint8_t *above, const uint8_t *row, const uint8_t *below,
		uint16_t *columns, int n, int channels, float factor);
	// One pass of a blur over lines of pixels_line bytes.
	void (*box)(uint8_t *dst, size_t dst_stride, const uint8_t *src, size_t src_stride, int length,
		pixels_box b);
	// Sets n sums, a multiple of weigh_block, to the weighted sums of the rows at these offsets.
	void (*weigh)(float *sums, const float *rows, const int32_t *offsets, const float *weights,
		int taps, int n);
	void (*to_floats)(float *dst, const uint8_t *src, int n);
	void (*to_bytes)(uint8_t *dst, const float *src, int n);
	void (*shift)(uint8_t *dst, const pixels_image *src, int32_t u, int32_t v, int32_t across,
		int32_t down, int n);
	void (*points)(const pixels_transform *t, double y, int n, double *u, double *v);
	void (*warp)(uint8_t *dst, const pixels_image *src, const pixels_transform *t, const double *u,
		const double *v, int n);
	// Packs an image in arithmetic; reports whether it has: some are too narrow. NULL: none are.
	int (*pack)(const pixels_plan *plan, uint8_t *dst, const pixels_image *src, int flip);
} row_loops;

extern const row_loops rows_plain, rows_avx2, rows_avx512;

static inline const row_loops *rows_of(int level) {
#if defined(__x86_64__)
	if (level >= level_avx512)
		return &rows_avx512;
	if (level == level_avx2)
		return &rows_avx2;
#endif
	(void)level;
	return &rows_plain;
}

// mirror_pixels mirrors the pixels first..end-1 of a row.
static inline void mirror_pixels(uint8_t *row, int first, int end, int channels) {
	uint8_t *a = row + first * channels, *b = row + (end - 1) * channels;
	for (; a < b; a += channels, b -= channels)
		for (int c = 0; c < channels; c++) {
			uint8_t level = a[c];
			a[c] = b[c];
			b[c] = level;
		}
}

static inline int luma(const uint8_t *p) {
	return (int)((p[0] * 19595u + p[1] * 38470u + p[2] * 7471u + 0x8000u) >> 16);
}

static inline uint8_t mix(int a, int b, float factor) {
	float v = (float)a + factor * (float)(b - a);
	v = v > 0.0f ? v : 0.0f;
	v = v < 255.0f ? v : 255.0f;
	return (uint8_t)(int)v;
}

static inline void saturate_pixel(uint8_t *p, float factor) {
	int l = luma(p);
	for (int c = 0; c < 3; c++)
		p[c] = mix(l, p[c], factor);
}

// turn_pixel shifts the hue: PIL's rgb2hsv and hsv2rgb, with float and double in the same places.
static inline void turn_pixel(uint8_t *p, int shift, const float *rest, const float *share) {
	int r = p[0], g = p[1], b = p[2];
	int high = r > g ? r : g, low = r < g ? r : g;
	high = high > b ? high : b;
	low = low < b ? low : b;
	float span = (float)(high - low);
	int saturation = high == low ? 0 : (int)((double)(span / (float)high) * 255.0);
	if (saturation == 0) {
		memset(p, high, 3);
		return;
	}
	// The two channels whose distances from the highest one give the hue.
	int first = r == high ? b : g == high ? r : g, second = r == high ? g : g == high ? b : r;
	double base = r == high ? 0.0 : g == high ? 2.0 : 4.0;
	float hue = (float)(base + (float)(high - first) / span - (float)(high - second) / span);
	double turned = hue / 6.0 + 1.0;
	hue = (float)(turned >= 1.0 ? turned - 1.0 : turned);
	int h = ((int)(hue * 255.0) + shift) & 255;

	float f = rest[h], s = share[saturation];
	int sector = h * 1543 >> 16; // 6 * h / 255; 6 is the same as 0
	int lowest = (int)(high * (1.0 - s) + 0.5);
	double distance = sector & 1 ? (double)(float)(s * f) : s * (1.0 - f);
	int between = (int)(high * (1.0 - distance) + 0.5);
	int levels[3] = {high, between, lowest};
	static const uint8_t places[7][3] = {
		{0, 1, 2}, {1, 0, 2}, {2, 0, 1}, {2, 1, 0}, {1, 2, 0}, {0, 2, 1}, {0, 1, 2},
	};
	for (int c = 0; c < 3; c++)
		p[c] = (uint8_t)levels[places[sector][c]];
}

// shift_pixels copies pixels from..n-1 of those that are step by step at points in 16.16 bits.
static inline void shift_pixels(uint8_t *dst, const pixels_image *m, int32_t u, int32_t v,
	int32_t across, int32_t down, int from, int n) {
	size_t channels = (size_t)m->channels;
	const uint8_t *last = m->pix + (size_t)(m->height - 1) * (size_t)m->stride +
		(size_t)(m->width - 1) * channels;
	for (int i = from; i < n; i++) {
		// The points are inside the image, but steps past the last one may not be.
		int64_t x = (u + (int64_t)i * across) >> 16, y = (v + (int64_t)i * down) >> 16;
		const uint8_t *pixel = m->pix + y * m->stride + x * m->channels;
		uint8_t *to = dst + (size_t)i * channels;
		if (channels == 1)
			*to = *pixel;
		else if (i + 1 < n && pixel < last)
			memcpy(to, pixel, 4); // the next pixel overwrites the last byte
		else
			memcpy(to, pixel, 3);
	}
}

// clamped returns position i if it is in [0, n), or the nearest one that is.
static inline int clamped(int i, int n) { return i < 0 ? 0 : i < n ? i : n - 1; }

static inline double between(double a, double b, double d) { return a + (b - a) * d; }

static inline double cubic(double a, double b, double c, double d, double t) {
	double first = -a + c;
	double second = 2 * (a - b) + c - d;
	double third = -a + b - c + d;
	return b + t * (first + t * (second + t * third));
}

static inline void bilinear_pixel(uint8_t *dst, const pixels_image *m, double u, double v) {
	int x = (int)floor(u), y = (int)floor(v);
	double dx = u - x, dy = v - y;
	int left = clamped(x, m->width) * m->channels, right = clamped(x + 1, m->width) * m->channels;
	const uint8_t *line = m->pix + (size_t)clamped(y, m->height) * (size_t)m->stride;
	const uint8_t *next = line;
	if (y + 1 < m->height)
		next = m->pix + (size_t)(y + 1) * (size_t)m->stride;
	for (int c = 0; c < m->channels; c++) {
		double a = between(line[left + c], line[right + c], dx);
		double b = between(next[left + c], next[right + c], dx);
		dst[c] = (uint8_t)between(a, b, dy);
	}
}

static inline void bicubic_pixel(uint8_t *dst, const pixels_image *m, double u, double v) {
	int x = (int)floor(u), y = (int)floor(v);
	double dx = u - x, dy = v - y;
	int at[4];
	for (int k = 0; k < 4; k++)
		at[k] = clamped(x - 1 + k, m->width) * m->channels;
	for (int c = 0; c < m->channels; c++) {
		double lines[4];
		for (int k = 0; k < 4; k++) {
			int row = y - 1 + k;
			if (k > 0 && (row < 0 || row >= m->height)) {
				lines[k] = lines[k - 1];
				continue;
			}
			const uint8_t *line = m->pix + (size_t)clamped(row, m->height) * (size_t)m->stride + c;
			lines[k] = cubic(line[at[0]], line[at[1]], line[at[2]], line[at[3]], dx);
		}
		double sum = cubic(lines[0], lines[1], lines[2], lines[3], dy);
		dst[c] = (uint8_t)(sum <= 0 ? 0 : sum >= 255 ? 255 : sum);
	}
}

// warp_pixel sets one pixel to what the filter finds at a point.
static inline void warp_pixel(uint8_t *dst, const pixels_image *m, const pixels_transform *t,
	double u, double v) {
	// Not the complement: PIL takes a point that is not a number for one inside.
	int outside = u < 0 || u >= m->width || v < 0 || v >= m->height;
	int nowhere = u != u || v != v;
	if (outside || (nowhere && t->filter == filter_nearest))
		memcpy(dst, t->fill, (size_t)m->channels);
	else if (nowhere)
		memset(dst, 0, (size_t)m->channels);
	else if (t->filter == filter_nearest)
		memcpy(dst, m->pix + (size_t)v * (size_t)m->stride + (size_t)u * (size_t)m->channels,
			(size_t)m->channels);
	else if (t->filter == filter_bilinear)
		bilinear_pixel(dst, m, u - 0.5, v - 0.5);
	else
		bicubic_pixel(dst, m, u - 0.5, v - 0.5);
}

#endif
