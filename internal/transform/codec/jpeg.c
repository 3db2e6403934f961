//go:build cgo

#include "jpeg_state.h"

#include <stdlib.h>
#include <string.h>

#include "idct.h"

#if defined(__GLIBC__)
#include <malloc.h>
#include <unistd.h>
#endif

// Columns decoded left and right of a region, because the first and last pixels of a cropped row
// lack their neighbours. Chroma is interpolated over one sample, which is 2 pixels. For progressive
// images that lack scans, libjpeg smooths over 2 blocks, which are 64 pixels if chroma is
// subsampled by 4.
enum { margin = 8, smoothing_margin = 72 };

// More scans than any encoder writes. Without a limit, a file with a few bytes per scan would keep
// libjpeg busy for hours.
enum { max_scans = 1000 };

#if defined(__GLIBC__)
// By default every thread that allocates in C gets its own arena, up to eight per CPU, and Go moves
// decoders between threads, so that free memory accumulates in all arenas. One arena suffices for
// eight CPUs, because little is allocated.
__attribute__((constructor)) static void few_arenas(void) {
	if (getenv("MALLOC_ARENA_MAX") == NULL)
		mallopt(M_ARENA_MAX, 1 + (int)(sysconf(_SC_NPROCESSORS_ONLN) / 8));
}
#endif

static codec_jpeg *of(j_common_ptr cinfo) { return cinfo->client_data; }

form_decoder *form_of(j_decompress_ptr cinfo) { return &of((j_common_ptr)cinfo)->form; }

static void error_exit(j_common_ptr cinfo) {
	codec_jpeg *d = of(cinfo);
	char message[JMSG_LENGTH_MAX];
	cinfo->err->format_message(cinfo, message);
	memcpy(d->request.message, message, sizeof message);
	longjmp(d->out, gave_up);
}

// Warnings are counted, and traces are dropped.
static void emit_message(j_common_ptr cinfo, int level) {
	if (level < 0)
		of(cinfo)->request.warnings++;
}

static void output_message(j_common_ptr cinfo) { (void)cinfo; }

static void init_source(j_decompress_ptr cinfo) { (void)cinfo; }

// All data is in memory from the start: if libjpeg needs more, the file is truncated, as for PIL.
static boolean fill_input_buffer(j_decompress_ptr cinfo) {
	longjmp(of((j_common_ptr)cinfo)->out, ran_out);
	return FALSE;
}

static void skip_input_data(j_decompress_ptr cinfo, long n) {
	if (n <= 0)
		return;
	if ((size_t)n > cinfo->src->bytes_in_buffer)
		fill_input_buffer(cinfo);
	cinfo->src->next_input_byte += n;
	cinfo->src->bytes_in_buffer -= (size_t)n;
}

static void term_source(j_decompress_ptr cinfo) { (void)cinfo; }

static void count_scans(j_common_ptr cinfo) {
	j_decompress_ptr d = (j_decompress_ptr)cinfo;
	if (cinfo->is_decompressor && d->input_scan_number > max_scans) {
		strcpy(of(cinfo)->request.message, "more than 1000 scans");
		longjmp(of(cinfo)->out, gave_up);
	}
}

void codec_jpeg_bail(j_decompress_ptr cinfo) { longjmp(of((j_common_ptr)cinfo)->out, bailed); }

static void bail_from_form(j_decompress_ptr cinfo) {
	codec_jpeg *d = of((j_common_ptr)cinfo);
	strcpy(d->request.message, "the compact form is damaged");
	longjmp(d->out, gave_up);
}

codec_jpeg *codec_jpeg_new(void) { return calloc(1, sizeof(codec_jpeg)); }

void codec_jpeg_free(codec_jpeg *d) {
	entropy_free(&d->entropy);
	codec_jpeg_free_packing(d);
	free(d->row);
	free(d);
}

codec_request *codec_jpeg_request(codec_jpeg *d) { return &d->request; }

void codec_jpeg_create(codec_jpeg *d, const uint8_t *src, size_t size) {
	struct jpeg_error_mgr *e = jpeg_std_error(&d->errors);
	e->error_exit = error_exit;
	e->emit_message = emit_message;
	e->output_message = output_message;
	d->cinfo.err = e;
	d->cinfo.client_data = d;
	jpeg_create_decompress(&d->cinfo);
	d->source = (struct jpeg_source_mgr){
		.init_source = init_source,
		.fill_input_buffer = fill_input_buffer,
		.skip_input_data = skip_input_data,
		.resync_to_restart = jpeg_resync_to_restart,
		.term_source = term_source,
	};
	d->source.next_input_byte = src;
	d->source.bytes_in_buffer = size;
	d->cinfo.src = &d->source;
	d->progress.progress_monitor = count_scans;
	d->cinfo.progress = &d->progress;
}

void codec_jpeg_limit_memory(j_decompress_ptr cinfo) {
	// Memory for a progressive image (2 bytes per coefficient, chroma at most as large as luma, odd
	// sizes), plus some for everything else.
	cinfo->mem->max_memory_to_use =
		(long)cinfo->image_width * cinfo->image_height * 2 * (cinfo->num_components + 1) + (64L << 20);
}

// ends reports whether the data that libjpeg has not read contains an end of image.
static int ends(const struct jpeg_source_mgr *s) {
	// Nearly always it is at the end.
	for (size_t i = s->bytes_in_buffer; i >= 2; i--)
		if (s->next_input_byte[i - 2] == 0xff && s->next_input_byte[i - 1] == 0xd9)
			return 1;
	return 0;
}

// libjpeg-turbo writes rows of pixels past the caches if their addresses are multiples of streamed,
// and they would be read from memory again.
enum { streamed = 32, not_streamed = 16 };

// row_pitch returns how many bytes d->row has for each of four rows.
static size_t row_pitch(const codec_jpeg *d) {
	size_t n = d->cinfo.output_width * (size_t)d->request.channels;
	return (n + streamed - 1) / streamed * streamed;
}

// read_rows reads the region's rows into dst.
static void read_rows(codec_jpeg *d, uint8_t *dst, size_t stride, JDIMENSION left) {
	j_decompress_ptr cinfo = &d->cinfo;
	const codec_request *r = &d->request;
	size_t n = (size_t)r->width * (size_t)r->channels,
		skip = ((size_t)r->x - left) * (size_t)r->channels;
	JDIMENSION first = (JDIMENSION)r->y, end = first + (JDIMENSION)r->height;
	if (first > 0)
		jpeg_skip_scanlines(cinfo, first);
	int direct = cinfo->output_width == (JDIMENSION)r->width;
	uint8_t *row = d->row + ((not_streamed - (uintptr_t)d->row) & (streamed - 1));
	size_t pitch = row_pitch(d);
	JSAMPROW rows[4];
	while (cinfo->output_scanline < end) {
		JDIMENSION y = cinfo->output_scanline - first, want = end - cinfo->output_scanline;
		if (want > 4)
			want = 4;
		for (JDIMENSION i = 0; i < want; i++)
			rows[i] = direct && (uintptr_t)(dst + (y + i) * stride) % streamed != 0
				? dst + (y + i) * stride
				: row + i * pitch;
		JDIMENSION got = jpeg_read_scanlines(cinfo, rows, want);
		for (JDIMENSION i = 0; i < got; i++)
			if (rows[i] != dst + (y + i) * stride)
				memcpy(dst + (y + i) * stride, rows[i] + skip, n);
	}
}

// decode is one attempt, with or without our entropy decoder.
static void decode(codec_jpeg *d, uint8_t *dst, size_t stride, int fast) {
	j_decompress_ptr cinfo = &d->cinfo;
	codec_request *r = &d->request;
	jpeg_read_header(cinfo, TRUE);
	codec_jpeg_limit_memory(cinfo);
	cinfo->out_color_space = r->channels == 1 ? JCS_GRAYSCALE : r->channels == 3 ? JCS_RGB : JCS_CMYK;
	cinfo->scale_num = (unsigned)r->scale;
	cinfo->scale_denom = 8;
	jpeg_start_decompress(cinfo);
	if (!r->plain)
		idct_start(cinfo, r->level);
	JDIMENSION left = (JDIMENSION)r->x, width = (JDIMENSION)r->width, all = cinfo->output_width;
	if (left + width > all || (JDIMENSION)(r->y + r->height) > cinfo->output_height ||
	    cinfo->output_components != r->channels) {
		strcpy(r->message, "the header changed");
		longjmp(d->out, gave_up);
	}
	JDIMENSION more = cinfo->progressive_mode ? smoothing_margin : margin;
	JDIMENSION right = left + width + more < all ? left + width + more : all;
	left = left > more ? left - more : 0;
	width = right - left;
	// libjpeg-turbo 2.1 crops scaled images incorrectly if chroma is subsampled by 4.
	if (r->scale < 8 && (cinfo->max_h_samp_factor > 2 || cinfo->max_v_samp_factor > 2))
		left = 0;
	else if (width < all)
		jpeg_crop_scanline(cinfo, &left, &width);
	size_t need = 4 * row_pitch(d) + streamed;
	if (d->row_capacity < need) {
		free(d->row);
		d->row = malloc(need);
		d->row_capacity = d->row == NULL ? 0 : need;
		if (d->row == NULL)
			longjmp(d->out, gave_up);
	}
	if (d->body != NULL) {
		if (!form_start(cinfo, &d->form, d->body, d->body_size, r->level, bail_from_form))
			bail_from_form(cinfo);
		r->fast = 1;
	} else {
		r->fast = fast && !r->to_end && entropy_start(cinfo, &d->entropy, codec_jpeg_bail);
	}
	int stop = r->fast || cinfo->inputctl->has_multiple_scans || (!r->to_end && ends(&d->source));
	read_rows(d, dst, stride, left);
	// A file without an end of image is truncated if its last row is missing, requested or not.
	while (!stop && cinfo->output_scanline < cinfo->output_height) {
		JSAMPROW row = d->row;
		jpeg_read_scanlines(cinfo, &row, 1);
	}
	if (cinfo->output_scanline == cinfo->output_height && !r->fast) {
		// For PIL, an invalid marker after the pixels is an error, and a missing one is not.
		d->finishing = 1;
		jpeg_finish_decompress(cinfo);
	}
}

int codec_jpeg_decode(codec_jpeg *d, const uint8_t *src, size_t size, uint8_t *dst, size_t stride) {
	for (volatile int fast = !d->request.plain;; fast = 0) {
		d->request.warnings = 0;
		d->request.message[0] = 0;
		d->finishing = 0;
		int left = setjmp(d->out);
		if (left == 0) {
			codec_jpeg_create(d, src, size);
			decode(d, dst, stride, fast);
		}
		jpeg_destroy_decompress(&d->cinfo); // no effect if it was not created
		d->source.next_input_byte = NULL;
		switch (left) {
		case 0:
			return codec_ok;
		case ran_out:
			return d->finishing ? codec_ok : codec_truncated;
		case gave_up:
			return d->request.message[0] == 0 ? codec_memory : codec_corrupt;
		}
	}
}

int codec_jpeg_decode_form(codec_jpeg *d, const uint8_t *head, size_t head_size,
	const uint8_t *body, size_t body_size, uint8_t *dst, size_t stride) {
	d->body = body;
	d->body_size = body_size;
	int result = codec_jpeg_decode(d, head, head_size, dst, stride);
	d->body = NULL;
	return result;
}
