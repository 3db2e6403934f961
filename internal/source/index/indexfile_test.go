package index_test

import (
	"bytes"
	"encoding/binary"
	"errors"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/hdmlp/hdmlp/internal/source/folder"
	"github.com/hdmlp/hdmlp/internal/source/index"
)

// sparse creates an index file with a valid header that claims this many samples, and a hole in
// place of everything else.
func sparse(t *testing.T, path string, samples uint64) {
	t.Helper()
	header := []byte("HDMLPIDX")
	header = binary.LittleEndian.AppendUint32(header, 1)
	header = binary.LittleEndian.AppendUint32(header, 0)
	total := 96 + 64 + (4+1+4)*samples + 8
	for _, n := range []uint64{total, samples, 1, 0, 0, 0, 0, 0, samples, 0} {
		header = binary.LittleEndian.AppendUint64(header, n)
	}
	if err := os.WriteFile(path, header, 0o644); err != nil {
		t.Fatal(err)
	}
	if err := os.Truncate(path, int64(total)); err != nil {
		t.Fatal(err)
	}
}

// TestHostileIndexIsNotUsed opens folders with something else at the index file's path.
func TestHostileIndexIsNotUsed(t *testing.T) {
	elsewhere := filepath.Join(t.TempDir(), "victim")
	for name, c := range map[string]struct {
		plant func(path string) error
		says  string
	}{
		"sparse": {func(path string) error { sparse(t, path, 1<<29); return nil }, "holes"},
		"FIFO": {func(path string) error {
			return unix.Mkfifo(path, 0o666)
		}, "not a regular file"},
		"symlink": {func(path string) error {
			return os.Symlink(elsewhere, path)
		}, "not a regular file"},
		"socket": {func(path string) error {
			l, err := net.Listen("unix", path)
			if err == nil {
				t.Cleanup(func() { _ = l.Close() })
			}
			return err
		}, "not a regular file"},
		"device": {func(path string) error {
			return unix.Mknod(path, unix.S_IFCHR|0o666, int(unix.Mkdev(1, 5)))
		}, "not a regular file"},
	} {
		t.Run(name, func(t *testing.T) {
			if err := os.WriteFile(elsewhere, []byte("precious"), 0o644); err != nil {
				t.Fatal(err)
			}
			// Short, as a socket's path has to be.
			root, err := os.MkdirTemp("", "hd")
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { _ = os.RemoveAll(root) })
			write(t, filepath.Join(root, "a/1.jpg"), "x")
			path := filepath.Join(root, index.HiddenName)
			if err := c.plant(path); err != nil {
				t.Skip(err)
			}
			var warnings []string
			warn := func(text string) { warnings = append(warnings, text) }
			f := open(t, root, folder.Options{Warn: warn})
			if f.FromIndex() || f.Index().Len() != 1 {
				t.Errorf("%d samples, from index: %v", f.Index().Len(), f.FromIndex())
			}
			if len(warnings) != 1 || !strings.Contains(warnings[0], path) ||
				!strings.Contains(warnings[0], c.says) {
				t.Errorf("warnings %q, want one of %q", warnings, c.says)
			}
			// It is replaced, and the target of a link is unchanged.
			if info, err := os.Lstat(path); err != nil || !info.Mode().IsRegular() ||
				f.IndexPath() != path {
				t.Errorf("the index is in %q: %v, %v", f.IndexPath(), info, err)
			}
			if text, err := os.ReadFile(elsewhere); err != nil || string(text) != "precious" {
				t.Errorf("the file that the link leads to holds %q, %v", text, err)
			}
			if f := open(t, root, folder.Options{Warn: warn}); !f.FromIndex() ||
				len(warnings) != 1 {
				t.Errorf("afterwards: from index: %v, warnings %q", f.FromIndex(), warnings)
			}
		})
	}
}

// TestIndexAboveItsShareOfMemoryIsNotUsed opens an index that would take more than a quarter of the
// available memory.
func TestIndexAboveItsShareOfMemoryIsNotUsed(t *testing.T) {
	root := t.TempDir()
	write(t, filepath.Join(root, "a/1.jpg"), "x")
	open(t, root, folder.Options{})
	for memory, want := range map[int64]bool{1 << 20: true, 400: false} {
		var warnings []string
		f := open(t, root, folder.Options{
			Warn:   func(text string) { warnings = append(warnings, text) },
			Memory: func() (int64, error) { return memory, nil },
		})
		if f.FromIndex() != want || want != (len(warnings) == 0) {
			t.Errorf("%d bytes of memory: from index: %v, warnings %q", memory, f.FromIndex(),
				warnings)
		}
		if !want && !strings.Contains(strings.Join(warnings, ""), "100 bytes are allowed") {
			t.Errorf("%d bytes of memory: warnings %q", memory, warnings)
		}
	}
}

// TestIndexIsTrustedByOwnerAndMode: an index is used if only users who may change the samples could
// have written it.
func TestIndexIsTrustedByOwnerAndMode(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("only root may give files away")
	}
	const (
		us       = 0
		owner    = 1001
		stranger = 1002
		group    = 2001
	)
	for _, c := range []struct {
		what            string
		dirUID, dirMode int
		uid, gid, mode  int
		elsewhere       bool
		trusted         bool
	}{
		{what: "ours", dirUID: owner, dirMode: 0o755, uid: us, mode: 0o644, trusted: true},
		{
			what:    "the owner's",
			dirUID:  owner,
			dirMode: 0o755,
			uid:     owner,
			mode:    0o644,
			trusted: true,
		},
		{what: "a stranger's", dirUID: owner, dirMode: 0o755, uid: stranger, mode: 0o644},
		{
			what:    "a stranger's, all may write",
			dirUID:  owner,
			dirMode: 0o777,
			uid:     stranger,
			mode:    0o644,
			trusted: true,
		},
		{
			what:    "a stranger's, all may write: sticky",
			dirUID:  owner,
			dirMode: 0o1777,
			uid:     stranger,
			mode:    0o644,
		},
		{
			what:    "ours, in a sticky directory",
			dirUID:  owner,
			dirMode: 0o1777,
			uid:     us,
			mode:    0o644,
			trusted: true,
		},
		{
			what:    "one of the group's",
			dirUID:  owner,
			dirMode: 0o775,
			uid:     stranger,
			mode:    0o644,
			trusted: true,
		},
		{
			what:    "for the group as the directory",
			dirUID:  owner,
			dirMode: 0o775,
			uid:     owner,
			gid:     group,
			mode:    0o664,
			trusted: true,
		},
		{
			what:    "for another group",
			dirUID:  owner,
			dirMode: 0o775,
			uid:     owner,
			gid:     group + 1,
			mode:    0o664,
		},
		{
			what:    "for all, the directory is not",
			dirUID:  owner,
			dirMode: 0o775,
			uid:     owner,
			gid:     group,
			mode:    0o666,
		},
		{
			what:    "for the group, the directory is not",
			dirUID:  owner,
			dirMode: 0o755,
			uid:     us,
			gid:     group,
			mode:    0o664,
		},
		{
			what:    "for all as the directory",
			dirUID:  owner,
			dirMode: 0o777,
			uid:     stranger,
			mode:    0o666,
			trusted: true,
		},
		{
			what:      "ours elsewhere",
			dirUID:    owner,
			dirMode:   0o777,
			uid:       us,
			mode:      0o644,
			elsewhere: true,
			trusted:   true,
		},
		{
			what:      "a stranger's elsewhere",
			dirUID:    owner,
			dirMode:   0o777,
			uid:       stranger,
			mode:      0o644,
			elsewhere: true,
		},
		{
			what:      "the owner's elsewhere",
			dirUID:    owner,
			dirMode:   0o755,
			uid:       owner,
			mode:      0o644,
			elsewhere: true,
			trusted:   true,
		},
		{
			what:      "for all elsewhere",
			dirUID:    owner,
			dirMode:   0o777,
			uid:       us,
			mode:      0o666,
			elsewhere: true,
		},
	} {
		root := t.TempDir()
		write(t, filepath.Join(root, "a/1.jpg"), "x")
		var opts folder.Options
		if c.elsewhere {
			opts.IndexDir = t.TempDir()
		}
		path := open(t, root, opts).IndexPath()
		before, err := os.ReadFile(path)
		do(t, err, os.Chown(root, c.dirUID, group), unix.Chmod(root, uint32(c.dirMode)),
			os.Chown(path, c.uid, c.gid), os.Chmod(path, os.FileMode(c.mode)))
		var warnings []string
		opts.Warn = func(text string) { warnings = append(warnings, text) }
		f := open(t, root, opts)
		if f.FromIndex() != c.trusted || c.trusted != (len(warnings) == 0) {
			t.Errorf("%s: from index: %v, warnings %q", c.what, f.FromIndex(), warnings)
		}
		if !c.trusted && !strings.Contains(strings.Join(warnings, ""), path) {
			t.Errorf("%s: warnings %q do not name %s", c.what, warnings, path)
		}
		if after, err := os.ReadFile(path); err != nil || len(after) != len(before) ||
			!bytes.Equal(after[:8], before[:8]) {
			t.Errorf("%s: the index afterwards: %d bytes, %v", c.what, len(after), err)
		}
	}
}

func write(t *testing.T, path, content string) {
	t.Helper()
	do(t, os.MkdirAll(filepath.Dir(path), 0o755), os.WriteFile(path, []byte(content), 0o644))
}

func do(t *testing.T, errs ...error) {
	t.Helper()
	if err := errors.Join(errs...); err != nil {
		t.Fatal(err)
	}
}

// open opens the folder, through which its index file is read and written, and closes it.
func open(t *testing.T, root string, opts folder.Options) *folder.Folder {
	t.Helper()
	f, err := folder.Open(t.Context(), root, opts)
	if err != nil {
		t.Fatal(err)
	}
	do(t, f.Close())
	return f
}
