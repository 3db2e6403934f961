package config_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"

	"github.com/hdmlp/hdmlp/internal/node/config"
)

// listing is the thesis's listing 4.7, with the directory of its file class left open.
const listing = `b_c = 10000
b_fs = 2000
distributed_threads = 2
checkpoint = true
checkpoint_path = "/tmp"
storage_classes: (
  {
    capacity: 1024 # [MB]
    threads: 2
    bandwidth: (
      { threads = 1; bw = 16550; },
      { threads = 2; bw = 21164; },
      { threads = 3; bw = 21186; },
      { threads = 4; bw = 21415; }
    );
  },
  {
    capacity: 2048 # [MB]
    backend: "memory"
    threads: 2
    bandwidth: (
      { threads = 1; bw = 16550; },
      { threads = 2; bw = 21164; },
      { threads = 3; bw = 21186; },
      { threads = 4; bw = 21415; }
    );
  },
  {
    capacity: 10240 # [MB]
    backend: "filesystem"
    backend_options: {
      path = "DIR";
    }
    threads: 2
    bandwidth: (
      { threads = 1; bw = 192; },
      { threads = 2; bw = 399; },
      { threads = 3; bw = 599; },
      { threads = 4; bw = 637; }
    );
  }
);
pfs_bandwidth: (
  { processes: 1; bw: 66; },
  { processes: 2; bw: 86; },
  { processes: 4; bw: 146; },
  { processes: 8; bw: 326; },
  { processes: 16; bw: 324; },
  { processes: 128; bw: 324; }
);
`

// libconfigFile writes text to a libconfig file.
func libconfigFile(t *testing.T, text string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "hdmlp.cfg")
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// TestTheThesissFileIsCarriedOut reads listing 4.7, and what it is converted to: both must give the
// same values.
func TestTheThesissFileIsCarriedOut(t *testing.T) {
	text := strings.Replace(listing, "DIR", t.TempDir()+"/cache", 1)
	path := libconfigFile(t, text)
	converted, err := config.Convert(path, text, classes)
	if err != nil {
		t.Fatal(err)
	}
	big := config.Machine{
		AvailableMemory: func() (int64, error) { return 1 << 40, nil },
		Disk:            func(string) (free, total int64, err error) { return 1 << 40, 1 << 40, nil },
	}
	var got []*config.Config
	for _, path := range []string{path, file(t, converted)} {
		c, err := config.Resolve(config.Input{Machine: big, Classes: classes, File: path})
		if err != nil {
			t.Fatalf("%v in\n%s", err, converted)
		}
		got = append(got, c)
	}
	for _, c := range got[1:] {
		if diff := cmp.Diff(got[0].StorageClasses, c.StorageClasses); diff != "" {
			t.Error(diff)
		}
		if diff := cmp.Diff(got[0].Environment, c.Environment); diff != "" {
			t.Error(diff)
		}
	}
	c := got[0]
	if c.StagingBuffer != 1024e6 || c.SourceThreads != 2 || c.IndexDir != "/tmp" ||
		c.Environment.Network != 10000 || c.Environment.SourceNetwork != 2000 ||
		c.Environment.Source[4] != 146 || c.Environment.Source[128] != 326 {
		t.Errorf("%+v", c)
	}
	if n := len(c.StorageClasses); n != 2 {
		t.Fatalf("%d storage classes", n)
	}
	memory, disk := c.StorageClasses[0], c.StorageClasses[1]
	if !memory.Memory || memory.Capacity() != 2048e6 || memory.Threads != 2 ||
		memory.Read[3] != 21186 {
		t.Errorf("%+v", memory)
	}
	if disk.Memory || disk.Capacity() != 10240e6 || disk.Read[4] != 637 ||
		filepath.Base(disk.Path()) != "cache" {
		t.Errorf("%+v", disk)
	}
	notes := strings.Join(c.Warnings, "\n")
	for _, want := range []string{
		"line 3: distributed_threads has no effect",
		"storage_classes[0].bandwidth has no effect",
		"pfs_bandwidth: 324 MB/s of 128 processes is taken as 326, which fewer get",
	} {
		if !strings.Contains(notes, want) {
			t.Errorf("%q is not in %q", want, notes)
		}
	}
}

func TestWhatIsWrongInAThesissFileIsSaid(t *testing.T) {
	for text, want := range map[string]string{
		"b_c = fast": `FILE: not a libconfig file: line 1: "fast" is no value; ` +
			`text needs quotes`,
		"\nb_d = 1": `b_d = "1" (FILE, line 2): unknown key; did you mean "b_c"?`,
		"b_c = true": `b_c = "true" (FILE, line 1): not a number above 0; ` +
			`allowed: a number above 0`,
		"b_fs = -1":            `b_fs = "-1" (FILE, line 1): not a number above 0`,
		"checkpoint = 1":       `checkpoint = "1" (FILE, line 1): not true or false; allowed`,
		"checkpoint_path = 1":  `checkpoint_path = "1" (FILE, line 1): not a text`,
		"storage_classes = ()": `storage_classes = "( ... )" (FILE, line 1): not a list of`,
		"storage_classes = (\n{ threads = 2; })": `FILE, line 2: storage_classes[0].capacity is ` +
			`missing`,
		"storage_classes = ({ capacity = 1; }, { capacity = 1; })": `FILE, line 1: ` +
			`storage_classes[1].backend is missing`,
		"storage_classes = ({ capacity = 1; }, { capacity = 1; backend = \"tape\"; })": `backend = ` +
			`"tape" (FILE, line 1): unknown backend; allowed: memory, filesystem`,
		"storage_classes = ({ capacity = 1; }, { capacity = 1; backend = \"filesystem\"; })": `path` +
			` = "" (FILE, line 1): missing; allowed: the directory of the class`,
		"pfs_bandwidth = ({ processes = 1; })": `FILE, line 1: pfs_bandwidth[0].bw is missing`,
		"pfs_bandwidth = 330": `pfs_bandwidth = "330" (FILE, line 1): not a list of groups of ` +
			`processes and bw; allowed: groups of processes and bw in ( ), such as ( { processes = 1; ` +
			`bw = 66; } )`,
		"pfs_bandwidth = ({ processes = 1; bw = 1; }, { processes = 1; bw = 2; })": `1 is there ` +
			`twice`,
		"distributed_threads = 0.5": `distributed_threads = "0.5" (FILE, line 1): not a whole ` +
			`number in the range`,
	} {
		path := libconfigFile(t, text)
		_, err := config.Resolve(config.Input{Machine: machine, Classes: classes, File: path})
		if err == nil || !strings.Contains(strings.ReplaceAll(err.Error(), path, "FILE"), want) {
			t.Errorf("%q: %v, want %q", text, err, want)
		}
		if _, other := config.Convert(path, text, classes); other == nil {
			t.Errorf("%q is converted", text)
		}
	}
}

// TestWhatAJobWouldRefuseIsNotConverted checks values that are of the right type: the message has
// the setting and its line, as for a file that is read as it is.
func TestWhatAJobWouldRefuseIsNotConverted(t *testing.T) {
	memory := "storage_classes = ({ capacity = 1; },\n"
	for text, want := range map[string]string{
		"\ncheckpoint_path = \"rel/dir\"": `checkpoint_path = "rel/dir" (FILE, line 2): `,
		memory + "{ capacity = 1; backend = \"filesystem\";\n" +
			"backend_options: { path = \"rel\"; } })": `` +
			`storage_classes[1].backend_options.path = "rel" (FILE, line 3): `,
		"pfs_bandwidth = ({ processes = 1; bw = 1; },\n{ processes = 2;\nbw = 1e200; })": `` +
			`pfs_bandwidth[1].bw = "1e+200" (FILE, line 3): too large`,
		"storage_classes = ({ capacity = 1;\nthreads = 1000000; })": `` +
			`storage_classes[0].threads = "1000000" (FILE, line 2): `,
		memory + "{ capacity = 1; backend = \"memory\"; threads = 5000; })": `` +
			`storage_classes[1].threads = "5000" (FILE, line 2): `,
		"storage_classes = ({\ncapacity = 1e30; })": `storage_classes[0].capacity = "1` +
			strings.Repeat("0", 30) + `MB" (FILE, line 2): `,
		memory + "{\ncapacity = 1e30; backend = \"memory\"; })": `storage_classes[1].capacity = "1` +
			strings.Repeat("0", 30) + `MB" (FILE, line 3): `,
	} {
		path := libconfigFile(t, text)
		_, err := config.Convert(path, text, classes)
		if err == nil || !strings.Contains(strings.ReplaceAll(err.Error(), path, "FILE"), want) {
			t.Errorf("%q: %v, want %q", text, err, want)
		}
		_, err = config.Resolve(config.Input{Machine: machine, Classes: classes, File: path})
		if err == nil || !strings.Contains(strings.ReplaceAll(err.Error(), path, "FILE"), want) {
			t.Errorf("%q is read: %v, want %q", text, err, want)
		}
	}
}

func TestThroughputsAreInTheOrderOfTheirNumbers(t *testing.T) {
	text := strings.Replace(listing, "DIR", "/cache", 1)
	made, err := config.Convert("a.cfg", text, classes)
	if err != nil {
		t.Fatal(err)
	}
	_, source, _ := strings.Cut(made, "[environment.source]\n")
	var keys []string
	for line := range strings.Lines(source) {
		key, _, is := strings.Cut(line, " = ")
		if !is {
			break
		}
		keys = append(keys, strings.Trim(key, "'"))
	}
	if got := strings.Join(keys, " "); got != "1 2 4 8 16 128" {
		t.Errorf("%s in\n%s", got, made)
	}
}

// TestOneLineIsSaidOfAGroupThatIsNone checks that a value in its place does not lack settings too.
func TestOneLineIsSaidOfAGroupThatIsNone(t *testing.T) {
	for text, want := range map[string]string{
		"pfs_bandwidth = (1);": `pfs_bandwidth[0] = "1" (FILE, line 1): not a group; allowed: ` +
			`{ processes = 1; bw = 66; }`,
		"pfs_bandwidth = ([1, 330]);": `pfs_bandwidth[0] = "( ... )" (FILE, line 1): not a group; ` +
			`allowed: { processes = 1; bw = 66; }`,
		"storage_classes = (5);": `storage_classes[0] = "5" (FILE, line 1): not a group; allowed: ` +
			`settings in { }`,
		"storage_classes = ({ capacity = 1; }, 5);": `storage_classes[1] = "5" (FILE, line 1): ` +
			`not a group; allowed: settings in { }`,
	} {
		_, err := config.Convert("FILE", text, classes)
		if err == nil || err.Error() != want {
			t.Errorf("%q: %v, want %q", text, err, want)
		}
	}
}

// TestPathsAreBytes checks that a path that is not UTF-8 stays as it is in a configuration, and is
// not converted to another one.
func TestPathsAreBytes(t *testing.T) {
	for _, text := range []string{"f\xfc", "f\\xfc"} {
		file := libconfigFile(t, `checkpoint_path = "/tmp/`+text+`";`)
		c, err := config.Resolve(config.Input{Machine: machine, Classes: classes, File: file})
		if err != nil || c.IndexDir != "/tmp/f\xfc" {
			t.Errorf("%q: %q, %v", text, c.IndexDir, err)
		}
		want := "f.cfg, line 1): not UTF-8, which a TOML file has to be"
		_, err = config.Convert("f.cfg", `checkpoint_path = "/tmp/`+text+`";`, classes)
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v, want %q", text, err, want)
		}
	}
	made, err := config.Convert("f\xfc.cfg", "distributed_threads = 1;", classes)
	if err != nil || !utf8.ValidString(made) {
		t.Errorf("%q, %v", made, err)
	}
}

// TestByteOrderMarks checks that one of UTF-8 is passed over, and that of UTF-16 named.
func TestByteOrderMarks(t *testing.T) {
	for _, name := range []string{"a.cfg", "a.toml"} {
		text := `index_dir = "/tmp"`
		if name == "a.cfg" {
			text = `checkpoint_path = "/tmp"`
		}
		path := filepath.Join(t.TempDir(), name)
		read := func(text string) (*config.Config, error) {
			if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
				t.Fatal(err)
			}
			return config.Resolve(config.Input{Machine: machine, Classes: classes, File: path})
		}
		if c, err := read("\ufeff" + text); err != nil || c.IndexDir != "/tmp" {
			t.Errorf("%s: %v", name, err)
		}
		_, err := read("\xff\xfea\x00")
		if err == nil || !strings.Contains(err.Error(), "UTF-16, as its byte order mark says") {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// TestTOMLInAnotherEncodingIsNoLibconfigFile checks that advice is not about the file's name.
func TestTOMLInAnotherEncodingIsNoLibconfigFile(t *testing.T) {
	path := file(t, "cache_dir = \"/tmp/f\xfc\"\n")
	_, err := config.Resolve(config.Input{Machine: machine, Classes: classes, File: path})
	if err == nil || !strings.Contains(err.Error(), "invalid UTF-8") ||
		strings.Contains(err.Error(), "libconfig") {
		t.Error(err)
	}
}

func TestALibconfigFileOfAnotherNameIsNamed(t *testing.T) {
	path := file(t, "b_c: 1;")
	_, err := config.Resolve(config.Input{Machine: machine, Classes: classes, File: path})
	want := "it is a libconfig file, whose name has to end in .cfg"
	if err == nil || !strings.Contains(err.Error(), want) {
		t.Errorf("%v, want %q", err, want)
	}
}
