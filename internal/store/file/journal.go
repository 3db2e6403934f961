package file

import (
	"errors"
	"fmt"

	"github.com/hdmlp/hdmlp/internal/store/file/disk"
)

// batch is how many records are collected before they are written.
const batch = 64

// journal is the index file of an open store. Records are collected in memory and written in
// batches; after a write that failed half-way they are written again at the same offset.
type journal struct {
	file        disk.File
	fingerprint [16]byte // of the dataset

	// turn has a token while the following are used. A write that hangs keeps it: a wait for it is
	// one for the disk, and not for a lock.
	turn    chan struct{}
	end     int64 // of the file
	pending []byte
}

// add adds records; with flush, they and the pending ones are written at once, with one write.
// After an error the records stay pending and are written by a later call.
func (j *journal) add(flush bool, records ...Record) error {
	j.turn <- struct{}{}
	defer func() { <-j.turn }()
	for _, r := range records {
		j.pending = r.AppendTo(j.pending, j.fingerprint)
	}
	if !flush && len(j.pending) < batch*RecordSize {
		return nil
	}
	return j.flush()
}

// flush writes the pending records. The caller has the turn.
func (j *journal) flush() error {
	if len(j.pending) == 0 {
		return nil
	}
	if _, err := j.file.WriteAt(j.pending, j.end); err != nil {
		return fmt.Errorf("write the index: %w", err)
	}
	j.end += int64(len(j.pending))
	j.pending = j.pending[:0]
	return nil
}

// shut writes the pending records and closes the file.
func (j *journal) shut() error {
	j.turn <- struct{}{}
	defer func() { <-j.turn }()
	return errors.Join(j.flush(), j.file.Close())
}

// change calls do with the turn, and writes the record that it returns, and the pending ones, at
// once; ok is false if nothing has changed. Errors are as of add.
func (j *journal) change(do func() (r Record, ok bool)) error {
	j.turn <- struct{}{}
	defer func() { <-j.turn }()
	r, ok := do()
	if !ok {
		return nil
	}
	j.pending = r.AppendTo(j.pending, j.fingerprint)
	return j.flush()
}
