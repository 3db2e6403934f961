//go:build cgo

#include "form.h"

#include <string.h>

#define INLINE static inline __attribute__((always_inline))

// The code of each symbol, of length bits; 0: there is none.
typedef struct {
	uint16_t code[256];
	uint8_t length[256];
} codes;

static void make_codes(codes *c, const JHUFF_TBL *h) {
	memset(c->length, 0, sizeof c->length);
	uint32_t code = 0;
	int index = 0;
	for (int n = 1; n <= 16; n++, code <<= 1)
		for (int i = 0; i < h->bits[n] && index < 256; i++, index++, code++) {
			c->code[h->huffval[index]] = (uint16_t)code;
			c->length[h->huffval[index]] = (uint8_t)n;
		}
}

// A writer of bits, highest first, with a zero after each byte 0xff.
typedef struct {
	uint8_t *to, *end; // 8 bytes fit at to until to is after end
	uint64_t bits;     // the lowest count
	uint32_t count;    // less than 32 between calls
} writer;

INLINE void flush_byte(writer *w, uint8_t byte) {
	*w->to++ = byte;
	if (byte == 0xff)
		*w->to++ = 0;
}

INLINE void put(writer *w, uint32_t value, uint32_t n) {
	w->bits = w->bits << n | value;
	w->count += n;
	if (w->count < 32)
		return;
	w->count -= 32;
	uint32_t out = (uint32_t)(w->bits >> w->count);
	if (__builtin_expect(w->to > w->end, 0))
		return; // more than there should be; flush reports it
	// A byte is 0xff if the byte of its complement is 0.
	if (__builtin_expect(((~out - 0x01010101u) & out & 0x80808080u) != 0, 0)) {
		for (int i = 24; i >= 0; i -= 8)
			flush_byte(w, (uint8_t)(out >> i));
		return;
	}
	for (int i = 0; i < 4; i++)
		w->to[i] = (uint8_t)(out >> (24 - 8 * i));
	w->to += 4;
}

// flush writes the bits left, filled up to a byte. It reports whether there was room for all.
static int flush(writer *w, int ones) {
	uint32_t fill = -w->count & 7;
	put(w, ones ? (1u << fill) - 1 : 0, fill);
	for (; w->count != 0 && w->to <= w->end; w->count -= 8)
		flush_byte(w, (uint8_t)(w->bits >> (w->count - 8)));
	w->bits = 0;
	return w->to <= w->end;
}

// put_value writes a code for run and v's size, and v. It reports whether there is such a code.
INLINE int put_value(writer *w, const codes *c, uint32_t run, int32_t v) {
	uint32_t m = (uint32_t)(v < 0 ? -v : v);
	uint32_t size = m == 0 ? 0 : 32 - (uint32_t)__builtin_clz(m), symbol = run << 4 | size;
	if (__builtin_expect(size > 15 || c->length[symbol & 255] == 0, 0))
		return 0;
	// Negative values are the complement of their magnitude (T.81, F.1.2.1).
	uint32_t bits = (uint32_t)(v < 0 ? v - 1 : v) & ((1u << size) - 1);
	put(w, c->code[symbol], c->length[symbol]);
	put(w, bits, size);
	return 1;
}

static int put_block(writer *w, const codes *ac, const int16_t *block, uint64_t mask) {
	enum { end_of_block = 0x00, zeros_16 = 0xf0 };
	uint32_t last = 0;
	for (uint64_t left = mask & ~1ull; left != 0; left &= left - 1) {
		uint32_t k = (uint32_t)__builtin_ctzll(left), run = k - last - 1;
		for (; run > 15; run -= 16) {
			if (ac->length[zeros_16] == 0)
				return 0;
			put(w, ac->code[zeros_16], ac->length[zeros_16]);
		}
		if (!put_value(w, ac, run, block[form_natural_order[k]]))
			return 0;
		last = k;
	}
	if (last == 63)
		return 1;
	put(w, ac->code[end_of_block], ac->length[end_of_block]);
	return ac->length[end_of_block] != 0;
}

boolean form_scan(j_decompress_ptr cinfo, form_decoder *f, int ones, uint8_t *dst, size_t size) {
	codes dc[NUM_HUFF_TBLS], ac[NUM_HUFF_TBLS];
	const codes *block_dc[D_MAX_BLOCKS_IN_MCU], *block_ac[D_MAX_BLOCKS_IN_MCU];
	for (int i = 0; i < cinfo->comps_in_scan; i++) {
		const jpeg_component_info *c = cinfo->cur_comp_info[i];
		make_codes(&dc[c->dc_tbl_no], cinfo->dc_huff_tbl_ptrs[c->dc_tbl_no]);
		make_codes(&ac[c->ac_tbl_no], cinfo->ac_huff_tbl_ptrs[c->ac_tbl_no]);
	}
	for (int b = 0; b < f->block_count; b++) {
		const jpeg_component_info *c = cinfo->cur_comp_info[f->block_component[b]];
		block_dc[b] = &dc[c->dc_tbl_no];
		block_ac[b] = &ac[c->ac_tbl_no];
	}
	if (size < 2)
		return FALSE;
	// The caller has 8 bytes more than size.
	writer w = {dst, dst + size, 0, 0};
	int16_t last[MAX_COMPS_IN_SCAN] = {0};
	uint32_t to_restart = cinfo->restart_interval, restarts = 0;
	for (uint32_t mcus = f->columns * f->row_count; mcus != 0; mcus--) {
		if (cinfo->restart_interval != 0 && to_restart-- == 0) {
			if (!flush(&w, ones))
				return FALSE;
			*w.to++ = 0xff;
			*w.to++ = (uint8_t)(0xd0 + (restarts++ & 7));
			memset(last, 0, sizeof last);
			to_restart = cinfo->restart_interval - 1;
		}
		int16_t blocks[D_MAX_BLOCKS_IN_MCU][64];
		uint64_t masks[D_MAX_BLOCKS_IN_MCU];
		memset(blocks, 0, sizeof blocks[0] * (size_t)f->block_count);
		if (!form_mcu(f, blocks, masks))
			return FALSE;
		for (int b = 0; b < f->block_count; b++) {
			int16_t *before = &last[f->block_component[b]];
			if (!put_value(&w, block_dc[b], 0, blocks[b][0] - *before) ||
			    !put_block(&w, block_ac[b], blocks[b], masks[b]))
				return FALSE;
			*before = blocks[b][0];
		}
	}
	return flush(&w, ones) && w.to == dst + size;
}
