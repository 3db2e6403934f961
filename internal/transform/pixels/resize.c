//go:build cgo

#include "kernels.h"

#include <string.h>

#include "passes.h"

int pixels_level(void) {
#if defined(__x86_64__)
	if (__builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512dq") &&
		__builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512vnni"))
		return __builtin_cpu_supports("avx512vbmi") ? level_vbmi : level_avx512;
	if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") &&
		__builtin_cpu_supports("f16c"))
		return level_avx2;
#endif
	return level_plain;
}

static const vector_passes *passes_of(int level) {
#if defined(__x86_64__)
	if (level == level_vbmi)
		return &passes_vbmi;
	if (level == level_avx512)
		return &passes_avx512;
	if (level == level_avx2)
		return &passes_avx2;
#endif
	(void)level;
	return NULL;
}

static inline uint8_t clip(int32_t sum) {
	sum >>= precision;
	return (uint8_t)(sum < 0 ? 0 : sum > 255 ? 255 : sum);
}

// horizontal_plain computes a row. src starts with pixel origin of the full row.
static void horizontal_plain(uint8_t *dst, const uint8_t *src, int width, int channels,
	const pixels_axis *a) {
	for (int i = 0; i < width; i++) {
		const int32_t *w = a->weights + (size_t)i * (size_t)a->taps;
		const uint8_t *from = src + (a->first[i] - a->origin) * channels;
		for (int c = 0; c < channels; c++) {
			int32_t sum = half;
			for (int k = 0; k < a->counts[i]; k++)
				sum += w[k] * from[k * channels + c];
			dst[i * channels + c] = clip(sum);
		}
	}
}

// vertical_plain computes a row of n samples from count rows.
static void vertical_plain(uint8_t *dst, const uint8_t *src, size_t stride, int count,
	const int32_t *w, int n) {
	for (int x = 0; x < n; x++) {
		int32_t sum = half;
		for (int k = 0; k < count; k++)
			sum += w[k] * src[(size_t)k * stride + (size_t)x];
		dst[x] = clip(sum);
	}
}

// groups_of returns how many groups of four weights an axis uses, which can be fewer than taps.
static int groups_of(const pixels_axis *a, int n) {
	int most = 0;
	for (int i = 0; i < n; i++)
		most = a->counts[i] > most ? a->counts[i] : most;
	return (most + 3) / 4;
}

// split_all writes the weights of an axis of n targets as groups, those of so many targets side by
// side.
static void split_all(const vector_passes *v, uint8_t *to, const pixels_axis *a, int n,
	int groups, int targets) {
	size_t stride = (size_t)targets * v->group;
	for (int i = 0; i < n; i += targets, to += (size_t)groups * stride)
		for (int k = 0; k < targets && i + k < n; k++)
			v->split(to + (size_t)k * v->group, stride,
				a->weights + (size_t)(i + k) * (size_t)a->taps, a->counts[i + k], groups);
}

static int widest_step(const pixels_axis *a, int width, int targets) {
	int widest = 0;
	for (int i = 0; i < width; i += targets) {
		int last = i + targets < width ? i + targets - 1 : width - 1;
		int apart = a->first[last] - a->first[i];
		widest = apart > widest ? apart : widest;
	}
	return widest;
}

// together returns how many targets lines computes at once.
static int together(const vector_passes *v, const pixels_axis *a, int width) {
	int n = v->together;
	while (n > 1 && widest_step(a, width, n) > v->apart)
		n--;
	return n;
}

// Size of an input row in scratch, for rows at the end of an image that vector loads would read
// past.
static size_t row_in(int src_width, int taps) {
	return (size_t)src_width * 3 + (size_t)(taps + 3) * 3 + overrun;
}

enum { widest_group = 16, most_together = 5 }; // of vector_passes

size_t pixels_scratch(int width, int height, int src_width, int horizontal_taps,
	int vertical_taps) {
	size_t across = (size_t)(width + most_together - 1) * (size_t)((horizontal_taps + 3) / 4);
	size_t down = (size_t)height * (size_t)((vertical_taps + 3) / 4);
	size_t weights = (across > down ? across : down) * widest_group;
	return weights + 4 * row_in(src_width, horizontal_taps) + (size_t)width * 3;
}

// horizontal_vector computes height rows of RGB, four at a time.
static void horizontal_vector(const vector_passes *v, uint8_t *dst, int width, int height,
	const uint8_t *src,
	int src_width, int stride, size_t size, const pixels_axis *a, uint8_t *scratch) {
	int groups = groups_of(a, width);
	int targets = together(v, a, width);
	split_all(v, scratch, a, width, groups, targets);
	size_t room = row_in(src_width, a->taps), n = (size_t)width * 3;
	uint8_t *in = scratch + (size_t)(width + most_together - 1) * (size_t)groups * v->group;
	uint8_t *nowhere = in + 4 * room;
	for (int y = 0; y < height; y += 4) {
		const uint8_t *from[4];
		uint8_t *to[4];
		for (int i = 0; i < 4; i++) {
			int at = y + i < height ? y + i : height - 1;
			size_t start = (size_t)at * (size_t)stride;
			from[i] = src + start;
			to[i] = y + i < height ? dst + (size_t)at * n : nowhere;
			if (start + room > size) {
				uint8_t *copy = in + (size_t)i * room;
				memcpy(copy, from[i], (size_t)src_width * 3);
				from[i] = copy;
			}
		}
		v->lines(to, from, width, a->first, a->origin, scratch, groups, targets);
	}
}

void pixels_resample(
	int level, uint8_t *dst, int width, int height, int channels,
	const uint8_t *src, int src_width, int src_height, int stride, size_t size,
	pixels_axis across, pixels_axis down, uint8_t *rows, uint8_t *scratch) {
	const vector_passes *v = passes_of(level);
	int n = width * channels;
	if (across.taps > 0) {
		uint8_t *to = down.taps > 0 ? rows : dst;
		if (v != NULL && channels == 3)
			horizontal_vector(v, to, width, src_height, src, src_width, stride, size, &across, scratch);
		else
			for (int y = 0; y < src_height; y++)
				horizontal_plain(to + (size_t)y * (size_t)n, src + (size_t)y * (size_t)stride,
					width, channels, &across);
		src = rows;
		stride = n;
	}
	if (down.taps == 0)
		return;
	int groups = groups_of(&down, height);
	if (v != NULL)
		split_all(v, scratch, &down, height, groups, 1);
	for (int y = 0; y < height; y++) {
		const uint8_t *from = src + (size_t)(down.first[y] - down.origin) * (size_t)stride;
		uint8_t *to = dst + (size_t)y * (size_t)n;
		if (v != NULL)
			v->column(to, from, (size_t)stride, down.counts[y],
				scratch + (size_t)y * (size_t)groups * v->group, groups, n);
		else
			vertical_plain(to, from, (size_t)stride, down.counts[y],
				down.weights + (size_t)y * (size_t)down.taps, n);
	}
}
