package config_test

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hdmlp/hdmlp/internal/node/config"
)

// TestAnUnusableDirectoryIsRefusedByItsKey resolves keys and classes of a file with a directory
// that the machine refuses, whose disk is then not measured.
func TestAnUnusableDirectoryIsRefusedByItsKey(t *testing.T) {
	refuses := machine
	refuses.Directory = func(path string) error {
		if path == "/cache/file" {
			return errors.New("it is not a directory")
		}
		return nil
	}
	refuses.Disk = func(dir string) (free, total int64, err error) {
		if dir == "/cache/file" {
			t.Error("the disk of the directory was measured")
		}
		return 100 << 30, 200 << 30, nil
	}
	input := config.Input{
		Machine: refuses, Classes: classes, Arguments: map[string]any{"cache_dir": "/cache/file"},
	}
	_, err := config.Resolve(input)
	want := `cache_dir = "/cache/file" (argument): it is not a directory`
	if err == nil || !strings.Contains(err.Error(), want) {
		t.Errorf("by its key: %v", err)
	}
	input.Arguments["cache_dir"] = "/data/train"
	kinds := slices.Clone(classes)
	kinds[1].Check = func(dir string) error { return errors.New(dir + " is not a cache") }
	input.Classes = kinds
	_, err = config.Resolve(input)
	if err == nil || !strings.Contains(err.Error(), "(argument): /data/train is not a cache") {
		t.Errorf("by its contents: %v", err)
	}
	input.Classes = classes
	input.Arguments["cache_dir"] = "/cache/other"
	if _, err := config.Resolve(input); err != nil {
		t.Errorf("another directory: %v", err)
	}
	_, err = config.Resolve(config.Input{Machine: refuses, Classes: classes, File: file(t, `
[[storage_class]]
kind = "file"
path = "/cache/file"
`)})
	if err == nil || !strings.Contains(err.Error(), ".path") ||
		!strings.Contains(err.Error(), "it is not a directory") {
		t.Errorf("by its class: %v", err)
	}
}

// TestDirectoryThatDoesNotAnswer checks that it is refused by its key after start_timeout, and that
// it is reported sooner.
func TestDirectoryThatDoesNotAnswer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		gate, slow := make(chan struct{}), make(chan string, 1)
		defer close(gate)
		hangs := machine
		hangs.Directory = func(string) error {
			<-gate
			return nil
		}
		begin := time.Now()
		_, err := config.Resolve(config.Input{
			Machine: hangs, Classes: classes,
			Arguments: map[string]any{"cache_dir": "/cache/hangs", "start_timeout": "1m"},
			Slow:      func(dir string) { slow <- dir },
		})
		if took := time.Since(begin); took != time.Minute {
			t.Errorf("Resolve took %v", took)
		}
		want := `cache_dir = "/cache/hangs" (argument): the directory has not answered for 1m0s`
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("the error is %v", err)
		}
		if dir := <-slow; dir != "/cache/hangs" {
			t.Errorf("told of %q", dir)
		}
	})
}

// TestTwoPathsToOneDirectoryAreOne: two classes cannot share a directory, whatever links lead to
// it; one that does not exist yet is no other's.
func TestTwoPathsToOneDirectoryAreOne(t *testing.T) {
	root := t.TempDir()
	link := filepath.Join(root, "link")
	if err := os.Symlink(root, link); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		first, second string
		same          bool
	}{
		{root, root + "/", true},
		{root, link, true},
		{root + "/none", link + "/other", false},
		{root, t.TempDir(), false},
	} {
		_, err := config.Resolve(config.Input{
			Machine: machine, Classes: classes, File: file(t, fmt.Sprintf(`
[[storage_class]]
kind = "file"
path = %q
[[storage_class]]
kind = "file"
path = %q
`, c.first, c.second)),
		})
		if c.same != (err != nil && strings.Contains(err.Error(),
			"already the directory of another class")) || !c.same && err != nil {
			t.Errorf("%s and %s: %v", c.first, c.second, err)
		}
	}
}
