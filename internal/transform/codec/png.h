// The functions that png_cgo.go calls. png.c decodes common PNGs; Go's decoder handles interlaced
// and damaged ones.
#ifndef HDMLP_CODEC_PNG_H
#define HDMLP_CODEC_PNG_H

#include <stddef.h>
#include <stdint.h>

typedef struct codec_png codec_png;

// A request to decode an image.
typedef struct {
	// The image: its size, the bits of a sample (1, 2, 4, 8 or 16), and PNG's colour type. It is
	// not interlaced.
	int width, height, depth, colour;
	// The region to decode, which must be non-empty and inside the image.
	int x, y, columns, rows;
	// How many channels dst has per pixel: 3, or 1 if the image is gray.
	int channels;
	// The palette, if the image has one, and its number of colours. If depth allows more indices,
	// all pixels are checked, not only those of the region: whether an image can be decoded must
	// not depend on the region.
	uint8_t palette[256][3];
	int colours;
} codec_png_request;

codec_png *codec_png_new(void);
void codec_png_free(codec_png *);
codec_png_request *codec_png_request_of(codec_png *);

// Bytes that raw must have after a row of zeros and all filtered rows: vector loads read past the
// end.
enum { codec_png_slack = 16 };

// codec_png_decode decodes what the request describes into dst, whose rows are stride bytes apart.
// packed is the whole zlib stream. raw is memory for a row of zeros, which the caller must clear,
// for all rows, each with its filter byte, and for the slack; row is the size of a row without that
// byte. Returns 0 if the stream is damaged or does not have exactly the image's rows, and if a
// pixel has no colour in the palette.
int codec_png_decode(codec_png *, const uint8_t *packed, size_t size, uint8_t *raw, size_t row,
	uint8_t *dst, size_t stride);

// codec_png_rows is codec_png_decode for n rows, from row y on, whose inflated bytes are in raw
// already. They follow the bytes of one row: zeros at first, then what the call for the rows before
// left there. It must be called for all rows, in order. Returns 0 if a filter is invalid or a pixel
// has no colour in the palette.
int codec_png_rows(codec_png *, uint8_t *raw, size_t row, int y, int n, uint8_t *dst,
	size_t stride);

#endif
