package main

import (
	"go/parser"
	"go/token"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestStartsOfGoroutinesAreFound in single files.
func TestStartsOfGoroutinesAreFound(t *testing.T) {
	for body, want := range map[string]string{
		`func f() { go f() }`:                                          "go",
		`func f() { for { if true { go func() {}() } } }`:              "go",
		`func f(w *sync.WaitGroup) { w.Go(f) }`:                        "Go",
		`func f(w *sync.WaitGroup) { start := w.Go; start(f) }`:        "Go",
		`func Test(t *testing.T) { t.Parallel() }`:                     "Parallel",
		`func Benchmark(b *testing.B) { b.RunParallel(f) }`:            "RunParallel",
		`var timer = time.AfterFunc(0, f)`:                             "AfterFunc",
		`func f() { context.AfterFunc(ctx, f) }`:                       "AfterFunc",
		`func f(x *int) { runtime.AddCleanup(x, f, 0) }`:               "AddCleanup",
		`import "net/http"`:                                            "imports net/http",
		`import server "net/http/httptest"`:                            "imports net/http/httptest",
		`import "testing/synctest"`:                                    "imports testing/synctest",
		`import "sync"; var lock sync.Mutex; func f() { lock.Lock() }`: "",
		`import "os/exec"; func f() { exec.Command("true").Run() }`:    "",
		`func f() { defer f(); t.Run("go func() {}()", f) } // go f()`: "",
	} {
		set := token.NewFileSet()
		f, err := parser.ParseFile(set, "f.go", "package p\n"+body, parser.SkipObjectResolution)
		if err != nil {
			t.Fatal(err)
		}
		start := inFile(set, f)
		if _, found, _ := strings.Cut(start, ": "); found != want {
			t.Errorf("%s: found %q, want %q", body, start, want)
		}
	}
}

// TestPackagesAreAsTheirImports in a small module.
func TestPackagesAreAsTheirImports(t *testing.T) {
	defer func(before []string) { joining = before }(joining)
	joining = []string{"joined"}
	t.Chdir(t.TempDir())
	write(t, "go.mod", "module m\n")
	for name, text := range map[string]string{
		"plain/plain.go":          "package p",
		"plain/plain_test.go":     `package p; import _ "testing"`,
		"starting/starting.go":    "package p; func F() { go F() }",
		"above/above.go":          `package p; import _ "m/through"`,
		"through/through.go":      `package p; import _ "m/starting"`,
		"tested/tested.go":        "package p",
		"tested/tested_test.go":   `package p; import _ "m/through"`,
		"tested/more/more.go":     `package p; import _ "m/tested"`, // none of its tests
		"outside/outside.go":      "package p",
		"outside/outside_test.go": "package p_test; func f() { go f() }",
		"tagged/tagged.go":        "package p",
		"tagged/on.go":            "//go:build " + tags + "\n\npackage p; func f() { go f() }",
		"joined/joined.go":        "package p; func F() { go F() }",
		"joined/above/above.go":   `package p; import _ "m/joined"`,
	} {
		write(t, name, text+"\n")
	}
	for raced, want := range map[bool]string{
		false: "m/joined/above m/plain m/tested/more",
		true:  "m/above m/joined m/outside m/starting m/tagged m/tested m/through",
	} {
		var out strings.Builder
		if err := list(&out, raced, false); err != nil {
			t.Fatal(err)
		}
		if got := strings.Join(strings.Fields(out.String()), " "); got != want {
			t.Errorf("raced %v: %s\nwant %s", raced, got, want)
		}
	}
	joining = append(joining, "moved")
	if err := list(io.Discard, false, false); err == nil || !strings.Contains(err.Error(), "moved") {
		t.Errorf("a joining package that does not exist: %v", err)
	}
}

func write(t *testing.T, name, text string) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(name), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}
