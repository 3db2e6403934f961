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
	codec_refused,   // there is no compact form of it; message says why
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
	// In, for tests: use neither entropy.c nor idct.c.
	int plain;
	// In, for tests: the instructions that a form's decoder and idct.c may use, of form.h; 0: all.
	int level;
	// Out: whether entropy.c decoded it, the number of libjpeg's warnings, and its last message.
	int fast, warnings;
	char message[200]; // libjpeg's JMSG_LENGTH_MAX
} codec_request;

codec_jpeg *codec_jpeg_new(void);
void codec_jpeg_free(codec_jpeg *);
codec_request *codec_jpeg_request(codec_jpeg *);

// codec_jpeg_decode decodes what the request describes into dst, whose rows are stride bytes apart.
int codec_jpeg_decode(codec_jpeg *, const uint8_t *src, size_t size, uint8_t *dst, size_t stride);

// codec_jpeg_decode_form decodes an image from the compact form of its coefficients (form.h). head
// is a JPEG up to and including the header of its scan.
int codec_jpeg_decode_form(codec_jpeg *, const uint8_t *head, size_t head_size,
	const uint8_t *body, size_t body_size, uint8_t *dst, size_t stride);

// What codec_jpeg_pack makes. It is valid until the next call.
typedef struct {
	// The JPEG up to and including the header of the scan that codec_jpeg_decode_form gets; NULL:
	// its own, of header_size bytes.
	const uint8_t *head;
	size_t head_size;
	const uint8_t *body;
	size_t body_size;
	// Where the (first) scan begins and, if exact, ends.
	size_t header_size, scan_end;
	int exact; // codec_jpeg_scan makes the scan again
	int ones;  // bytes before markers are filled with ones
} codec_packed;

// codec_jpeg_pack makes the compact form of a JPEG, whose body has at most limit bytes, and checks
// that it gives the same coefficients and, if the JPEG has one scan, the same scan. The caller has
// read the header: the JPEG has 1 or 3 components, and is complete. The message of the request says
// why it is refused.
int codec_jpeg_pack(codec_jpeg *, const uint8_t *src, size_t size, size_t limit, codec_packed *out);

// codec_jpeg_trim frees what a large image took to be packed.
void codec_jpeg_trim(codec_jpeg *);

// codec_jpeg_scan makes the scan again, which has size bytes, at dst. It may write 8 bytes more.
int codec_jpeg_scan(codec_jpeg *, const uint8_t *head, size_t head_size, const uint8_t *body,
	size_t body_size, int ones, uint8_t *dst, size_t size);

#endif
