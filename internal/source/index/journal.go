package index

import (
	"bytes"
	"encoding/binary"
	"errors"
	"io"
	"os"
	"sync"
	"time"

	"github.com/zeebo/xxh3"
	"golang.org/x/sys/unix"

	"github.com/hdmlp/hdmlp/internal/source/tree"
)

const (
	// journalSuffix follows the name of the index.
	journalSuffix = ".part"
	journalMagic  = "HDMLPJN1"
	journalHeader = len(journalMagic) + 16
	entryHeader   = 4 + 8 + 16
	// touchEvery is how often the file's time is set while it is locked.
	touchEvery = 10 * time.Second
)

// ErrLocked is returned if another process is making the index.
var ErrLocked = errors.New("another process is making the index")

// Journal keeps what has been found for an index that is being made, in a file beside it, so that
// the next attempt goes on from there if this one is interrupted. The file is locked until then:
// processes that share its directory, on one machine or on several, make one index and not one
// each.
//
// Entries are appended, each with its checksum. What follows one that was cut off is not used.
//
// Found, Keep and Close are safe for concurrent use.
type Journal struct {
	file    *os.File
	calls   Calls
	dir     string
	name    string
	stop    chan struct{}
	touches sync.WaitGroup

	mu    sync.Mutex // guards the following, and calls
	known map[[16]byte][]byte
	left  int64 // by how many bytes the file may grow
}

// Journal opens the journal of the index in the first location where that is possible, and locks
// it. what is what the index is made of: entries of another one are dropped, as is what makes the
// file larger than most bytes. The error is ErrLocked if another process has locked it. The caller
// must not use x.Calls any more.
func (x *Files) Journal(what []byte, most int64) (j *Journal, err error) {
	for _, p := range x.Locations {
		p.name += journalSuffix
		j, err = x.openJournal(p, what, most)
		if err == nil || errors.Is(err, ErrLocked) {
			return j, err
		}
	}
	return nil, err
}

// openJournal locks the journal at p, and reads it.
func (x *Files) openJournal(p Location, what []byte, most int64) (*Journal, error) {
	f, err := x.lock(p)
	if err != nil {
		return nil, err
	}
	j := &Journal{
		file: f, calls: x.Calls, dir: p.dir, name: p.name, stop: make(chan struct{}),
		known: map[[16]byte][]byte{},
	}
	if err := j.begin(what, most); err != nil {
		_ = f.Close()
		return nil, err
	}
	j.touches.Go(j.touch)
	return j, nil
}

// lock opens the file at p, and locks it. A file that was removed meanwhile, because the index was
// made, is not the one that others lock.
func (x *Files) lock(p Location) (*os.File, error) {
	if err := x.makeDirectory(p); err != nil {
		return nil, err
	}
	dir, err := x.open(p)
	if err != nil {
		return nil, err
	}
	defer p.close(dir)
	const flags = unix.O_RDWR | unix.O_APPEND | unix.O_CREAT | unix.O_NOFOLLOW | unix.O_NONBLOCK |
		unix.O_NOCTTY | unix.O_CLOEXEC
	for {
		x.Calls.Begin("open", p.dir, p.name)
		fd, err := tree.RetryEINTR(func() (int, error) {
			return unix.Openat(dir, p.name, flags, 0o600)
		})
		x.Calls.End()
		if err != nil {
			return nil, err
		}
		f := os.NewFile(uintptr(fd), p.Path())
		st, err := tree.StatOpen(fd)
		if err == nil {
			err = x.trust(p, &st)
		}
		if err == nil {
			x.Calls.Begin("lock", p.dir, p.name)
			err = unix.Flock(fd, unix.LOCK_EX|unix.LOCK_NB)
			x.Calls.End()
		}
		if err == nil {
			st, err = tree.StatOpen(fd)
		}
		if err == nil && st.Nlink > 0 {
			return f, nil
		}
		_ = f.Close()
		switch {
		case errors.Is(err, unix.EWOULDBLOCK):
			return nil, ErrLocked
		case err != nil:
			return nil, err
		}
	}
}

// begin reads the entries, and removes what cannot be used.
func (j *Journal) begin(what []byte, most int64) error {
	j.calls.Begin("read", j.dir, j.name)
	defer j.calls.End()
	header := xxh3.Hash128(what).Bytes()
	head := append([]byte(journalMagic), header[:]...)
	data, err := io.ReadAll(io.LimitReader(j.file, most))
	if err != nil {
		return err
	}
	used := 0
	if bytes.HasPrefix(data, head) {
		used = len(head) + j.load(data[len(head):])
	}
	j.left = most - int64(max(used, len(head)))
	if err := j.file.Truncate(int64(used)); err != nil {
		return err
	}
	if used == 0 {
		_, err = j.file.Write(head)
	}
	return err
}

// load reads the entries, and returns how many bytes of whole ones there are.
func (j *Journal) load(data []byte) (used int) {
	for {
		rest := data[used:]
		if len(rest) < entryHeader {
			return used
		}
		end := entryHeader + int64(binary.LittleEndian.Uint32(rest))
		if end > int64(len(rest)) ||
			xxh3.Hash(rest[12:end]) != binary.LittleEndian.Uint64(rest[4:]) {
			return used
		}
		j.known[[16]byte(rest[12:])] = rest[entryHeader:end]
		used += int(end)
	}
}

// Found returns, once, what was kept under this name before the interruption; nil: nothing.
func (j *Journal) Found(name [16]byte) []byte {
	j.mu.Lock()
	defer j.mu.Unlock()
	data := j.known[name]
	delete(j.known, name)
	return data
}

// Keep keeps data under a name. What cannot be kept is found again after an interruption.
func (j *Journal) Keep(name [16]byte, data []byte) {
	length := int64(entryHeader + len(data))
	entry := make([]byte, 12, length)
	entry = append(append(entry, name[:]...), data...)
	binary.LittleEndian.PutUint32(entry, uint32(len(data)))
	binary.LittleEndian.PutUint64(entry[4:], xxh3.Hash(entry[12:]))
	j.mu.Lock()
	defer j.mu.Unlock()
	if length > j.left || int64(len(data)) >= 1<<32 {
		return
	}
	j.left -= length
	j.calls.Begin("write", j.dir, j.name)
	defer j.calls.End()
	if _, err := j.file.Write(entry); err != nil {
		j.left = 0 // what would follow a part of an entry could not be read
	}
}

// touch sets the file's time from time to time, by which others see that the index is being made.
func (j *Journal) touch() {
	ticker := time.NewTicker(touchEvery)
	defer ticker.Stop()
	for {
		select {
		case <-ticker.C:
			now := unix.NsecToTimeval(time.Now().UnixNano())
			j.mu.Lock()
			j.calls.Begin("touch", j.dir, j.name)
			_ = unix.Futimes(int(j.file.Fd()), []unix.Timeval{now, now})
			j.calls.End()
			j.mu.Unlock()
		case <-j.stop:
			return
		}
	}
}

// Close unlocks the journal, which is kept for the next attempt unless the index is made.
func (j *Journal) Close(made bool) {
	close(j.stop)
	j.touches.Wait()
	j.mu.Lock()
	defer j.mu.Unlock()
	j.calls.Begin("close", j.dir, j.name)
	defer j.calls.End()
	if made {
		_ = os.Remove(j.file.Name())
	}
	_ = j.file.Close()
}

// Touched returns when a process that makes the index was last seen to do so.
func (x *Files) Touched() (last time.Time) {
	for _, p := range x.Locations {
		path := p.Path() + journalSuffix
		x.Calls.Begin("stat", p.dir, p.name+journalSuffix)
		info, err := os.Lstat(path)
		x.Calls.End()
		if err == nil && info.ModTime().After(last) {
			last = info.ModTime()
		}
	}
	return last
}
