package file

import (
	"fmt"
	"math"

	"github.com/hdmlp/hdmlp/internal/lib/digest"
	"github.com/hdmlp/hdmlp/internal/store"
	"github.com/hdmlp/hdmlp/internal/store/arena"
	"github.com/hdmlp/hdmlp/internal/store/file/disk"
)

// # Samples in other forms
//
// A form lies in the data file as samples do. Kind, size and digest are in its record, and in
// mu.forms, which is right for a sample while where has its formBit and mu is held.
//
// A form replaces the copy that was there in five steps: reserve bytes, write them, change where
// from the old copy to the new one (with the journal's turn, so that a drop, which comes after it,
// writes its record after it), write the record, and only then free the old copy's bytes. So the
// sample is held all the time, and after a crash the journal has one of two whole copies. A read of
// the old copy that sees other bytes there finds that by drops.
//
// Forms take no room of samples: the capacity is what these may take as read, what the forms that
// are held take more, and copies that are to replace others. So what is counted changes at the same
// time as bytes become free.

// form describes a copy in another form than as read.
type form struct {
	bytes uint32
	sum   uint32 // digest
	kind  uint8
}

// offsetOf returns the offset of a copy by its value in where.
func offsetOf(at int64) int64 { return at&^formBit - 1 }

// located returns a sample and its value in where.
func (s *classStore) located(id int32) located { return located{int(id), s.where[id].Load()} }

// extent returns the bytes of a copy. s.mu must be held, or s is not shared yet.
func (s *classStore) extent(l located) arena.Extent {
	n := s.sampleSize(l.id)
	if l.at&formBit != 0 {
		n = int64(s.mu.forms[l.id].bytes)
	}
	return arena.Extent{Offset: offsetOf(l.at), Length: n}
}

// record returns the record of a copy. s.mu must be held, or s is not shared yet.
func (s *classStore) record(l located) Record {
	e := s.extent(l)
	r := Record{
		ID: uint32(l.id), Origin: s.origin(l.id),
		Offset: uint64(e.Offset), Length: uint64(e.Length),
	}
	if l.at&formBit != 0 {
		r.Kind, r.Sum = s.mu.forms[l.id].kind, s.mu.forms[l.id].sum
	}
	return r
}

// setForm notes what form a sample's copy is in. s.mu must be held, or s is not shared yet.
func (s *classStore) setForm(id int, f form) {
	if s.mu.forms == nil {
		s.mu.forms = make([]form, len(s.where))
	}
	s.mu.forms[id] = f
}

// formedOf returns what a copy is of what is held in other forms. s.mu must be held, or s is not
// shared yet.
func (s *classStore) formedOf(l located) (f store.Formed) {
	if l.at&formBit != 0 {
		f = store.Formed{
			Samples: 1, Bytes: int64(s.mu.forms[l.id].bytes), AsRead: s.sampleSize(l.id),
		}
	}
	return f
}

// difference returns what is held more.
func difference(now, before store.Formed) store.Formed {
	return store.Formed{
		Samples: now.Samples - before.Samples, Bytes: now.Bytes - before.Bytes,
		AsRead: now.AsRead - before.AsRead,
	}
}

// count adds to what is held in other forms, so many times. s.mu must be held, or s is not shared
// yet.
func (s *classStore) count(f store.Formed, times int64) {
	s.mu.formed.Samples += times * f.Samples
	s.mu.formed.Bytes += times * f.Bytes
	s.mu.formed.AsRead += times * f.AsRead
}

// resize adds what forms take more than their samples, and copies that replace others, to the
// capacity. s.mu must be held, or s is not shared yet.
func (s *classStore) resize() {
	s.mu.space.Resize(s.mu.total + s.mu.formed.Bytes - s.mu.formed.AsRead + s.mu.coming)
}

// promised returns the bytes that samples as read may take.
func (s *classStore) promised() int64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.mu.total
}

// Formed implements store.FormReader.
func (s *classStore) Formed() store.Formed {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.mu.formed
}

// FormRoom implements store.FormReader.
func (s *classStore) FormRoom() int64 { return s.class.formRoom() }

// FormInfo implements store.FormReader.
func (s *classStore) FormInfo(id int) (store.FormInfo, bool) {
	if uint(id) >= uint(len(s.where)) || s.where[id].Load()&formBit == 0 {
		return store.FormInfo{}, false
	}
	info, at := s.formAt(id)
	return info, at > 0
}

// formAt returns the form that a sample's copy is in, and its value in where; 0: it is in none.
func (s *classStore) formAt(id int) (info store.FormInfo, at int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if at = s.where[id].Load(); at <= 0 || at&formBit == 0 {
		return info, 0
	}
	f := s.mu.forms[id]
	return store.FormInfo{Bytes: int64(f.bytes), Digest: f.sum, Kind: f.kind}, at
}

// ReadForm implements store.FormReader.
func (s *classStore) ReadForm(id int, info store.FormInfo, dst []byte) error {
	if uint(id) >= uint(len(s.where)) {
		return store.ErrNotHeld
	}
	for {
		drops := s.drops.Load()
		now, at := s.formAt(id)
		if at == 0 || now != info || int64(len(dst)) != info.Bytes {
			return store.ErrNotHeld
		}
		_, err := s.data.ReadAt(dst, offsetOf(at))
		if err == nil && digest.Of(dst) == info.Digest {
			return nil
		}
		if s.drops.Load() == drops {
			return s.corrupt(located{id, at}, err)
		}
	}
}

// ReadFormNow implements store.FormReader.
func (s *classStore) ReadFormNow(id int, info store.FormInfo, dst []byte) error {
	if s.prompt == nil || uint(id) >= uint(len(s.where)) {
		return store.ErrWait
	}
	now, at := s.formAt(id)
	if at == 0 || now != info || int64(len(dst)) != info.Bytes ||
		!s.prompt.ReadNow(dst, offsetOf(at)) || digest.Of(dst) != info.Digest {
		return store.ErrWait
	}
	return nil
}

// Replace implements store.FormReader.
func (s *classStore) Replace(id int, kind uint8, data []byte) error {
	switch {
	case uint(id) >= uint(len(s.where)), kind == 0 && int64(len(data)) != s.sampleSize(id):
		return fmt.Errorf("file class: replace: %w", s.check(id, len(data)))
	case !s.Has(id):
		return store.ErrNotHeld
	case len(data) > math.MaxUint32:
		return store.ErrFull
	}
	old, n := s.located(int32(id)), int64(len(data))
	if old.at <= 0 {
		return store.ErrNotHeld
	}
	s.replacing(n)
	offset, err := s.write(id, data)
	if err != nil {
		s.replacing(-n)
		return err
	}
	now := located{id, offset + 1}
	if kind != 0 {
		now.at |= formBit
	}
	f := form{uint32(n), digest.Of(data), kind}
	gone := arena.Extent{Offset: offset, Length: n} // of the new copy, unless it replaces the old one
	var more store.Formed
	replaced := false
	err = s.journal.change(func() (r Record, ok bool) {
		s.mu.Lock()
		defer s.mu.Unlock()
		was, before := s.extent(old), s.formedOf(old)
		if !s.where[id].CompareAndSwap(old.at, now.at) {
			return r, false
		}
		if kind != 0 {
			s.setForm(id, f)
		}
		gone, replaced = was, true
		more = difference(s.formedOf(now), before)
		return s.record(now), true
	})
	if err != nil {
		s.class.stop(disk.Why(err)) // so that the bytes are not used again
	}
	s.mu.Lock()
	s.drops.Add(1)
	s.mu.space.Release(gone.Offset, gone.Length)
	s.count(more, 1)
	s.mu.coming -= n
	s.resize()
	s.mu.Unlock()
	if !replaced {
		return store.ErrNotHeld
	}
	s.class.wrote(n)
	return nil
}

// replacing adds bytes to those that copies which replace others take for a time.
func (s *classStore) replacing(n int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.mu.coming += n
	s.resize()
}
