// The function that webp_cgo.go calls. webp.c drives libwebp.
#ifndef HDMLP_CODEC_WEBP_H
#define HDMLP_CODEC_WEBP_H

#include <stddef.h>
#include <stdint.h>
#include <webp/decode.h>

// codec_webp_decode decodes a region of an image of width x height pixels into dst, as red, green
// and blue, and alpha if channels is 4; dst's rows are stride bytes apart. x and y must be even.
// Returns VP8_STATUS_USER_ABORT if the image has another size. whole ignores the region, which must
// be the whole image, and makes it verify the container as well, as Pillow does. libwebp may
// allocate at most most bytes at a time; 0 means no limit. need receives the largest amount that it
// allocated or tried to allocate.
VP8StatusCode codec_webp_decode(const uint8_t *src, size_t size, int width, int height,
	int x, int y, int columns, int rows, int channels, int whole, uint8_t *dst, size_t stride,
	size_t most, size_t *need);

#endif
