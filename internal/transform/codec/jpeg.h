// The functions that jpeg_cgo.go calls. jpeg.c drives libjpeg-turbo; entropy.c replaces its Huffman
// decoder where possible.
#ifndef HDMLP_CODEC_JPEG_H
#define HDMLP_CODEC_JPEG_H

#include <stddef.h>
#include <stdint.h>

enum {
	codec_ok,
	codec_corrupt,   // libjpeg gave up; message says why
	codec_truncated, // the data ends before the image does
	codec_memory,    // out of memory
};

typedef struct codec_jpeg codec_jpeg;

// A request to decode an image, and its outcome.
typedef struct {
	// In: the scale in eighths, and the region of the scaled image, which must be non-empty and
	// inside it.
	int scale, x, y, width, height;
	// In: how many channels dst has per pixel: 1 or 3; 4 is CMYK as stored.
	int channels;
	// In: decode to the file's end, so that damage after the region is an error.
	int to_end;
	// In, for tests: never use entropy.c.
	int plain;
	// Out: whether entropy.c decoded it, the number of libjpeg's warnings, and its last message.
	int fast, warnings;
	char message[200]; // libjpeg's JMSG_LENGTH_MAX
} codec_request;

codec_jpeg *codec_jpeg_new(void);
void codec_jpeg_free(codec_jpeg *);
codec_request *codec_jpeg_request(codec_jpeg *);

// codec_jpeg_decode decodes what the request describes into dst, whose rows are stride bytes apart.
int codec_jpeg_decode(codec_jpeg *, const uint8_t *src, size_t size, uint8_t *dst, size_t stride);

#endif
