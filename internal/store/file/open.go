package file

import (
	"bufio"
	"cmp"
	"errors"
	"fmt"
	"io"
	"math"
	"slices"
	"sync/atomic"
	"time"

	"github.com/hdmlp/hdmlp/internal/store"
	"github.com/hdmlp/hdmlp/internal/store/arena"
	"github.com/hdmlp/hdmlp/internal/store/file/disk"
)

// openStore opens the dataset's store, and creates it if it is missing.
func openStore(c *Class, ds store.Dataset, capacity int64) (_ *classStore, err error) {
	dir, err := c.dir.Make(storeName(ds.Fingerprint))
	if err != nil {
		return nil, err
	}
	defer dir.Close() //nolint:errcheck // a directory has nothing to lose
	s := newStore(c, ds)
	if err := s.openFiles(dir, capacity); err != nil {
		return nil, err
	}
	s.opened = time.Now()
	err = describe(dir, c.Version, ds, s.opened)
	if err == nil {
		err = keepList(dir, ds.About.List)
	}
	if err != nil {
		var unsafe *store.UnsafeError
		if errors.As(err, &unsafe) {
			s.closeFiles()
			return nil, err
		}
		// Samples can be kept without a description; a full disk may be the cause.
		c.Warn(fmt.Sprintf("cache in %s: write the description of dataset %x: %v", c.Dir,
			ds.Fingerprint, err))
	}
	dir.Touch(s.opened) // for the order of eviction after a restart
	return s, nil
}

// newStore returns a store whose files are not open.
func newStore(c *Class, ds store.Dataset) *classStore {
	return &classStore{
		class:       c,
		fingerprint: ds.Fingerprint,
		sampleSize:  ds.Size,
		where:       make([]atomic.Int64, ds.Samples),
		sums:        make([]atomic.Uint32, ds.Samples),
		instances:   make([]atomic.Uint64, ds.Samples),
		opens:       1,
		journal:     journal{fingerprint: ds.Fingerprint, turn: make(chan struct{}, 1)},
	}
}

// openFiles opens the store's files in dir, creates them if they are missing, and loads the index.
func (s *classStore) openFiles(dir *disk.Directory, capacity int64) (err error) {
	if s.data, err = dir.Create(dataName); err != nil {
		return err
	}
	s.prompt, _ = s.data.(disk.Prompt)
	if s.journal.file, err = dir.Create(indexName); err != nil {
		_ = s.data.Close()
		return err
	}
	if err := s.load(dir, capacity); err != nil {
		s.closeFiles()
		return err
	}
	return nil
}

func (s *classStore) closeFiles() {
	_ = s.data.Close()
	_ = s.journal.file.Close()
}

// load reads the index and makes the files and the memory state consistent:
//
//  1. find the samples that are held (recover), or start over if the index is not valid;
//  2. restore the allocated bytes;
//  3. cut the index after its last whole record, and rewrite it if it has stale records;
//  4. cut the data after the last sample.
func (s *classStore) load(dir *disk.Directory, capacity int64) error {
	info, err := s.data.Stat()
	if err != nil {
		return err
	}
	if disk.Sparse(s.journal.file) { // not written by us; it may have any length
		return s.reset(capacity)
	}
	held, byOffset, end, fresh, err := s.recover(s.journal.file, info.Size(), capacity)
	if err != nil {
		return err
	}
	if fresh {
		return s.reset(capacity)
	}
	s.mu.order = arena.NewOrder(held)
	s.mu.total = min(capacity, math.MaxInt64/2) // to which what forms take is added
	s.mu.space = arena.Restore(capacity, false, func(yield func(arena.Extent) bool) {
		for _, id := range byOffset {
			if !yield(s.extent(s.located(id))) {
				return
			}
		}
	})
	for _, id := range held {
		s.count(s.formedOf(s.located(id)), 1)
	}
	s.resize()
	s.journal.end = end
	if err := s.journal.file.Truncate(end); err != nil {
		return err
	}
	if records := (end - HeaderSize) / RecordSize; records != int64(len(held)) {
		// A full disk may prevent it. The old index is valid, too: records that do not hold
		// are detected by checksums.
		if err := s.rewriteIndex(dir); err != nil {
			s.class.Warn(fmt.Sprintf("cache in %s: %v", s.class.Dir, err))
		}
	}
	return s.data.Truncate(s.mu.space.End())
}

// recover restores what is held from the index, given the size of the data file, and changes no
// file. It returns the IDs in the order in which they were added and by offset, and where the index
// ends. fresh reports that the file is not an index of this dataset.
func (s *classStore) recover(index io.Reader,
	dataSize, capacity int64,
) (held, byOffset []int32, end int64, fresh bool, err error) {
	added := []int32{} // IDs in the order of their records, some more than once
	end, fresh, err = Read(index, s.fingerprint, len(s.where), func(r Record) {
		if int64(r.ID) >= int64(len(s.where)) {
			return
		}
		replaces := s.Has(int(r.ID))
		s.where[r.ID].Store(absent)
		if !s.fits(r, dataSize) {
			return
		}
		at := int64(r.Offset) + 1
		if r.Kind != 0 {
			at |= formBit
			s.setForm(int(r.ID), form{uint32(r.Length), r.Sum, r.Kind})
		}
		s.where[r.ID].Store(at)
		s.note(int(r.ID), r.Origin)
		if !replaces { // else it was added before
			added = append(added, int32(r.ID))
		}
	})
	if err != nil || fresh {
		return nil, nil, 0, fresh, err
	}
	held = s.lastOfEach(added)
	byOffset = s.dropOverlaps(held)
	held = slices.DeleteFunc(held, func(id int32) bool { return !s.Has(int(id)) })
	held = s.dropNewest(held, capacity)
	byOffset = slices.DeleteFunc(byOffset, func(id int32) bool { return !s.Has(int(id)) })
	return held, byOffset, end, false, nil
}

// fits reports whether the record is plausible.
func (s *classStore) fits(r Record, dataSize int64) bool {
	return r.Length <= math.MaxInt64 && // it is not Dropped
		(r.Kind != 0 && r.Length <= math.MaxUint32 ||
			r.Kind == 0 && int64(r.Length) == s.sampleSize(int(r.ID))) &&
		r.Offset <= uint64(dataSize) && r.Length <= uint64(dataSize)-r.Offset
}

// reset empties both files and starts a new index.
func (s *classStore) reset(capacity int64) error {
	if err := s.journal.file.Truncate(0); err != nil {
		return err
	}
	if err := s.data.Truncate(0); err != nil {
		return err
	}
	if _, err := s.journal.file.WriteAt(Header(s.fingerprint, len(s.where)), 0); err != nil {
		return err
	}
	s.journal.end = HeaderSize
	s.mu.total, s.mu.space = capacity, arena.New(capacity, false)
	return nil
}

// lastOfEach keeps the last occurrence of every ID that is held, in order.
func (s *classStore) lastOfEach(added []int32) []int32 {
	seen := make([]bool, len(s.where))
	at := len(added)
	for i := len(added) - 1; i >= 0; i-- {
		if id := added[i]; !seen[id] && s.Has(int(id)) {
			seen[id] = true
			at--
			added[at] = id
		}
	}
	return added[at:]
}

// dropOverlaps returns held by offset, and drops samples whose bytes overlap, which happens if the
// record of a drop between them was lost.
func (s *classStore) dropOverlaps(held []int32) []int32 {
	byOffset := slices.Clone(held)
	slices.SortFunc(byOffset, func(a, b int32) int {
		return cmp.Or(
			cmp.Compare(s.extent(s.located(a)).Offset, s.extent(s.located(b)).Offset),
			cmp.Compare(s.extent(s.located(a)).Length, s.extent(s.located(b)).Length),
		)
	})
	end, last := int64(0), int32(-1)
	var lost []int32
	for _, id := range byOffset {
		e := s.extent(s.located(id))
		if e.Length == 0 {
			continue
		}
		if e.Offset < end {
			lost = append(lost, id, last)
		}
		if e.Offset+e.Length > end {
			end, last = e.Offset+e.Length, id
		}
	}
	for _, id := range lost {
		s.where[id].Store(absent)
	}
	return byOffset
}

// dropNewest drops the newest samples, beyond capacity bytes that they have as read.
func (s *classStore) dropNewest(held []int32, capacity int64) []int32 {
	for i, id := range held {
		n := s.sampleSize(int(id))
		if n > capacity {
			for _, id := range held[i:] {
				s.where[id].Store(absent)
			}
			return held[:i]
		}
		capacity -= n
	}
	return held
}

// rewriteIndex writes a new index of what is held and replaces the old one with it.
func (s *classStore) rewriteIndex(dir *disk.Directory) error {
	f, err := dir.CreateNew(newIndex)
	if err != nil {
		return err
	}
	w := bufio.NewWriterSize(f, 1<<20)
	_, _ = w.Write(Header(s.fingerprint, len(s.where)))
	buffer := make([]byte, 0, RecordSize)
	held := s.mu.order.Held(s.holds)
	for _, id := range held {
		_, _ = w.Write(s.record(s.located(id)).AppendTo(buffer, s.fingerprint))
	}
	err = w.Flush()
	if err == nil {
		err = dir.Rename(newIndex, indexName)
	}
	if err != nil {
		_ = f.Close()
		_ = dir.Remove(newIndex)
		return fmt.Errorf("rewrite the index: %w", err)
	}
	_ = s.journal.file.Close()
	s.journal.file = f
	s.journal.end = HeaderSize + int64(len(held))*RecordSize
	return nil
}
