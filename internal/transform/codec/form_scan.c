//go:build cgo

#include "form.h"

#include <string.h>

enum { end_of_block = 0x00, zeros_16 = 0xf0 }; // symbols

enum {
	most_put = 56, // bits at a time
	// The most bytes that an MCU may take: blocks of 64 codes and values of 31 bits.
	most_mcu = D_MAX_BLOCKS_IN_MCU * 64 * 4,
};

// The code of each symbol and, in the lowest 8 bits, its length; 0: there is none. bytes are the
// same: of all symbols the highest byte of the code, then the other, then the length.
typedef struct {
	uint32_t code[256];
	uint8_t bytes[3][256];
} codes;

static void make_codes(codes *c, const JHUFF_TBL *h) {
	memset(c, 0, sizeof *c);
	uint32_t code = 0;
	int index = 0;
	for (uint32_t n = 1; n <= 16; n++, code <<= 1)
		for (int i = 0; i < h->bits[n] && index < 256; i++, index++, code++)
			c->code[h->huffval[index]] = (code & 0xffff) << 8 | n;
	for (int i = 0; i < 256; i++)
		for (int k = 0; k < 3; k++)
			c->bytes[k][i] = (uint8_t)(c->code[i] >> (16 - 8 * k));
}

// A writer of bits, highest first.
typedef struct {
	uint8_t *next;
	uint64_t bits;  // the last ones, at the top, which are at next too
	uint32_t count; // their number; less than 8 between calls
} writer;

// What a scan is made in. Bits come to the buffer, and from there to the scan, with a zero after
// each byte 0xff.
typedef struct {
	writer w;
	uint8_t *to, *end; // of the scan
	uint8_t buffer[3 * most_mcu + 8];
} output;

// put writes n bits, at most most_put.
INLINE void put(writer *w, uint64_t value, uint32_t n) {
	if (n == 0)
		return;
	uint32_t count = w->count + n;
	w->bits |= value << (64 - count);
	uint64_t bits = w->bits;
#if !defined(__BYTE_ORDER__) || __BYTE_ORDER__ != __ORDER_BIG_ENDIAN__
	bits = __builtin_bswap64(bits);
#endif
	memcpy(w->next, &bits, 8);
	w->next += count >> 3;
	w->bits <<= count & ~7u;
	w->count = count & 7;
}

// drain moves whole bytes to the scan. It reports whether there was room for them.
static int drain(output *o) {
	const uint8_t *from = o->buffer;
	while (from < o->w.next) {
		size_t n = (size_t)(o->w.next - from), room = (size_t)(o->end - o->to);
		const uint8_t *ff = memchr(from, 0xff, n);
		if (ff != NULL)
			n = (size_t)(ff - from) + 1;
		if (n + (ff != NULL) > room)
			return 0;
		memcpy(o->to, from, n);
		o->to += n;
		from += n;
		if (ff != NULL)
			*o->to++ = 0;
	}
	o->w.next = o->buffer;
	return 1;
}

// flush writes the bits left, filled up to a byte. It reports whether there was room for all.
static int flush(output *o, int ones) {
	uint32_t fill = -o->w.count & 7;
	put(&o->w, ones ? (1u << fill) - 1 : 0, fill);
	return drain(o);
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

// put_rest writes a block's AC coefficients in mask, of which the one before the first is at last.
// It reports whether there are codes for them.
INLINE int put_rest(writer *w, const codes *ac, const int16_t *block, uint64_t mask,
	uint32_t last) {
	for (uint64_t left = mask; left != 0; left &= left - 1) {
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

INLINE int put_block(writer *w, const codes *ac, const int16_t *block, uint64_t mask) {
	return put_rest(w, ac, block, mask & ~1ull, 0);
}

// put_scan is form_scan by a function for blocks.
INLINE boolean put_scan(j_decompress_ptr cinfo, form_decoder *f, int ones, uint8_t *dst,
	size_t size, int (*put_block)(writer *, const codes *, const int16_t *, uint64_t)) {
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
	output o;
	o.w = (writer){o.buffer, 0, 0};
	o.to = dst;
	o.end = dst + size;
	int16_t last[MAX_COMPS_IN_SCAN] = {0};
	uint32_t to_restart = cinfo->restart_interval, restarts = 0;
	for (uint32_t mcus = f->columns * f->row_count; mcus != 0; mcus--) {
		if (cinfo->restart_interval != 0 && to_restart-- == 0) {
			if (!flush(&o, ones) || o.end - o.to < 2)
				return FALSE;
			*o.to++ = 0xff;
			*o.to++ = (uint8_t)(0xd0 + (restarts++ & 7));
			memset(last, 0, sizeof last);
			to_restart = cinfo->restart_interval - 1;
		}
		int16_t blocks[D_MAX_BLOCKS_IN_MCU][64];
		uint64_t masks[D_MAX_BLOCKS_IN_MCU];
		memset(blocks, 0, sizeof blocks[0] * (size_t)f->block_count);
		if (!form_mcu(f, blocks, masks))
			return FALSE;
		writer w = o.w;
		for (int b = 0; b < f->block_count; b++) {
			int16_t *before = &last[f->block_component[b]];
			if (!put_value(&w, block_dc[b], 0, blocks[b][0] - *before) ||
			    !put_block(&w, block_ac[b], blocks[b], masks[b]))
				return FALSE;
			*before = blocks[b][0];
		}
		o.w = w;
		if (w.next - o.buffer > 2 * most_mcu && !drain(&o))
			return FALSE;
	}
	return flush(&o, ones) && o.to == dst + size;
}

#if defined(__x86_64__)
static FORM_BMI2 boolean scan_bmi2(j_decompress_ptr cinfo, form_decoder *f, int ones, uint8_t *dst,
	size_t size) {
	return put_scan(cinfo, f, ones, dst, size, put_block);
}

static const uint8_t lanes_0_to_63[64] __attribute__((aligned(64))) = {
	 0,  1,  2,  3,  4,  5,  6,  7,  8,  9, 10, 11, 12, 13, 14, 15,
	16, 17, 18, 19, 20, 21, 22, 23, 24, 25, 26, 27, 28, 29, 30, 31,
	32, 33, 34, 35, 36, 37, 38, 39, 40, 41, 42, 43, 44, 45, 46, 47,
	48, 49, 50, 51, 52, 53, 54, 55, 56, 57, 58, 59, 60, 61, 62, 63,
};

// look_up returns the entries of a table for 64 symbols.
static inline FORM_AVX512 __m512i look_up(const uint8_t *table, __m512i symbols) {
	__m512i low = _mm512_permutex2var_epi8(
		_mm512_loadu_si512(table), symbols, _mm512_loadu_si512(table + 64));
	__m512i high = _mm512_permutex2var_epi8(
		_mm512_loadu_si512(table + 128), symbols, _mm512_loadu_si512(table + 192));
	return _mm512_mask_blend_epi8(_mm512_movepi8_mask(symbols), low, high);
}

// put_block_avx512 computes all codes and values of a block at a time, and writes them in pairs.
static inline FORM_AVX512 int put_block_avx512(writer *to, const codes *ac, const int16_t *block,
	uint64_t mask) {
	mask &= ~1ull;
	uint32_t n = (uint32_t)__builtin_popcountll(mask), low = (uint32_t)mask;
	// Where the coefficients are that are not 0, and those before them.
	const __m512i one = _mm512_set1_epi8(1), places = _mm512_load_si512(lanes_0_to_63);
	__m512i here = _mm512_maskz_compress_epi8(mask, places);
	__m512i before = _mm512_maskz_permutexvar_epi8(~1ull, _mm512_sub_epi8(places, one), here);
	__m512i run = _mm512_sub_epi8(_mm512_sub_epi8(here, before), one);
	__mmask64 lanes = n == 0 ? 0 : ~0ull >> (64 - n);
	if (__builtin_expect(
		_mm512_mask_cmpgt_epu8_mask(lanes, run, _mm512_set1_epi8(15)) != 0, 0))
		return put_block(to, ac, block, mask);

	int16_t values[64 + 32];
	_mm512_storeu_si512(values, _mm512_maskz_compress_epi16(low, form_half(block, 0)));
	_mm512_storeu_si512(values + __builtin_popcount(low),
		_mm512_maskz_compress_epi16((uint32_t)(mask >> 32), form_half(block, 1)));
	// Stores of parts, which one load would have to wait for, are avoided.
	__m128i sizes[4];
	for (int i = 0; i < 4; i++) {
		__m512i v =
			_mm512_cvtepi16_epi32(_mm256_loadu_si256((const __m256i *)(values + 16 * i)));
		sizes[i] = _mm512_cvtepi32_epi8(_mm512_sub_epi32(
			_mm512_set1_epi32(32), _mm512_lzcnt_epi32(_mm512_abs_epi32(v))));
	}
	__m512i size = _mm512_castsi128_si512(sizes[0]), high = _mm512_set1_epi8((char)0xf0);
	size = _mm512_inserti32x4(size, sizes[1], 1);
	size = _mm512_inserti32x4(size, sizes[2], 2);
	size = _mm512_inserti32x4(size, sizes[3], 3);
	uint8_t code[4][64];
	_mm512_storeu_si512(code[3], size);
	__m512i symbols = _mm512_or_si512(_mm512_and_si512(_mm512_slli_epi16(run, 4), high), size);
	for (int k = 0; k < 3; k++)
		_mm512_storeu_si512(code[k], look_up(ac->bytes[k], symbols));
	__m512i length = _mm512_loadu_si512(code[2]);
	if (__builtin_expect((_mm512_mask_testn_epi8_mask(lanes, length, length) |
		_mm512_mask_test_epi8_mask(lanes, size, high)) != 0, 0))
		return 0;
	writer w = *to; // in registers
	for (uint32_t i = 0; i < n; i += 16) {
		const __m512i all = _mm512_set1_epi32(-1);
		__m512i part[4];
		for (int k = 0; k < 4; k++)
			part[k] = _mm512_cvtepu8_epi32(_mm_loadu_si128((const __m128i *)(code[k] + i)));
		size = part[3];
		__m512i v = _mm512_cvtepi16_epi32(_mm256_loadu_si256((const __m256i *)(values + i)));
		// As put_value does.
		__m512i bits = _mm512_andnot_si512(
			_mm512_sllv_epi32(all, size), _mm512_add_epi32(v, _mm512_srai_epi32(v, 31)));
		__m512i prefix = _mm512_or_si512(_mm512_slli_epi32(part[0], 8), part[1]);
		__mmask16 some = (__mmask16)(lanes >> i);
		__m512i value = _mm512_maskz_or_epi32(some, _mm512_sllv_epi32(prefix, size), bits);
		__m512i count = _mm512_maskz_add_epi32(some, part[2], size);
		__m512i second = _mm512_srli_epi64(count, 32);
		uint64_t pairs[8], counts[8];
		_mm512_storeu_si512(pairs,
			_mm512_or_si512(_mm512_srli_epi64(value, 32),
				_mm512_sllv_epi64(_mm512_maskz_mov_epi32(0x5555, value), second)));
		_mm512_storeu_si512(
			counts, _mm512_add_epi64(_mm512_maskz_mov_epi32(0x5555, count), second));
		for (uint32_t k = 0; k < 8 && i + 2 * k < n; k++) {
			uint32_t bits_of = (uint32_t)counts[k];
			if (__builtin_expect(bits_of > most_put, 0)) {
				put(&w, pairs[k] >> 31, bits_of - 31);
				put(&w, pairs[k] & 0x7fffffff, 31);
			} else {
				put(&w, pairs[k], bits_of);
			}
		}
	}
	int ended = mask >> 63 != 0 || put_symbol(&w, ac, end_of_block);
	*to = w;
	return ended;
}

static FORM_AVX512 boolean scan_avx512(j_decompress_ptr cinfo, form_decoder *f, int ones,
	uint8_t *dst, size_t size) {
	return put_scan(cinfo, f, ones, dst, size, put_block_avx512);
}
#endif

boolean form_scan(j_decompress_ptr cinfo, form_decoder *f, int ones, uint8_t *dst, size_t size) {
#if defined(__x86_64__)
	switch (f->level) {
	case form_bmi2:
		return scan_bmi2(cinfo, f, ones, dst, size);
	case form_avx512:
		return scan_avx512(cinfo, f, ones, dst, size);
	}
#endif
	return put_scan(cinfo, f, ones, dst, size, put_block);
}
