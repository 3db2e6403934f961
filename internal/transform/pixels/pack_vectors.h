// Packing in vectors of LANES samples, for the levels that have these. The file that includes this
// one defines TARGET and the functions on vectors: load_bytes, store_bytes, load_pixels,
// store_pixels, reversed, fused and store_floats, store_halves and store_bfloats.

#define ALWAYS static inline __attribute__((always_inline)) TARGET

// The constants of a channel's conversion, or of channels that alternate.
typedef struct {
	floats mean, high, low;
} constants;

// divided multiplies by a reciprocal that is the sum of two numbers. prepare in kernels_cgo.go has
// verified that this gives the quotient, for all samples.
ALWAYS floats divided(floats x, floats high, floats low) { return fused(x, high, x * low); }

// convert writes LANES samples.
ALWAYS void convert(uint8_t *dst, const pixels_plan *p, int type, int unit, int normalize,
	ints samples, const constants *k) {
	if (type == type_uint8) {
		store_bytes(dst, samples);
		return;
	}
	floats x = __builtin_convertvector(samples, floats);
	if (unit)
		x = divided(x, (floats){0} + p->unit_high, (floats){0} + p->unit_low);
	if (normalize)
		x = divided(x - k->mean, k->high, k->low);
	if (type == type_float32)
		store_floats(dst, x);
	else if (type == type_float16)
		store_halves(dst, x);
	else
		store_bfloats(dst, x);
}

// planar_row writes n pixels, n >= LANES, to a row of each plane.
ALWAYS void planar_row(uint8_t *dst, size_t plane, const uint8_t *from, int n, int channels,
	int mirror, const pixels_plan *p, int type, int unit, int normalize, const constants k[3]) {
	for (int i = 0; i < n; i += LANES) {
		if (i + LANES > n)
			i = n - LANES; // the last vector overlaps the one before
		const uint8_t *at = from + (mirror ? n - LANES - i : i) * channels;
		ints x = channels == 3 ? load_pixels(at) : load_bytes(at);
		if (mirror)
			x = reversed(x);
		uint8_t *to = dst + (size_t)i * size_of(type);
		convert(to, p, type, unit, normalize, x & 255, &k[0]);
		if (channels == 3) {
			convert(to + plane, p, type, unit, normalize, (x >> 8) & 255, &k[1]);
			convert(to + 2 * plane, p, type, unit, normalize, (x >> 16) & 255, &k[2]);
		}
	}
}

// interleaved_row writes n pixels, n >= LANES, in their order.
ALWAYS void interleaved_row(uint8_t *dst, const uint8_t *from, int n, int channels, int mirror,
	const pixels_plan *p, int type, int unit, int normalize, const constants k[3]) {
	for (int i = 0; i < n; i += LANES) {
		if (i + LANES > n)
			i = n - LANES;
		uint8_t turned[3 * LANES];
		const uint8_t *at = from + (mirror ? n - LANES - i : i) * channels;
		if (mirror && channels == 3) {
			store_pixels(turned, reversed(load_pixels(at)));
			at = turned;
		}
		for (int j = 0; j < channels; j++) {
			ints x = load_bytes(at + LANES * j);
			if (mirror && channels == 1)
				x = reversed(x);
			convert(dst + (size_t)(i * channels + LANES * j) * size_of(type), p, type, unit,
				normalize, x, &k[j]);
		}
	}
}

// rows_of_type calls one of these for each row; arguments that are constants specialize it.
ALWAYS int rows_of_type(const pixels_plan *p, uint8_t *dst, const pixels_image *m, int flip,
	int type, int unit, int normalize) {
	constants k[3];
	for (int j = 0; j < 3; j++)
		for (int i = 0; i < LANES; i++) {
			int c = p->planar || m->channels == 1 ? j % m->channels : (j * LANES + i) % 3;
			k[j].mean[i] = p->mean[c];
			k[j].high[i] = p->high[c];
			k[j].low[i] = p->low[c];
		}
	size_t row = (size_t)m->width * size_of(type), plane = row * (size_t)m->height;
	int mirror = flip & flip_horizontal;
	for (int y = 0; y < m->height; y++) {
		const uint8_t *from = m->pix + (size_t)y * (size_t)m->stride;
		size_t to = (size_t)(flip & flip_vertical ? m->height - 1 - y : y);
		if (m->channels == 1)
			planar_row(dst + to * row, 0, from, m->width, 1, mirror, p, type, unit, normalize, k);
		else if (p->planar)
			planar_row(dst + to * row, plane, from, m->width, 3, mirror, p, type, unit, normalize,
				k);
		else
			interleaved_row(dst + to * row * 3, from, m->width, 3, mirror, p, type, unit,
				normalize, k);
	}
	return 1;
}

// pack packs an image, if it is at least as wide as a vector; it reports whether it is.
static TARGET int pack(const pixels_plan *p, uint8_t *dst, const pixels_image *m, int flip) {
	if (m->width < LANES)
		return 0;
#define CASE(t, u, n) \
	if (p->type == (t) && p->unit == (u) && p->normalize == (n)) \
		return rows_of_type(p, dst, m, flip, (t), (u), (n));
#define CASES(t) CASE(t, 0, 0) CASE(t, 0, 1) CASE(t, 1, 0) CASE(t, 1, 1)
	CASE(type_uint8, 0, 0)
	CASES(type_float32)
	CASES(type_float16)
	CASES(type_bfloat16)
#undef CASES
#undef CASE
	return 0;
}
