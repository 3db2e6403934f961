//go:build cgo

#include "rows.h"

static inline uint8_t *row_of(const pixels_image *m, int y) {
	return m->pix + (size_t)y * (size_t)m->stride;
}

void pixels_map(int level, pixels_image m, const uint8_t *tables, int each) {
	const row_loops *rows = rows_of(level);
	int n = m.width * m.channels;
	for (int y = 0; y < m.height; y++)
		(each ? rows->map_each : rows->map_all)(row_of(&m, y), n, tables);
}

static void swap(uint8_t *restrict a, uint8_t *restrict b, int n) {
	for (int i = 0; i < n; i++) {
		uint8_t level = a[i];
		a[i] = b[i];
		b[i] = level;
	}
}

void pixels_mirror(int level, pixels_image m, int flip) {
	const row_loops *rows = rows_of(level);
	if (flip & flip_vertical)
		for (int a = 0, b = m.height - 1; a < b; a++, b--)
			swap(row_of(&m, a), row_of(&m, b), m.width * m.channels);
	if (flip & flip_horizontal)
		for (int y = 0; y < m.height; y++)
			rows->mirror(row_of(&m, y), m.width, m.channels);
}

void pixels_count(pixels_image m, uint32_t *counts) {
	// Counts of every other pixel, so that two equal ones do not wait for each other.
	uint32_t others[768] = {0};
	int n = m.width * m.channels;
	for (int y = 0; y < m.height; y++) {
		const uint8_t *row = row_of(&m, y);
		int i = 0;
		if (m.channels == 1) {
			for (; i + 2 <= n; i += 2) {
				counts[row[i]]++;
				others[row[i + 1]]++;
			}
			for (; i < n; i++)
				counts[row[i]]++;
			continue;
		}
		for (; i + 6 <= n; i += 6) {
			counts[row[i]]++;
			counts[256 + row[i + 1]]++;
			counts[512 + row[i + 2]]++;
			others[row[i + 3]]++;
			others[256 + row[i + 4]]++;
			others[512 + row[i + 5]]++;
		}
		for (int c = 0; i < n; i++, c++)
			counts[256 * c + row[i]]++;
	}
	for (int i = 0; i < 256 * m.channels; i++)
		counts[i] += others[i];
}

void pixels_extremes(int level, pixels_image m, uint8_t least[3], uint8_t most[3]) {
	const row_loops *rows = rows_of(level);
	uint8_t low[extremes_period], high[extremes_period];
	memset(low, 255, sizeof low);
	memset(high, 0, sizeof high);
	for (int y = 0; y < m.height; y++)
		rows->extremes(row_of(&m, y), m.width * m.channels, low, high);
	for (int i = 0; i < extremes_period; i++) {
		int c = i % m.channels;
		least[c] = low[i] < least[c] ? low[i] : least[c];
		most[c] = high[i] > most[c] ? high[i] : most[c];
	}
}

int64_t pixels_lumas(int level, pixels_image m) {
	const row_loops *rows = rows_of(level);
	int64_t sum = 0;
	for (int y = 0; y < m.height; y++) {
		const uint8_t *row = row_of(&m, y);
		if (m.channels == 3)
			sum += rows->lumas(row, m.width);
		else
			for (int x = 0; x < m.width; x++)
				sum += row[x];
	}
	return sum;
}

void pixels_gray(int level, pixels_image dst, pixels_image src) {
	const row_loops *rows = rows_of(level);
	for (int y = 0; y < src.height; y++) {
		uint8_t *to = row_of(&dst, y);
		const uint8_t *from = row_of(&src, y);
		if (src.channels == 3)
			rows->gray(to, from, src.width, dst.channels);
		else
			for (int x = 0; x < src.width; x++)
				memset(to + (size_t)x * (size_t)dst.channels, from[x], (size_t)dst.channels);
	}
}

void pixels_saturate(int level, pixels_image m, float factor) {
	const row_loops *rows = rows_of(level);
	for (int y = 0; y < m.height; y++)
		rows->saturate(row_of(&m, y), m.width, factor);
}

void pixels_turn(int level, pixels_image m, int shift, const float *rest, const float *share) {
	const row_loops *rows = rows_of(level);
	for (int y = 0; y < m.height; y++)
		rows->turn(row_of(&m, y), m.width, shift, rest, share);
}

void pixels_sharpen(int level, pixels_image dst, pixels_image src, float factor,
	uint16_t *columns) {
	const row_loops *rows = rows_of(level);
	int n = src.width * src.channels;
	size_t channels = (size_t)src.channels;
	for (int y = 0; y < src.height; y++) {
		uint8_t *to = row_of(&dst, y);
		const uint8_t *row = row_of(&src, y);
		if (y == 0 || y == src.height - 1) {
			memcpy(to, row, (size_t)n);
			continue;
		}
		memcpy(to, row, channels);
		rows->sharpen(to, row - src.stride, row, row + src.stride, columns, n, src.channels,
			factor);
		memcpy(to + (size_t)n - channels, row + (size_t)n - channels, channels);
	}
}
