//go:build cgo

#include "rows.h"

// blur runs the three passes over lines, through the two buffers. dst may be src, or the first
// buffer, and src the second.
static void blur(const row_loops *rows, uint8_t *dst, size_t dst_stride, const uint8_t *src,
	size_t src_stride, int length, pixels_box b, uint8_t *buffers[2]) {
	rows->box(buffers[0], pixels_line, src, src_stride, length, b);
	rows->box(buffers[1], pixels_line, buffers[0], pixels_line, length, b);
	rows->box(dst, dst_stride, buffers[1], pixels_line, length, b);
}

// copy_pixels copies n pixels, of 1 or 3 channels, from one step to another. It writes four bytes
// of an RGB pixel where those after it are written later or of no use: not of the last one.
static inline void copy_pixels(uint8_t *dst, size_t dst_step, const uint8_t *src, size_t src_step,
	int n, int channels) {
	if (channels == 1) {
		for (int x = 0; x < n; x++)
			dst[(size_t)x * dst_step] = src[(size_t)x * src_step];
		return;
	}
	for (; n > 1; n--, dst += dst_step, src += src_step)
		memcpy(dst, src, 4);
	memcpy(dst, src, 3);
}

// along_rows blurs some rows: the line of a column of pixels has the pixels of these rows.
static void along_rows(const row_loops *rows, pixels_image dst, pixels_image src, int top,
	int count, pixels_box b, uint8_t *buffers[2]) {
	size_t channels = (size_t)src.channels;
	for (int y = 0; y < count; y++)
		copy_pixels(buffers[1] + (size_t)y * channels, pixels_line,
			src.pix + (size_t)(top + y) * (size_t)src.stride, channels, src.width, src.channels);
	blur(rows, buffers[0], pixels_line, buffers[1], pixels_line, src.width, b, buffers);
	for (int y = 0; y < count; y++)
		copy_pixels(dst.pix + (size_t)(top + y) * (size_t)dst.stride, channels,
			buffers[0] + (size_t)y * channels, pixels_line, src.width, src.channels);
}

// along_columns blurs n columns of samples of dst, from column left on.
static void along_columns(const row_loops *rows, pixels_image dst, int left, int n, pixels_box b,
	uint8_t *buffers[2]) {
	size_t stride = (size_t)dst.stride;
	uint8_t *first = dst.pix + left;
	if (n == pixels_line) {
		blur(rows, first, stride, first, stride, dst.height, b, buffers);
		return;
	}
	for (int y = 0; y < dst.height; y++)
		memcpy(buffers[1] + (size_t)y * pixels_line, first + (size_t)y * stride, (size_t)n);
	blur(rows, buffers[0], pixels_line, buffers[1], pixels_line, dst.height, b, buffers);
	for (int y = 0; y < dst.height; y++)
		memcpy(first + (size_t)y * stride, buffers[0] + (size_t)y * pixels_line, (size_t)n);
}

void pixels_box_blur(int level, pixels_image dst, pixels_image src, pixels_box across,
	pixels_box down, uint8_t *scratch) {
	const row_loops *rows = rows_of(level);
	int longest = src.width > src.height ? src.width : src.height;
	uint8_t *buffers[2] = {scratch, scratch + (size_t)longest * pixels_line};
	int count = pixels_line / src.channels;
	for (int top = 0; top < src.height; top += count) {
		int rest = src.height - top;
		along_rows(rows, dst, src, top, rest < count ? rest : count, across, buffers);
	}
	int samples = dst.width * dst.channels;
	for (int left = 0; left < samples; left += pixels_line) {
		int rest = samples - left;
		along_columns(rows, dst, left, rest < pixels_line ? rest : pixels_line, down, buffers);
	}
}

// The floats of a padded row.
static size_t padded(int width, int channels, int across_taps) {
	size_t n = ((size_t)width + (size_t)across_taps) * (size_t)channels;
	return (n + 2 * weigh_block - 1) / weigh_block * weigh_block;
}

size_t pixels_sums(int width, int channels, int across_taps, int down_taps) {
	return padded(width, channels, across_taps) * (size_t)(down_taps + 2);
}

static int mirrored(int i, int n) { return i < 0 ? -i : i >= n ? 2 * (n - 1) - i : i; }

void pixels_convolve(int level, pixels_image dst, pixels_image src, const float *across,
	int across_taps, const float *down, int down_taps, float *sums, int32_t *offsets) {
	const row_loops *rows = rows_of(level);
	int channels = src.channels, width = src.width, n = width * channels;
	int edge = across_taps / 2, reach = down_taps / 2;
	size_t size = padded(width, channels, across_taps);
	// The last rows as floats, a row of sums along columns with its edges, and the row of results.
	float *ring = sums, *line = ring + size * (size_t)down_taps, *results = line + size;
	int blocks = (n + weigh_block - 1) / weigh_block * weigh_block;
	int next = 0; // the first row that is not in the ring
	for (int y = 0; y < src.height; y++) {
		for (; next < src.height && next <= y + reach; next++)
			rows->to_floats(ring + size * (size_t)(next % down_taps),
				src.pix + (size_t)next * (size_t)src.stride, n);
		for (int k = 0; k < down_taps; k++)
			offsets[k] = (int32_t)size * (mirrored(y + k - reach, src.height) % down_taps);
		float *middle = line + edge * channels;
		rows->weigh(middle, ring, offsets, down, down_taps, blocks);
		for (int x = 0; x < edge; x++) {
			memcpy(line + x * channels, middle + mirrored(x - edge, width) * channels,
				(size_t)channels * sizeof *line);
			memcpy(middle + (width + x) * channels, middle + mirrored(width + x, width) * channels,
				(size_t)channels * sizeof *line);
		}
		for (int k = 0; k < across_taps; k++)
			offsets[k] = k * channels;
		rows->weigh(results, line, offsets, across, across_taps, blocks);
		rows->to_bytes(dst.pix + (size_t)y * (size_t)dst.stride, results, n);
	}
}
