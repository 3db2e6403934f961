package cache

import (
	"errors"
	"math"
	"sync/atomic"
	"time"

	"github.com/hdmlp/hdmlp/internal/lib/digest"
	"github.com/hdmlp/hdmlp/internal/model/routing"
	"github.com/hdmlp/hdmlp/internal/store"
)

// # Samples in other forms
//
// A class of memory may hold a sample in another form than as read, which is decoded in less time
// and takes more memory (Converter). What fetches samples gets a form only if it asks for
// that (Request.Forms); everything else gets the sample: made of the form, or, if the form does not
// give it, read from the source, which is counted.
//
// Copies are converted once they are held (convert.go), so nothing is read for it. A form takes the
// place of its sample, and has the sample's origin: it is confirmed, doubted and dropped as that
// is. A form whose digest is wrong is dropped, and the sample is read again.
//
// Nodes send each other what they hold: a node that is asked for a sample by a job that takes forms
// sends the form that it has. If a class of the node that asks is to keep the sample, it sends the
// sample that the form gives, if it does (routing.Want): classes keep what was read, and convert it
// themselves. A form that comes is used once, and not kept. Fetches that follow its flight get no
// copy of it, and look again, because they may need the sample, or have no room.

// Converter makes other forms of samples, and samples of these. It is safe for concurrent use.
type Converter interface {
	// Size returns how many bytes the form of sample id, which has these bytes, takes at most, as far
	// as can be said in microseconds; 0: it has none.
	Size(id int, sample []byte, way Way) int64
	// Convert appends the form of sample id to dst, and returns the form's kind, which is not 0. ok
	// is false if the sample has no form.
	Convert(dst []byte, id int, sample []byte, way Way) (form []byte, kind uint8, ok bool)
	// Current reports whether Convert would make no other form of the sample than this one.
	Current(form []byte, way Way) bool
	// Restore appends the sample of a form to dst. ok is false if the form does not give the sample.
	Restore(dst, form []byte, kind uint8) (sample []byte, ok bool)
	// Describe returns size and digest of the sample of which a form says that it was made. ok is
	// false if it is none of this kind.
	Describe(form []byte, kind uint8) (size int64, digest uint32, ok bool)
	// Exact reports whether Restore gives the sample of a form.
	Exact(form []byte, kind uint8) bool
	// Split appends the fields of a sample of several, whose form this is, to dst, and the kind of
	// each to kinds: 0 is the field as read. Fields are parts of the form; nil: the sample does not
	// have one. ok is false if the form is not one of its kind.
	Split(dst [][]byte, kinds []uint8, form []byte, kind uint8) (_ [][]byte, _ []uint8, ok bool)
	// File returns the sample, or the field, that lies in a form as it is; ok is false if none does.
	File(form []byte, kind uint8) (file []byte, ok bool)
}

// File returns the bytes as read of a sample or a field that is a form, if they lie in that.
func (c *Cache) File(form []byte, kind uint8) (file []byte, ok bool) {
	return c.converter.File(form, kind)
}

// Recipe is what the first transforms of a job, which draw nothing, make of samples. Forms may hold
// that, and are decoded as before by jobs of another recipe.
type Recipe interface {
	// Same reports whether another recipe, which is not nil, makes the same.
	Same(other Recipe) bool
	// Bytes returns how many bytes what it makes of a sample takes.
	Bytes() int64
}

// Way is how forms are made.
type Way struct {
	Recipe Recipe // that of all jobs; nil: they have none, or several
	Ample  bool   // there is room for what the recipe makes of all samples
}

// same reports whether forms are made in the same way.
func (w Way) same(other Way) bool {
	return w.Ample == other.Ample && sameRecipe(w.Recipe, other.Recipe)
}

func sameRecipe(a, b Recipe) bool {
	if a == nil || b == nil {
		return a == nil && b == nil
	}
	return a.Same(b)
}

// Split appends the fields of a Sample's Data to dst, and the kind of each, as in Sample.Kind, to
// kinds. ok is false if Data is a form from which the fields cannot be had: the sample has to be
// fetched as read.
func (c *Cache) Split(dst [][]byte, kinds []uint8, id int, data []byte, kind uint8) (
	fields [][]byte, of []uint8, ok bool,
) {
	switch {
	case c.index.Fields() == nil:
		return append(dst, data), append(kinds, kind), true
	case kind != 0:
		return c.converter.Split(dst, kinds, data, kind)
	}
	dst = c.index.Split(dst, id, data)
	for range dst {
		kinds = append(kinds, 0)
	}
	return dst, kinds, true
}

// Forms describes what a cache holds in other forms than as read, and what was done for that since
// the cache was made.
type Forms struct {
	store.Formed
	Converted, Restored int64         // copies that took the place of others, to and from forms
	Took                time.Duration // of all conversions
	// Reread are the samples that had to be read from the source again because their form did not
	// give them, and Damaged those whose form was altered, or, from another node, was none of the
	// sample.
	Reread, Damaged int64
	// Sent and Received are forms to and from other nodes, and Unpacked the samples that were made of
	// forms for nodes that do not take these.
	Sent, Received, Unpacked int64
	// Wanted: samples are converted, as long as there is memory.
	Wanted bool
}

// formCounts are the counters of Forms.
type formCounts struct {
	converted, restored, took, reread, damaged atomic.Int64
	sent, received, unpacked                   atomic.Int64
}

// Forms returns what class j (from 0) holds in other forms; ok is false if there is no Converter,
// or the class cannot hold any. Received are those of memory.
func (c *Cache) Forms(j int) (f Forms, ok bool) {
	if c.conversion == nil {
		return f, false
	}
	n := c.counts(FirstClass + Tier(j))
	f.Wanted = c.conversion.wanted()
	switch cl := &c.classes[j]; {
	case cl.forms != nil:
		f.Formed = cl.forms.Formed()
	case cl.files != nil:
		f.Formed, f.Wanted = cl.files.store.Formed(), c.conversion.forms.Load()
	default:
		return f, false
	}
	f.Converted, f.Restored = n.converted.Load(), n.restored.Load()
	f.Took = time.Duration(n.took.Load())
	f.Reread, f.Damaged = n.reread.Load(), n.damaged.Load()
	f.Sent, f.Received = n.sent.Load(), n.received.Load()
	f.Unpacked = n.unpacked.Load()
	return f, true
}

// counts returns the counters of a tier's forms.
func (c *Cache) counts(p Tier) *formCounts {
	if j := int(p - FirstClass); j >= 0 && j < len(c.classes) && c.classes[j].files != nil {
		return &c.classes[j].files.counts
	}
	return &c.formCounts
}

// errFormed reports that a flight was of no use, because a class holds the sample in another form.
var errFormed = errors.New("a class holds the sample in another form")

// holdsForm reports whether a class holds a valid copy of the sample in another form than as read.
func (c *Cache) holdsForm(id int) bool {
	if c.conversion == nil || !c.confirmed.has(id) {
		return false
	}
	for j := range c.classes {
		if p := c.classes[j].forms; p != nil && c.classes[j].Store.Has(id) {
			if _, ok := p.Locate(id); !ok {
				return true
			}
		}
	}
	return false
}

// formed fetches a sample that a class holds in another form: the form, or the sample in dst. ok is
// false if there is none any more: if the form is damaged or does not give the sample, it is
// dropped. The error is ErrNoCapacity if the sample needs a buffer and dst is too short.
func (c *Cache) formed(r *Request, id int, dst []byte) (s Sample, ok bool, err error) {
	if c.conversion == nil || !c.confirmed.has(id) {
		return s, false, nil
	}
	for j := range c.classes {
		p := c.classes[j].forms
		if p == nil {
			continue
		}
		form, err := p.Form(id)
		if err != nil {
			if errors.Is(err, store.ErrCorrupt) {
				c.formCounts.damaged.Add(1)
			}
			continue
		}
		s := Sample{
			Data: form.Data, Kind: form.Kind, From: FirstClass + Tier(j), hold: form.Hold,
			digest: form.Digest,
		}
		takes := r.takes(len(s.Data))
		if takes && !r.want.Unpack {
			return s, true, nil
		}
		if int64(len(dst)) < c.index.Size(id) {
			s.Release()
			return Sample{}, false, ErrNoCapacity
		}
		data, ok := c.restore(id, dst, s)
		if ok {
			s.Release()
			if r.remote {
				c.formCounts.unpacked.Add(1)
			}
			return Sample{Data: data, From: s.From}, true, nil
		}
		if takes {
			return s, true, nil
		}
		c.conversion.asRead.set(id)
		if p.Discard(id, form) { // else another request has, and its read may have come
			c.formCounts.reread.Add(1)
		}
		s.Release()
	}
	return s, false, nil
}

// AsRead has a sample kept, and asked of other nodes, as read from now on: what took a form of it
// needs the file.
func (c *Cache) AsRead(id int) {
	c.unformed.set(id)
	v := c.conversion
	if v == nil {
		return
	}
	v.making.Lock() // neither another request replaces the form, nor a conversion the sample
	defer v.making.Unlock()
	v.asRead.set(id)
	for j := range c.classes {
		if cl := &c.classes[j]; cl.forms != nil {
			_, _ = v.sample(cl, nil, id) // else it is made of the form each time
		}
	}
}

// restore writes the sample of a form to dst.
func (c *Cache) restore(id int, dst []byte, form Sample) (data []byte, ok bool) {
	size := int(c.index.Size(id))
	data, ok = c.conversion.converter.Restore(dst[:0:size], form.Data, form.Kind)
	if known, read := c.digests.Of(id); !ok || len(data) != size ||
		read && digest.Of(data) != known {
		return nil, false
	}
	if size > 0 && &data[0] != &dst[0] {
		copy(dst, data)
	}
	return dst[:size], true
}

// mostForm returns how many bytes a form of a sample of this size may have that another node sends:
// as many as forms of JPEGs have. Of larger ones, the node sends the sample.
func mostForm(size int64) int64 { return min(size+size/2, math.MaxInt32) }

// mayAskForm reports whether other nodes may send a form for a sample of a request.
func (c *Cache) mayAskForm(r *Request, id int) bool {
	return r.Forms && !r.own && r.Peers != nil && c.converter != nil && !c.unformed.has(id)
}

// keeps reports whether a sample that is read is to be written to a class that is not in memory,
// and is not there yet.
func (c *Cache) keeps(id int) bool {
	for j := range c.classes {
		if c.writes(j, id) && !c.classes[j].Store.Has(id) {
			return true
		}
	}
	return false
}

// want returns what is wanted of another node, for a buffer of this many bytes. keep is the class
// of memory that is to keep the sample then; nil: none.
func (c *Cache) want(r *Request, id, room int, keep *class) routing.Want {
	w := routing.Want{Size: int(c.index.Size(id))}
	if c.mayAskForm(r, id) && room > w.Size {
		w.Most, w.Unpack = room, keep != nil || c.keeps(id)
	}
	return w
}

// errOtherForm reports that what another node has sent is no form of the sample.
var errOtherForm = errors.New("another node has sent what is no form of the sample")

// received checks what another node has sent, and sets the digest to the sample's if it is a form.
func (c *Cache) received(id int, a *routing.Answer, data []byte) error {
	if a.Kind == 0 {
		return nil
	}
	size, digest, ok := c.converter.Describe(data[:a.Size], a.Kind)
	if !ok || size != c.index.Size(id) {
		c.formCounts.damaged.Add(1)
		return errOtherForm
	}
	c.formCounts.received.Add(1)
	a.Digest = digest
	return nil
}
