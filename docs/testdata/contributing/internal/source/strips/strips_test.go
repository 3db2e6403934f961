package strips

import (
	"encoding/binary"
	"errors"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/hdmlp/hdmlp/internal/source"
	"github.com/hdmlp/hdmlp/internal/source/sourcetest"
)

func TestKeepsTheContractOfSources(t *testing.T) {
	sourcetest.Run(t, func(t *testing.T, samples []sourcetest.Sample) sourcetest.Fixture {
		dir := t.TempDir()
		for _, s := range samples { // by class
			name := filepath.Join(dir, s.Class+suffix)
			before, _ := os.ReadFile(name) // not there yet: empty
			data := binary.LittleEndian.AppendUint32(before, uint32(len(s.Data)))
			write(t, name, append(data, s.Data...))
		}
		source, err := Kind().Open(t.Context(), dir, source.OpenOptions{})
		if err != nil {
			t.Fatal(err)
		}
		index := source.Index()
		return sourcetest.Fixture{
			Source: source,
			Index:  index,
			Shared: true,
			Damage: func(id int, fault sourcetest.Fault) bool {
				return damage(t, filepath.Join(dir, index.Classes()[index.Label(id)]+suffix), fault)
			},
		}
	})
}

// damage does this to a file of which a sample is the last, and reports whether it can. A file
// that is removed, or replaced, is not noticed: the source has it open.
func damage(t *testing.T, path string, fault sourcetest.Fault) bool {
	t.Helper()
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	switch fault {
	case sourcetest.Shortened:
		data = data[:len(data)-1]
	case sourcetest.Lengthened:
		data = append(data, 0)
	case sourcetest.Emptied:
		data = nil
	case sourcetest.Rewritten:
		data[len(data)-1]++
	default:
		return false
	}
	write(t, path, data)
	if err := os.Chtimes(path, time.Now(), time.Now().Add(time.Hour)); err != nil {
		t.Fatal(err)
	}
	return true
}

func TestFilesOfAnotherFormatAreRefused(t *testing.T) {
	for text, want := range map[string]error{
		"":                  source.ErrEmptyClass,
		"\x01\x00":          source.ErrFormat,
		"\x02\x00\x00\x00a": source.ErrFormat,
	} {
		dir := t.TempDir()
		write(t, filepath.Join(dir, "cat"+suffix), []byte(text))
		var refused *source.Error
		_, err := Kind().Open(t.Context(), dir, source.OpenOptions{})
		if !errors.As(err, &refused) || !errors.Is(err, want) {
			t.Errorf("%q: %v, want a source.Error: %v", text, err, want)
		}
	}
}

func write(t *testing.T, path string, data []byte) {
	t.Helper()
	if err := os.WriteFile(path, data, 0o600); err != nil {
		t.Fatal(err)
	}
}
