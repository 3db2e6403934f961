package shards

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"

	"github.com/hdmlp/hdmlp/internal/lib/human"
)

// JournalName is the file of the output directory that lists what was written: a line of JSON about
// all of it, and one per shard that is complete. It stays, so that the command may be given again.
const JournalName = ".hdmlp-pack"

// ErrInput marks errors that the user can put right: the output directory is not what a Write can
// go on with, or its disk is too small.
var ErrInput = errors.New("wrong input")

// inputError is an error of the user.
type inputError struct{ text string }

func (e *inputError) Error() string        { return e.text }
func (e *inputError) Is(target error) bool { return target == ErrInput }

func wrong(format string, args ...any) error {
	return &inputError{fmt.Sprintf(format, args...)}
}

// head is the journal's first line.
type head struct {
	Format int    `json:"format"` // 1
	Layout string `json:"layout"` // hash of all that decides which bytes are written
	Shards int    `json:"shards"`
}

// written is the line of a shard.
type written struct {
	Name   string `json:"name"`
	Size   int64  `json:"size"`
	Digest string `json:"xxh3_128"`
}

// journal is the open journal, locked.
type journal struct {
	dir   string
	file  *os.File
	found []written // of an earlier run
}

// openJournal opens the journal of a directory, or begins one in a directory that is empty or
// missing.
func openJournal(dir string, want head) (_ *journal, err error) {
	if err := os.Mkdir(dir, 0o777); err != nil && !errors.Is(err, fs.ErrExist) {
		return nil, wrong("%v", err)
	}
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil, wrong("%v", err)
	}
	path := filepath.Join(dir, JournalName)
	flags := unix.O_RDWR | unix.O_CLOEXEC | unix.O_NOFOLLOW | unix.O_NONBLOCK
	if len(entries) == 0 {
		flags |= unix.O_CREAT
	}
	fd, err := unix.Open(path, flags, 0o666)
	switch {
	case errors.Is(err, unix.ENOENT):
		return nil, wrong("%s is not empty, and no shards of an earlier run are in it: give another "+
			"directory, or an empty one", human.Name(dir))
	case err != nil:
		return nil, wrong("%v", &fs.PathError{Op: "open", Path: path, Err: err})
	}
	j := &journal{dir: dir, file: os.NewFile(uintptr(fd), path)}
	defer func() {
		if err != nil {
			_ = j.file.Close()
		}
	}()
	if err := unix.Flock(fd, unix.LOCK_EX|unix.LOCK_NB); err != nil {
		return nil, wrong("another process writes shards to %s: wait until it has ended",
			human.Name(dir))
	}
	if info, err := j.file.Stat(); err != nil || !info.Mode().IsRegular() {
		return nil, wrong("%s is not a regular file: remove it, or give another directory", path)
	}
	return j, j.read(want)
}

// read reads the journal; a line that was cut off is as if it were not there.
func (j *journal) read(want head) error {
	data, err := io.ReadAll(j.file)
	if err != nil {
		return err
	}
	whole := data[:bytes.LastIndexByte(data, '\n')+1]
	if err := j.file.Truncate(int64(len(whole))); err != nil {
		return err
	}
	if _, err := j.file.Seek(int64(len(whole)), io.SeekStart); err != nil {
		return err
	}
	if len(whole) == 0 {
		return j.add(want)
	}
	lines := bufio.NewScanner(bytes.NewReader(whole))
	lines.Buffer(nil, 1<<20)
	var got head
	if !lines.Scan() || json.Unmarshal(lines.Bytes(), &got) != nil || got.Format != want.Format {
		return wrong("%s is not the journal of this version of hdmlp: remove the directory, or give "+
			"another one", j.file.Name())
	}
	if got != want {
		return wrong("%s has the shards of another dataset, or of the same one with other options "+
			"or another order: give the same ones to go on, or another directory",
			human.Name(j.dir))
	}
	for lines.Scan() {
		var w written
		if err := json.Unmarshal(lines.Bytes(), &w); err != nil {
			return wrong("%s: line %d is damaged (%v): remove the directory, or give another one",
				j.file.Name(), len(j.found)+2, err)
		}
		j.found = append(j.found, w)
	}
	if err := lines.Err(); err != nil {
		return wrong("%s: line %d is damaged (%v): remove the directory, or give another one",
			j.file.Name(), len(j.found)+2, err)
	}
	return nil
}

// add adds a line, which is on the disk afterwards.
func (j *journal) add(line any) error {
	data, err := json.Marshal(line)
	if err == nil {
		_, err = j.file.Write(append(data, '\n'))
	}
	return errors.Join(err, j.file.Sync(), syncDirectory(j.dir))
}

func (j *journal) close() error { return j.file.Close() }

func syncDirectory(dir string) error {
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	return errors.Join(d.Sync(), d.Close())
}
