package scenario_test

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/hdmlp/hdmlp/internal/study/scenario"
	"github.com/hdmlp/hdmlp/internal/study/simulate"
)

// openWith writes the small scenario and tables, and reads it with overrides.
func openWith(t *testing.T, tables map[string]string, set ...string) (*scenario.Scenario, error) {
	t.Helper()
	dir := t.TempDir()
	tables["s.toml"] = small
	for name, text := range tables {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	f, err := scenario.Open(filepath.Join(dir, "s.toml"))
	if err != nil {
		t.Fatal(err)
	}
	var overrides []scenario.Override
	for _, text := range set {
		o, err := scenario.ParseOverride(text)
		if err != nil {
			t.Fatal(err)
		}
		overrides = append(overrides, o)
	}
	return f.Scenario(overrides...)
}

const table = "sample,node,class,order\n0,0,1,0\n1,1,ram,0\n"

// TestPolicyFiles: they are simulated beside the others, named after their files and options.
func TestPolicyFiles(t *testing.T) {
	s, err := openWith(t, map[string]string{"mine.csv": table},
		`policy_files=["mine.csv", "mine.csv:read_once=true:preload=true"]`, `policies=["minio"]`,
		"profile=model")
	if err != nil {
		t.Fatal(err)
	}
	want := []string{"minio", "mine", "mine:read_once=true:preload=true"}
	if diff := cmp.Diff(want, s.Policies); diff != "" {
		t.Fatal(diff)
	}
	if err := s.Placeable(); err != nil {
		t.Error(err)
	}
	job, err := s.Job()
	if err != nil {
		t.Fatal(err)
	}
	before := map[string]bool{}
	for _, name := range s.Policies {
		r, err := simulate.Run(t.Context(), job, s.Policy(name))
		if err != nil || !r.Supported {
			t.Fatalf("%s: %v, %q", name, err, r.Reason)
		}
		before[name] = r.BeforeTraining > 0
	}
	if before["mine"] || !before["mine:read_once=true:preload=true"] {
		t.Errorf("preloads: %v", before)
	}
}

func TestFaultsOfPolicyFiles(t *testing.T) {
	for _, test := range []struct{ file, set, want string }{
		{"", "policy_files=no.csv", `simulate.policy_files is "no.csv": stat`},
		{"", "policy_files=3", "simulate.policy_files is 3: not a list of texts"},
		{"", "policy_files=[3]", "simulate.policy_files.0 is 3: not a text"},
		{table, "policy_files=mine.csv:once=true", `a table has no option "once=true"; allowed: read`},
		{table, "policy_files=mine.csv:preload=yes", `a table has no option "preload=yes"`},
		{table, `policy_files=["mine.csv", "mine.csv"]`, "another policy has the name mine"},
		{"sample,node\n", "policy_files=mine.csv", `"mine.csv": line 1, column class: missing`},
		{table + "x,0,1,0\n", "policy_files=mine.csv", `line 4, column sample: "x": not a number`},
		{table + "1,0,1,\xff\n", "policy_files=mine.csv", "line 4: \"\ufffd\": not UTF-8"},
	} {
		_, err := openWith(t, map[string]string{"mine.csv": test.file}, test.set)
		var faults scenario.Faults
		if !errors.As(err, &faults) || !strings.Contains(err.Error(), test.want) {
			t.Errorf("%s, %q: %v, want %q", test.set, test.file, err, test.want)
		}
	}
	_, err := openWith(t, map[string]string{"cooperative.csv": table}, "policy_files=cooperative.csv")
	if err == nil || !strings.Contains(err.Error(), "another policy has the name cooperative") {
		t.Errorf("a file with the name of a policy: %v", err)
	}
	s, err := openWith(t, map[string]string{"mine.csv": table + "2,2,1,0\n0,0,1,0\n100,0,3,0\n"},
		"policy_files=mine.csv")
	if err != nil {
		t.Fatal(err)
	}
	err = s.Placeable()
	for _, want := range []string{`line 6, column class: "3": there is no such storage class`} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("a table that does not fit: %v, want %q", err, want)
		}
	}
	s, err = openWith(t, map[string]string{"mine.csv": table}, "policy_files=mine.csv",
		"storage_class.0.capacity=0", `policies=["all"]`)
	if err != nil {
		t.Fatal(err)
	}
	if wrong := s.Unmet(); len(wrong) != 1 || wrong[0].Value != "mine" {
		t.Errorf("without a staging buffer: %v", wrong)
	}
}

func TestOptionsOfPolicies(t *testing.T) {
	s, err := read(t, small, `policies=["frequency", "frequency:cleanup_read=true", "frequency"]`,
		"storage_class.ram.capacity=1")
	if err != nil {
		t.Fatal(err)
	}
	want := []string{"frequency", "frequency:cleanup_read=true"}
	if diff := cmp.Diff(want, s.Policies); diff != "" {
		t.Error(diff)
	}
	if name := s.Policy("frequency:cleanup_read=true").Name(); name != "frequency:cleanup_read=true" {
		t.Errorf("its name is %q", name)
	}
	with := s.RunBytes(false)
	s.Policies = s.Policies[:1]
	if without := s.RunBytes(false); with <= without {
		t.Errorf("with cleanup_read it needs %d bytes, and %d without", with, without)
	}
	for set, want := range map[string]string{
		`policies=["minio:in_order=true"]`: `simulate.policies is "minio:in_order=true": minio has ` +
			"no options, and in_order=true is given; allowed: the name alone",
		`policies=["frequency:in_ordr=true"]`: `did you mean "in_order"?; allowed: in_order and`,
		`policies=["frequency:in_order=1"]`: `in_order = "1": neither on nor off; allowed: ` +
			"on or off",
		`policies=["frequncy:in_order=false"]`: `unknown policy; did you mean "frequency"?`,
	} {
		_, err := read(t, small, set)
		var faults scenario.Faults
		if !errors.As(err, &faults) || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", set, err, want)
		}
	}
	_, err = read(t, small, `policies=["frequency:cleanup_read=true"]`, "jobs=2", "profile=model")
	if err == nil || !strings.Contains(err.Error(), "job.jobs = 2 read them; allowed: one job") {
		t.Errorf("with two jobs: %v", err)
	}
}
