//go:build cgo

#include "form.h"

#include <string.h>

// The code of each symbol and, in the lowest 8 bits, its length; 0: there is none.
typedef struct {
	uint32_t code[256];
} codes;

static void make_codes(codes *c, const JHUFF_TBL *h) {
	memset(c, 0, sizeof *c);
	uint32_t code = 0;
	int index = 0;
	for (uint32_t n = 1; n <= 16; n++, code <<= 1)
		for (int i = 0; i < h->bits[n] && index < 256; i++, index++, code++)
			c->code[h->huffval[index]] = (code & 0xffff) << 8 | n;
}

// A writer of bits, highest first, with a zero after each byte 0xff.
typedef struct {
	uint8_t *to, *end; // end: of the scan; 8 bytes more can be written
	uint64_t bits;     // the last ones, of which those that were not written count
	uint32_t room;     // 64 less their number; at least 1 between calls
	int too_long;      // the scan has more bytes than it should
} writer;

INLINE void write_byte(writer *w, uint8_t byte) {
	if (__builtin_expect(w->to >= w->end, 0)) {
		w->too_long = 1;
		return;
	}
	*w->to++ = byte;
	if (byte == 0xff)
		*w->to++ = 0;
}

INLINE void write_64(writer *w, uint64_t bits) {
	const uint64_t each = 0x0101010101010101;
	// A byte may be 0xff only if its highest bit is set, and stays so with 1 added to it.
	if (__builtin_expect((bits & each << 7 & ~(bits + each)) != 0 || w->end - w->to < 8, 0)) {
		for (int i = 56; i >= 0; i -= 8)
			write_byte(w, (uint8_t)(bits >> i));
		return;
	}
#if !defined(__BYTE_ORDER__) || __BYTE_ORDER__ != __ORDER_BIG_ENDIAN__
	bits = __builtin_bswap64(bits);
#endif
	memcpy(w->to, &bits, 8);
	w->to += 8;
}

// put writes n bits, at most 32.
INLINE void put(writer *w, uint32_t value, uint32_t n) {
	if (__builtin_expect(n < w->room, 1)) {
		w->bits = w->bits << n | value;
		w->room -= n;
		return;
	}
	uint32_t rest = n - w->room; // less than n: room is at least 1
	write_64(w, w->bits << w->room | (uint64_t)value >> rest);
	w->bits = value; // its higher bits are those that were written
	w->room = 64 - rest;
}

// flush writes the bits left, filled up to a byte. It reports whether there was room for all.
static int flush(writer *w, int ones) {
	uint32_t fill = w->room & 7;
	put(w, ones ? (1u << fill) - 1 : 0, fill);
	for (uint32_t left = 64 - w->room; left != 0; left -= 8)
		write_byte(w, (uint8_t)(w->bits >> (left - 8)));
	w->bits = 0;
	w->room = 64;
	return !w->too_long;
}

// put_value writes a code for run and v's size, and v. It reports whether there is such a code.
INLINE int put_value(writer *w, const codes *c, uint32_t run, int32_t v) {
	uint32_t m = (uint32_t)(v < 0 ? -v : v);
	uint32_t size = m == 0 ? 0 : 32 - (uint32_t)__builtin_clz(m), symbol = run << 4 | size;
	uint32_t code = c->code[symbol & 255];
	if (__builtin_expect(size > 15 || code == 0, 0))
		return 0;
	// Negative values are the complement of their magnitude (T.81, F.1.2.1).
	uint32_t bits = (uint32_t)(v < 0 ? v - 1 : v) & ((1u << size) - 1);
	put(w, (code >> 8) << size | bits, (code & 0xff) + size);
	return 1;
}

INLINE int put_symbol(writer *w, const codes *c, uint32_t symbol) {
	put(w, c->code[symbol] >> 8, c->code[symbol] & 0xff);
	return c->code[symbol] != 0;
}

static int put_block(writer *w, const codes *ac, const int16_t *block, uint64_t mask) {
	enum { end_of_block = 0x00, zeros_16 = 0xf0 };
	uint32_t last = 0;
	for (uint64_t left = mask & ~1ull; left != 0; left &= left - 1) {
		uint32_t k = (uint32_t)__builtin_ctzll(left), run = k - last - 1;
		for (; run > 15; run -= 16)
			if (!put_symbol(w, ac, zeros_16))
				return 0;
		if (!put_value(w, ac, run, block[form_natural_order[k]]))
			return 0;
		last = k;
	}
	return last == 63 || put_symbol(w, ac, end_of_block);
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
	writer w = {dst, dst + size, 0, 64, 0};
	int16_t last[MAX_COMPS_IN_SCAN] = {0};
	uint32_t to_restart = cinfo->restart_interval, restarts = 0;
	for (uint32_t mcus = f->columns * f->row_count; mcus != 0; mcus--) {
		if (cinfo->restart_interval != 0 && to_restart-- == 0) {
			if (!flush(&w, ones) || w.end - w.to < 2)
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
