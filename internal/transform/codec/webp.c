//go:build cgo

#include "webp.h"

#include <malloc.h>
#include <webp/demux.h>

// libwebp allocates memory with these functions, which the linker replaces by ours (--wrap). It
// decodes on the calling thread.
void *__real_WebPSafeMalloc(uint64_t n, size_t size);
void *__real_WebPSafeCalloc(uint64_t n, size_t size);
void __real_WebPSafeFree(void *p);
void *__wrap_WebPSafeMalloc(uint64_t n, size_t size);
void *__wrap_WebPSafeCalloc(uint64_t n, size_t size);
void __wrap_WebPSafeFree(void *p);

static _Thread_local size_t held, peak, limit; // of the current image

// fits records the total with n * size bytes more, and reports whether they may be allocated.
static int fits(uint64_t n, size_t size) {
	size_t bytes, all;
	if (__builtin_mul_overflow(n, size, &bytes) || __builtin_add_overflow(held, bytes, &all))
		return 0;
	if (all > peak)
		peak = all;
	return limit == 0 || all <= limit;
}

static void *taken(void *p) {
	if (p != NULL)
		held += malloc_usable_size(p);
	return p;
}

void *__wrap_WebPSafeMalloc(uint64_t n, size_t size) {
	return fits(n, size) ? taken(__real_WebPSafeMalloc(n, size)) : NULL;
}
void *__wrap_WebPSafeCalloc(uint64_t n, size_t size) {
	return fits(n, size) ? taken(__real_WebPSafeCalloc(n, size)) : NULL;
}

void __wrap_WebPSafeFree(void *p) {
	if (p != NULL)
		held -= malloc_usable_size(p);
	__real_WebPSafeFree(p);
}

static VP8StatusCode decode(const uint8_t *src, size_t size, int width, int height,
	int x, int y, int columns, int rows, int channels, uint8_t *dst, size_t stride) {
	WebPDecoderConfig config;
	if (!WebPInitDecoderConfig(&config))
		return VP8_STATUS_INVALID_PARAM;
	VP8StatusCode status = WebPGetFeatures(src, size, &config.input);
	if (status != VP8_STATUS_OK)
		return status;
	if (config.input.width != width || config.input.height != height)
		return VP8_STATUS_USER_ABORT;
	if (columns != width || rows != height) {
		config.options.use_cropping = 1;
		config.options.crop_left = x;
		config.options.crop_top = y;
		config.options.crop_width = columns;
		config.options.crop_height = rows;
	}
	config.output.colorspace = channels == 4 ? MODE_RGBA : MODE_RGB;
	config.output.is_external_memory = 1;
	config.output.u.RGBA.rgba = dst;
	config.output.u.RGBA.stride = (int)stride;
	config.output.u.RGBA.size = stride * (size_t)rows;
	return WebPDecode(src, size, &config);
}

// decode_whole is decode for the whole image, of a file whose container must be valid: its chunks,
// their order and sizes. As in Pillow, the pixels must not continue in what follows their chunk.
static VP8StatusCode decode_whole(const uint8_t *src, size_t size, int width, int height,
	int channels, uint8_t *dst, size_t stride) {
	WebPData data = {src, size};
	WebPDemuxer *container = WebPDemux(&data);
	WebPIterator frame;
	VP8StatusCode status = VP8_STATUS_BITSTREAM_ERROR;
	if (container != NULL && WebPDemuxGetFrame(container, 1, &frame)) {
		status = decode(frame.fragment.bytes, frame.fragment.size, width, height, 0, 0, width, height,
			channels, dst, stride);
		WebPDemuxReleaseIterator(&frame);
	}
	WebPDemuxDelete(container);
	return status;
}

VP8StatusCode codec_webp_decode(const uint8_t *src, size_t size, int width, int height,
	int x, int y, int columns, int rows, int channels, int whole, uint8_t *dst, size_t stride,
	size_t most, size_t *need) {
	held = peak = 0;
	limit = most;
	VP8StatusCode status = whole
		? decode_whole(src, size, width, height, channels, dst, stride)
		: decode(src, size, width, height, x, y, columns, rows, channels, dst, stride);
	*need = peak;
	return status;
}
