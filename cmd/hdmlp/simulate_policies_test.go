package main

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// policyFile writes a table, and returns its path.
func policyFile(t *testing.T, name, text string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), name)
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// runCommand runs hdmlp with the arguments, and returns the exit status and what it printed.
func runCommand(t *testing.T, args ...string) (code int, out, message string) {
	t.Helper()
	var stdout, stderr bytes.Buffer
	root := newRootCommand()
	root.SetArgs(args)
	root.SetOut(&stdout)
	root.SetErr(&stderr)
	ran, err := root.ExecuteContextC(t.Context())
	if err != nil {
		message = err.Error()
	}
	return exitCode(ran, err), stdout.String(), stderr.String() + message
}

// TestSimulatePolicyFile: a table is simulated beside the policies, under the name of its file.
func TestSimulatePolicyFile(t *testing.T) {
	text := "sample,node,class,order\n"
	for k := range 8 { // what fits into ram: 12 MB of samples of 1.5 MB
		text += strings.Join([]string{string(rune('0' + k)), "0", "ram", "0\n"}, ",")
	}
	path := policyFile(t, "halves.csv", text)
	code, out, message := runCommand(t, "simulate", tiny(t, tinyScenario), "--json", "--policy",
		"minio", "--policy-file", path, "--policy-file", path+":preload=true")
	if code != 0 {
		t.Fatalf("exit status %d: %s", code, message)
	}
	var a simulateAnswer
	if err := json.Unmarshal([]byte(out), &a); err != nil {
		t.Fatal(err)
	}
	mine, preloaded := a.Policies["halves"], a.Policies["halves:preload=true"]
	if len(a.Policies) != 3 || !mine.Supported || mine.Reads.Local["1"].Samples == 0 ||
		preloaded.BeforeTraining <= 0 {
		t.Errorf("%s", out)
	}
	// With other numbers of nodes, those without node 1 cannot run it.
	both := policyFile(t, "both.csv", text+"8,1,1,0\n")
	code, out, message = runCommand(t, "simulate", tiny(t, tinyScenario), "--scaling", "1,2",
		"--policy", "minio", "--policy-file", both)
	if !strings.Contains(out, "  Tables    "+filepath.Dir(both)) {
		t.Errorf("the table is not named:\n%s", out)
	}
	if code != 0 || !strings.Contains(out, "= 1: line 10, column\n  node: \"1\": there is no such "+
		"node; allowed: 0\n") {
		t.Errorf("exit status %d: %s%s", code, message, out)
	}
	// The simulator of the thesis does not have it.
	code, out, message = runCommand(t, "simulate", tiny(t, tinyScenario), "--profile", "thesis",
		"--policy", "naive", "--policy-file", path)
	if code != 0 || !strings.Contains(out, "the original simulator does not implement halves") {
		t.Errorf("exit status %d: %s%s", code, message, out)
	}
}

// TestSimulateRefusesPolicyFiles with exit status 2, and prints nothing.
func TestSimulateRefusesPolicyFiles(t *testing.T) {
	const head = "sample,node,class,order\n"
	for text, want := range map[string]string{
		head + "0,2,ram,0\n":         `line 2, column node: "2": there is no such node; allowed`,
		head + "24,0,ram,0\n":        `line 2, column sample: "24": there is no such sample`,
		head + "0,0,nvme,0\n":        "there is no such storage class; allowed: 1 (ram) or 2 (ssd)",
		head + "0,0,1,0\n0,0,2,0\n":  "node 0 has it already, by line 2",
		"sample,node,order\n0,0,0\n": "line 1, column class: missing",
		head + "0,0,ram,first\n":     `line 2, column order: "first": not a number`,
		head + "0,0,\xe4,0\n":        "not UTF-8",
		head + "0,0,1,0\n1,0,1,0\n2,0,1,0\n3,0,1,0\n4,0,1,0\n5,0,1,0\n6,0,1,0\n7,0,1,0\n8,0,1,0\n": "" +
			"class 1 of node 0 gets 9 samples of 13500000 bytes (13.5 MB), and holds 12000000 bytes " +
			"(12.0 MB)",
	} {
		code, out, message := runCommand(t, "simulate", tiny(t, tinyScenario), "--policy", "minio",
			"--policy-file", policyFile(t, "mine.csv", text))
		if code != 2 || out != "" || !strings.Contains(message, want) ||
			!strings.Contains(message, "policy") {
			t.Errorf("%q: exit status %d, printed %q: %s; want %q", text, code, out, message, want)
		}
	}
	for _, args := range [][]string{
		{"--policy-file", "nowhere.csv"},
		{"--policy-file", policyFile(t, "minio.csv", head)},
		{"--set", "policy_files=[]", "--policy-file", policyFile(t, "mine.csv", head)},
		{"--policy", "minio:in_order=true"},
	} {
		args = append([]string{"simulate", tiny(t, tinyScenario)}, args...)
		code, out, message := runCommand(t, args...)
		if code != 2 || out != "" || message == "" {
			t.Errorf("%v: exit status %d, printed %q: %s", args, code, out, message)
		}
	}
}
