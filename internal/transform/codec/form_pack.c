//go:build cgo

#include "form.h"

#include <stdlib.h>
#include <string.h>

// bit_length returns how many bits v has.
INLINE uint32_t bit_length(uint32_t v) { return v == 0 ? 0 : 32 - (uint32_t)__builtin_clz(v); }

// magnitude returns the absolute value less 1; v is not 0.
INLINE uint32_t magnitude(int32_t v) { return (uint32_t)(v < 0 ? -v : v) - 1; }

// width_of returns the width of fields for magnitudes whose bits are those of all: the number in
// the class, of which 15 is 16.
INLINE uint32_t width_of(uint32_t all) {
	uint32_t width = bit_length(all) + 1;
	return width < 15 ? width : 15;
}

// summary returns what is kept of a block: its class is that of its own widths, as bits. all has
// the magnitudes of each group of AC coefficients, ORed.
INLINE form_summary summary(uint64_t mask, int32_t dc, const uint32_t *all) {
	mask = (mask & ~1ull) | (dc != 0);
	uint32_t class = mask == 0 ? 0 : (67 - (uint32_t)__builtin_clzll(mask)) >> 2;
	if (dc != 0) {
		// Even widths for DC, so that there are fewer classes.
		uint32_t width = (width_of(magnitude(dc)) + 1) & ~1u;
		class |= (width < 15 ? width : 15) << 5;
	}
	if (mask & FORM_GROUP_1)
		class |= width_of(all[0]) << 9;
	if (mask & FORM_GROUP_2)
		class |= width_of(all[1]) << 13;
	if (mask & FORM_GROUP_3)
		class |= width_of(all[2]) << 17;
	return (form_summary){mask, class, dc};
}

// gather adds coefficients k to end to a mask, and returns their magnitudes, ORed. It does not
// branch, because the zeros cannot be predicted.
INLINE uint32_t gather(const int16_t *block, int k, int end, uint64_t *mask) {
	uint32_t all = 0;
	for (; k < end; k++) {
		int32_t v = block[form_natural_order[k]];
		uint32_t is = v != 0;
		*mask |= (uint64_t)is << k;
		all |= magnitude(v) & -is;
	}
	return all;
}

// summarize describes a block whose DC coefficient differs by dc from the last one.
INLINE form_summary summarize(const int16_t *block, int32_t dc) {
	uint64_t mask = 0;
	uint32_t all[3];
	all[0] = gather(block, 1, 10, &mask);
	all[1] = gather(block, 10, 28, &mask);
	all[2] = gather(block, 28, 64, &mask);
	return summary(mask, dc, all);
}

INLINE uint16_t field_of(int32_t v) { return (uint16_t)(magnitude(v) << 1 | (v < 0)); }

// list stores the fields of a block's AC coefficients.
INLINE void list(const int16_t *block, uint64_t mask, uint16_t *fields) {
	for (uint64_t left = mask & ~1ull; left != 0; left &= left - 1)
		*fields++ = field_of(block[form_natural_order[__builtin_ctzll(left)]]);
}

// reserve makes *memory at least need bytes large. It keeps what is there.
static int reserve(void *memory, size_t *capacity, size_t need) {
	if (*capacity >= need)
		return 1;
	size_t more = need + need / 2;
	void *p = realloc(*(void **)memory, more);
	if (p == NULL)
		return 0;
	*(void **)memory = p;
	*capacity = more;
	return 1;
}

void form_pack_free(form_packer *p) {
	free(p->body);
	free(p->summaries);
	free(p->classes);
	free(p->order);
	free(p->slots);
	*p = (form_packer){0};
}

// grow makes room for more classes, and fills the hash table again.
static int grow(form_packer *p) {
	uint32_t classes = p->class_capacity == 0 ? 2048 : 2 * p->class_capacity;
	form_class_uses *more = realloc(p->classes, classes * sizeof *more);
	if (more == NULL)
		return 0;
	p->classes = more;
	form_class_uses **order = realloc(p->order, classes * sizeof *order);
	if (order == NULL)
		return 0;
	p->order = order;
	p->class_capacity = classes;
	free(p->slots);
	p->slot_count = 2 * classes; // a power of 2
	p->slots = calloc(p->slot_count, sizeof *p->slots);
	if (p->slots == NULL) {
		p->class_capacity = 0;
		return 0;
	}
	for (uint32_t i = 0; i < p->class_count; i++) {
		uint32_t at = p->classes[i].bits * 0x9e3779b1u >> 7 & (p->slot_count - 1);
		while (p->slots[at] != 0)
			at = (at + 1) & (p->slot_count - 1);
		p->slots[at] = i + 1;
	}
	return 1;
}

// find returns the class with these bits, which it adds if there is none. NULL: out of memory.
static form_class_uses *find(form_packer *p, uint32_t bits) {
	for (;;) {
		uint32_t at = bits * 0x9e3779b1u >> 7 & (p->slot_count - 1);
		for (; p->slots != NULL && p->slots[at] != 0; at = (at + 1) & (p->slot_count - 1)) {
			form_class_uses *u = &p->classes[p->slots[at] - 1];
			if (u->bits == bits)
				return u;
		}
		if (p->class_count < p->class_capacity) {
			p->slots[at] = ++p->class_count;
			form_class_uses *u = &p->classes[p->class_count - 1];
			*u = (form_class_uses){.bits = bits};
			return u;
		}
		if (!grow(p))
			return NULL;
	}
}

static int more_used(const void *a, const void *b) {
	const form_class_uses *x = *(form_class_uses *const *)a, *y = *(form_class_uses *const *)b;
	if (x->uses != y->uses)
		return x->uses < y->uses ? 1 : -1;
	return x->bits < y->bits ? -1 : x->bits > y->bits;
}

// spread returns a class's numbers in a byte each.
INLINE uint64_t spread(uint32_t bits) {
	return (bits & 31) | (uint64_t)(bits >> 5 & 15) << 8 | (uint64_t)(bits >> 9 & 15) << 16 |
		(uint64_t)(bits >> 13 & 15) << 24 | (uint64_t)(bits >> 17 & 15) << 32;
}

// number gives the classes that are used most a number in the body, and the others that of a class
// with room for their blocks, if that costs less than to write the class beside each block. It
// returns how many classes the body has, which are the first in order.
static uint32_t number(form_packer *p) {
	enum { every = 0x80 };
	const uint64_t guard = every * 0x0101010101ull;
	for (uint32_t i = 0; i < p->class_count; i++)
		p->order[i] = &p->classes[i];
	qsort(p->order, p->class_count, sizeof *p->order, more_used);
	uint64_t room[form_classes];
	uint32_t n = 0;
	// A class that only one block has is as long in the body's table as beside the block.
	for (; n < form_classes && n < p->class_count && p->order[n]->uses > 1; n++) {
		p->order[n]->number = n;
		room[n] = spread(p->order[n]->bits) | guard;
	}
	for (uint32_t i = n; i < p->class_count; i++) {
		form_class_uses *u = p->order[i];
		uint64_t needs = spread(u->bits);
		uint32_t best = form_class_bytes * 8 * u->uses;
		u->number = form_classes;
		for (uint32_t k = 0; k < n; k++) {
			uint64_t over = room[k] - needs; // in each byte, if it does not borrow from the guard
			if ((over & guard) != guard)
				continue;
			over ^= guard;
			uint32_t cost = (uint32_t)(over & 0xff) * 4 * u->uses;
			for (int g = 0; g < form_groups; g++)
				cost += (uint32_t)(over >> (8 + 8 * g) & 0xff) * u->fields[g];
			if (cost < best) {
				best = cost;
				u->number = k;
			}
		}
	}
	return n;
}

// A writer of bits, lowest first.
typedef struct {
	uint8_t *to;
	uint64_t bits;
	uint32_t count;
} writer;

INLINE void store_64(uint8_t *to, uint64_t v) {
#if defined(__BYTE_ORDER__) && __BYTE_ORDER__ == __ORDER_BIG_ENDIAN__
	v = __builtin_bswap64(v);
#endif
	memcpy(to, &v, 8);
}

INLINE void put(writer *w, uint32_t value, uint32_t n) {
	w->bits |= (uint64_t)value << w->count;
	w->count += n;
	store_64(w->to, w->bits);
	w->to += w->count >> 3;
	w->bits >>= w->count & ~7u;
	w->count &= 7;
}

// write writes a block after its class, and returns its end. It may write form_slack bytes.
INLINE uint8_t *write(uint8_t *to, const int16_t *block, const form_summary *s, form_class c,
	void (*list)(const int16_t *, uint64_t, uint16_t *)) {
	store_64(to, s->mask);
	writer w = {to + (c.mask_bits >> 3), 0, c.mask_bits & 7};
	if (w.count != 0)
		w.bits = s->mask >> (c.mask_bits - 4) & 15;
	if (s->mask & 1)
		put(&w, field_of(s->dc), c.width[0]);
	static const uint64_t groups[] = {FORM_GROUP_1, FORM_GROUP_2, FORM_GROUP_3};
	uint16_t fields[64 + 32], *next = fields; // list may store 32 more
	list(block, s->mask, fields);
	for (int g = 0; g < 3; g++) {
		const uint16_t *end = next + __builtin_popcountll(s->mask & groups[g]);
		while (next < end)
			put(&w, *next++, c.width[g + 1]);
	}
	if (w.count != 0)
		*w.to++ = (uint8_t)w.bits;
	return w.to;
}

static void store_32(uint8_t *to, uint32_t v) {
	for (int i = 0; i < 4; i++)
		to[i] = (uint8_t)(v >> 8 * i);
}

// survey fills p->summaries and p->classes. It reports whether there was memory.
INLINE int survey(form_packer *p, const form_coefficients *c,
	form_summary (*summarize)(const int16_t *, int32_t)) {
	const int16_t(*block)[64] = (const int16_t(*)[64])c->blocks;
	form_summary *s = p->summaries;
	for (uint32_t row = 0; row < c->rows; row++) {
		int16_t dc[MAX_COMPS_IN_SCAN] = {0};
		for (uint32_t column = 0; column < c->columns; column++) {
			for (int b = 0; b < c->block_count; b++, block++, s++) {
				int16_t *last = &dc[c->block_component[b]];
				// Modulo 2^16, as the decoder adds it up.
				*s = summarize(*block, (int16_t)((*block)[0] - *last));
				*last = (*block)[0];
				form_class_uses *u = find(p, s->class);
				if (u == NULL)
					return 0;
				s->class = (uint32_t)(u - p->classes);
				u->uses++;
				u->fields[0] += (uint32_t)s->mask & 1;
				u->fields[1] += (uint32_t)__builtin_popcountll(s->mask & FORM_GROUP_1);
				u->fields[2] += (uint32_t)__builtin_popcountll(s->mask & FORM_GROUP_2);
				u->fields[3] += (uint32_t)__builtin_popcountll(s->mask & FORM_GROUP_3);
			}
		}
	}
	return 1;
}

// pack is form_pack by two functions for blocks.
INLINE int pack(form_packer *p, const form_coefficients *c, size_t limit,
	form_summary (*summarize)(const int16_t *, int32_t),
	void (*list)(const int16_t *, uint64_t, uint16_t *)) {
	size_t per_row = (size_t)c->columns * (size_t)c->block_count, blocks = per_row * c->rows;
	if (!reserve(&p->summaries, &p->summary_capacity, blocks * sizeof *p->summaries))
		return form_no_memory;
	p->class_count = 0;
	if (p->slots != NULL)
		memset(p->slots, 0, p->slot_count * sizeof *p->slots);
	if (!survey(p, c, summarize))
		return form_no_memory;
	uint32_t classes = number(p);

	size_t rows_at = 1 + classes * (size_t)form_class_bytes,
		blocks_at = rows_at + 4 * (size_t)c->rows;
	p->size = blocks_at;
	if (!reserve(&p->body, &p->capacity, p->size))
		return form_no_memory;
	p->body[0] = (uint8_t)classes;
	for (uint32_t n = 0; n < classes; n++)
		for (int i = 0; i < form_class_bytes; i++)
			p->body[1 + n * form_class_bytes + (uint32_t)i] = (uint8_t)(p->order[n]->bits >> 8 * i);
	const int16_t(*block)[64] = (const int16_t(*)[64])c->blocks;
	const form_summary *s = p->summaries;
	for (uint32_t row = 0; row < c->rows; row++) {
		if (p->size > limit || p->size - blocks_at > UINT32_MAX)
			return form_too_large;
		store_32(p->body + rows_at + 4 * (size_t)row, (uint32_t)(p->size - blocks_at));
		for (uint32_t column = 0; column < c->columns; column++) {
			if (!reserve(&p->body, &p->capacity, p->size + form_slack))
				return form_no_memory;
			uint8_t *to = p->body + p->size;
			for (int b = 0; b < c->block_count; b++, block++, s++) {
				const form_class_uses *u = &p->classes[s->class];
				uint32_t bits = u->bits;
				*to++ = (uint8_t)u->number;
				if (u->number == form_classes) {
					store_32(to, bits); // 3 bytes of it count
					to += form_class_bytes;
				} else {
					bits = p->order[u->number]->bits;
				}
				to = write(to, *block, s, form_widths(bits), list);
			}
			p->size = (size_t)(to - p->body);
		}
	}
	return p->size > limit ? form_too_large : 0;
}

#if defined(__x86_64__)
static FORM_BMI2 int pack_bmi2(form_packer *p, const form_coefficients *c, size_t limit) {
	return pack(p, c, limit, summarize, list);
}

// magnitudes returns those of the lanes in mask, and 0 in others.
static inline FORM_AVX512 __m512i magnitudes(__m512i v, __mmask32 mask) {
	return _mm512_maskz_sub_epi16(mask, _mm512_abs_epi16(v), _mm512_set1_epi16(1));
}

static inline FORM_AVX512 uint32_t all_of(__m512i v) {
	uint32_t both = (uint32_t)_mm512_reduce_or_epi32(v);
	return (both | both >> 16) & 0xffff;
}

static inline FORM_AVX512 form_summary summarize_avx512(const int16_t *block, int32_t dc) {
	__m512i first = form_half(block, 0), second = form_half(block, 1);
	__mmask32 low = _mm512_test_epi16_mask(first, first),
		high = _mm512_test_epi16_mask(second, second);
	__m512i last = _mm512_or_si512(magnitudes(first, low & (uint32_t)FORM_GROUP_3),
		magnitudes(second, high));
	const uint32_t all[] = {
		all_of(magnitudes(first, low & (uint32_t)FORM_GROUP_1)),
		all_of(magnitudes(first, low & (uint32_t)FORM_GROUP_2)),
		all_of(last),
	};
	return summary((uint64_t)high << 32 | low, dc, all);
}

static inline FORM_AVX512 void list_avx512(const int16_t *block, uint64_t mask, uint16_t *fields) {
	const __mmask32 masks[] = {(uint32_t)mask & ~1u, (uint32_t)(mask >> 32)};
	for (int n = 0; n < 2; n++) {
		__m512i v = form_half(block, n), negative = _mm512_srli_epi16(v, 15);
		__m512i field = _mm512_or_si512(_mm512_slli_epi16(magnitudes(v, masks[n]), 1), negative);
		_mm512_storeu_si512(fields, _mm512_maskz_compress_epi16(masks[n], field));
		fields += __builtin_popcountll(masks[n]);
	}
}

static FORM_AVX512 int pack_avx512(form_packer *p, const form_coefficients *c, size_t limit) {
	return pack(p, c, limit, summarize_avx512, list_avx512);
}
#endif

int form_pack(form_packer *p, const form_coefficients *c, size_t limit, int level) {
#if defined(__x86_64__)
	switch (form_level(level)) {
	case form_bmi2:
		return pack_bmi2(p, c, limit);
	case form_avx512:
		return pack_avx512(p, c, limit);
	}
#endif
	(void)level;
	return pack(p, c, limit, summarize, list);
}
