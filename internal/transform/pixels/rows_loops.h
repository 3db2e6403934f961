// The loops that are the same for each level, most of which the compiler vectorizes: TARGET is the
// attribute of its instructions.

static TARGET void map_all(uint8_t *restrict row, int n, const uint8_t *restrict table) {
	for (int i = 0; i < n; i++)
		row[i] = table[row[i]];
}

static TARGET void map_each(uint8_t *restrict row, int n,
	const uint8_t *restrict tables) {
	for (int i = 0; i + 3 <= n; i += 3) {
		row[i] = tables[row[i]];
		row[i + 1] = tables[256 + row[i + 1]];
		row[i + 2] = tables[512 + row[i + 2]];
	}
}

static TARGET void extremes(const uint8_t *restrict row, int n, uint8_t *restrict least,
	uint8_t *restrict most) {
	for (; n >= extremes_period; n -= extremes_period, row += extremes_period)
		for (int i = 0; i < extremes_period; i++) {
			least[i] = row[i] < least[i] ? row[i] : least[i];
			most[i] = row[i] > most[i] ? row[i] : most[i];
		}
	for (int i = 0; i < n; i++) {
		least[i] = row[i] < least[i] ? row[i] : least[i];
		most[i] = row[i] > most[i] ? row[i] : most[i];
	}
}

static TARGET void sharpen(uint8_t *restrict dst, const uint8_t *restrict above,
	const uint8_t *restrict row, const uint8_t *restrict below, uint16_t *restrict columns, int n,
	int channels, float factor) {
	for (int i = 0; i < n; i++)
		columns[i] = (uint16_t)(above[i] + row[i] + below[i]);
	for (int i = channels; i < n - channels; i++) {
		int sum = columns[i - channels] + columns[i] + columns[i + channels] + 4 * row[i];
		// (sum + 6) / 13: the product is exact for sums up to 13 * 255.
		int smooth = ((sum + 6) * 5042) >> 16;
		dst[i] = mix(smooth, row[i], factor);
	}
}

static TARGET void to_floats(float *restrict dst, const uint8_t *restrict src, int n) {
	for (int i = 0; i < n; i++)
		dst[i] = (float)src[i];
}

static TARGET void to_bytes(uint8_t *restrict dst, const float *restrict src, int n) {
	const float shift = 12582912.0f; // 1.5 * 2^23: a sum with it is rounded to an integer
	for (int i = 0; i < n; i++) {
		float v = (src[i] + shift) - shift;
		dst[i] = (uint8_t)(int)(v < 255.0f ? v : 255.0f);
	}
}

static TARGET void points(const pixels_transform *t, double y, int n, double *restrict u,
	double *restrict v) {
	const double *m = t->m;
	double m0 = m[0], m3 = m[3], m6 = m[6], m2 = m[2], m5 = m[5];
	double row0 = m[1] * y, row1 = m[4] * y, row2 = m[7] * y;
	if (!t->projective) {
		for (int i = 0; i < n; i++) {
			double x = i + 0.5;
			u[i] = m0 * x + row0 + m2;
			v[i] = m3 * x + row1 + m5;
		}
		return;
	}
	for (int i = 0; i < n; i++) {
		double x = i + 0.5;
		double scale = m6 * x + row2 + 1;
		u[i] = (m0 * x + row0 + m2) / scale;
		v[i] = (m3 * x + row1 + m5) / scale;
	}
}
