package folder

import (
	"context"
	"encoding/hex"
	"encoding/json"
	"errors"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/goleak"

	"github.com/hdmlp/hdmlp/internal/source"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// write creates a file and its parent directories.
func write(t testing.TB, path, content string) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(content), 0o644); err != nil {
		t.Fatal(err)
	}
}

func open(t testing.TB, root string, opts Options) *Folder {
	t.Helper()
	f, err := Open(context.Background(), root, opts)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := f.Close(); err != nil {
			t.Error(err)
		}
	})
	return f
}

// listing returns the classes and names of an index's samples, in order.
func listing(x *source.Index) []string {
	list := make([]string, x.Len())
	for id := range list {
		list[id] = x.Classes()[x.Label(id)] + ": " + x.Name(id)
	}
	return list
}

const torchvision = `
import json, os, sys
from torchvision.datasets import ImageFolder
d = ImageFolder(sys.argv[1])
root = os.fsencode(sys.argv[1]) + b"/"
print(json.dumps([[os.fsencode(c).hex() for c in d.classes],
                  [[os.fsencode(p)[len(root):].hex(), c] for p, c in d.samples]]))
`

// TestOrderIsImageFolders compares with torchvision's ImageFolder.
func TestOrderIsImageFolders(t *testing.T) {
	const find = `import importlib.util as u, sys; sys.exit(not u.find_spec("torchvision"))`
	if exec.Command("/usr/bin/python3", "-c", find).Run() != nil {
		t.Skip("torchvision is not installed")
	}
	root := t.TempDir()
	for _, class := range []string{
		"b", "a", "B", "a-b", "a.b", "a b", "ä", "z\xff", "z\ue000",
		"z\U0001F600", "\x80", "zz", "10", "9", ".hidden",
	} {
		for _, name := range []string{
			"1.jpg", "10.jpg", "2.JPG", "x.JpEg", ".jpg", "sub/1.png", "sub-1/1.png", "sub.1/1.png",
			"sub/a/1.png",
			"sub/a-b/1.png", "no.txt", "jpg", "x.jpg.bak", "ü.webp", "\xff.jpg", "\ue000.jpg",
			"\U0001F600.jpg", "\xe2\x82.jpg",
			"\xe2\x82\xac.jpg", "Z/\xfe/1.tif", "Z/\ufffd/1.tif", "Z/\uffff/1.tif", "empty/no.txt",
			"x.t\u0130f", "new\nline.bmp", "x.jpg/in-a-directory.pgm",
		} {
			write(t, filepath.Join(root, class, name), class+name)
		}
	}
	write(t, filepath.Join(root, "in-the-root.jpg"), "no sample")
	elsewhere := t.TempDir()
	write(t, filepath.Join(elsewhere, "deep/er/1.jpg"), "far away")
	write(t, filepath.Join(elsewhere, "2.jpg"), "far away")
	for link, target := range map[string]string{
		"linked-class":      elsewhere,
		"dangling-class":    "/nowhere/at/all",
		"file-class":        filepath.Join(root, "a/1.jpg"),
		"a/linked":          elsewhere,
		"b/again":           "../a",
		"b/link.jpg":        "../a/1.jpg",
		"b/dangling.jpg":    "nothing",
		"b/dangling.txt":    "nothing",
		"b/dir-link.png":    "../a/sub",
		"b/itself.jpg":      "itself.jpg",
		"zz/link-no-suffix": "../a/1.jpg",
	} {
		if err := os.Symlink(target, filepath.Join(root, link)); err != nil {
			t.Fatal(err)
		}
	}

	cmd := exec.Command("/usr/bin/python3", "-W", "ignore", "-c", torchvision, root)
	cmd.Stderr = os.Stderr
	out, err := cmd.Output()
	if err != nil {
		t.Fatal(err)
	}
	var theirs [2]json.RawMessage
	var classes []string
	var samples [][2]any
	for _, err := range []error{
		json.Unmarshal(out, &theirs), json.Unmarshal(theirs[0], &classes),
		json.Unmarshal(theirs[1], &samples),
	} {
		if err != nil {
			t.Fatal(err)
		}
	}
	for i, name := range classes {
		b, _ := hex.DecodeString(name)
		classes[i] = string(b)
	}
	want := make([]string, len(samples))
	for i, s := range samples {
		b, _ := hex.DecodeString(s[0].(string))
		want[i] = classes[int(s[1].(float64))] + ": " + string(b)
	}

	for _, start := range []string{"scan", "index", "half"} {
		f := open(t, root, Options{IndexDir: elsewhere + "/index"})
		if start == "scan" && f.FromIndex() || start != "scan" && !f.FromIndex() {
			t.Fatalf("%s: FromIndex is %v", start, f.FromIndex())
		}
		if diff := cmp.Diff(classes, f.Index().Classes()); diff != "" {
			t.Fatalf("%s: classes (-torchvision +ours):\n%s", start, diff)
		}
		if diff := cmp.Diff(want, listing(f.Index())); diff != "" {
			t.Fatalf("%s: samples (-torchvision +ours):\n%s", start, diff)
		}
	}
	if len(want) < 300 {
		t.Fatalf("only %d samples were compared", len(want))
	}
}

// TestUnreadableDirectoryIsAnError runs as another user, if it can: the superuser may read
// everything.
func TestUnreadableDirectoryIsAnError(t *testing.T) {
	root := t.TempDir()
	write(t, filepath.Join(root, "a/1.jpg"), "x")
	write(t, filepath.Join(root, "a/closed/2.jpg"), "x")
	write(t, filepath.Join(root, "a/listable/3.jpg"), "x")
	write(t, filepath.Join(root, "b/1.jpg"), "x")
	foreign := filepath.Join(root, "b/1.jpg")
	asUser(t, root, func() {
		for dir, mode := range map[string]os.FileMode{"a/closed": 0, "a/listable": 0o444} {
			if err := os.Chmod(filepath.Join(root, dir), mode); err != nil {
				t.Fatal(err)
			}
			_, err := Open(t.Context(), root, Options{})
			var problem *source.Error
			if !errors.As(err, &problem) || problem.Kind != source.ErrUnreadableDirectory ||
				problem.Path != filepath.Join(root, dir) ||
				!strings.Contains(err.Error(), "chmod a+rx") {
				t.Errorf("%s: %v", dir, err)
			}
			if err := os.Chmod(filepath.Join(root, dir), 0o755); err != nil {
				t.Fatal(err)
			}
		}
		f, err := Open(t.Context(), root, Options{})
		if err != nil {
			t.Fatal(err)
		}
		defer f.Close() //nolint:errcheck // it was only read
		// Another user's file cannot be opened with O_NOATIME.
		last := f.Index().Len() - 1
		if f.Path(last) != foreign || !f.noAtime.Load() {
			t.Fatalf("the last sample is %s", f.Path(last))
		}
		if _, err := f.Read(t.Context(), last, make([]byte, 1)); err != nil {
			t.Error(err)
		}
		if f.noAtime.Load() && owner(t, foreign) != os.Geteuid() {
			t.Error("the foreign file was opened with O_NOATIME")
		}
		if err := os.Chmod(f.Path(0), 0); err != nil {
			t.Fatal(err)
		}
		if _, err := f.Read(t.Context(), 0,
			make([]byte, 1)); !errors.Is(err, source.ErrUnreadable) ||
			!errors.Is(err, fs.ErrPermission) {
			t.Errorf("a closed file: %v", err)
		}
	})
}

func owner(t *testing.T, path string) int {
	t.Helper()
	info, err := os.Stat(path)
	if err != nil {
		t.Fatal(err)
	}
	return int(info.Sys().(*syscall.Stat_t).Uid)
}

// asUser runs f as an unprivileged user, who owns everything in root except b/1.jpg.
func asUser(t *testing.T, root string, f func()) {
	t.Helper()
	const nobody = 65534
	if os.Geteuid() != 0 {
		f()
		return
	}
	for dir := root; dir != "/" && dir != os.TempDir(); dir = filepath.Dir(dir) {
		if err := os.Chmod(dir, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	if err := filepath.WalkDir(root, func(path string, _ fs.DirEntry, err error) error {
		return errors.Join(err, os.Lchown(path, nobody, nobody))
	}); err != nil {
		t.Fatal(err)
	}
	if err := os.Lchown(filepath.Join(root, "b/1.jpg"), 0, 0); err != nil {
		t.Fatal(err)
	}
	if err := syscall.Setresuid(-1, nobody, 0); err != nil { // of all threads
		t.Skip(err)
	}
	defer func() {
		if err := syscall.Setresuid(-1, 0, 0); err != nil {
			t.Fatal(err)
		}
	}()
	f()
}
