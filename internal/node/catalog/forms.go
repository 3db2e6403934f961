package catalog

import (
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

// WithForms returns how many bytes a class of memory may take for samples of so many bytes, if they
// are kept as forms: these take 1.05 to 1.2 times as much, and two segments are needed to replace
// one by the other.
func WithForms(bytes int64) int64 { return bytes + bytes/3 + fewSegments }

// fewSegments is the memory that replacing takes of a small dataset, whose segments have 1 MiB.
const fewSegments = 4 << 20

// named is of how many samples of a dataset the names are looked at.
const named = 100

// Forms reports whether a dataset's samples have other forms: they are files, most of which are
// named as JPEGs are.
func Forms(index *source.Index) bool {
	n := min(index.Len(), named)
	if index.Fields() != nil || n == 0 {
		return false
	}
	jpegs := 0
	for i := range n {
		switch strings.ToLower(path.Ext(index.Name(i * index.Len() / n))) {
		case ".jpg", ".jpeg":
			jpegs++
		}
	}
	return 2*jpegs > n
}

const (
	// sparest is how many unused forms.Converters are kept.
	sparest = 8
	// convertMemory is how many bytes one may use for an image, which suffices for 10 million pixels.
	// What needs more has no form.
	convertMemory = 64 << 20
)

// converter makes and restores the forms of JPEGs.
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
