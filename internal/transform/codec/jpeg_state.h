// The state of a decoder, which jpeg.c and form_jpeg.c share.
#ifndef HDMLP_CODEC_JPEG_STATE_H
#define HDMLP_CODEC_JPEG_STATE_H

#include "jpeg.h"

#include <setjmp.h>

#include "entropy.h"
#include "form.h"

struct codec_jpeg {
	entropy_decoder entropy; // first: cinfo.client_data points to it
	struct jpeg_decompress_struct cinfo;
	struct jpeg_error_mgr errors;
	struct jpeg_source_mgr source;
	struct jpeg_progress_mgr progress;
	jmp_buf out;
	int finishing; // all rows have been read
	codec_request request;
	uint8_t *row; // a row with its margins
	size_t row_capacity;

	form_decoder form;
	const uint8_t *body; // if not NULL, what is decoded is a compact form
	size_t body_size;
	form_packer packer;
	int16_t (*coefficients)[64]; // of an image that is packed
	size_t coefficients_capacity;
	uint8_t *bytes; // of a head that is made, or of a scan
	size_t bytes_capacity;
};

// Values of longjmp.
enum { gave_up = 1, ran_out, bailed };

// codec_jpeg_create initializes cinfo for every image: a used one keeps the quantization and
// Huffman tables of the image before, and would use them for a damaged image that lacks its own.
// The cost is negligible compared with decoding. libjpeg may longjmp out of it.
void codec_jpeg_create(codec_jpeg *d, const uint8_t *src, size_t size);

// codec_jpeg_limit_memory limits what libjpeg allocates for the image whose header it has read.
void codec_jpeg_limit_memory(j_decompress_ptr cinfo);

void codec_jpeg_bail(j_decompress_ptr cinfo);

void codec_jpeg_free_packing(codec_jpeg *d);

#endif
