//go:build cgo

#include "rows.h"

#define TARGET
#include "rows_loops.h"

static void mirror(uint8_t *row, int pixels, int channels) {
	mirror_pixels(row, 0, pixels, channels);
}

static int64_t lumas(const uint8_t *row, int pixels) {
	int64_t sum = 0;
	for (int i = 0; i < pixels; i++)
		sum += luma(row + 3 * (size_t)i);
	return sum;
}

static void gray(uint8_t *dst, const uint8_t *src, int pixels, int channels) {
	for (int i = 0; i < pixels; i++, src += 3) {
		uint8_t l = (uint8_t)luma(src);
		for (int c = 0; c < channels; c++)
			*dst++ = l;
	}
}

static void saturate(uint8_t *row, int pixels, float factor) {
	for (int i = 0; i < pixels; i++)
		saturate_pixel(row + 3 * (size_t)i, factor);
}

static void turn(uint8_t *row, int pixels, int shift, const float *rest, const float *share) {
	for (int i = 0; i < pixels; i++)
		turn_pixel(row + 3 * (size_t)i, shift, rest, share);
}

static void box(uint8_t *dst, size_t dst_stride, const uint8_t *src, size_t src_stride, int length,
	pixels_box b) {
	uint32_t sums[pixels_line] = {0};
	for (int k = -b.radius - 1; k < b.radius; k++) {
		const uint8_t *line = src + (size_t)clamped(k, length) * src_stride;
		for (int i = 0; i < pixels_line; i++)
			sums[i] += line[i];
	}
	for (int k = 0; k < length; k++, dst += dst_stride) {
		const uint8_t *before = src + (size_t)clamped(k - b.radius - 1, length) * src_stride;
		const uint8_t *last = src + (size_t)clamped(k + b.radius, length) * src_stride;
		const uint8_t *after = src + (size_t)clamped(k + b.radius + 1, length) * src_stride;
		for (int i = 0; i < pixels_line; i++) {
			sums[i] += (uint32_t)last[i] - before[i];
			uint32_t sum = sums[i] * b.inner + ((uint32_t)before[i] + after[i]) * b.outer;
			dst[i] = (uint8_t)((sum + (1u << 23)) >> 24);
		}
	}
}

static void weigh(float *sums, const float *rows, const int32_t *offsets, const float *weights,
	int taps, int n) {
	for (int i = 0; i < n; i += weigh_block) {
		float sum[weigh_block] = {0};
		for (int k = 0; k < taps; k++)
			for (int j = 0; j < weigh_block; j++)
				sum[j] += weights[k] * rows[offsets[k] + i + j];
		memcpy(sums + i, sum, sizeof sum);
	}
}

static void shift(uint8_t *dst, const pixels_image *src, int32_t u, int32_t v, int32_t across,
	int32_t down, int n) {
	shift_pixels(dst, src, u, v, across, down, 0, n);
}

static void warp(uint8_t *dst, const pixels_image *src, const pixels_transform *t, const double *u,
	const double *v, int n) {
	for (int i = 0; i < n; i++)
		warp_pixel(dst + (size_t)i * (size_t)src->channels, src, t, u[i], v[i]);
}

const row_loops rows_plain = {
	map_all, map_each, mirror, extremes, lumas, gray, saturate, turn, sharpen, box, weigh,
	to_floats, to_bytes, shift, points, warp, NULL,
};
