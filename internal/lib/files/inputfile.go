package files

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"syscall"
)

// ErrNotRegular is the cause of the error for a directory, pipe, device or socket.
var ErrNotRegular = errors.New("not a regular file")

// Read returns the contents of a file of at most limit bytes. It does not wait for a pipe's writer.
// Errors are *fs.PathError and name the file.
func Read(path string, limit int64) ([]byte, error) {
	file, err := os.OpenFile(path, os.O_RDONLY|syscall.O_NONBLOCK|syscall.O_NOCTTY, 0)
	if err != nil {
		return nil, err
	}
	defer file.Close()
	info, err := file.Stat()
	if err != nil {
		return nil, err
	}
	if !info.Mode().IsRegular() {
		return nil, &fs.PathError{Op: "read", Path: path, Err: ErrNotRegular}
	}
	// The size that Stat reports is no bound: the file may grow, and files in /proc report 0.
	data, err := io.ReadAll(io.LimitReader(file, limit+1))
	if err != nil {
		return nil, err
	}
	if int64(len(data)) > limit {
		return nil, &fs.PathError{
			Op:   "read",
			Path: path,
			Err:  fmt.Errorf("it is larger than %d bytes", limit),
		}
	}
	return data, nil
}

// ReadText is Read of a text in UTF-8, which is returned without a byte order mark. A text in
// UTF-16 is an error.
func ReadText(path string, limit int64) ([]byte, error) {
	data, err := Read(path, limit)
	if err != nil {
		return nil, err
	}
	for _, mark := range []string{"\xff\xfe", "\xfe\xff"} {
		if bytes.HasPrefix(data, []byte(mark)) {
			return nil, &fs.PathError{
				Op:   "read",
				Path: path,
				Err:  errors.New("the text is in UTF-16, as its byte order mark says: save it as UTF-8"),
			}
		}
	}
	return bytes.TrimPrefix(data, []byte("\xef\xbb\xbf")), nil
}
