//go:build cgo

#include "rows.h"

// look_up writes n converted samples, step bytes apart, of a channel.
static void look_up(const pixels_plan *p, int c, uint8_t *dst, size_t to, const uint8_t *from,
	ptrdiff_t step, int n) {
	const uint32_t *words = p->words[c];
	switch (p->type) {
	case type_uint8:
		for (int i = 0; i < n; i++, from += step, dst += to)
			*dst = *from;
		break;
	case type_float32:
		for (int i = 0; i < n; i++, from += step, dst += to)
			memcpy(dst, &words[*from], 4);
		break;
	default:
		for (int i = 0; i < n; i++, from += step, dst += to) {
			uint16_t word = (uint16_t)words[*from];
			memcpy(dst, &word, 2);
		}
	}
}

// pack_plain looks every sample up.
static void pack_plain(const pixels_plan *p, uint8_t *dst, const pixels_image *m, int flip) {
	size_t element = size_of(p->type), n = (size_t)m->width, channels = (size_t)m->channels;
	size_t pixel = p->planar ? element : element * channels;
	size_t channel = p->planar ? element * n * (size_t)m->height : element;
	for (int y = 0; y < m->height; y++) {
		const uint8_t *from = m->pix + (size_t)y * (size_t)m->stride;
		uint8_t *to = dst + (size_t)(flip & flip_vertical ? m->height - 1 - y : y) * n * pixel;
		ptrdiff_t step = m->channels;
		if (flip & flip_horizontal) {
			from += (m->width - 1) * m->channels;
			step = -step;
		}
		for (int c = 0; c < m->channels; c++)
			look_up(p, c, to + (size_t)c * channel, pixel, from + c, step, m->width);
	}
}

// copy_rows packs the levels as they are.
static void copy_rows(const row_loops *rows, uint8_t *dst, const pixels_image *m, int flip) {
	size_t n = (size_t)m->width * (size_t)m->channels;
	for (int y = 0; y < m->height; y++) {
		uint8_t *to = dst + (size_t)(flip & flip_vertical ? m->height - 1 - y : y) * n;
		memcpy(to, m->pix + (size_t)y * (size_t)m->stride, n);
		if (flip & flip_horizontal)
			rows->mirror(to, m->width, m->channels);
	}
}

void pixels_pack(int level, const pixels_plan *plan, uint8_t *dst, pixels_image src, int flip) {
	const row_loops *rows = rows_of(level);
	if (plan->type == type_uint8 && (!plan->planar || src.channels == 1))
		copy_rows(rows, dst, &src, flip);
	else if (!plan->arithmetic || rows->pack == NULL || !rows->pack(plan, dst, &src, flip))
		pack_plain(plan, dst, &src, flip);
}
