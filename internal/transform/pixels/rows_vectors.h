// The loops in vectors of LANES numbers of 32 bits or of half as many float64, for the levels that
// have these. The file that includes this one defines TARGET and the functions on vectors that
// differ: load_bytes, store_bytes, load_pixels, store_pixels, reversed, store_half, gather, whole,
// limited, limited_half, zeros and inside.

// mirror swaps vectors of the two ends, mirrored. Both are loaded before either is stored, so they
// may overlap.
static TARGET void mirror(uint8_t *row, int pixels, int channels) {
	int first = 0, end = pixels;
	if (channels == 3)
		for (; end - first >= LANES; first += LANES, end -= LANES) {
			uint8_t *left = row + 3 * first, *right = row + 3 * (end - LANES);
			ints a = load_pixels(left), b = load_pixels(right);
			store_pixels(left, reversed(b));
			store_pixels(right, reversed(a));
		}
	if (channels == 1)
		for (; end - first >= LANES; first += LANES, end -= LANES) {
			uint8_t *left = row + first, *right = row + end - LANES;
			ints a = load_bytes(left), b = load_bytes(right);
			store_bytes(left, reversed(b));
			store_bytes(right, reversed(a));
		}
	mirror_pixels(row, first, end, channels);
}

static inline TARGET ints luma_lanes(ints pixels) {
	ints r = pixels & 255, g = (pixels >> 8) & 255, b = (pixels >> 16) & 255;
	return (r * 19595 + g * 38470 + b * 7471 + 0x8000) >> 16;
}

static TARGET int64_t lumas(const uint8_t *row, int pixels) {
	ints sums = {0};
	int i = 0;
	for (; i + LANES <= pixels; i += LANES)
		sums += luma_lanes(load_pixels(row + 3 * (size_t)i));
	int64_t sum = 0;
	for (int k = 0; k < LANES; k++)
		sum += sums[k];
	for (; i < pixels; i++)
		sum += luma(row + 3 * (size_t)i);
	return sum;
}

static TARGET void gray(uint8_t *dst, const uint8_t *src, int pixels, int channels) {
	int i = 0;
	for (; i + LANES <= pixels; i += LANES) {
		ints l = luma_lanes(load_pixels(src + 3 * (size_t)i));
		if (channels == 1)
			store_bytes(dst + i, l);
		else
			store_pixels(dst + 3 * (size_t)i, l * 0x10101);
	}
	for (; i < pixels; i++)
		memset(dst + (size_t)i * (size_t)channels, luma(src + 3 * (size_t)i), (size_t)channels);
}

// mix_lanes is mix of float32.
static inline TARGET ints mix_lanes(floats a, ints b, float factor) {
	floats v = a + factor * (__builtin_convertvector(b, floats) - a);
	return __builtin_convertvector(limited(v), ints);
}

static TARGET void saturate(uint8_t *row, int pixels, float factor) {
	int i = 0;
	for (; i + LANES <= pixels; i += LANES) {
		ints p = load_pixels(row + 3 * (size_t)i);
		floats l = __builtin_convertvector(luma_lanes(p), floats);
		ints r = mix_lanes(l, p & 255, factor);
		ints g = mix_lanes(l, (p >> 8) & 255, factor);
		ints b = mix_lanes(l, (p >> 16) & 255, factor);
		store_pixels(row + 3 * (size_t)i, r | g << 8 | b << 16);
	}
	for (; i < pixels; i++)
		saturate_pixel(row + 3 * (size_t)i, factor);
}

// choose returns a where the mask is set, and b elsewhere.
static inline TARGET ints choose(ints mask, ints a, ints b) { return (mask & a) | (~mask & b); }

// places returns 8 times the digit of each sector.
static inline TARGET ints places(uint32_t digits, ints sector) {
	return (ints)((((words){0} + digits) >> (words)(sector * 4) & 15) * 8);
}

// fraction subtracts 1 where that leaves nothing negative, from numbers below 2.
static inline TARGET doubles fraction(doubles v) {
	doubles one = (doubles){0} + 1.0;
	return v - (doubles)((longs)(v >= one) & (longs)one);
}

// turn_lanes is turn_pixel. Where it computes in float32 what PIL computes in float64, or
// multiplies by a sixth, every colour gives the same, which TestHueTwins verifies.
static inline TARGET ints turn_lanes(ints p, int shift, const float *rest, const float *share) {
	ints r = p & 255, g = (p >> 8) & 255, b = (p >> 16) & 255;
	ints high = choose(r > g, r, g), low = choose(r < g, r, g);
	high = choose(high > b, high, b);
	low = choose(low < b, low, b);
	// Where all channels are equal, the result is not used: no division by 0.
	ints gray = high == low;
	floats span = __builtin_convertvector((high - low) - gray, floats);
	floats ratio = span * 255.0f / __builtin_convertvector(high - gray, floats);
	ints saturation = __builtin_convertvector(ratio, ints);
	gray |= saturation == 0;

	ints red = r == high, green = ~red & (g == high);
	ints first = choose(red, b, choose(green, r, g));
	ints second = choose(red, g, choose(green, b, r));
	floats x = __builtin_convertvector(high - first, floats) / span;
	floats y = __builtin_convertvector(high - second, floats) / span;
	floats base = __builtin_convertvector((4 & ~red) - (2 & green), floats);
	floats hue = joined(low_doubles(base) + low_doubles(x) - low_doubles(y),
		high_doubles(base) + high_doubles(x) - high_doubles(y));
	const double sixth = 1.0 / 6.0;
	doubles turned = low_doubles(hue) * sixth + 1.0, others = high_doubles(hue) * sixth + 1.0;
	hue = joined(fraction(turned), fraction(others)) * 255.0f;
	ints h = (__builtin_convertvector(hue, ints) + shift) & 255;

	floats f = look_up_floats(rest, h), s = look_up_floats(share, saturation & 255);
	ints sector = h * 1543 >> 16, odd = -(sector & 1);
	floats level = __builtin_convertvector(high, floats), both = s * f;
	doubles level0 = low_doubles(level), level1 = high_doubles(level);
	doubles s0 = low_doubles(s), s1 = high_doubles(s);
	ints lowest = joined_whole(level0 * (1.0 - s0) + 0.5, level1 * (1.0 - s1) + 0.5);
	ints falling = joined_whole(level0 * (1.0 - low_doubles(both)) + 0.5,
		level1 * (1.0 - high_doubles(both)) + 0.5);
	ints rising = joined_whole(level0 * (1.0 - s0 * (1.0 - low_doubles(f))) + 0.5,
		level1 * (1.0 - s1 * (1.0 - high_doubles(f))) + 0.5);
	ints between = choose(odd, falling, rising);
	ints result = high << places(0x0022110, sector) | between << places(0x1201201, sector) |
		lowest << places(0x2110022, sector);
	return choose(gray, high * 0x10101, result);
}

static TARGET void turn(uint8_t *row, int pixels, int shift, const float *rest,
	const float *share) {
	int i = 0;
	for (; i + LANES <= pixels; i += LANES) {
		uint8_t *p = row + 3 * (size_t)i;
		store_pixels(p, turn_lanes(load_pixels(p), shift, rest, share));
	}
	for (; i < pixels; i++)
		turn_pixel(row + 3 * (size_t)i, shift, rest, share);
}

static TARGET void box(uint8_t *dst, size_t dst_stride, const uint8_t *src, size_t src_stride,
	int length, pixels_box b) {
	for (int at = 0; at < pixels_line; at += 4 * LANES) {
		words s0 = {0}, s1 = s0, s2 = s0, s3 = s0;
		const uint8_t *from = src + at;
		for (int k = -b.radius - 1; k < b.radius; k++) {
			const uint8_t *line = from + (size_t)clamped(k, length) * src_stride;
			s0 += (words)load_bytes(line);
			s1 += (words)load_bytes(line + LANES);
			s2 += (words)load_bytes(line + 2 * LANES);
			s3 += (words)load_bytes(line + 3 * LANES);
		}
		// The last line of a sample's sum is the one after the sum of the sample before.
		const uint8_t *last = from + (size_t)clamped(b.radius, length) * src_stride;
		words n0 = (words)load_bytes(last), n1 = (words)load_bytes(last + LANES);
		words n2 = (words)load_bytes(last + 2 * LANES), n3 = (words)load_bytes(last + 3 * LANES);
		uint8_t *to = dst + at;
		for (int k = 0; k < length; k++, to += dst_stride) {
			const uint8_t *before = from + (size_t)clamped(k - b.radius - 1, length) * src_stride;
			const uint8_t *after = from + (size_t)clamped(k + b.radius + 1, length) * src_stride;
#define PART(s, n, i) \
	do { \
		words first = (words)load_bytes(before + i * LANES); \
		s += n - first; \
		n = (words)load_bytes(after + i * LANES); \
		words sum = s * b.inner + (first + n) * b.outer + (1u << 23); \
		store_bytes(to + i * LANES, (ints)(sum >> 24)); \
	} while (0)
			PART(s0, n0, 0);
			PART(s1, n1, 1);
			PART(s2, n2, 2);
			PART(s3, n3, 3);
#undef PART
		}
	}
}

static TARGET void weigh(float *sums, const float *rows, const int32_t *offsets,
	const float *weights, int taps, int n) {
	for (int i = 0; i < n; i += 4 * LANES) {
		floats a = {0}, b = a, c = a, d = a;
		for (int k = 0; k < taps; k++) {
			const floats *row = (const floats *)(rows + offsets[k] + i);
			floats w = (floats){0} + weights[k];
			a += w * row[0];
			b += w * row[1];
			c += w * row[2];
			d += w * row[3];
		}
		floats *to = (floats *)(sums + i);
		to[0] = a;
		to[1] = b;
		to[2] = c;
		to[3] = d;
	}
}

// biased returns byte number i of each element, plus 2^52: the last bit of such a float64 is a
// unit, so that differences are exact.
static inline TARGET doubles biased(longs bytes, int i) {
	return (doubles)(((bytes >> (8 * i)) & 255) | 0x4330000000000000);
}

// sample returns byte number i of each element.
static inline TARGET doubles sample(longs bytes, int i) { return biased(bytes, i) - 0x1p52; }

static inline TARGET doubles cubic_lanes(doubles a, doubles b, doubles c, doubles d, doubles t) {
	doubles first = c - a;
	doubles second = 2 * (a - b) + c - d;
	doubles third = b - a - c + d;
	return b + t * (first + t * (second + t * third));
}

// line_between interpolates the channel c of two pixels.
static inline TARGET doubles line_between(longs pixels, int channel, doubles t) {
	doubles a = biased(pixels, channel), b = biased(pixels, channel + 3);
	return (a - 0x1p52) + (b - a) * t;
}

// bilinear_lanes computes pixels whose samples are inside the image.
static inline TARGET void bilinear_lanes(uint8_t *dst, const pixels_image *m, doubles u,
	doubles v) {
	halves x = whole(u), y = whole(v);
	doubles dx = u - __builtin_convertvector(x, doubles);
	doubles dy = v - __builtin_convertvector(y, doubles);
	halves at = y * m->stride + x * 3;
	longs line = gather(m->pix, at), next = gather(m->pix + m->stride, at);
	halves pixels = {0};
	for (int c = 0; c < 3; c++) {
		doubles a = line_between(line, c, dx), b = line_between(next, c, dx);
		pixels |= whole(a + (b - a) * dy) << (8 * c);
	}
	store_half(dst, pixels);
}

static inline TARGET halves clipped(doubles v) { return whole(limited_half(v)); }

// cubic_line interpolates the channel c of the four pixels from a position on, as cubic_lanes: the
// sums of samples are exact in any order.
static inline TARGET doubles cubic_line(longs left, longs right, int channel, doubles t) {
	doubles a = biased(left, channel), b = biased(left, channel + 3);
	doubles c = biased(right, channel), d = biased(right, channel + 3);
	doubles first = c - a, second = 2 * (a - b) + (c - d), third = (b - a) + (d - c);
	return (b - 0x1p52) + t * (first + t * (second + t * third));
}

// No arrays of vectors: the address sanitizer's stack does not align them.
static inline TARGET void bicubic_lanes(uint8_t *dst, const pixels_image *m, doubles u,
	doubles v) {
	halves x = whole(u), y = whole(v);
	doubles dx = u - __builtin_convertvector(x, doubles);
	doubles dy = v - __builtin_convertvector(y, doubles);
	halves at = (y - 1) * m->stride + (x - 1) * 3;
	const uint8_t *row0 = m->pix, *row1 = row0 + m->stride, *row2 = row1 + m->stride;
	const uint8_t *row3 = row2 + m->stride;
	longs left1 = gather(row1, at), right1 = gather(row1 + 6, at);
	halves pixels = {0};
	if (zeros(dy)) { // a horizontal shear or translation: only row y counts
		for (int c = 0; c < 3; c++)
			pixels |= clipped(cubic_line(left1, right1, c, dx)) << (8 * c);
		store_half(dst, pixels);
		return;
	}
	longs left0 = gather(row0, at), left2 = gather(row2, at), left3 = gather(row3, at);
	if (zeros(dx)) {
		for (int c = 3; c < 6; c++) {
			doubles sum = cubic_lanes(sample(left0, c), sample(left1, c), sample(left2, c),
				sample(left3, c), dy);
			pixels |= clipped(sum) << (8 * (c - 3));
		}
		store_half(dst, pixels);
		return;
	}
	longs right0 = gather(row0 + 6, at), right2 = gather(row2 + 6, at);
	longs right3 = gather(row3 + 6, at);
	for (int c = 0; c < 3; c++) {
		doubles sum = cubic_lanes(cubic_line(left0, right0, c, dx),
			cubic_line(left1, right1, c, dx), cubic_line(left2, right2, c, dx),
			cubic_line(left3, right3, c, dx), dy);
		pixels |= clipped(sum) << (8 * c);
	}
	store_half(dst, pixels);
}

// shift copies the n pixels at points in 16.16 bits, all of which are inside the image.
static TARGET void shift(uint8_t *dst, const pixels_image *m, int32_t u, int32_t v, int32_t across,
	int32_t down, int n) {
	int i = 0;
	int64_t size = (int64_t)(m->height - 1) * m->stride + (int64_t)m->width * m->channels;
	if (m->channels == 3 && size <= INT32_MAX) {
		words lane;
		for (int k = 0; k < LANES; k++)
			lane[k] = (uint32_t)k;
		words us = (uint32_t)u + lane * (uint32_t)across, vs = (uint32_t)v + lane * (uint32_t)down;
		for (; i + LANES <= n; i += LANES) {
			ints at = ((ints)vs >> 16) * m->stride + ((ints)us >> 16) * 3;
			if (!below(at, (int)size - 3)) // the fourth byte would be past the image
				break;
			store_pixels(dst + 3 * (size_t)i, gather_pixels(m->pix, at));
			us += (uint32_t)across * LANES;
			vs += (uint32_t)down * LANES;
		}
	}
	shift_pixels(dst, m, u, v, across, down, i, n);
}

static TARGET void warp(uint8_t *dst, const pixels_image *src, const pixels_transform *t,
	const double *u, const double *v, int n) {
	size_t channels = (size_t)src->channels;
	int i = 0;
	if (channels == 3 && (int64_t)src->height * src->stride <= INT32_MAX) {
		int cubic = t->filter == filter_bicubic, nearest = t->filter == filter_nearest;
		// From where to where the samples around a point are inside. A load reads up to two bytes
		// past its last pixel, so the last pixel of a row is not part of it.
		double first = cubic, right = src->width - 2 - cubic, bottom = src->height - 1 - cubic;
		double half = 0.5;
		if (nearest) {
			half = 0;
			right = src->width - 1;
			bottom = src->height;
		}
		for (; i + half_lanes <= n; i += half_lanes) {
			uint8_t *to = dst + (size_t)i * 3;
			doubles a = *(const doubles *)(u + i) - half, b = *(const doubles *)(v + i) - half;
			if (!inside(a, b, first, right, bottom)) {
				for (int k = 0; k < half_lanes; k++)
					warp_pixel(to + 3 * k, src, t, u[i + k], v[i + k]);
			} else if (nearest) {
				halves at = whole(b) * src->stride + whole(a) * 3;
				store_half(to, gather_half(src->pix, at));
			} else if (cubic) {
				bicubic_lanes(to, src, a, b);
			} else {
				bilinear_lanes(to, src, a, b);
			}
		}
	}
	for (; i < n; i++)
		warp_pixel(dst + (size_t)i * channels, src, t, u[i], v[i]);
}
