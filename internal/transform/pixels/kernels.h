// The C twins of the functions in twin_*.go: the same bits, faster. Their arguments are
// documented there and in kernels_cgo.go, which calls them.
#ifndef HDMLP_PIXELS_KERNELS_H
#define HDMLP_PIXELS_KERNELS_H

#include <stddef.h>
#include <stdint.h>

// Levels of vector instructions. pixels_level returns the highest one that the machine supports.
enum { level_plain, level_avx2, level_avx512, level_vbmi };

int pixels_level(void);

// An axis, as in filter.go, and the position of src on it; taps is 0 if the axis is not resampled.
typedef struct {
	int taps, origin;
	const int32_t *first, *counts, *weights;
} pixels_axis;

// pixels_resample is resample.run. size is the number of bytes of src; rows holds the rows between
// the passes; scratch holds pixels_scratch bytes. A weight is below 2^23 - 2^15 in absolute value.
void pixels_resample(
	int level, uint8_t *dst, int width, int height, int channels,
	const uint8_t *src, int src_width, int src_height, int stride, size_t size,
	pixels_axis across, pixels_axis down, uint8_t *rows, uint8_t *scratch);

size_t pixels_scratch(int width, int height, int src_width, int horizontal_taps, int vertical_taps);

// How pixels_pack converts samples: the type of the tensor (Type in pack.go), and the table and the
// constants of the conversion per channel.
enum { type_uint8, type_float16, type_bfloat16, type_float32 };

typedef struct {
	int type, planar;
	int arithmetic; // whether vector arithmetic gives exactly words; otherwise words are looked up
	int unit, normalize;
	// The reciprocals of 255 and of std, each the sum of two numbers.
	float unit_high, unit_low;
	float mean[3], high[3], low[3];
	uint32_t words[3][256];
} pixels_plan;

// size_of returns the bytes of an element of a type.
static inline size_t size_of(int type) {
	return type == type_uint8 ? 1 : type == type_float32 ? 4 : 2;
}

// A Flip.
enum { flip_horizontal = 1, flip_vertical = 2 };

// An Image; the operations below are methods of it, of a Packer or of an Editor.
typedef struct {
	uint8_t *pix;
	int width, height, channels, stride;
} pixels_image;

// pixels_pack is Packer.pack.
void pixels_pack(int level, const pixels_plan *plan, uint8_t *dst, pixels_image src, int flip);

// pixels_map maps each channel by its own table of 256 levels, or all by the first one.
void pixels_map(int level, pixels_image m, const uint8_t *tables, int each);

// pixels_mirror mirrors in place.
void pixels_mirror(int level, pixels_image m, int flip);

// pixels_count adds to the 256 counts of each channel.
void pixels_count(pixels_image m, uint32_t *counts);

void pixels_extremes(int level, pixels_image m, uint8_t least[3], uint8_t most[3]);
int64_t pixels_lumas(int level, pixels_image m);
void pixels_gray(int level, pixels_image dst, pixels_image src);
void pixels_saturate(int level, pixels_image m, float factor);

// rest and share are those of hues, in twin_hue.go.
void pixels_turn(int level, pixels_image m, int shift, const float *rest, const float *share);

// columns holds a row's samples.
void pixels_sharpen(int level, pixels_image dst, pixels_image src, float factor, uint16_t *columns);

typedef struct {
	int radius;
	uint32_t inner, outer;
} pixels_box;

// Bytes of a line of the scratch memory of a blur, which has two buffers of as many lines as the
// longer edge of the image.
enum { pixels_line = 64 };

void pixels_box_blur(int level, pixels_image dst, pixels_image src, pixels_box across,
	pixels_box down, uint8_t *scratch);

// sums holds pixels_sums floats, offsets a number for each tap of the longer kernel.
void pixels_convolve(int level, pixels_image dst, pixels_image src, const float *across,
	int across_taps, const float *down, int down_taps, float *sums, int32_t *offsets);

size_t pixels_sums(int width, int channels, int across_taps, int down_taps);

void pixels_shift(int level, pixels_image dst, pixels_image src, const int32_t m[6],
	const uint8_t fill[3]);

// The filters of a warp; values of Filter.
enum { filter_nearest = 0, filter_bilinear = 2, filter_bicubic = 4 };

typedef struct {
	double m[8];
	int projective, filter;
	uint8_t fill[3];
} pixels_transform;

// points holds two numbers for each pixel of a row of dst.
void pixels_warp(int level, pixels_image dst, pixels_image src, const pixels_transform *t,
	double *points);

#endif
