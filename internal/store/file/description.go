package file

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"path/filepath"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"golang.org/x/sys/unix"

	"github.com/hdmlp/hdmlp/internal/store"
	"github.com/hdmlp/hdmlp/internal/store/file/disk"
)

const (
	descriptionFormat = 1
	descriptionLimit  = 1 << 20 // bytes of the file
	wordLimit         = 64      // bytes of a kind, an extension and hdmlp's version
)

// Description describes a store's dataset. It does not decide whether samples are served: it is for
// people, and for `hdmlp cache check`, which uses it to find the dataset and then compares
// versions.
//
// The path and extensions of one that was read may contain any characters: escape those that a
// terminal interprets before printing them.
type Description struct {
	Format     int      `json:"format"`
	Version    string   `json:"version"` // of the dataset, which is the store's name
	Kind       string   `json:"kind"`
	Path       string   `json:"path"`
	Extensions []string `json:"extensions"`
	// Options are those of its kind that it was asked for by, as JSON has them.
	Options     map[string]any `json:"options,omitempty"`
	Samples     int64          `json:"samples"`
	Bytes       int64          `json:"bytes"`
	HDMLP       string         `json:"hdmlp"` // version of hdmlp
	FirstOpened time.Time      `json:"first_opened"`
	LastOpened  time.Time      `json:"last_opened"`
}

// encode returns the contents of the file.
func (d *Description) encode() ([]byte, error) {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	e.SetIndent("", "  ")
	if err := e.Encode(d); err != nil {
		return nil, err
	}
	if b.Len() > descriptionLimit {
		return nil, fmt.Errorf("%d bytes, more than %d", b.Len(), descriptionLimit)
	}
	return b.Bytes(), nil
}

// decodeDescription decodes the file of the store with this name. It rejects anything that encode
// could not have written.
func decodeDescription(b []byte, name string) (*Description, error) {
	decoder := json.NewDecoder(bytes.NewReader(b))
	decoder.DisallowUnknownFields()
	d := &Description{}
	if err := decoder.Decode(d); err != nil {
		return nil, fmt.Errorf("not a description of a dataset: %w", err)
	}
	if _, err := decoder.Token(); !errors.Is(err, io.EOF) {
		return nil, errors.New("unexpected data after the description")
	}
	words := append([]string{d.Kind, d.HDMLP}, d.Extensions...)
	for _, w := range words {
		if len(w) > wordLimit || !utf8.ValidString(w) ||
			strings.ContainsFunc(w, func(r rune) bool { return !unicode.IsPrint(r) }) {
			return nil, fmt.Errorf("%.80q is not a valid kind, extension or version", w)
		}
	}
	switch {
	case d.Format != descriptionFormat:
		return nil, fmt.Errorf("format %d; this version reads %d", d.Format, descriptionFormat)
	case d.Version != name:
		return nil, fmt.Errorf("it describes version %.40q", d.Version)
	case d.Path != "" && (!filepath.IsAbs(d.Path) || len(d.Path) >= unix.PathMax ||
		strings.ContainsRune(d.Path, 0)):
		return nil, fmt.Errorf("%.80q is not an absolute path", d.Path)
	case d.Samples < 0 || d.Samples > math.MaxInt32:
		return nil, fmt.Errorf("invalid number of samples: %d", d.Samples)
	case d.Bytes < 0:
		return nil, fmt.Errorf("invalid number of bytes: %d", d.Bytes)
	}
	return d, nil
}

// readDescription reads the description of store s; it returns nil if there is none.
func readDescription(s *disk.Directory) (*Description, error) {
	f, err := s.Open(descriptionName, unix.O_RDONLY)
	if errors.Is(err, os.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	defer f.Close() //nolint:errcheck // it was only read
	b, err := io.ReadAll(io.LimitReader(f, descriptionLimit+1))
	if err != nil {
		return nil, err
	}
	if len(b) > descriptionLimit {
		return nil, fmt.Errorf("%s: more than %d bytes", f.Name(), descriptionLimit)
	}
	d, err := decodeDescription(b, filepath.Base(s.Path()))
	if err != nil {
		return nil, fmt.Errorf("%s: %w", f.Name(), err)
	}
	return d, nil
}

// describe writes the description of store s, which is being opened.
func describe(s *disk.Directory, version string, ds store.Dataset, now time.Time) error {
	d := &Description{
		Format: descriptionFormat, Version: storeName(ds.Fingerprint),
		Kind: ds.About.Kind, Path: ds.About.Path, Extensions: ds.About.Extensions,
		Options: ds.About.Options,
		Samples: int64(ds.Samples), Bytes: ds.About.Bytes, HDMLP: version,
		FirstOpened: now.UTC().Truncate(time.Second), LastOpened: now.UTC().Truncate(time.Second),
	}
	before, err := readDescription(s)
	var unsafe *store.UnsafeError
	switch {
	case errors.As(err, &unsafe):
		return err
	case err == nil && before != nil: // one that cannot be read is replaced
		d.FirstOpened = before.FirstOpened
	}
	b, err := d.encode()
	if err != nil {
		return err
	}
	f, err := s.CreateNew(newDescription)
	if err != nil {
		return err
	}
	_, err = f.Write(b)
	if err = errors.Join(err, f.Close()); err == nil {
		err = s.Rename(newDescription, descriptionName)
	}
	if err != nil {
		_ = s.Remove(newDescription)
	}
	return err
}
