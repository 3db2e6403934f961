//go:build cgo

#include "entropy.h"

#include <stdlib.h>
#include <string.h>

#if defined(__x86_64__)
#include <immintrin.h>
#endif

// The most bytes that one MCU can read (10 blocks of 64 codes of 31 bits): so many are available
// before decoding it, padded with zeros if necessary.
enum { slack = 10 * 64 * 4 + 64 };
// Bytes of the scan that are copied at a time: few enough to be in the L1 cache when they are
// decoded.
enum { piece = 8192 };

// The position in a block, row by row, of each coefficient of the scan. Entries from 64 on are
// positions for values after a corrupt run or the end of the block (which skips 64); libjpeg puts
// such values there, too.
static const uint8_t natural_order[64 + 64 + 16] = {
	 0,  1,  8, 16,  9,  2,  3, 10, 17, 24, 32, 25, 18, 11,  4,  5,
	12, 19, 26, 33, 40, 48, 41, 34, 27, 20, 13,  6,  7, 14, 21, 28,
	35, 42, 49, 56, 57, 50, 43, 36, 29, 22, 15, 23, 30, 37, 44, 51,
	58, 59, 52, 45, 38, 31, 39, 46, 53, 60, 61, 54, 47, 55, 62, 63,
	63, 63, 63, 63, 63, 63, 63, 63, 63, 63, 63, 63, 63, 63, 63, 63,
	63, 63, 63, 63, 63, 63, 63, 63, 63, 63, 63, 63, 63, 63, 63, 63,
	63, 63, 63, 63, 63, 63, 63, 63, 63, 63, 63, 63, 63, 63, 63, 63,
	63, 63, 63, 63, 63, 63, 63, 63, 63, 63, 63, 63, 63, 63, 63, 63,
	63, 63, 63, 63, 63, 63, 63, 63, 63, 63, 63, 63, 63, 63, 63, 63,
};

// unstuff copies more of the scan to e->data, without the zeros after 0xff, after the bytes not
// used yet, up to a marker. It returns FALSE if the data ends without a marker or at an unexpected
// one, which libjpeg has to handle.
static boolean unstuff(entropy_decoder *e) {
	uint8_t *to = e->data;
	if (e->next < e->part_end) {
		memmove(to, e->next, (size_t)(e->part_end - e->next));
		to += e->part_end - e->next;
	}
	e->next = e->data;
	uint8_t *full = e->data + slack + piece;
	while (to < full) {
		// All bytes before the next 0xff at once.
		size_t n = (size_t)(e->src_end - e->src);
		if (n > (size_t)(full - to))
			n = (size_t)(full - to);
		const uint8_t *ff = memchr(e->src, 0xff, n);
		if (ff != NULL)
			n = (size_t)(ff - e->src);
		memcpy(to, e->src, n);
		to += n;
		e->src += n;
		if (ff == NULL && to < full)
			return FALSE;
		if (ff == NULL)
			break;
		if (e->src + 1 >= e->src_end)
			return FALSE;
		if (ff[1] != 0) {
			boolean restart = ff[1] >= 0xd0 && ff[1] <= 0xd7 && e->restarted;
			if (!restart && ff[1] != 0xd9)
				return FALSE;
			e->at_marker = TRUE;
			memset(to, 0, slack);
			break;
		}
		*to++ = 0xff;
		e->src += 2;
	}
	e->part_end = to;
	return TRUE;
}

// end_part advances to the marker after the part.
static boolean end_part(entropy_decoder *e) {
	while (!e->at_marker) {
		e->next = e->part_end;
		if (!unstuff(e))
			return FALSE;
	}
	return TRUE;
}

// start_part begins a part of the scan: the first one, or the one after the next restart marker.
static boolean start_part(entropy_decoder *e, uint32_t interval, boolean first) {
	if (!first) {
		if (!end_part(e))
			return FALSE;
		if (e->src[1] != 0xd0 + (e->restarts++ & 7))
			return FALSE;
		e->src += 2;
	}
	e->at_marker = FALSE;
	e->next = e->part_end = e->data;
	e->bits = 0;
	e->valid = 0;
	e->to_restart = interval;
	memset(e->dc, 0, sizeof e->dc);
	return TRUE;
}

#if defined(__BYTE_ORDER__) && __BYTE_ORDER__ == __ORDER_BIG_ENDIAN__
#define BIG_ENDIAN_64(x) (x)
#else
#define BIG_ENDIAN_64(x) __builtin_bswap64(x)
#endif

// The decoder's state, in registers.
typedef struct {
	const uint8_t *next;
	uint64_t bits;
	int valid;
} reader;

// refill makes at least 56 bits valid. It ORs in bytes that may be partly present: their bits are
// the same.
static inline __attribute__((always_inline)) void refill(reader *r) {
	uint64_t more;
	memcpy(&more, r->next, 8);
	r->bits |= BIG_ENDIAN_64(more) >> r->valid;
	r->next += (63 - r->valid) >> 3;
	r->valid |= 56;
}

static inline __attribute__((always_inline)) void use(reader *r, uint32_t n) {
	r->bits <<= n;
	r->valid -= (int)n;
}

// first_value returns the value after the first code of an entry, whose bits are at the top of
// bits. Negative values are coded as the complement of their absolute value (T.81, F.2.2.1).
static inline __attribute__((always_inline)) int16_t first_value(uint64_t bits, uint64_t entry) {
	uint64_t value = bits << (entry >> 8 & 63);
	uint64_t negative = ~(uint64_t)((int64_t)value >> 63);
	value = (value ^ negative) >> 1 >> (entry >> 16 & 63);
	return (int16_t)((value ^ negative) - negative);
}

// A code and its value: how many coefficients are skipped before it, or -1 if there is no such
// code.
typedef struct {
	int32_t run, value;
} long_result;

// long_code decodes a code of any length, for codes without an entry.
static __attribute__((noinline)) long_result long_code(reader *r, const entropy_table *t) {
	refill(r);
	int32_t window = (int32_t)(r->bits >> 48);
	uint32_t n = 1;
	while (n <= 16 && window >= t->limit[n])
		n++;
	if (n > 16)
		return (long_result){-1, 0};
	uint32_t symbol = t->symbol[((window >> (16 - n)) + t->offset[n]) & 255],
		size = size_of(symbol, t->is_ac);
	use(r, n);
	uint32_t value = size == 0 ? 0 : (uint32_t)(r->bits >> (64 - size));
	use(r, size);
	return (long_result){(int32_t)run_of(symbol, t->is_ac), extend(value, size)};
}

// skip skips the AC coefficients of a block.
static inline __attribute__((always_inline)) boolean skip(reader *in, const entropy_table *ac) {
	reader r = *in;
	uint32_t k = 1;
	for (;;) {
		refill(&r);
		// Twice the codes that look bits show, and the last one's value of 15, fit into what a
		// refill gives.
		for (int i = 0; i < 2; i++) {
			uint32_t entry = ac->skip[r.bits >> (64 - far)];
			if (__builtin_expect(entry == 0, 0))
				goto slow;
			if (__builtin_expect(k + (entry >> 16) > 63, 0)) {
				// The block ends before the last of the codes: decode one at a time.
				uint64_t first = ac->entry[r.bits >> (64 - look)];
				use(&r, first >> 40 & 0xff);
				k += (first >> 24 & 0xff) + 1;
			} else {
				use(&r, entry & 0xff);
				k += entry >> 8 & 0xff;
			}
			if (k > 63) {
				*in = r;
				return TRUE;
			}
		}
		continue;
	slow:
		*in = r;
		long_result code = long_code(in, ac);
		if (code.run < 0)
			return FALSE;
		r = *in;
		k += (uint32_t)code.run + 1;
		if (k > 63)
			return TRUE;
	}
}

// coefficients decodes the AC coefficients of a block.
static inline __attribute__((always_inline)) boolean coefficients(reader *in,
	const entropy_table *ac, int16_t *block) {
	reader r = *in;
	uint32_t k = 1;
	for (;;) {
		refill(&r);
		// Twice a code of look bits and a value of 15 fit into what a refill gives.
		for (int i = 0; i < 2; i++) {
			uint64_t entry = ac->entry[r.bits >> (64 - look)];
			if (__builtin_expect(entry & unusable, 0))
				goto slow;
			uint32_t first = k + (entry >> 24 & 0xff);
			int16_t value = first_value(r.bits, entry);
			if (first >= 63) {
				// The block ends with the first code; a second belongs to another block.
				block[natural_order[first]] = value;
				use(&r, entry >> 40 & 0xff);
				*in = r;
				return TRUE;
			}
			use(&r, entry & 63);
			k += entry >> 32 & 0xff;
			// The order matters: without a second code both positions are the same.
			block[natural_order[k - 1]] = (int16_t)(entry >> 48);
			block[natural_order[first]] = value;
			if (k > 63) {
				*in = r;
				return TRUE;
			}
		}
		continue;
	slow:
		*in = r;
		long_result code = long_code(in, ac);
		if (code.run < 0)
			return FALSE;
		r = *in;
		k += (uint32_t)code.run;
		block[natural_order[k]] = (int16_t)code.value;
		if (++k > 63)
			return TRUE;
	}
}

// mcu decodes one MCU. If blocks is NULL or the MCU is outside the requested columns, it stores
// only what later MCUs depend on.
static inline __attribute__((always_inline)) boolean mcu(
	j_decompress_ptr cinfo, entropy_decoder *e, JBLOCKROW *blocks) {
	if (cinfo->restart_interval != 0 && e->to_restart-- == 0) {
		if (!start_part(e, cinfo->restart_interval, FALSE))
			return FALSE;
		e->to_restart--;
	}
	if (__builtin_expect(e->part_end - e->next < slack && !e->at_marker, 0) && !unstuff(e))
		return FALSE;
	uint32_t column = e->column;
	e->column = column + 1 == e->columns ? 0 : column + 1;
	int wanted = blocks != NULL && column >= e->first_column && column <= e->last_column;
	reader r = {e->next, e->bits, e->valid};
	for (int b = 0; b < e->blocks; b++) {
		const entropy_table *dc = e->block_dc[b], *ac = e->block_ac[b];
		refill(&r);
		uint64_t entry = dc->entry[r.bits >> (64 - look)];
		int32_t *last = &e->dc[e->block_component[b]];
		if (__builtin_expect(entry & unusable, 0)) {
			long_result code = long_code(&r, dc);
			if (code.run < 0)
				return FALSE;
			*last += code.value;
		} else {
			*last += first_value(r.bits, entry);
			use(&r, entry & 63);
		}
		if (__builtin_expect(*last > 1 << 24 || *last < -(1 << 24), 0))
			return FALSE; // no valid value is that large
		if (wanted)
			(*blocks[b])[0] = (JCOEF)*last;
		if (!(wanted && e->block_needs_ac[b] ? coefficients(&r, ac, *blocks[b]) : skip(&r, ac)))
			return FALSE;
	}
	e->next = r.next;
	e->bits = r.bits;
	e->valid = r.valid;
	// Fails if more bytes were used than the part has.
	if (__builtin_expect(e->at_marker, 0) && r.next - (r.valid >> 3) > e->part_end)
		return FALSE;
	return --e->left != 0 || (end_part(e) && e->src[1] == 0xd9);
}

static boolean decode(j_decompress_ptr cinfo, JBLOCKROW *blocks) {
	entropy_decoder *e = cinfo->client_data;
	if (__builtin_expect(!mcu(cinfo, e, blocks), 0))
		e->bail(cinfo);
	return TRUE;
}

#if defined(__x86_64__)
// BMI2 has shifts that do not modify the flags.
static __attribute__((target("bmi,bmi2"))) boolean decode_bmi2(j_decompress_ptr cinfo,
	JBLOCKROW *blocks) {
	entropy_decoder *e = cinfo->client_data;
	if (__builtin_expect(!mcu(cinfo, e, blocks), 0))
		e->bail(cinfo);
	return TRUE;
}
#endif

boolean entropy_start(j_decompress_ptr cinfo, entropy_decoder *e, void (*bail)(j_decompress_ptr)) {
	if (cinfo->progressive_mode || cinfo->arith_code || cinfo->inputctl->has_multiple_scans ||
	    cinfo->comps_in_scan != cinfo->num_components)
		return FALSE;
	if (e->data == NULL && (e->data = malloc(piece + 3 * slack)) == NULL)
		return FALSE;
	for (int i = 0; i < cinfo->comps_in_scan; i++) {
		const jpeg_component_info *c = cinfo->cur_comp_info[i];
		entropy_table_set(&e->dc_table[c->dc_tbl_no], cinfo->dc_huff_tbl_ptrs[c->dc_tbl_no], 0);
		entropy_table_set(&e->ac_table[c->ac_tbl_no], cinfo->ac_huff_tbl_ptrs[c->ac_tbl_no], 1);
	}
	e->blocks = cinfo->blocks_in_MCU;
	for (int b = 0; b < e->blocks; b++) {
		int i = cinfo->MCU_membership[b];
		const jpeg_component_info *c = cinfo->cur_comp_info[i];
		e->block_component[b] = (uint8_t)i;
		e->block_dc[b] = &e->dc_table[c->dc_tbl_no];
		e->block_ac[b] = &e->ac_table[c->ac_tbl_no];
		e->block_needs_ac[b] = c->DCT_SCALED_SIZE > 1;
	}
	e->column = 0;
	e->columns = cinfo->MCUs_per_row;
	e->first_column = cinfo->master->first_iMCU_col;
	e->last_column = cinfo->master->last_iMCU_col;
	e->src = cinfo->src->next_input_byte;
	e->src_end = e->src + cinfo->src->bytes_in_buffer;
	e->restarts = 0;
	e->restarted = cinfo->restart_interval != 0;
	e->left = cinfo->MCUs_per_row * cinfo->MCU_rows_in_scan;
	e->bail = bail;
	start_part(e, cinfo->restart_interval, TRUE);
	cinfo->entropy->decode_mcu = decode;
#if defined(__x86_64__)
	if (__builtin_cpu_supports("bmi2"))
		cinfo->entropy->decode_mcu = decode_bmi2;
#endif
	return TRUE;
}

void entropy_free(entropy_decoder *e) { free(e->data); }
