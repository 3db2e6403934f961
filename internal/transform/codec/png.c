//go:build cgo

#include "png.h"

#include <libdeflate.h>
#include <stdlib.h>
#include <string.h>

#ifdef __SSE2__
#include <emmintrin.h>
#endif

struct codec_png {
	struct libdeflate_decompressor *inflate;
	codec_png_request request;
};

codec_png *codec_png_new(void) {
	codec_png *d = calloc(1, sizeof(codec_png));
	if (d == NULL)
		return NULL;
	d->inflate = libdeflate_alloc_decompressor();
	if (d->inflate == NULL) {
		free(d);
		return NULL;
	}
	return d;
}

void codec_png_free(codec_png *d) {
	libdeflate_free_decompressor(d->inflate);
	free(d);
}

codec_png_request *codec_png_request_of(codec_png *d) { return &d->request; }

// PNG's filters (W3C PNG, 9.2), and its colour types (11.2.1).
enum { filter_none, filter_sub, filter_up, filter_average, filter_paeth };
enum { gray = 0, rgb = 2, palette = 3, gray_alpha = 4, rgba = 6 };

// inflate_all inflates the zlib stream to exactly size bytes. As in PIL, a stream may end without
// its checksum but must not have a wrong one, and data after the stream is ignored.
static int inflate_all(codec_png *d, const uint8_t *packed, size_t n, uint8_t *out, size_t size) {
	enum { header = 2, checksum = 4 };
	size_t in, made;
	if (libdeflate_zlib_decompress_ex(d->inflate, packed, n, out, size, &in, &made) ==
		LIBDEFLATE_SUCCESS)
		return made == size;
	// The header must be valid, including its check bits.
	if (n < header || (packed[0] & 15) != 8 || packed[0] >> 4 > 7 || packed[1] & 32 ||
		(packed[0] << 8 | packed[1]) % 31 != 0)
		return 0;
	if (libdeflate_deflate_decompress_ex(d->inflate, packed + header, n - header, out, size, &in,
		&made) != LIBDEFLATE_SUCCESS)
		return 0;
	return made == size && n - header - in < checksum;
}

static int paeth(int left, int up, int corner) {
	int a = up - corner, b = left - corner, c = a + b;
	a = a < 0 ? -a : a;
	b = b < 0 ? -b : b;
	c = c < 0 ? -c : c;
	return a <= b && a <= c ? left : b <= c ? up : corner;
}

// unfilter reverses a filter on the first n bytes of a row with bpp bytes per pixel. It is inlined
// with bpp constant.
static inline __attribute__((always_inline)) void unfilter(uint8_t *row, const uint8_t *above,
	size_t n, size_t bpp, int filter) {
	switch (filter) {
	case filter_sub:
		for (size_t i = bpp; i < n; i++)
			row[i] = (uint8_t)(row[i] + row[i - bpp]);
		break;
	case filter_up:
		for (size_t i = 0; i < n; i++)
			row[i] = (uint8_t)(row[i] + above[i]);
		break;
	case filter_average:
		for (size_t i = 0; i < bpp && i < n; i++)
			row[i] = (uint8_t)(row[i] + above[i] / 2);
		for (size_t i = bpp; i < n; i++)
			row[i] = (uint8_t)(row[i] + (row[i - bpp] + above[i]) / 2);
		break;
	case filter_paeth:
		for (size_t i = 0; i < bpp && i < n; i++)
			row[i] = (uint8_t)(row[i] + above[i]);
		for (size_t i = bpp; i < n; i++)
			row[i] = (uint8_t)(row[i] + paeth(row[i - bpp], above[i], above[i - bpp]));
		break;
	}
}

#ifdef __SSE2__

// load reads a pixel of 3 or 4 bytes; for 3 it reads one more byte.
static inline __m128i load(const uint8_t *p) {
	int v;
	memcpy(&v, p, 4);
	return _mm_cvtsi32_si128(v);
}

static inline void store(uint8_t *p, __m128i pixel, size_t bpp) {
	int v = _mm_cvtsi128_si32(pixel);
	memcpy(p, &v, bpp);
}

// unfilter_pixels is unfilter for pixels of 3 or 4 bytes, one pixel at a time if it depends on the
// one before.
static inline __attribute__((always_inline)) void unfilter_pixels(uint8_t *row,
	const uint8_t *above, size_t n, size_t bpp, int filter) {
	const __m128i zero = _mm_setzero_si128();
	__m128i a = zero;
	if (filter == filter_sub) {
		for (size_t i = 0; i < n; i += bpp) {
			a = _mm_add_epi8(a, load(row + i));
			store(row + i, a, bpp);
		}
	} else if (filter == filter_average) {
		const __m128i one = _mm_set1_epi8(1);
		for (size_t i = 0; i < n; i += bpp) {
			__m128i b = load(above + i);
			// pavgb rounds up.
			__m128i mean = _mm_sub_epi8(_mm_avg_epu8(a, b), _mm_and_si128(_mm_xor_si128(a, b), one));
			a = _mm_add_epi8(mean, load(row + i));
			store(row + i, a, bpp);
		}
	} else if (filter == filter_paeth) {
		__m128i c = zero; // above the pixel to the left; all three in 16 bits
		for (size_t i = 0; i < n; i += bpp) {
			__m128i b = _mm_unpacklo_epi8(load(above + i), zero);
			__m128i pa = _mm_sub_epi16(b, c), pb = _mm_sub_epi16(a, c), pc = _mm_add_epi16(pa, pb);
			pa = _mm_max_epi16(pa, _mm_sub_epi16(zero, pa));
			pb = _mm_max_epi16(pb, _mm_sub_epi16(zero, pb));
			pc = _mm_max_epi16(pc, _mm_sub_epi16(zero, pc));
			__m128i least = _mm_min_epi16(pc, _mm_min_epi16(pa, pb));
			__m128i is_a = _mm_cmpeq_epi16(least, pa), is_b = _mm_cmpeq_epi16(least, pb);
			__m128i of_bc = _mm_or_si128(_mm_and_si128(is_b, b), _mm_andnot_si128(is_b, c));
			__m128i nearest = _mm_or_si128(_mm_and_si128(is_a, a), _mm_andnot_si128(is_a, of_bc));
			// The upper bytes are 0 in both and remain 0.
			a = _mm_add_epi8(nearest, _mm_unpacklo_epi8(load(row + i), zero));
			store(row + i, _mm_packus_epi16(a, a), bpp);
			c = b;
		}
	} else {
		unfilter(row, above, n, bpp, filter);
	}
}

#else
#define unfilter_pixels unfilter
#endif

// sample returns sample i of a row, of depth bits; a byte may hold several samples.
static inline unsigned sample(const uint8_t *row, size_t i, int depth) {
	if (depth == 8)
		return row[i];
	size_t bit = i * (size_t)depth;
	return row[bit / 8] >> (8 - depth - (int)(bit % 8)) & ((1u << depth) - 1);
}

// put writes a gray pixel.
static inline void put(uint8_t *to, size_t i, int channels, uint8_t v) {
	if (channels == 1) {
		to[i] = v;
		return;
	}
	to[3 * i] = to[3 * i + 1] = to[3 * i + 2] = v;
}

// pick copies the first bytes of a pixel's three samples. It is inlined with constants.
static inline __attribute__((always_inline)) void pick(uint8_t *to, const uint8_t *from, size_t n,
	size_t pixel, size_t wide) {
	for (size_t i = 0; i < n; i++)
		for (size_t c = 0; c < 3; c++)
			to[3 * i + c] = from[pixel * i + wide * c];
}

// convert converts the requested part of a row as PIL's convert("RGB") does, or convert("L") for
// gray: alpha is dropped.
static void convert(const codec_png_request *r, uint8_t *to, const uint8_t *row) {
	size_t n = (size_t)r->columns, x = (size_t)r->x;
	int wide = r->depth == 16;
	switch (r->colour) {
	case gray:
		if (r->depth == 8 && r->channels == 1) {
			memcpy(to, row + x, n);
		} else if (wide) {
			// PIL opens these in mode I and clips them when it converts them to 8 bits.
			for (size_t i = 0; i < n; i++)
				put(to, i, r->channels, row[2 * (x + i)] != 0 ? 255 : row[2 * (x + i) + 1]);
		} else {
			unsigned most = 255 / ((1u << r->depth) - 1);
			for (size_t i = 0; i < n; i++)
				put(to, i, r->channels, (uint8_t)(sample(row, x + i, r->depth) * most));
		}
		break;
	case palette:
		for (size_t i = 0; i < n; i++)
			memcpy(to + 3 * i, r->palette[sample(row, x + i, r->depth)], 3);
		break;
	case gray_alpha: {
		size_t pixel = wide ? 4 : 2;
		for (size_t i = 0; i < n; i++)
			put(to, i, r->channels, row[pixel * (x + i)]);
		break;
	}
	case rgb:
		if (wide)
			pick(to, row + 6 * x, n, 6, 2);
		else
			memcpy(to, row + 3 * x, 3 * n);
		break;
	case rgba:
		if (wide)
			pick(to, row + 8 * x, n, 8, 2);
		else
			pick(to, row + 4 * x, n, 4, 1);
		break;
	}
}

// short_palette reports whether some indices have no colour.
static int short_palette(const codec_png_request *r) {
	return r->colour == palette && r->colours < 1 << r->depth;
}

// coloured reports whether all pixels of a row have a colour in the palette.
static int coloured(const codec_png_request *r, const uint8_t *row) {
	unsigned most = 0;
	for (size_t i = 0; i < (size_t)r->width; i++) {
		unsigned v = sample(row, i, r->depth);
		most = v > most ? v : most;
	}
	return most < (unsigned)r->colours;
}

// rows reverses the filters of rows from to end and converts the requested ones. first is the
// filter byte of row y; the row above, without its filter byte, precedes it. Returns 0 if a pixel
// has no colour in the palette.
static int rows(const codec_png_request *r, uint8_t *first, size_t row, int y, int from, int end,
	uint8_t *dst, size_t stride) {
	static const int samples[] = {[gray] = 1, [rgb] = 3, [palette] = 1, [gray_alpha] = 2, [rgba] = 4};
	int bits = samples[r->colour] * r->depth;
	size_t bpp = bits < 8 ? 1 : (size_t)bits / 8;
	// Up to the last requested column: nothing depends on the columns to the right.
	int check = short_palette(r);
	size_t n = ((size_t)(check ? r->width : r->x + r->columns) * (size_t)bits + 7) / 8;
	for (int i = from; i < end; i++) {
		uint8_t *at = first + (row + 1) * (size_t)(i - y) + 1;
		const uint8_t *above = at - (row + 1);
		int filter = at[-1];
		switch (bpp) {
		case 1: unfilter(at, above, n, 1, filter); break;
		case 2: unfilter(at, above, n, 2, filter); break;
		case 3: unfilter_pixels(at, above, n, 3, filter); break;
		case 4: unfilter_pixels(at, above, n, 4, filter); break;
		case 6: unfilter(at, above, n, 6, filter); break;
		case 8: unfilter(at, above, n, 8, filter); break;
		}
		if (check && !coloured(r, at))
			return 0;
		if (i >= r->y && i < r->y + r->rows)
			convert(r, dst + (size_t)(i - r->y) * stride, at);
	}
	return 1;
}

// filtered reports whether all rows have a valid filter.
static int filtered(const uint8_t *first, size_t row, int n) {
	for (int i = 0; i < n; i++)
		if (first[(row + 1) * (size_t)i] > filter_paeth)
			return 0;
	return 1;
}

int codec_png_decode(codec_png *d, const uint8_t *packed, size_t size, uint8_t *raw, size_t row,
	uint8_t *dst, size_t stride) {
	const codec_png_request *r = &d->request;
	uint8_t *first = raw + row; // the byte of the first row's filter
	if (!inflate_all(d, packed, size, first, (row + 1) * (size_t)r->height) ||
		!filtered(first, row, r->height))
		return 0;
	// Start at a row that does not depend on the one above.
	int y = r->y, end = r->y + r->rows;
	if (short_palette(r))
		y = 0, end = r->height;
	while (y > 0 && first[(row + 1) * (size_t)y] > filter_sub)
		y--;
	return rows(r, first, row, 0, y, end, dst, stride);
}

int codec_png_rows(codec_png *d, uint8_t *raw, size_t row, int y, int n, uint8_t *dst,
	size_t stride) {
	const codec_png_request *r = &d->request;
	uint8_t *first = raw + row;
	if (!filtered(first, row, n))
		return 0;
	int end = short_palette(r) ? r->height : r->y + r->rows;
	if (y < end && !rows(r, first, row, y, y, y + n < end ? y + n : end, dst, stride))
		return 0;
	memmove(raw, first + (row + 1) * (size_t)(n - 1) + 1, row);
	return 1;
}
