package config_test

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/hdmlp/hdmlp/internal/lib/option"
	"github.com/hdmlp/hdmlp/internal/node/config"
	"github.com/hdmlp/hdmlp/internal/store"
)

// TestExampleHasTheDefaults reads the example back as it is, and with the comment sign of every key
// removed: both must give the same values.
func TestExampleHasTheDefaults(t *testing.T) {
	example := config.Example(classes)
	for _, p := range config.Parameters() {
		if !strings.Contains(example, "\n#"+p.Key+" = ") {
			t.Errorf("the example lacks %s", p.Key)
		}
	}
	cut := strings.Index(example, "\n# --- Storage classes")
	uncommented := regexp.MustCompile(`(?m)^#([a-z_]+ = |\[)`).ReplaceAllString(example[:cut], "$1")
	want, err := config.Resolve(config.Input{Machine: machine, Classes: classes})
	if err != nil {
		t.Fatal(err)
	}
	for _, text := range []string{example, uncommented} {
		got, err := config.Resolve(config.Input{
			Machine: machine,
			Classes: classes,
			File:    file(t, text),
		})
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(want.StorageClasses, got.StorageClasses); diff != "" {
			t.Error(diff)
		}
	}
	rest := regexp.MustCompile(`(?m)^#([a-z_]+ = |\[)`).ReplaceAllString(example[cut:], "$1")
	big := config.Machine{
		AvailableMemory: func() (int64, error) { return 1 << 40, nil },
		Disk:            func(string) (free, total int64, err error) { return 1 << 40, 1 << 40, nil },
	}
	got, err := config.Resolve(config.Input{Machine: big, Classes: classes, File: file(t, rest)})
	if err != nil || len(got.StorageClasses) != len(classes) || len(got.Environment.Source) != 3 {
		t.Fatalf("%+v, %v", got, err)
	}
}

func TestDefaultFileIsInTheUsersConfigurationDirectory(t *testing.T) {
	home := t.TempDir()
	t.Setenv("HOME", home)
	t.Setenv("XDG_CONFIG_HOME", "")
	env := map[string]string{}
	if got := config.DefaultFile(env); got != "" {
		t.Fatalf("got %q where there is none", got)
	}
	path := filepath.Join(home, ".config", "hdmlp", "config.toml")
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if got := config.DefaultFile(env); got != path {
		t.Fatalf("got %q, want %q", got, path)
	}
	env["HDMLP_CONFIG"] = "/elsewhere.toml"
	if got := config.DefaultFile(env); got != "/elsewhere.toml" {
		t.Fatalf("got %q", got)
	}
}

// TestOptionsOfAKindHaveDefaults: an option that a class's entry does not give has its default.
func TestOptionsOfAKindHaveDefaults(t *testing.T) {
	all := kinds()
	all[2].Options = append(all[2].Options, store.Option{Option: option.Option{
		Key: "huge_pages", Kind: option.Switch, Default: "on", Help: "Whether it has huge pages",
	}})
	for entry, want := range map[string]bool{"": true, "huge_pages = false": false} {
		got, err := config.Resolve(config.Input{Machine: machine, Classes: all, File: file(t,
			"[[storage_class]]\nkind = 'heap'\ncapacity = '1GiB'\n"+entry)})
		if err != nil {
			t.Fatal(err)
		}
		if is := option.Get[bool](got.StorageClasses[0].Options, "huge_pages"); is != want {
			t.Errorf("%q: %v, want %v", entry, is, want)
		}
	}
}
