package host

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestOnlyTheLastComponentOfADirectoryMayBeMissing(t *testing.T) {
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "file"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for path, want := range map[string]string{
		".":         "",
		"new":       "",
		"file":      "it is not a directory",
		"file/sub":  "a part of the path is not a directory",
		"new/sub":   "its parent directory " + filepath.Join(dir, "new") + " does not exist",
		"new/sub/a": "its parent directory " + filepath.Join(dir, "new/sub") + " does not exist",
	} {
		err := Directory(filepath.Join(dir, path))
		if (err == nil) != (want == "") || err != nil && !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", path, err, want)
		}
	}
}
