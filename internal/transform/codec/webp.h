// What webp_cgo.go calls. webp.c drives libwebp.
#ifndef HDMLP_CODEC_WEBP_H
#define HDMLP_CODEC_WEBP_H

#include <stddef.h>
#include <stdint.h>
#include <webp/decode.h>

// Decodes a part of an image of width x height pixels into dst, as red, green and blue; dst's rows are stride bytes apart. x and
// y must be even. Returns VP8_STATUS_USER_ABORT where the image is of another size. libwebp may take most bytes at once, any number
// if that is 0; need is what it has taken, or would have had to where that is more.
VP8StatusCode codec_webp_decode(const uint8_t *src, size_t size, int width, int height,
	int x, int y, int columns, int rows, uint8_t *dst, size_t stride,
	size_t most, size_t *need);

#endif
