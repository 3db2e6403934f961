//go:build cgo

#include "rows.h"

static void colour(uint8_t *row, int pixels, int channels, const uint8_t *fill) {
	for (int x = 0; x < pixels; x++)
		memcpy(row + (size_t)x * (size_t)channels, fill, (size_t)channels);
}

// narrow cuts [*first, *end) down to the k for which start + k*step is in [0, limit).
static void narrow(int64_t start, int64_t step, int64_t limit, int *first, int *end) {
	int64_t from = 0, to = *end;
	if (step == 0) {
		if (start < 0 || start >= limit)
			to = 0;
	} else if (step > 0) {
		from = start < 0 ? (-start + step - 1) / step : 0;
		to = start < limit ? (limit - start + step - 1) / step : 0;
	} else {
		from = start >= limit ? (start - limit) / -step + 1 : 0;
		to = start >= 0 ? start / -step + 1 : 0;
	}
	if (from > *first)
		*first = from < *end ? (int)from : *end;
	if (to < *end)
		*end = (int)to;
}

// limit_of returns the end of an axis in 16.16 bits.
static int64_t limit_of(int size) { return (int64_t)(size < 32768 ? size : 32768) << 16; }

void pixels_shift(int level, pixels_image dst, pixels_image src, const int32_t m[6],
	const uint8_t fill[3]) {
	int channels = src.channels;
	const row_loops *rows = rows_of(level);
	// Sums that overflow wrap.
	uint32_t u0 = (uint32_t)m[2], v0 = (uint32_t)m[5];
	for (int y = 0; y < dst.height; y++, u0 += (uint32_t)m[1], v0 += (uint32_t)m[4]) {
		uint8_t *to = dst.pix + (size_t)y * (size_t)dst.stride;
		int first = 0, end = dst.width;
		narrow((int32_t)u0, m[0], limit_of(src.width), &first, &end);
		narrow((int32_t)v0, m[3], limit_of(src.height), &first, &end);
		if (first >= end) {
			colour(to, dst.width, channels, fill);
			continue;
		}
		colour(to, first, channels, fill);
		colour(to + (size_t)end * (size_t)channels, dst.width - end, channels, fill);
		int32_t u = (int32_t)(u0 + (uint32_t)first * (uint32_t)m[0]);
		int32_t v = (int32_t)(v0 + (uint32_t)first * (uint32_t)m[3]);
		rows->shift(to + (size_t)first * (size_t)channels, &src, u, v, m[0], m[3], end - first);
	}
}

void pixels_warp(int level, pixels_image dst, pixels_image src, const pixels_transform *t,
	double *points) {
	const row_loops *rows = rows_of(level);
	double *u = points, *v = points + dst.width;
	for (int y = 0; y < dst.height; y++) {
		rows->points(t, y + 0.5, dst.width, u, v);
		rows->warp(dst.pix + (size_t)y * (size_t)dst.stride, &src, t, u, v, dst.width);
	}
}
