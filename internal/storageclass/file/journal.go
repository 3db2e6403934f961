package file

import (
	"errors"
	"fmt"

	"github.com/hdmlp/hdmlp/internal/invariants"
	"github.com/hdmlp/hdmlp/internal/storageclass/file/disk"
	"github.com/hdmlp/hdmlp/internal/storageclass/file/layout"
)

// batch is how many records are collected before they are written.
const batch = 64

// journal is the index file of an open store. Records are collected in memory and written in
// batches; after a write that failed half-way they are written again at the same offset.
type journal struct {
	file        disk.File
	fingerprint [16]byte // of the dataset

	mu struct { // guards the following
		invariants.Mutex[journal]
		end     int64 // of the file
		pending []byte
	}
}

// add adds records; with flush, they and the pending ones are written at once, with one write.
// After an error the records stay pending and are written by a later call.
func (j *journal) add(flush bool, records ...layout.Record) error {
	j.mu.Lock()
	defer j.mu.Unlock()
	for _, r := range records {
		j.mu.pending = r.AppendTo(j.mu.pending, j.fingerprint)
	}
	if !flush && len(j.mu.pending) < batch*layout.RecordSize {
		return nil
	}
	return j.flush()
}

// flush writes the pending records. j.mu is held.
func (j *journal) flush() error {
	if len(j.mu.pending) == 0 {
		return nil
	}
	if _, err := j.file.WriteAt(j.mu.pending, j.mu.end); err != nil {
		return fmt.Errorf("write the index: %w", err)
	}
	j.mu.end += int64(len(j.mu.pending))
	j.mu.pending = j.mu.pending[:0]
	return nil
}

// shut writes the pending records and closes the file.
func (j *journal) shut() error {
	j.mu.Lock()
	defer j.mu.Unlock()
	return errors.Join(j.flush(), j.file.Close())
}
