//go:build cgo

#include "webp.h"

VP8StatusCode codec_webp_decode(const uint8_t *src, size_t size, int width, int height,
	int x, int y, int columns, int rows, uint8_t *dst, size_t stride) {
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
	config.output.colorspace = MODE_RGB;
	config.output.is_external_memory = 1;
	config.output.u.RGBA.rgba = dst;
	config.output.u.RGBA.stride = (int)stride;
	config.output.u.RGBA.size = stride * (size_t)rows;
	return WebPDecode(src, size, &config);
}
