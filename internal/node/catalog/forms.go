package catalog

import (
	"iter"
	"math"
	"path"
	"strings"
	"sync"

	"github.com/hdmlp/hdmlp/internal/engine/cache"
	"github.com/hdmlp/hdmlp/internal/source"
	"github.com/hdmlp/hdmlp/internal/transform/forms"
)

// convertShare is of how many processors one makes other forms of samples. It rests while batches
// wait (package cache).
const convertShare = 4

// WithForms returns how many bytes a class of memory may take for a dataset whose samples are kept
// as forms: those of JPEGs take 1.05 to 1.2 times as much, and two segments are needed to replace
// one by the other. beside is how much more may be used, for the pixels of others.
func WithForms(index *source.Index) (bytes, beside int64) {
	bytes = index.Bytes()
	var decoded, all int64
	for i := range named(index) {
		all += index.Size(i)
		if isDecoded(index.Name(i)) {
			decoded += index.Size(i)
		}
	}
	if decoded > 0 {
		share := float64(decoded) / float64(all)
		beside = int64(min(share*pixelRatio*float64(bytes), math.MaxInt64/4))
	}
	return bytes + bytes/3 + fewSegments, beside
}

// pixelRatio is up to how many times the size of an image other than a JPEG its pixels are kept, on
// average: 1.5 to 3 times a PNG of a photograph, 6 to 15 times a WebP of one.
const pixelRatio = 15

// fewSegments is the memory that replacing takes of a small dataset, whose segments have 1 MiB.
const fewSegments = 4 << 20

// mostNamed is of how many samples of a dataset the names are looked at.
const mostNamed = 100

// named returns the samples of a dataset whose names are looked at.
func named(index *source.Index) iter.Seq[int] {
	return func(yield func(int) bool) {
		n := min(index.Len(), mostNamed)
		for i := 0; i < n && yield(i*index.Len()/n); i++ {
		}
	}
}

// Forms reports whether a dataset's samples have other forms: they are files, most of which are
// named as JPEGs, PNGs or WebPs are.
func Forms(index *source.Index) bool {
	if index.Fields() != nil {
		return false
	}
	images, all := 0, 0
	for i := range named(index) {
		all++
		if name := index.Name(i); isJPEG(name) || isDecoded(name) {
			images++
		}
	}
	return 2*images > all
}

// isJPEG reports whether a file is named as a JPEG.
func isJPEG(name string) bool {
	extension := strings.ToLower(path.Ext(name))
	return extension == ".jpg" || extension == ".jpeg"
}

// isDecoded reports whether a file is named as an image of which the pixels are kept.
func isDecoded(name string) bool {
	extension := strings.ToLower(path.Ext(name))
	return extension == ".png" || extension == ".webp"
}

const (
	// sparest is how many unused forms.Converters are kept.
	sparest = 8
	// convertMemory is how many bytes one may use for an image, which suffices for 10 million pixels
	// of a JPEG. What needs more has no form.
	convertMemory = 64 << 20
)

// converter makes and restores forms.
type converter struct {
	mu    sync.Mutex // guards the following
	spare []*forms.Converter
}

var _ cache.Converter = (*converter)(nil)

// get returns a forms.Converter, which the caller puts back.
func (c *converter) get() *forms.Converter {
	c.mu.Lock()
	defer c.mu.Unlock()
	if n := len(c.spare); n > 0 {
		f := c.spare[n-1]
		c.spare = c.spare[:n-1]
		return f
	}
	return &forms.Converter{Memory: convertMemory}
}

// put takes back a forms.Converter.
func (c *converter) put(f *forms.Converter) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.spare) == sparest {
		f.Close()
		return
	}
	c.spare = append(c.spare, f)
}

// close frees what is kept; a nil converter keeps nothing.
func (c *converter) close() {
	if c == nil {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, f := range c.spare {
		f.Close()
	}
	c.spare = nil
}

// Size implements cache.Converter.
func (c *converter) Size(sample []byte) int64 {
	f := c.get()
	defer c.put(f)
	return f.Size(sample)
}

// Convert implements cache.Converter.
func (c *converter) Convert(dst, sample []byte) (form []byte, kind uint8, ok bool) {
	f := c.get()
	defer c.put(f)
	form, err := f.Convert(dst, sample)
	if err != nil {
		return dst, 0, false
	}
	info, err := forms.Read(form[len(dst):])
	if err != nil {
		return dst, 0, false
	}
	return form, uint8(info.Kind), true
}

// Describe implements cache.Converter.
func (c *converter) Describe(form []byte, kind uint8) (size int64, digest uint32, ok bool) {
	info, err := forms.Read(form)
	return info.Size, info.Digest, err == nil && uint8(info.Kind) == kind
}

// Restore implements cache.Converter.
func (c *converter) Restore(dst, form []byte, kind uint8) (sample []byte, ok bool) {
	if forms.Kind(kind) == forms.Pixels {
		return dst, false
	}
	f := c.get()
	defer c.put(f)
	sample, err := f.Restore(dst, form)
	return sample, err == nil
}
