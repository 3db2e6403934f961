//go:build cgo

#include "jpeg_state.h"

#include <stdlib.h>
#include <string.h>

// Memory of an image that is kept for the next one, in bytes.
enum { most_kept = 64 << 20 };

void codec_jpeg_free_packing(codec_jpeg *d) {
	form_pack_free(&d->packer);
	free(d->coefficients);
	free(d->bytes);
	d->coefficients = NULL;
	d->bytes = NULL;
	d->coefficients_capacity = d->bytes_capacity = 0;
}

static void __attribute__((noreturn)) refuse(codec_jpeg *d, const char *why) {
	strcpy(d->request.message, why);
	longjmp(d->out, gave_up);
}

static void __attribute__((noreturn)) out_of_memory(codec_jpeg *d) {
	d->request.message[0] = 0;
	longjmp(d->out, gave_up);
}

static uint8_t *bytes(codec_jpeg *d, size_t n) {
	if (d->bytes_capacity < n) {
		free(d->bytes);
		d->bytes = malloc(n);
		d->bytes_capacity = d->bytes == NULL ? 0 : n;
		if (d->bytes == NULL)
			out_of_memory(d);
	}
	return d->bytes;
}

// allocate makes room for an image's coefficients, which are 0.
static void allocate(codec_jpeg *d, form_coefficients *c) {
	size_t n = (size_t)c->rows * c->columns * (size_t)c->block_count;
	if (d->coefficients_capacity < n) {
		free(d->coefficients);
		d->coefficients = malloc(n * sizeof *d->coefficients);
		d->coefficients_capacity = d->coefficients == NULL ? 0 : n;
		if (d->coefficients == NULL)
			out_of_memory(d);
	}
	memset(d->coefficients, 0, n * sizeof *d->coefficients);
	c->blocks = d->coefficients;
}

// read_scan decodes the only scan of an image.
static void read_scan(codec_jpeg *d, const uint8_t *src, form_coefficients *c, codec_packed *out) {
	j_decompress_ptr cinfo = &d->cinfo;
	jpeg_start_decompress(cinfo);
	if (!entropy_start(cinfo, &d->entropy, codec_jpeg_bail))
		refuse(d, "a scan without all components");
	c->rows = cinfo->MCU_rows_in_scan;
	c->columns = cinfo->MCUs_per_row;
	c->block_count = cinfo->blocks_in_MCU;
	for (int b = 0; b < c->block_count; b++)
		c->block_component[b] = (uint8_t)cinfo->MCU_membership[b];
	allocate(d, c);
	int16_t(*next)[64] = c->blocks;
	for (uint32_t mcu = c->rows * c->columns; mcu != 0; mcu--) {
		JBLOCKROW blocks[D_MAX_BLOCKS_IN_MCU];
		for (int b = 0; b < c->block_count; b++)
			blocks[b] = (JBLOCKROW)next++;
		(*cinfo->entropy->decode_mcu)(cinfo, blocks);
	}
	out->exact = 1;
	out->scan_end = (size_t)(d->entropy.src - src);
}

// geometry finds out how an image with several scans would lie in one, and refuses what libjpeg
// does not decode from the coefficients alone.
static void geometry(codec_jpeg *d, form_coefficients *c) {
	j_decompress_ptr cinfo = &d->cinfo;
	int single = cinfo->num_components == 1;
	c->block_count = 0;
	for (int i = 0; i < cinfo->num_components; i++) {
		const jpeg_component_info *info = &cinfo->comp_info[i];
		int n = single ? 1 : info->h_samp_factor * info->v_samp_factor;
		if (c->block_count + n > D_MAX_BLOCKS_IN_MCU)
			refuse(d, "too many blocks for one scan");
		for (int b = 0; b < n; b++)
			c->block_component[c->block_count++] = (uint8_t)i;
		if (info->quant_table == NULL)
			refuse(d, "a component without a scan");
		// libjpeg estimates these where they are not complete.
		for (int k = 0; k < 10 && cinfo->progressive_mode; k++)
			if (cinfo->coef_bits[i][k] != 0)
				refuse(d, "incomplete");
	}
	const jpeg_component_info *first = cinfo->comp_info;
	uint32_t h = (uint32_t)cinfo->max_h_samp_factor * DCTSIZE,
		v = (uint32_t)cinfo->max_v_samp_factor * DCTSIZE;
	c->columns = single ? first->width_in_blocks : (cinfo->image_width + h - 1) / h;
	c->rows = single ? first->height_in_blocks : (cinfo->image_height + v - 1) / v;
}

// read_scans decodes all scans of an image.
static void read_scans(codec_jpeg *d, form_coefficients *c) {
	j_decompress_ptr cinfo = &d->cinfo;
	jvirt_barray_ptr *arrays = jpeg_read_coefficients(cinfo);
	if (d->request.warnings != 0)
		refuse(d, "damaged");
	geometry(d, c);
	allocate(d, c);
	int single = cinfo->num_components == 1;
	int16_t(*next)[64] = c->blocks;
	for (uint32_t row = 0; row < c->rows; row++) {
		JBLOCKARRAY lines[MAX_COMPS_IN_SCAN];
		for (int i = 0; i < cinfo->num_components; i++) {
			uint32_t high = single ? 1 : (uint32_t)cinfo->comp_info[i].v_samp_factor;
			lines[i] = (*cinfo->mem->access_virt_barray)(
				(j_common_ptr)cinfo, arrays[i], row * high, high, FALSE);
		}
		int16_t dc[MAX_COMPS_IN_SCAN] = {0};
		for (uint32_t column = 0; column < c->columns; column++)
			for (int i = 0; i < cinfo->num_components; i++) {
				const jpeg_component_info *info = &cinfo->comp_info[i];
				uint32_t wide = single ? 1 : (uint32_t)info->h_samp_factor,
					high = single ? 1 : (uint32_t)info->v_samp_factor;
				for (uint32_t b = 0; b < wide * high; b++, next++) {
					uint32_t x = column * wide + b % wide, y = b / wide;
					// What is outside of the component is not shown, and costs least if its DC
					// coefficient does not change.
					if (x >= info->width_in_blocks || row * high + y >= info->height_in_blocks)
						(*next)[0] = dc[i];
					else
						memcpy(*next, lines[i][y][x], sizeof *next);
					dc[i] = (*next)[0];
				}
			}
	}
	// The head that is made has codes for what 8 bits per sample give.
	for (const int16_t *v = c->blocks[0]; v < next[0]; v++)
		if (*v < -1023 - ((v - c->blocks[0]) % DCTSIZE2 == 0) || *v > 1023)
			refuse(d, "coefficients of more than 8 bits per sample");
}

// The typical Huffman tables (T.81, K.3), for readers of a head other than libjpeg, which has them:
// for DC and AC, the number of codes of each length, and the symbols.
static const uint8_t typical_tables[] = {
	0x00, 0, 1, 5, 1, 1, 1, 1, 1, 1, 0, 0, 0, 0, 0, 0, 0,
	0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11,
	0x10, 0, 2, 1, 3, 3, 2, 4, 3, 5, 5, 4, 4, 0, 0, 1, 0x7d,
	0x01, 0x02, 0x03, 0x00, 0x04, 0x11, 0x05, 0x12, 0x21, 0x31, 0x41, 0x06, 0x13, 0x51, 0x61,
	0x07, 0x22, 0x71, 0x14, 0x32, 0x81, 0x91, 0xa1, 0x08, 0x23, 0x42, 0xb1, 0xc1, 0x15, 0x52,
	0xd1, 0xf0, 0x24, 0x33, 0x62, 0x72, 0x82, 0x09, 0x0a, 0x16, 0x17, 0x18, 0x19, 0x1a, 0x25,
	0x26, 0x27, 0x28, 0x29, 0x2a, 0x34, 0x35, 0x36, 0x37, 0x38, 0x39, 0x3a, 0x43, 0x44, 0x45,
	0x46, 0x47, 0x48, 0x49, 0x4a, 0x53, 0x54, 0x55, 0x56, 0x57, 0x58, 0x59, 0x5a, 0x63, 0x64,
	0x65, 0x66, 0x67, 0x68, 0x69, 0x6a, 0x73, 0x74, 0x75, 0x76, 0x77, 0x78, 0x79, 0x7a, 0x83,
	0x84, 0x85, 0x86, 0x87, 0x88, 0x89, 0x8a, 0x92, 0x93, 0x94, 0x95, 0x96, 0x97, 0x98, 0x99,
	0x9a, 0xa2, 0xa3, 0xa4, 0xa5, 0xa6, 0xa7, 0xa8, 0xa9, 0xaa, 0xb2, 0xb3, 0xb4, 0xb5, 0xb6,
	0xb7, 0xb8, 0xb9, 0xba, 0xc2, 0xc3, 0xc4, 0xc5, 0xc6, 0xc7, 0xc8, 0xc9, 0xca, 0xd2, 0xd3,
	0xd4, 0xd5, 0xd6, 0xd7, 0xd8, 0xd9, 0xda, 0xe1, 0xe2, 0xe3, 0xe4, 0xe5, 0xe6, 0xe7, 0xe8,
	0xe9, 0xea, 0xf1, 0xf2, 0xf3, 0xf4, 0xf5, 0xf6, 0xf7, 0xf8, 0xf9, 0xfa,
};

static uint8_t *put_16(uint8_t *to, uint32_t v) {
	*to++ = (uint8_t)(v >> 8);
	*to++ = (uint8_t)v;
	return to;
}

static uint8_t *put_marker(uint8_t *to, uint8_t marker, size_t content) {
	*to++ = 0xff;
	*to++ = marker;
	return put_16(to, (uint32_t)content + 2);
}

static uint8_t *put_bytes(uint8_t *to, const void *from, size_t n) {
	memcpy(to, from, n);
	return to + n;
}

// make_head writes a JPEG's beginning with one scan of all of cinfo's components.
static void make_head(codec_jpeg *d, codec_packed *out) {
	j_decompress_ptr cinfo = &d->cinfo;
	uint8_t *begin = bytes(d, 2048), *to = put_bytes(begin, "\xff\xd8", 2);
	if (cinfo->saw_JFIF_marker) {
		to = put_marker(to, 0xe0, 14);
		to = put_bytes(to, "JFIF\0\1\1\0\0\1\0\1\0\0", 14);
	}
	if (cinfo->saw_Adobe_marker) {
		to = put_marker(to, 0xee, 12);
		to = put_bytes(to, "Adobe\0\x64\0\0\0\0", 11);
		*to++ = cinfo->Adobe_transform;
	}
	for (int i = 0; i < cinfo->num_components; i++) {
		to = put_marker(to, 0xdb, 1 + 2 * DCTSIZE2);
		*to++ = (uint8_t)(0x10 | i);
		for (int k = 0; k < DCTSIZE2; k++)
			to = put_16(to, cinfo->comp_info[i].quant_table->quantval[form_natural_order[k]]);
	}
	to = put_marker(to, 0xc0, 6 + 3 * (size_t)cinfo->num_components);
	*to++ = 8;
	to = put_16(to, cinfo->image_height);
	to = put_16(to, cinfo->image_width);
	*to++ = (uint8_t)cinfo->num_components;
	for (int i = 0; i < cinfo->num_components; i++) {
		const jpeg_component_info *c = &cinfo->comp_info[i];
		*to++ = (uint8_t)c->component_id;
		*to++ = (uint8_t)(c->h_samp_factor << 4 | c->v_samp_factor);
		*to++ = (uint8_t)i;
	}
	to = put_marker(to, 0xc4, sizeof typical_tables);
	to = put_bytes(to, typical_tables, sizeof typical_tables);
	to = put_marker(to, 0xda, 4 + 2 * (size_t)cinfo->num_components);
	*to++ = (uint8_t)cinfo->num_components;
	for (int i = 0; i < cinfo->num_components; i++) {
		*to++ = (uint8_t)cinfo->comp_info[i].component_id;
		*to++ = 0;
	}
	to = put_bytes(to, "\x00\x3f\x00", 3);
	out->head = begin;
	out->head_size = (size_t)(to - begin);
}

// check_blocks compares the coefficients with those of the form.
static void check_blocks(codec_jpeg *d, const form_coefficients *c, const codec_packed *out) {
	j_decompress_ptr cinfo = &d->cinfo;
	jpeg_destroy_decompress(cinfo);
	codec_jpeg_create(d, out->head, out->head_size);
	jpeg_read_header(cinfo, TRUE);
	jpeg_start_decompress(cinfo);
	if (!form_start(cinfo, &d->form, out->body, out->body_size, d->request.level,
		    codec_jpeg_bail) ||
	    d->form.block_count != c->block_count || d->form.columns != c->columns ||
	    d->form.row_count != c->rows)
		refuse(d, "the form has other blocks");
	int16_t(*expected)[64] = c->blocks;
	for (uint32_t mcu = c->rows * c->columns; mcu != 0; mcu--, expected += c->block_count) {
		int16_t blocks[D_MAX_BLOCKS_IN_MCU][64];
		uint64_t masks[D_MAX_BLOCKS_IN_MCU];
		size_t n = sizeof blocks[0] * (size_t)c->block_count;
		memset(blocks, 0, n);
		if (!form_mcu(&d->form, blocks, masks) || memcmp(blocks, expected, n) != 0)
			refuse(d, "the form has other coefficients");
	}
}

// check_scan compares the scan with that of the form.
static void check_scan(codec_jpeg *d, const uint8_t *src, codec_packed *out) {
	size_t size = out->scan_end - out->header_size;
	uint8_t *scan = bytes(d, size + 8);
	for (out->ones = 1; out->ones >= 0; out->ones--)
		if (form_start(&d->cinfo, &d->form, out->body, out->body_size, d->request.level,
		    codec_jpeg_bail) &&
		    form_scan(&d->cinfo, &d->form, out->ones, scan, size) &&
		    memcmp(scan, src + out->header_size, size) == 0)
			return;
	refuse(d, "coded in a way that cannot be made again");
}

static void pack(codec_jpeg *d, const uint8_t *src, size_t limit, codec_packed *out) {
	j_decompress_ptr cinfo = &d->cinfo;
	jpeg_read_header(cinfo, TRUE);
	if (cinfo->num_components != 1 && cinfo->num_components != 3)
		refuse(d, "neither 1 nor 3 components");
	if (cinfo->arith_code)
		refuse(d, "arithmetic coding");
	out->header_size = (size_t)(d->source.next_input_byte - src);
	codec_jpeg_limit_memory(cinfo);
	form_coefficients c;
	if (cinfo->inputctl->has_multiple_scans) {
		read_scans(d, &c);
		make_head(d, out);
	} else {
		read_scan(d, src, &c, out);
	}
	switch (form_pack(&d->packer, &c, limit, d->request.level)) {
	case form_no_memory:
		out_of_memory(d);
	case form_too_large:
		refuse(d, "its form would be too large");
	}
	out->body = d->packer.body;
	out->body_size = d->packer.size;
	if (out->exact)
		check_scan(d, src, out);
	else
		check_blocks(d, &c, out);
}

// begin prepares a call that is not one of codec_jpeg_decode.
static void begin(codec_jpeg *d) {
	d->request.warnings = 0;
	d->request.message[0] = 0;
}

int codec_jpeg_pack(codec_jpeg *d, const uint8_t *src, size_t size, size_t limit,
	codec_packed *out) {
	begin(d);
	*out = (codec_packed){0};
	int left = setjmp(d->out);
	if (left == 0) {
		codec_jpeg_create(d, src, size);
		pack(d, src, limit, out);
	}
	jpeg_destroy_decompress(&d->cinfo);
	switch (left) {
	case 0:
		return codec_ok;
	case gave_up:
		return d->request.message[0] == 0 ? codec_memory : codec_refused;
	}
	strcpy(d->request.message, "damaged");
	return codec_refused;
}

void codec_jpeg_trim(codec_jpeg *d) {
	if (d->coefficients_capacity * sizeof *d->coefficients > most_kept)
		codec_jpeg_free_packing(d);
}

int codec_jpeg_scan(codec_jpeg *d, const uint8_t *head, size_t head_size, const uint8_t *body,
	size_t body_size, int ones, uint8_t *dst, size_t size) {
	begin(d);
	volatile int ok = 0;
	if (setjmp(d->out) == 0) {
		codec_jpeg_create(d, head, head_size);
		jpeg_read_header(&d->cinfo, TRUE);
		codec_jpeg_limit_memory(&d->cinfo);
		jpeg_start_decompress(&d->cinfo);
		ok = form_start(&d->cinfo, &d->form, body, body_size, d->request.level, codec_jpeg_bail) &&
			form_scan(&d->cinfo, &d->form, ones, dst, size);
	}
	jpeg_destroy_decompress(&d->cinfo);
	return ok ? codec_ok : codec_corrupt;
}
