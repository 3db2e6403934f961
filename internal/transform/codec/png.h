// What png_cgo.go calls. png.c decodes PNGs of the common kinds; the others, and those that are damaged, are left to Go's decoder.
#ifndef HDMLP_CODEC_PNG_H
#define HDMLP_CODEC_PNG_H

#include <stddef.h>
#include <stdint.h>

typedef struct codec_png codec_png;

// What is to be decoded.
typedef struct {
	// The image: its size, the bits of a sample (1, 2, 4, 8 or 16), and PNG's colour type. It is not interlaced.
	int width, height, depth, colour;
	// The part that is wanted, which must not be empty and must lie inside.
	int x, y, columns, rows;
	// How many channels dst has per pixel: 3, or 1 where the image is gray.
	int channels;
	// Red, green and blue of each index, where the image has a palette, and how many colours that is. If depth has more indices,
	// all pixels are checked, and not only the part that is wanted: whether an image can be decoded does not depend on the part.
	uint8_t palette[256][3];
	int colours;
} codec_png_request;

codec_png *codec_png_new(void);
void codec_png_free(codec_png *);
codec_png_request *codec_png_request_of(codec_png *);

// The bytes that raw must have beyond a row of zeros and all filtered rows: vectors are read past the end.
enum { codec_png_slack = 16 };

// Decodes what the request says into dst, whose rows are stride bytes apart. packed is the zlib stream, all of it. raw is room for
// a row's bytes, which must be 0, for all rows with the filter's byte before each, and for the slack; row is what a row
// has without that byte. Returns 0 where the stream is damaged, does not have all rows,
// or has more, and where a pixel has no colour in the palette.
int codec_png_decode(codec_png *, const uint8_t *packed, size_t size, uint8_t *raw, size_t row, uint8_t *dst, size_t stride);

// Is codec_png_decode of n rows, from y on, whose inflated bytes are there already, behind a row's bytes: 0, or what this left there for
// the rows before. To be called for all rows, in order. Returns 0 where a filter is none,
// or a pixel has no colour in the palette.
int codec_png_rows(codec_png *, uint8_t *raw, size_t row, int y, int n, uint8_t *dst, size_t stride);

#endif
